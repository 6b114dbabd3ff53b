"""Twelve small circuits made by libcirkit, with their answers, to test the way to and from it.

It runs in libcirkit's environment (benchmarks/.cirkit): ``export FOLDER`` writes the circuits and
answers.json, ``answer FOLDER`` prints the answers of libcirkit for circuits that we wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import cirkit.symbolic.functional as operators
import torch
from cirkit.pipeline import PipelineContext
from cirkit.symbolic.circuit import Circuit
from cirkit.templates.region_graph import LinearTree, QuadGraph, QuadTree, RandomBinaryTree
from cirkit.templates.utils import (
    Parameterization,
    name_to_input_layer_factory,
    parameterization_to_factory,
)
from cirkit.utils.scope import Scope
from torch import Tensor

import subtractive as sub
from subtractive.interop import cirkit_exchange as exchange

NUM_VARIABLES, NUM_STATES, MISSING = 6, 3, [1, 4]


class Example(NamedTuple):
    graph: str
    inputs: str
    sum_product: str
    weights: str
    fold: bool


EXAMPLES = [
    Example("binary", "gaussian", "cp-t", "real", fold=True),
    Example("linear", "gaussian", "cp", "real", fold=False),
    Example("quad-2", "gaussian", "tucker", "real", fold=True),
    Example("quad-4", "gaussian", "cp", "complex", fold=True),
    Example("linear", "gaussian", "tucker", "complex", fold=False),
    Example("binary", "embedding", "cp", "complex", fold=True),
    Example("linear", "embedding", "cp-t", "complex", fold=True),
    Example("quad-4", "embedding", "cp-t", "real", fold=True),
    Example("binary", "embedding", "tucker", "real", fold=False),
    Example("binary", "categorical", "tucker", "positive", fold=True),
    Example("linear", "categorical", "cp", "positive", fold=True),
    Example("quad-2", "categorical", "cp-t", "real", fold=False),
]
GRAPHS = {
    "binary": lambda: RandomBinaryTree(NUM_VARIABLES, seed=1),
    "linear": lambda: LinearTree(NUM_VARIABLES, randomize=True, seed=2),
    "quad-2": lambda: QuadTree((1, 2, 3), num_patch_splits=2),
    "quad-4": lambda: QuadTree((1, 2, 3), num_patch_splits=4),
    "quad graph": lambda: QuadGraph((1, 2, 3)),
}
WEIGHTS = {
    "real": Parameterization("normal"),
    "complex": Parameterization("normal", dtype="complex"),
    "positive": Parameterization("normal", activation="softmax"),
}


def symbolic(example: Example) -> Circuit:
    settings = {"gaussian": {}, "embedding": {}, "categorical": {"num_categories": NUM_STATES}}
    if example.inputs == "embedding":
        dtype = "complex" if example.weights == "complex" else "real"
        weight = parameterization_to_factory(Parameterization("normal", dtype=dtype))
        settings["embedding"] = {"num_states": NUM_STATES, "weight_factory": weight}
    arity_is_large = example.graph == "quad-4"
    return GRAPHS[example.graph]().build_circuit(
        input_factory=name_to_input_layer_factory(example.inputs, **settings[example.inputs]),
        sum_product=example.sum_product,
        sum_weight_factory=parameterization_to_factory(WEIGHTS[example.weights]),
        num_input_units=2 if arity_is_large else 3,
        num_sum_units=2 if arity_is_large else 3,
    )


def rows(inputs: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    if inputs == "gaussian":
        return torch.randn(5, NUM_VARIABLES, generator=generator, dtype=torch.float64)
    return torch.randint(NUM_STATES, (5, NUM_VARIABLES), generator=generator)


@torch.no_grad()
def answers(circuit: Circuit, x: Tensor, *, fold: bool) -> tuple[dict[str, object], object]:
    """log |c|², log Z and a marginal of |c|², and the compiled circuit."""
    context = PipelineContext(
        backend="torch", semiring="complex-lse-sum", fold=fold, optimize=fold
    )
    with context:
        square = operators.multiply(circuit, operators.conjugate(circuit))
        compiled = context.compile(circuit)
        marginal = context.compile(operators.integrate(square, Scope(MISSING)))
        partition = context.compile(operators.integrate(square))
    found = {
        "log_square": (2 * compiled(x).real).flatten().tolist(),
        "log_partition": partition().real.item(),
        "log_marginal": marginal(x).real.flatten().tolist(),
    }
    return found, compiled


def export(folder: Path) -> None:
    """Write all examples, what libcirkit answers, and what we answer in the same process."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {}
    for number, example in enumerate(EXAMPLES):
        torch.manual_seed(number)
        x = rows(example.inputs)
        found, compiled = answers(symbolic(example), x, fold=example.fold)
        name = "-".join(example[:4])
        exchange.write(*exchange.describe(compiled), folder / f"{name}.safetensors")
        ours = sub.SquaredCircuit(sub.from_cirkit(compiled))
        found["in_this_process"] = ours.log_square(x).tolist()
        found["sent_back"], _ = answers(sub.to_cirkit(ours.circuit), x, fold=example.fold)
        record[name] = {"x": x.tolist(), "missing": MISSING, **found}
    (folder / "answers.json").write_text(json.dumps(record, indent=1) + "\n")
    quad_graph = Example("quad graph", "gaussian", "cp-t", "real", fold=True)
    context = PipelineContext(backend="torch", semiring="complex-lse-sum", fold=True)
    nodes, tensors = exchange.describe(context.compile(symbolic(quad_graph)))
    exchange.write(nodes, tensors, folder / "quad-graph.safetensors")


def answer(folder: Path) -> None:
    """Print what libcirkit answers for the circuits in a folder, and export them once more."""
    record = {}
    for path in sorted(folder.glob("*.safetensors")):
        nodes, tensors = exchange.read(path)
        x = rows("gaussian" if nodes[0]["kind"] == "gaussian" else "embedding")
        circuit = exchange.symbolic_circuit(nodes, tensors)
        record[path.stem], compiled = answers(circuit, x, fold=True)
        exchange.write(*exchange.describe(compiled), path.with_suffix(".back"))
    print(json.dumps(record))


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    commands = {"export": export, "answer": answer}
    commands[sys.argv[1]](Path(sys.argv[2]))
