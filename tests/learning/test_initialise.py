"""A start from data is finite whatever they are, normalised, reproducible, better than none."""

import copy
import math

import pytest
import torch
from registry import (
    CONTINUOUS,
    DISCRETE,
    FAMILIES,
    GRAPHS,
    LAYERS,
    NUM_STATES,
    WEIGHTS,
    every_kind,
    points,
)
from torch import nn

import subtractive as sub
from subtractive.inputs.statistics import (
    Sample,
    cluster,
    cluster_covariances,
    histogram,
    quantiles,
    spread,
)

D = 4
EVERY = FAMILIES | {
    "positive spline": sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True),
    "multivariate gaussian": sub.MultivariateGaussian(),
}


def build(
    family, *, weights="real", graph="binary", layer="hadamard", dtype=torch.float64, seed=0
):
    kind, initialise = WEIGHTS[weights]
    if family == "multivariate gaussian":
        regions = sub.random_binary_tree([[0, 2], [1, 3]], seed=0)
    else:
        regions = GRAPHS[graph](D)
    return sub.Circuit(
        regions,
        EVERY[family],
        num_units=3,
        num_outputs=2,
        weights=kind,
        initialise=initialise,
        product=LAYERS[layer],
        seed=seed,
        dtype=dtype,
    )


def sensible(family, n=300, seed=0):
    """Rows that a data-free start does not expect: far from uniform, and far from zero."""
    generator = torch.Generator().manual_seed(seed)
    if family in DISCRETE:
        shares = torch.tensor([0.05, 0.05, 0.9]).expand(D, -1)
        drawn = torch.multinomial(shares, n, replacement=True, generator=generator)
        return drawn.mT.double()
    noise = torch.randn(n, D, generator=generator, dtype=torch.float64)
    if "spline" in family:
        return (0.3 + 0.1 * noise).clamp(-1, 2)
    return 30 + 0.1 * noise


def state(density):
    return copy.deepcopy(density.state_dict())


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


