"""Circuits from libcirkit and for it, against what libcirkit itself answers.

The files in tests/interop/cirkit were written by libcirkit 0.3.1 (benchmarks/peers/
cirkit_examples.py), with its answers. Where its environment is built, it is asked again.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from registry import build

import subtractive as sub
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights
from subtractive.interop import cirkit_exchange

HERE = Path(__file__).parent / "cirkit"
ROOT = Path(__file__).parents[2]
PEER = ROOT / "benchmarks/.cirkit/bin/python"
ANSWERS = json.loads((HERE / "answers.json").read_text())
CLOSE = {"rtol": 1e-10, "atol": 1e-10}

needs_libcirkit = pytest.mark.skipif(
    not PEER.exists(), reason="libcirkit has no environment here: make bench-training builds it"
)


def check(circuit, answers):
    """Equal |c|², Z and marginals, to ten digits."""
    p = sub.SquaredCircuit(circuit)
    x = torch.tensor(answers["x"], dtype=torch.float64)
    expected = {
        name: torch.tensor(answers[name], dtype=torch.float64)
        for name in ("log_square", "log_partition", "log_marginal")
    }
    observed = torch.ones(x.shape[1], dtype=torch.bool)
    observed[answers["missing"]] = False
    torch.testing.assert_close(p.log_square(x), expected["log_square"], **CLOSE)
    torch.testing.assert_close(p.log_partition(), expected["log_partition"], **CLOSE)
    marginal = p.log_marginal(x, observed) + p.log_partition()
    torch.testing.assert_close(marginal, expected["log_marginal"], **CLOSE)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_circuit_of_libcirkit_answers_here_as_there(name):
    check(sub.from_cirkit(HERE / f"{name}.safetensors"), ANSWERS[name])


@pytest.mark.parametrize("name", ANSWERS)
def test_a_circuit_keeps_its_answers_on_the_way_back(name, tmp_path):
    circuit = sub.from_cirkit(HERE / f"{name}.safetensors")
    sub.interop.write_cirkit(circuit, tmp_path / "back.safetensors")
    check(sub.from_cirkit(tmp_path / "back.safetensors"), ANSWERS[name])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("binary-gaussian-cp-t-real", RealWeights),
        ("binary-categorical-tucker-positive", PositiveWeights),
        ("linear-embedding-cp-t-complex", ComplexWeights),
    ],
)
def test_weights_are_of_the_kind_of_their_numbers(name, kind):
    circuit = sub.from_cirkit(HERE / f"{name}.safetensors")
    assert all(isinstance(layer.weights, kind) for layer in circuit.sum_layers)
    assert circuit.dtype == torch.float64


def test_positive_weights_make_a_monotonic_circuit():
    circuit = sub.from_cirkit(HERE / "linear-categorical-cp-positive.safetensors")
    p = sub.MonotonicCircuit(circuit)
    # All of its weights and inputs are normalised.
    torch.testing.assert_close(p.log_partition().item(), 0.0, rtol=0, atol=1e-12)


def test_a_circuit_of_libcirkit_gains_conditional_samples_and_gaps():
    p = sub.SquaredCircuit(sub.from_cirkit(HERE / "quad-2-gaussian-tucker-real.safetensors"))
    x = p.sample(3, given={0: 0.5, 4: -1.0}, generator=torch.Generator().manual_seed(0))
    assert x[:, 0].tolist() == [0.5] * 3
    x[1, 2] = torch.nan
    assert p.log_prob(x).isfinite().all()
    assert p.impute(x).isfinite().all()


@pytest.mark.parametrize("layer", ["hadamard", "kronecker"])
@pytest.mark.parametrize("family", ["gaussian", "embedding", "categorical", "binomial"])
def test_our_circuits_keep_their_values_on_the_way_there_and_back(layer, family, tmp_path):
    circuit = build("binary", family, layer=layer, outputs=3, num_input_units=2)
    sub.interop.write_cirkit(circuit, tmp_path / "circuit.safetensors")
    back = sub.from_cirkit(tmp_path / "circuit.safetensors")
    x = torch.tensor([[0.0, 1.0, 2.0, 1.0], [2.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(back(x), circuit(x), rtol=1e-12, atol=1e-14)


def node(kind, **facts):
    return {"kind": kind, **facts}


GAUSSIAN = {"mean": torch.zeros(2), "stddev": torch.ones(2)}


def named(**tensors):
    return {
        f"{number[1:]}.{name}": tensor
        for number, own in tensors.items()
        for name, tensor in own.items()
    }


def test_regions_of_different_widths_and_products_are_kept_apart(tmp_path):
    """((0 ⊗ 1) ⊙ (2 ⊙ 3)), with 4 units on one side and 2 on the other."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = [node("gaussian", variable=v, num_units=k) for v, k in enumerate((2, 2, 3, 3))]
    nodes = [
        *inputs,
        node("kronecker", inputs=[0, 1]),
        node("hadamard", inputs=[2, 3]),
        node("sum", inputs=[4], num_units=2),
        node("sum", inputs=[5], num_units=2),
        node("hadamard", inputs=[6, 7]),
        node("sum", inputs=[8], num_units=1),
    ]
    own = {f"n{v}": {"mean": draw(k), "stddev": draw(k).exp()} for v, k in enumerate((2, 2, 3, 3))}
    weights = {"n6": draw(2, 4), "n7": draw(2, 3), "n9": draw(1, 2)}
    tensors = named(**own, **{name: {"weight": w} for name, w in weights.items()})
    cirkit_exchange.write(nodes, tensors, tmp_path / "uneven.safetensors")
    circuit = sub.from_cirkit(tmp_path / "uneven.safetensors")
    x = draw(5, 4)
    f = [
        torch.distributions.Normal(own[f"n{v}"]["mean"], own[f"n{v}"]["stddev"])
        .log_prob(x[:, v, None])
        .exp()
        for v in range(4)
    ]
    left = (f[0][:, :, None] * f[1][:, None, :]).flatten(1) @ weights["n6"].T
    expected = (left * ((f[2] * f[3]) @ weights["n7"].T)) @ weights["n9"].T
    torch.testing.assert_close(circuit(x), expected, rtol=1e-12, atol=1e-14)


