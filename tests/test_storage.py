"""Whatever density is saved is loaded again, bit by bit, and nothing else can be loaded."""

import json
import pickle
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from registry import KINDS, build, every_kind, points

import subtractive as sub
from scorecard.damage import flip_bit, forge, spoil
from subtractive.io import files
from subtractive.io.files import read_tensors, write_tensors

GOLDEN = Path(__file__).parent / "golden"


def assert_same(density, loaded, x):
    assert type(loaded) is type(density)
    assert loaded.families == density.families
    expected = density.state_dict()
    found = loaded.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(loaded.log_prob(x), density.log_prob(x))


@every_kind(("graph", "family", "layer", "weights", "outputs"), KINDS)
def test_squared_circuits_of_every_kind_are_loaded_as_they_were(
    graph, family, layer, weights, outputs, tmp_path
):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs)
    density = sub.SquaredCircuit(circuit)
    density.save(tmp_path / "model")
    assert_same(density, sub.load(tmp_path / "model"), points(family, 5, 4))


def mixed():
    """Families of every kind, more units inside than in the inputs, in single precision."""
    families = [sub.Gaussian(), sub.Embedding(4), sub.Spline(5, knots=(0.2, 0.7)), sub.Binomial(3)]
    circuit = sub.Circuit(
        sub.linear_tree(4), families, num_units=4, num_input_units=3, num_outputs=2, seed=0
    )
    return sub.SquaredCircuit(circuit)


def grouped(seed=0):
    graph = sub.RegionGraph.from_nested(((0, {1, 2}), 3))
    families = [sub.Gaussian(), *[sub.MultivariateGaussian()] * 2, sub.Gaussian()]
    return sub.SquaredCircuit(sub.Circuit(graph, families, num_units=3, seed=seed))


def positive(d=4):
    circuit = sub.Circuit(
        sub.random_binary_tree(d, seed=1),
        sub.Gaussian(),
        num_units=3,
        weights=sub.positive_weights,
        seed=0,
    )
    return sub.MonotonicCircuit(circuit)


DENSITIES = {
    "mixed": (mixed, [[0.5, 2, 0.25, 3], [0.0, 0, 1.0, 0]]),
    "grouped": (grouped, [[0.0, 1, 2, 3]]),
    "monotonic": (positive, [[0.0, 1, 2, 3]]),
    "mixture": (lambda: sub.Mixture([grouped(0), positive()]), [[0.0, 1, 2, 3]]),
    "frames": (
        lambda: sub.learning.semi_tied_mixture(torch.eye(3).repeat(4, 1), 2, 3),
        [[0.5, 1, 0]],
    ),
    "marginal": (lambda: grouped().marginal([2, 0]), [[0.5, 1]]),
    "conditional": (lambda: mixed().condition({1: 2}), [[0.5, 0.25, 3]]),
    "both": (lambda: mixed().condition({1: 2}).marginal([2]), [[3.0]]),
    "a mixture's marginal": (
        lambda: sub.Mixture([grouped(0), grouped(1)], weights=[1, 3]).marginal([3, 1]),
        [[0.5, 1]],
    ),
}


@pytest.mark.parametrize(("make", "rows"), DENSITIES.values(), ids=DENSITIES)
def test_densities_of_every_kind_are_loaded_as_they_were(make, rows, tmp_path):
    density = make()
    density.save(tmp_path / "model")
    loaded = sub.load(tmp_path / "model")
    assert_same(density, loaded, torch.tensor(rows, dtype=torch.float64))
    assert torch.equal(
        loaded.sample(3, generator=torch.Generator().manual_seed(0)),
        density.sample(3, generator=torch.Generator().manual_seed(0)),
    )


def test_a_loaded_density_learns_on(tmp_path):
    grouped().save(tmp_path / "model")
    loaded = sub.load(tmp_path / "model")
    history = sub.fit(loaded, torch.randn(50, 4), max_epochs=2, progress=False)
    assert history.best_epoch > 0


