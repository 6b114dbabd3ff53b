"""The search for a mode: a heuristic, and how good it is on small models."""

import itertools
import math

import pytest
import torch
from oracles import all_states
from registry import CONTINUOUS, DISCRETE, NUM_STATES, build

import subtractive as sub
from subtractive.inference.mode import ascend, best_rows

MIXED = [sub.Gaussian(), sub.Categorical(3), sub.RBF((-1.0, 0.0, 1.0), 0.7), sub.Binomial(2)]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def squared(family, graph="binary", **options):
    return sub.SquaredCircuit(build(graph, family, **options))


def mixed_types():
    return sub.SquaredCircuit(
        sub.Circuit(sub.linear_tree(4), MIXED, num_units=3, seed=0, dtype=torch.float64)
    )


@pytest.mark.parametrize(
    ("count", "missed"), [(3, 0), pytest.param(10, 2, marks=pytest.mark.slow)]
)
def test_the_global_mode_of_small_discrete_models_is_found(count, missed):
    """Random models of 3^5 states: all of nine highest probabilities, or 28 of thirty."""
    states, found = all_states([NUM_STATES] * 5), 0
    for family in DISCRETE:
        for seed in range(count):
            p = squared(family, d=5, seed=seed)
            row = p.mode(generator=seeded(seed), num_samples=50, num_starts=3)
            found += bool(p.log_prob(row[None])[0] >= p.log_prob(states).max() - 1e-9)
    assert found >= 3 * count - missed


@pytest.mark.parametrize("given", [None, {1: 0.7}, {0: -2.0, 2: 1.0}])
def test_the_mode_of_a_gaussian_is_its_mean(given):
    circuit = sub.Circuit(
        sub.flat([[0, 1, 2]]), sub.MultivariateGaussian(), num_units=1, seed=0, dtype=torch.float64
    )
    with torch.no_grad():
        circuit.input_layers[0].lower.normal_(generator=seeded(0))
    p = sub.SquaredCircuit(circuit)
    row = p.mode(given, generator=seeded(1))
    torch.testing.assert_close(row, p.mean(given).detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "given"),
    [
        # Splines are searched for long: once is enough for every change.
        pytest.param(f, g, marks=pytest.mark.slow if (f, g) == ("spline", None) else [])
        for f, g in itertools.product([*CONTINUOUS, *DISCRETE], [None, {1: 1.0}])
    ],
)
def test_the_result_is_never_below_the_samples_it_starts_from(family, given):
    p = squared(family, outputs=2, weights="complex")
    row = p.mode(given, generator=seeded(3), num_samples=8)
    best = p.log_prob(p.sample(8, given=given, generator=seeded(3))).max()
    assert p.log_prob(row[None])[0] >= best - 1e-12
    assert row.shape == (4,)
    assert not row.requires_grad
    if given:
        assert row[1] == 1.0


@pytest.mark.parametrize("family", ["gaussian", "rbf"])
def test_no_point_of_a_grid_is_higher_in_two_dimensions(family):
    line = torch.linspace(-5, 5, 101, dtype=torch.float64)
    rows = torch.cartesian_prod(line, line)
    for seed in range(4):
        p = squared(family, d=2, seed=seed)
        row = p.mode(generator=seeded(seed))
        assert p.log_prob(row[None])[0] >= p.log_prob(rows).max()


@torch.no_grad()
def test_a_mode_at_the_edge_of_a_domain_is_approached():
    p = squared("spline", d=2, seed=2)  # it has one at the left end of the first variable
    row = p.mode(generator=seeded(2))
    line = torch.linspace(-1, 2, 151, dtype=torch.float64)
    best = p.log_prob(torch.cartesian_prod(line, line)).max()
    assert -1.0 <= row[0] < -0.9
    assert p.log_prob(row[None])[0] > best - 0.1


def test_discrete_and_continuous_variables_improve_in_turns():
    p = mixed_types()
    row = p.mode(generator=seeded(0))
    here = p.log_prob(row[None])[0]
    for variable in (1, 3):
        for state in range(3):
            other = row.clone()
            other[variable] = state
            assert p.log_prob(other[None])[0] <= here + 1e-12
    x = row.clone().requires_grad_()
    (slope,) = torch.autograd.grad(p.log_prob(x[None]).sum(), x)
    assert slope[[0, 2]].abs().max() < 1e-3


@pytest.mark.parametrize("density", ["monotonic", "mixture", "conditional", "marginal"])
def test_every_density_has_a_mode(density):
    monotonic = sub.MonotonicCircuit(build("flat", "gaussian", weights="positive"))
    mixture = sub.Mixture([monotonic, squared("gaussian")])
    p = {
        "monotonic": monotonic,
        "mixture": mixture,
        "conditional": mixture.condition({0: 0.3}),
        "marginal": mixture.marginal([3, 1]),
    }[density]
    row = p.mode(generator=seeded(0), num_samples=50, num_starts=2)
    x = row.clone().requires_grad_()
    (slope,) = torch.autograd.grad(p.log_prob(x[None]).sum(), x)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-4)


def test_the_same_seed_gives_the_same_mode_and_nothing_else_is_touched():
    p = squared("gaussian")
    p.log_prob(torch.zeros(1, 4)).sum().backward()
    before = [parameter.grad.clone() for parameter in p.parameters()]
    with torch.no_grad():
        first = p.mode(generator=seeded(4), num_samples=20)
    assert torch.equal(first, p.mode(generator=seeded(4), num_samples=20))
    after = [parameter.grad for parameter in p.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_given_everything_the_mode_is_what_is_given():
    given = {0: 0.5, 1: 2.0, 2: 0.0, 3: 1.0}
    row = mixed_types().mode(given, generator=seeded(0), num_samples=3)
    assert row.tolist() == list(given.values())


def test_ascent_stops_at_a_row_that_leaves_the_domain_for_that_row_only():
    """-(x - 3)² on x < 1, and nothing beyond: one row starts at the edge, one far from it."""

    def log_prob(rows):
        x = rows[:, 0]
        return torch.where(x < 1, -(x - 3).square(), -math.inf)

    starts = torch.tensor([[0.999999], [-5.0]], dtype=torch.float64)
    best = ascend(log_prob, starts, [0], [None])
    assert log_prob(best[None])[0] >= log_prob(starts).max()
    alone = ascend(log_prob, starts[1:], [0], [None])
    assert alone[0] > 0.5


def test_the_best_rows_come_first():
    rows = torch.tensor([[1.0], [3.0], [2.0]])
    assert best_rows(lambda x: x[:, 0], rows, 2).tolist() == [[3.0], [2.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "needs at least one sample and one start, got 0 samples"),
        ({"num_starts": 0}, "needs at least one sample and one start, got .* num_starts=0"),
        ({"num_starts": -1}, "num_starts=-1"),
        ({"num_samples": -1}, "num_samples must be a whole number of at least 0, got -1"),
        ({"num_samples": 2.5}, "num_samples must be a whole number of at least 0, got 2.5"),
        ({"given": {9: 0.0}}, "unknown variable 9"),
        ({"given": {0: 7.0}}, r"probability zero in rows \[0\]"),
    ],
)
def test_a_search_without_a_start_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        squared("spline").mode(**options)