def test_graphs_that_are_no_trees_are_refused_by_name():
    with pytest.raises(ValueError, match="is not a tree: .*QuadGraph and PoonDomingos"):
        sub.from_cirkit(HERE / "quad-graph.safetensors")


def test_sums_over_several_partitions_are_refused(tmp_path):
    nodes = [
        node("gaussian", variable=0, num_units=2),
        node("gaussian", variable=0, num_units=2),
        node("sum", inputs=[0, 1], num_units=1),
    ]
    tensors = named(n0=GAUSSIAN, n1=GAUSSIAN, n2={"weight": torch.ones(1, 4)})
    cirkit_exchange.write(nodes, tensors, tmp_path / "mixing.safetensors")
    with pytest.raises(ValueError, match="node 2 sums over several partitions"):
        sub.from_cirkit(tmp_path / "mixing.safetensors")


class TorchPolynomialLayer:
    num_folds = 1


class Compiled:
    """As much of a compiled circuit as a refusal looks at."""

    def __init__(self, module):
        class Entry:
            in_module_ids, in_fold_idx = (), ()

        Entry.module = module
        self.address_book = [Entry]


def test_layers_without_a_counterpart_are_refused_by_name():
    with pytest.raises(ValueError, match="TorchPolynomialLayer of libcirkit has no counterpart"):
        sub.from_cirkit(Compiled(TorchPolynomialLayer()))


def test_what_is_not_a_compiled_circuit_is_refused():
    with pytest.raises(ValueError, match="expected a compiled circuit of libcirkit, got int"):
        sub.from_cirkit(3)


@pytest.mark.parametrize("family", ["spline", "rbf"])
def test_families_without_a_counterpart_are_refused_by_name(family, tmp_path):
    circuit = build("binary", family)
    with pytest.raises(ValueError, match=f"(?i){family} has no counterpart in libcirkit"):
        sub.interop.write_cirkit(circuit, tmp_path / "no")


def test_densities_are_refused(tmp_path):
    p = sub.SquaredCircuit(build("binary", "gaussian"))
    with pytest.raises(ValueError, match="takes a Circuit, got SquaredCircuit.*density.circuit"):
        sub.interop.write_cirkit(p, tmp_path / "no")


def test_files_of_another_format_are_refused(tmp_path):
    sub.SquaredCircuit(build("binary", "gaussian")).save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="is not an exported circuit of libcirkit"):
        sub.from_cirkit(tmp_path / "model.safetensors")


def ask_libcirkit(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(PEER), "-m", "benchmarks.peers.cirkit_examples", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


@needs_libcirkit
@pytest.mark.slow  # its files are read above, and it is asked about ours below
def test_libcirkit_answers_the_same_today_and_in_one_process(tmp_path):
    ask_libcirkit("export", tmp_path)
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert list(answers) == list(ANSWERS)
    for name, found in answers.items():
        check(sub.from_cirkit(tmp_path / f"{name}.safetensors"), found)
        ours, theirs = (
            torch.tensor(found[key], dtype=torch.float64)
            for key in ("in_this_process", "log_square")
        )
        torch.testing.assert_close(ours, theirs, **CLOSE)
        for key, numbers in found["sent_back"].items():  # by to_cirkit, in that process
            back, theirs = (torch.tensor(n, dtype=torch.float64) for n in (numbers, found[key]))
            torch.testing.assert_close(back, theirs, **CLOSE)


# Of every graph, input, layer and kind of weights one.
FEW = (
    "binary-gaussian-cp-t-real",
    "quad-2-gaussian-tucker-real",
    "linear-embedding-cp-t-complex",
    "quad-4-gaussian-cp-complex",
    "linear-categorical-cp-positive",
)


@needs_libcirkit
@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(ANSWERS), marks=pytest.mark.slow)])
def test_libcirkit_answers_for_our_circuits(names, tmp_path):
    for name in names:
        circuit = sub.from_cirkit(HERE / f"{name}.safetensors")
        sub.interop.write_cirkit(circuit, tmp_path / f"{name}.safetensors")
    there = json.loads(ask_libcirkit("answer", tmp_path))
    assert there.keys() == set(names)
    for name, answers in there.items():
        for key, numbers in answers.items():
            found, expected = (
                torch.tensor(n, dtype=torch.float64) for n in (numbers, ANSWERS[name][key])
            )
            torch.testing.assert_close(found, expected, **CLOSE)
        check(sub.from_cirkit(tmp_path / f"{name}.back"), ANSWERS[name])
