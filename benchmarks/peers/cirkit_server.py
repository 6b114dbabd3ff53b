"""libcirkit, asked from outside: one JSON question per line in, one JSON answer per line out.

It runs in an environment of its own (``make bench-training`` builds it): libcirkit pins older
versions of numpy and scipy than we use. It is set up as its documentation recommends for squared
circuits: folded, optimised, in the complex log-sum-exp semiring, with transposed CP layers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import cirkit.symbolic.functional as operators
import numpy as np
import torch
from cirkit.backend.torch.queries import IntegrateQuery
from cirkit.pipeline import PipelineContext
from cirkit.symbolic.circuit import Circuit
from cirkit.symbolic.initializers import ConstantTensorInitializer
from cirkit.symbolic.layers import GaussianLayer
from cirkit.symbolic.parameters import Parameter, TensorParameter
from cirkit.templates.region_graph.graph import PartitionNode, RegionGraph, RegionNode
from cirkit.templates.utils import Parameterization, parameterization_to_factory
from cirkit.utils.scope import Scope
from torch import Tensor

from studies.models.profiling import cpu_seconds, peak_megabytes, wall_seconds


class Peer:
    """The circuit over a nested tree such as ``[[0, 1], 2]``, its square's integral, and Adam."""

    def __init__(self, symbolic: Circuit, num_rows: int) -> None:
        self.context = PipelineContext(
            backend="torch", semiring="complex-lse-sum", fold=True, optimize=True
        )
        with self.context:
            square = operators.multiply(symbolic, symbolic)
            self.circuit = self.context.compile(symbolic)
            self.square = self.context.compile(square)
            self.partition = self.context.compile(operators.integrate(square))
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(num_rows, len(symbolic.scope), generator=generator)
        self.optimiser = torch.optim.Adam(self.circuit.parameters(), lr=1e-3, fused=True)

    def log_square(self) -> Tensor:
        return 2 * self.circuit(self.x).real

    def log_partition(self) -> Tensor:
        return self.partition().real

    def step(self) -> None:
        self.optimiser.zero_grad()
        loss = self.log_partition().squeeze() - self.log_square().mean()
        loss.backward()
        self.optimiser.step()

    @torch.no_grad()
    def marginal(self, missing: Sequence[int]) -> Tensor:
        return IntegrateQuery(self.square)(self.x, integrate_vars=Scope(missing)).real


def region_graph(nested: object) -> RegionGraph:
    nodes: list[RegionNode | PartitionNode] = []
    inputs: dict[Any, list[Any]] = {}

    def visit(part: object) -> RegionNode:
        if not isinstance(part, list):
            nodes.append(RegionNode([part]))
            return nodes[-1]
        children = [visit(child) for child in part]
        scope = sorted(variable for child in children for variable in child.scope)
        split, region = PartitionNode(scope), RegionNode(scope)
        inputs[split], inputs[region] = children, [split]
        nodes.extend([split, region])
        return region

    root = visit(nested)
    return RegionGraph(nodes, inputs, outputs=[root])


def symbolic_circuit(nested: object, num_units: int) -> Circuit:
    weights = parameterization_to_factory(Parameterization("uniform"))
    return region_graph(nested).build_circuit(
        input_factory=lambda scope, units: GaussianLayer(scope, units),
        sum_product="cp-t",
        sum_weight_factory=weights,
        num_input_units=num_units,
        num_sum_units=num_units,
    )


def copied_circuit(nested: object, num_units: int, numbers: Mapping[str, Any]) -> Circuit:
    """The circuit with given means, scales and weights, by variable and by scope."""
    circuit = symbolic_circuit(nested, num_units)
    for layer in circuit.input_layers:
        (variable,) = layer.scope
        layer.mean = constant(numbers["mean"][variable])
        layer.stddev = constant(numbers["scale"][variable])
    for layer in circuit.sum_layers:
        layer.weight = constant(numbers["weights"][scope_name(circuit.layer_scope(layer))])
    return circuit


def constant(values: object) -> Parameter:
    array = np.asarray(values)
    return Parameter.from_input(
        TensorParameter(*array.shape, initializer=ConstantTensorInitializer(array))
    )


def scope_name(scope: Scope) -> str:
    return " ".join(str(variable) for variable in sorted(scope))


def compare(nested: object, num_units: int, numbers: Mapping[str, Any]) -> dict[str, object]:
    """log c² and log Z of the circuit with our numbers, and how many sum weights it has."""
    torch.set_default_dtype(torch.float64)
    circuit = copied_circuit(nested, num_units, numbers)
    peer = Peer(circuit, num_rows=1)
    peer.x = torch.tensor(numbers["x"], dtype=torch.float64)
    answer = {
        "log_square": peer.log_square().flatten().tolist(),
        "log_partition": peer.log_partition().item(),
        "num_weights": sum(int(np.prod(layer.weight.shape)) for layer in circuit.sum_layers),
    }
    torch.set_default_dtype(torch.float32)
    return answer


def measure(nested: object, num_units: int, num_rows: int, budget: float) -> dict[str, float]:
    peer = remembered(json.dumps(nested), num_units, num_rows)
    functions: dict[str, Callable[[], object]] = {
        "forward": torch.no_grad()(peer.log_square),
        "Z": torch.no_grad()(peer.log_partition),
        "step": peer.step,
    }
    return cpu_seconds(functions, budget) | wall_seconds({"wall": peer.step}, 0.0)


@lru_cache(maxsize=1)
def remembered(nested: str, num_units: int, num_rows: int) -> Peer:
    """The last circuit: it is measured more than once, and building it takes long."""
    return Peer(symbolic_circuit(json.loads(nested), num_units), num_rows)


def measure_memory(nested: object, num_units: int, num_rows: int) -> dict[str, float]:
    peer = Peer(symbolic_circuit(nested, num_units), num_rows=1)
    peer.step()  # what stays, such as the state of Adam, is not the step's
    peer.x = torch.randn(num_rows, peer.x.shape[1])
    return {"megabytes": peak_megabytes(peer.step)}


def measure_marginals(
    nested: object, num_units: int, num_rows: int, missing: Mapping[str, list[int]], budget: float
) -> dict[str, float]:
    peer = remembered(json.dumps(nested), num_units, num_rows)
    ways = {name: partial(peer.marginal, variables) for name, variables in missing.items()}
    return cpu_seconds(ways, budget)


ANSWERS = {
    "compare": compare,
    "measure": measure,
    "memory": measure_memory,
    "marginals": measure_marginals,
}


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(ANSWERS[name](*arguments)), flush=True)


if __name__ == "__main__":
    main()
