"""Messages that meet anywhere in a tree against the careful climb to its root."""

import math

import pytest
import torch
from oracles import mp_log_partition, mp_log_square_integral

import subtractive as sub
from subtractive.circuits import meeting, trunk
from subtractive.circuits.circuit import Circuit

TREES = {
    "binary": lambda: sub.random_binary_tree(7, seed=1),
    "linear": lambda: sub.linear_tree(7),
    "nested": lambda: sub.RegionGraph.from_nested((((0, 1), (2, 3)), (4, (5, 6)))),
}
FAMILIES = {"gaussian": sub.Gaussian, "embedding": lambda: sub.Embedding(4)}
PRECISION = {torch.float32: 1e-5, torch.float64: 1e-11}


def make(tree: str, family: str = "gaussian", **settings) -> sub.SquaredCircuit:
    settings = {"num_units": 12, "seed": 0, "dtype": torch.float64} | settings
    return sub.SquaredCircuit(Circuit(TREES[tree](), FAMILIES[family](), **settings))


def rows(family: str, num_rows: int = 20, num_variables: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (num_rows, num_variables)
    if family == "embedding":
        return torch.randint(4, shape, generator=generator).double()
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def patterns(num_variables: int = 7, count: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    some = torch.rand(count, num_variables, generator=generator) < 0.5
    every = torch.arange(num_variables)
    return [*some, every < 3, every >= 3, every % 2 == 0, every % 2 == 1, every == 2, every != 2]


@torch.no_grad()
def careful(p: sub.SquaredCircuit, x: torch.Tensor, observed: torch.Tensor | None = None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Circuit, "quick_log_root", lambda *_, **__: None)
        return p.log_marginal(x, observed)


@torch.no_grad()
def by_trunk(p: sub.SquaredCircuit, x: torch.Tensor, observed: torch.Tensor | None = None):
    """The same, and how often messages met without a row being lost."""
    found = []

    def meet(*arguments):
        found.append(trunk.meet_in_trunk(*arguments))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subtractive.circuits.circuit.meet_in_trunk", meet)
        value = p.log_marginal(x, observed)
    return value, sum(ascent is not None and ascent.lost is None for ascent in found)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tree", TREES)
def test_all_patterns_of_evidence_agree_with_the_careful_way(tree, family, num_outputs, dtype):
    p = make(tree, family, num_outputs=num_outputs, dtype=dtype)
    x = rows(family).to(dtype)
    for observed in patterns():
        value, times = by_trunk(p, x, observed)
        assert times == 1
        expected = careful(p, x, observed)
        torch.testing.assert_close(value, expected, rtol=PRECISION[dtype], atol=PRECISION[dtype])


@pytest.mark.parametrize("block", [1, 2**30])
@pytest.mark.parametrize("num_units", [3, 40])
@pytest.mark.parametrize("tree", TREES)
def test_full_and_low_ranks_and_any_blocks_agree(tree, num_units, block, monkeypatch):
    monkeypatch.setattr(meeting, "_BLOCK", block)
    p, x = make(tree, num_units=num_units), rows("gaussian", 37)
    for observed in patterns(count=1):
        value, times = by_trunk(p, x, observed)
        assert times == 1
        torch.testing.assert_close(value, careful(p, x, observed), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("tree", TREES)
def test_rows_that_differ_in_what_is_missing_agree(tree):
    p, x = make(tree), rows("gaussian", 30)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(4)) < 0.3] = math.nan
    x[3] = math.nan  # nothing is observed
    x[4] = 0.5  # everything is
    value, times = by_trunk(p, x)
    assert times > 0
    torch.testing.assert_close(value, careful(p, x), rtol=1e-11, atol=1e-11)
    assert abs(value[3]) < 1e-12


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("tree", TREES)
def test_evidence_far_out_agrees(tree, dtype):
    p, x = make(tree, dtype=dtype), rows("gaussian").to(dtype)
    x[3], x[5], x[7] = 300.0, -40.0, 1e4
    for observed in patterns(count=1):
        value, expected = by_trunk(p, x, observed)[0], careful(p, x, observed)
        assert value.isfinite().all()
        torch.testing.assert_close(value, expected, rtol=PRECISION[dtype], atol=PRECISION[dtype])


@pytest.mark.parametrize("tree", TREES)
def test_weights_that_underflow_are_noticed(tree):
    p, x = make(tree), rows("gaussian")
    with torch.no_grad():
        for layer in p.circuit.sum_layers:
            layer.weights.value[..., ::2, :] *= 1e-160  # whose squares are no numbers,
            layer.weights.value[..., 1::2] = 0.0  # and nothing else counts
    for observed in patterns(count=1):
        value, times = by_trunk(p, x, observed)
        torch.testing.assert_close(value, careful(p, x, observed), rtol=1e-10, atol=1e-10)
        assert times == 0


def test_deep_trees_lose_nothing():
    p = sub.SquaredCircuit(Circuit(sub.linear_tree(60), sub.Gaussian(), num_units=6, seed=0))
    x, every = rows("gaussian", 10, 60).float(), torch.arange(60)
    for observed in (every < 25, every >= 25, every % 3 == 0):
        value, times = by_trunk(p, x, observed)
        assert times == 1
        torch.testing.assert_close(value, careful(p, x, observed), rtol=1e-5, atol=1e-4)


def test_slopes_take_the_other_way():
    p, x = make("binary"), rows("gaussian")
    observed = patterns()[0]
    value = p.log_marginal(x, observed)
    assert value.requires_grad
    torch.testing.assert_close(value.detach(), by_trunk(p, x, observed)[0], rtol=1e-11, atol=1e-11)


def test_other_circuits_take_the_other_way():
    for settings in ({"weights": sub.complex_weights}, {"product": sub.KroneckerLayer}):
        p = make("nested", num_units=2, **settings)
        value, times = by_trunk(p, rows("gaussian"), patterns()[0])
        assert times == 0
        assert value.isfinite().all()


@pytest.mark.parametrize("tree", TREES)
def test_marginals_are_those_of_fifty_digits(tree):
    p, x = make(tree, num_units=6), rows("gaussian", 8)
    with torch.no_grad():  # functions nearly alike: grams of low rank, and much that cancels
        for layer in p.circuit.input_layers:
            for parameter in layer.parameters():
                parameter.copy_(parameter[..., :1] + 0.1 * (parameter - parameter[..., :1]))
    x[:, [1, 3, 4]] = math.nan
    value, times = by_trunk(p, x)
    assert times == 1
    for number in range(2):
        exact = mp_log_square_integral(p.circuit, x[number].tolist()) - mp_log_partition(p.circuit)
        torch.testing.assert_close(value[number].item(), exact, rtol=1e-9, atol=1e-9)