# Every change loads a family of another package in another process (io/test_registry.py).
@pytest.mark.slow
def test_loading_needs_only_the_file(tmp_path):
    mixed().save(tmp_path / "model")
    code = (
        "import sys, torch, subtractive as sub\n"
        "p = sub.load(sys.argv[1])\n"
        "print(p.log_prob(torch.tensor([[0.5, 2, 0.25, 3]], dtype=torch.float64)).item())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    row = torch.tensor([[0.5, 2, 0.25, 3]], dtype=torch.float64)
    assert float(run.stdout) == pytest.approx(mixed().log_prob(row).item(), rel=1e-12)


def test_a_tree_of_a_thousand_variables_is_saved(tmp_path):
    circuit = sub.Circuit(sub.linear_tree(1000), sub.Gaussian(), num_units=2, seed=0)
    density = sub.SquaredCircuit(circuit)
    density.save(tmp_path / "model")
    x = torch.zeros(1, 1000)
    assert torch.equal(sub.load(tmp_path / "model").log_prob(x), density.log_prob(x))


def test_a_written_out_square_is_not_saved(tmp_path):
    square = sub.materialise_square(grouped().circuit)
    with pytest.raises(ValueError, match="Save the density of the circuit that was squared"):
        sub.SquaredCircuit(square).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.safetensors")), ids=lambda p: p.stem)
def test_files_of_earlier_versions_still_load(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    density = sub.load(path)
    x = torch.tensor(expected["rows"], dtype=torch.float64)
    scores = torch.tensor(expected["log_prob"], dtype=torch.float64)
    torch.testing.assert_close(density.log_prob(x), scores, rtol=1e-12, atol=1e-12)


def test_there_are_golden_files():
    assert len(list(GOLDEN.glob("*.safetensors"))) >= 3


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_flipped_bits_are_refused(count, tmp_path):
    path = tmp_path / "model"
    mixed().save(path)
    content = path.read_bytes()
    generator = random.Random(0)
    for _ in range(count):
        path.write_bytes(flip_bit(content, generator))
        with pytest.raises(sub.FileFormatError):
            sub.load(path)


def test_spoiled_files_are_refused(tmp_path):
    path = tmp_path / "model"
    mixed().save(path)
    content = path.read_bytes()
    generator = random.Random(1)
    for _ in range(1000):
        damaged = spoil(content, generator)
        if damaged != content:
            path.write_bytes(damaged)
            with pytest.raises(sub.FileFormatError):
                sub.load(path)


def use(density):
    """Whatever one does with a density: none of it may fail."""
    x = density.sample(3, generator=torch.Generator().manual_seed(0))
    assert not density.log_prob(x).isnan().any()
    x[:, 0] = float("nan")
    assert not density.impute(x).isnan().any()
    density.mean()
    density.variance()


@pytest.mark.parametrize("count", [20, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [make for make, _ in DENSITIES.values()], ids=DENSITIES)
def test_forged_descriptions_are_refused_or_those_of_other_models(make, count, tmp_path):
    """The checksum is right, as an attacker's would be: the description itself must not harm."""
    path = tmp_path / "model"
    density = make()
    density.save(path)
    tensors, description = read_tensors(path, "model")
    generator = random.Random(0)
    refused = 0
    for _ in range(count):
        write_tensors(path, "model", tensors, forge(description, generator))
        try:
            loaded = sub.load(path)
        except sub.FileFormatError:
            refused += 1
        else:  # what was changed does not matter, or is another model of the same numbers
            assert loaded.state_dict().keys() == density.state_dict().keys()
            use(loaded)
    assert refused > 2 * count / 3


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "model"
    mixed().save(path)
    tensors, description = read_tensors(path, "model")
    for name, tensor in tensors.items():
        for other in (tensor[:0], tensor[..., None], torch.cat([tensor, tensor]), None):
            changed = {**tensors, name: other}
            if other is None:
                del changed[name]
            write_tensors(path, "model", changed, description)
            with pytest.raises(sub.FileFormatError, match="does not describe a model"):
                sub.load(path)
    write_tensors(path, "model", {**tensors, "more": torch.zeros(1)}, description)
    with pytest.raises(sub.FileFormatError, match="does not describe a model"):
        sub.load(path)
    infinite = {
        **tensors,
        "circuit.layers.0.weights.value": tensors["circuit.layers.0.weights.value"] / 0,
    }
    write_tensors(path, "model", infinite, description)
    with pytest.raises(sub.FileFormatError, match="not finite"):
        sub.load(path)


HUGE = {
    "states": {"family": "Embedding", "num_states": 2**45},
    "total": {"family": "Binomial", "total": 2**45},
    "bases": {
        "family": "Spline",
        "num_bases": 2**45,
        "order": 2,
        "domain": [0, 1],
        "knots": None,
        "non_negative": False,
    },
    "order": {
        "family": "Spline",
        "num_bases": 2**45,
        "order": 2**44,
        "domain": [0, 1],
        "knots": None,
        "non_negative": False,
    },
}


@pytest.mark.parametrize("family", HUGE.values(), ids=HUGE)
def test_huge_numbers_in_a_description_cost_no_memory(family, tmp_path):
    path = tmp_path / "model"
    density = sub.SquaredCircuit(sub.Circuit(sub.flat(1), sub.Embedding(3), num_units=2))
    density.save(path)
    tensors, description = read_tensors(path, "model")
    description["density"]["circuit"]["families"] = [family]
    write_tensors(path, "model", tensors, description)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(sub.FileFormatError, match="more than the file has numbers"):
        sub.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_wide_region_of_a_small_file_costs_no_memory(tmp_path):
    """A covariance of 60,000 variables would take 28 gigabytes."""
    path = tmp_path / "model"
    grouped().save(path)
    tensors, description = read_tensors(path, "model")
    circuit = description["density"]["circuit"]
    circuit["graph"] = [{"scope": list(range(60_000))}]
    circuit["families"] = [{"family": "MultivariateGaussian"}] * 60_000
    write_tensors(path, "model", tensors, description)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(sub.FileFormatError):
        sub.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


class Exploit:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


def test_pickles_are_never_executed(tmp_path):
    path, trace = tmp_path / "model", tmp_path / "trace"
    exploit = pickle.dumps(Exploit(trace))
    for content in (exploit, len(exploit).to_bytes(8, "little") + exploit):
        path.write_bytes(content)
        with pytest.raises(sub.FileFormatError):
            sub.load(path)
    torch.save({"a": Exploit(trace)}, path)
    with pytest.raises(sub.FileFormatError):
        sub.load(path)
    assert not trace.exists()
    pickle.loads(exploit)  # the exploit is a real one
    assert trace.exists()


def test_a_deeply_nested_description_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model"
    deep = "[" * 100_000 + "]" * 100_000
    monkeypatch.setattr(files.json, "dumps", lambda description: deep)
    write_tensors(path, "model", {"a": torch.zeros(1)}, {})
    with pytest.raises(sub.FileFormatError, match="damaged|does not describe"):
        sub.load(path)