NASTY = {
    "constant": lambda x: x[:1].expand(50, D).clone(),
    "one row": lambda x: x[:1].clone(),
    "gaps": lambda x: x.clone().masked_fill(
        torch.rand(x.shape, generator=seeded()) < 0.5, math.nan
    ),
    "an empty column": lambda x: torch.cat([torch.full_like(x[:, :1], math.nan), x[:, 1:]], 1),
    "nothing at all": lambda x: torch.full_like(x, math.nan),
    "two distinct rows": lambda x: x[torch.arange(60) % 2],
}
NASTY_REAL = {
    "outliers": lambda x: x.clone().index_fill_(0, torch.tensor([3, 77]), 1e6),
    "mostly zero": lambda x: x * (torch.arange(len(x)) % 20 == 0)[:, None],
    "far away": lambda x: 1e8 + 1e-2 * x,
    "tiny": lambda x: 1e-12 * x,
    "huge": lambda x: 1e12 * x,
}
NASTY_CASES = [
    *((family, kind) for family in EVERY for kind in NASTY),
    *(("gaussian", kind) for kind in NASTY_REAL),
    *(("multivariate gaussian", kind) for kind in NASTY_REAL),
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@every_kind(
    ("family", "kind", "dtype"),
    [(*case, dtype) for case in NASTY_CASES for dtype in (torch.float64, torch.float32)],
)
def test_every_family_starts_finite_from_nasty_data(family, kind, dtype):
    usual = family if family in FAMILIES else "spline" if "spline" in family else "gaussian"
    data = (NASTY | NASTY_REAL)[kind](points(usual, 200, D))
    density = sub.SquaredCircuit(build(family, weights="positive", dtype=dtype))
    sub.initialise(density, data)
    assert all(parameter.isfinite().all() for parameter in density.parameters())
    assert density.log_prob(data).isfinite().all()
    # Z may be off one by what float32 weights and exponents round to, or by what no weight holds.
    assert kind in ("tiny", "huge") or abs(density.log_partition().item()) < (
        1e-9 if dtype == torch.float64 else 1e-3
    )


@pytest.mark.parametrize("kind", [*NASTY, *NASTY_REAL])
def test_most_rows_are_likely_at_a_gaussian_start_from_nasty_data(kind):
    data = (NASTY | NASTY_REAL)[kind](points("gaussian", 200, D))
    density = sub.SquaredCircuit(build("gaussian", weights="positive"))
    sub.initialise(density, data)
    scales = [
        spread(*Sample(data, torch.ones(len(data))).column(k))
        for k in range(D)
        if not data[:, k].isnan().all()
    ]
    volume = sum(scale.log().item() for scale in scales)
    # In units of the spreads of the columns half of the rows lie where the density is not tiny:
    # for each of the four variables at least exp(-6), as far as 3.2 deviations from a normal.
    assert density.log_prob(data).median() + volume > -24


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_z_is_one_for_every_graph_layer_and_kind_of_weights(graph, weights, layer):
    density = sub.SquaredCircuit(build("gaussian", weights=weights, graph=graph, layer=layer))
    sub.initialise(density, sensible("gaussian"))
    assert abs(density.log_partition().item()) < 1e-9


def test_z_is_one_for_monotonic_circuits_and_hundreds_of_variables():
    generator = seeded()
    data = 1e-3 * torch.randn(100, 300, generator=generator)
    graph = sub.random_binary_tree(300, seed=0)
    positive = {"weights": sub.positive_weights, "seed": 0}
    real = sub.SquaredCircuit(sub.Circuit(graph, sub.Gaussian(), num_units=4, seed=0))
    monotonic = sub.MonotonicCircuit(sub.Circuit(graph, sub.Gaussian(), num_units=4, **positive))
    for density in (real, monotonic):
        sub.initialise(density, data)
        # Each of the 299 factors is rounded to single precision.
        assert abs(density.log_partition().item()) < 299 * 1e-6


def test_weights_stay_in_the_range_of_single_precision_when_z_cannot_be_one():
    density = sub.SquaredCircuit(sub.Circuit(sub.flat(300), sub.Gaussian(), num_units=4, seed=0))
    data = 1e-3 * torch.randn(100, 300, generator=seeded())
    sub.initialise(density, data)
    assert all(parameter.isfinite().all() for parameter in density.parameters())
    assert density.log_prob(data).isfinite().all()


@pytest.mark.parametrize("family", [name for name in EVERY if name != "rbf"])
def test_a_start_from_data_is_better_than_one_without(family):
    data = sensible(family)
    better = 0
    for seed in range(5):
        density = sub.SquaredCircuit(build(family, weights="positive", seed=seed))
        before = density.log_prob(data).mean()
        sub.initialise(density, data, seed=seed)
        better += int(density.log_prob(data).mean() > before)
    assert better == 5


@pytest.mark.parametrize("family", ["gaussian", "categorical", "binomial", "positive spline"])
def test_monotonic_circuits_start_better_too(family):
    data = sensible(family)
    density = sub.MonotonicCircuit(build(family, weights="positive"))
    before = density.log_prob(data).mean()
    sub.initialise(density, data)
    assert density.log_prob(data).mean() > before
    assert abs(density.log_partition().item()) < 1e-9


@pytest.mark.parametrize("family", [name for name in EVERY if name != "rbf"])
def test_the_same_seed_gives_the_same_start_and_another_seed_another(family):
    first, second, third = (sub.SquaredCircuit(build(family)) for _ in range(3))
    for density, seed in ((first, 1), (second, 1), (third, 2)):
        sub.initialise(density, sensible(family), seed=seed)
    assert same(state(first), state(second))
    assert not same(state(first), state(third))


@pytest.mark.parametrize("family", [name for name in EVERY if name != "rbf"])
def test_units_start_apart(family):
    circuit = build(family)
    sub.initialise(sub.SquaredCircuit(circuit), sensible(family))
    for layer in circuit.input_layers:
        values = layer.values(sensible(family)[:50], slice(None))
        logs = values.value() if family == "atoms" else values.some  # (f, n, i)
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert (logs[..., i] - logs[..., j]).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("family", EVERY)
def test_a_row_of_weight_zero_is_not_there(family):
    data = sensible(family)
    other = data.flip(0) if family in DISCRETE else data + 0.05
    first, second = (sub.SquaredCircuit(build(family)) for _ in range(2))
    weights = torch.cat([torch.ones(300), torch.zeros(300)])
    sub.initialise(first, data)
    sub.initialise(second, torch.cat([data, other]), weights=weights)
    assert same(state(first), state(second))


def test_members_of_a_mixture_start_differently():
    mixture = sub.Mixture([sub.SquaredCircuit(build("gaussian")) for _ in range(2)])
    sub.initialise(mixture, sensible("gaussian"))
    first, second = (state(member) for member in mixture.members)
    assert not same(first, second)
    for member in mixture.members:
        assert abs(member.log_partition().item()) < 1e-9


def test_more_rows_than_needed_are_sampled():
    data = sensible("gaussian", n=70_000)
    density = sub.SquaredCircuit(build("gaussian"))
    sub.initialise(density, data)
    assert density.log_prob(data[:100]).mean() > -10


def test_training_from_data_beats_training_from_nowhere():
    data = sensible("gaussian", n=1000)
    scores = []
    for start in (True, False):
        density = sub.SquaredCircuit(build("gaussian", weights="positive"))
        if start:
            sub.initialise(density, data)
        sub.fit(density, data, max_epochs=3, progress=False)
        scores.append(density.log_prob(data).mean())
    assert scores[0] > scores[1] + 1


BAD = {
    "an empty table": (torch.zeros(0, D), None, "at least one row, got an empty table"),
    "infinite": (torch.full((5, D), math.inf), None, "needs finite values, got inf"),
    "columns": (torch.zeros(5, D + 1), None, r"must have shape \(rows, 4\)"),
    "weights": (torch.zeros(5, D), torch.ones(4), r"expected shape \(5,\), got \(4,\)"),
    "negative": (torch.zeros(5, D), -torch.ones(5), "finite and not negative"),
    "no weight": (torch.zeros(5, D), torch.zeros(5), "all weights are zero"),
    "nan weight": (torch.zeros(5, D), torch.full((5,), math.nan), "finite and not negative"),
}


@pytest.mark.parametrize(("data", "weights", "message"), BAD.values(), ids=BAD)
def test_bad_data_is_refused_and_changes_nothing(data, weights, message):
    density = sub.Mixture([sub.SquaredCircuit(build("gaussian")) for _ in range(2)])
    before = state(density)
    with pytest.raises(ValueError, match=message):
        sub.initialise(density, data, weights=weights)
    assert same(before, state(density))


def test_a_restricted_density_is_refused():
    density = sub.SquaredCircuit(build("gaussian")).marginal([0, 1])
    with pytest.raises(ValueError, match="SquaredCircuit, a MonotonicCircuit or a Mixture"):
        sub.initialise(density, torch.zeros(5, 2))


def test_quantiles_count_a_row_of_weight_two_twice():
    column = torch.randn(40, generator=seeded(), dtype=torch.float64)
    weights = torch.randint(0, 4, (40,), generator=seeded(1)).double()
    levels = torch.linspace(0.01, 0.99, 23)
    repeated = column.repeat_interleave(weights.long())
    expected = quantiles(repeated, torch.ones(len(repeated)), levels)
    assert torch.equal(quantiles(column, weights, levels), expected)


def test_the_spread_is_the_deviation_of_the_bulk():
    column = torch.randn(10_000, generator=seeded(), dtype=torch.float64)
    ones = torch.ones(10_000)
    # The standard error of a standard deviation from 10000 rows is 0.007; clipping takes 0.01.
    assert abs(spread(column, ones).item() - 1) < 0.03
    column[:20] = 1e6
    assert abs(spread(column, ones).item() - 1) < 0.05
    assert spread(torch.full((5,), -400.0), torch.ones(5)).item() == pytest.approx(20)


def test_histograms_are_smoothed_frequencies():
    states = torch.tensor([0, 0, 2])
    expected = torch.tensor([2.5, 0.5, 1.5], dtype=torch.float64) / 4.5
    actual = histogram(states, torch.ones(3, dtype=torch.float64), NUM_STATES)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_clusters_are_found_with_their_covariances():
    generator = seeded()
    noise = torch.randn(3000, 2, generator=generator, dtype=torch.float64)
    factor = torch.tensor([[0.3, 0.0], [0.2, 0.1]], dtype=torch.float64)
    centres = torch.tensor([[-5.0, 0.0], [5.0, 5.0], [5.0, -5.0]], dtype=torch.float64)
    data = centres.repeat_interleave(1000, 0) + noise @ factor.mT
    ones = torch.ones(3000, dtype=torch.float64)
    clusters = cluster(data, ones, 3, seeded(1))
    order = clusters.labels[[0, 1000, 2000]]
    torch.testing.assert_close(clusters.centres[order], centres, rtol=0, atol=0.05)
    covariances = cluster_covariances(data, ones, clusters)
    # The covariances of 1000 rows are good to 5 %, and 0.01 / 3 is added to the variances.
    expected = (factor @ factor.mT).expand(3, 2, 2)
    torch.testing.assert_close(covariances, expected, rtol=0.15, atol=0.006)


@pytest.mark.parametrize("num_rows", [1, 2, 7])
def test_fewer_points_than_clusters_are_centres_more_than_once(num_rows):
    points = (
        torch.arange(2.0 * min(num_rows, 3)).double().reshape(-1, 2)[torch.arange(num_rows) % 3]
    )  # seven rows are three points
    ones = torch.ones(num_rows, dtype=torch.float64)
    clusters = cluster(points, ones, 5, seeded())
    assert clusters.centres.shape == (5, 2)
    torch.testing.assert_close(clusters.centres[clusters.labels], points, rtol=0, atol=1e-12)
    assert cluster_covariances(points, ones, clusters).isfinite().all()


def test_a_point_of_weight_two_counts_as_two_points():
    points = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 3.0, 1.0, 1.0], dtype=torch.float64)
    centres = cluster(points, weights, 2, seeded()).centres.sort(0).values
    expected = torch.tensor([[0.75], [10.5]], dtype=torch.float64)
    torch.testing.assert_close(centres, expected, rtol=0, atol=1e-12)


def test_continuous_families_are_all_here():
    assert set(CONTINUOUS) | set(DISCRETE) <= set(EVERY)
    assert all(isinstance(build(family), nn.Module) for family in EVERY)
