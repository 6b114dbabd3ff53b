"""What every density can be asked, against sums over its whole domain."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid
from registry import ATOMS, FAMILIES, GRAPHS, LAYERS, WEIGHTS, axis, build

import subtractive as sub

# Of Gaussians this wide the trapezoidal rule has ten digits.
LINE = np.linspace(-9.2, 9.2, 47), np.full(47, 0.4)
FINE_LINE = np.linspace(-9.2, 9.2, 60), np.full(60, 18.4 / 59)
NON_NEGATIVE = sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True)
MIXED = ["gaussian", "categorical", "spline", "binomial"]


def rule(family):
    if family in ("gaussian", "rbf"):
        return LINE
    if family == "atoms":
        between = LINE[0] + 0.1  # no node is an atom
        return np.append(between, ATOMS), np.append(LINE[1], np.ones(len(ATOMS)))
    return axis(family)


def with_atoms(low, high, count, atoms):
    """Gauss's rule on an interval, and the atoms in it."""
    nodes, weights = gauss_legendre(low, high, count)
    inside = [atom for atom in atoms if low <= atom <= high]
    return np.append(nodes, inside), np.append(weights, np.ones(len(inside)))


def squared_kinds():
    """Every graph with every family; layers, weights and outputs change from one to the next."""
    for k, kind in enumerate(itertools.product(GRAPHS, FAMILIES)):
        turn = k + k // len(FAMILIES)
        yield *kind, list(LAYERS)[turn % 2], list(WEIGHTS)[turn % 3], (1, 3)[k // 2 % 2]


def squared(graph, family, layer, weights, outputs):
    options = {"layer": layer, "weights": weights, "outputs": outputs, "d": 3}
    return sub.SquaredCircuit(build(graph, family, **options)), [rule(family)] * 3


def monotonic(graph, family, layer):
    options = {"layer": layer, "weights": "positive", "outputs": 2, "d": 3}
    return sub.MonotonicCircuit(build(graph, family, **options)), [rule(family)] * 3


def additive_spline(graph):
    circuit = sub.Circuit(
        GRAPHS[graph](3),
        NON_NEGATIVE,
        num_units=3,
        weights=sub.positive_weights,
        seed=4,
        dtype=torch.float64,
    )
    return sub.MonotonicCircuit(circuit), [rule("spline")] * 3


def mixture(family, d=3):
    members = [
        sub.SquaredCircuit(build("binary", family, outputs=3, d=d)),
        sub.SquaredCircuit(build("linear", family, weights="complex", d=d, seed=1)),
        sub.SquaredCircuit(build("flat", family, layer="kronecker", d=d, seed=2)),
    ]
    if family in ("gaussian", "categorical"):
        members.append(sub.MonotonicCircuit(build("chow-liu", family, weights="positive", d=d)))
    weights = range(1, 1 + len(members))
    return sub.Mixture(members, weights=list(weights)), [rule(family)] * d


def marginal(family):
    p = sub.SquaredCircuit(build("binary", family, d=5, outputs=3))
    return p.marginal([4, 0, 2]), [rule(family)] * 3


def conditional(family):
    p = sub.SquaredCircuit(build("linear", family, d=5, weights="complex"))
    return p.condition({1: 1.0, 3: 0.0}), [rule(family)] * 3


def nested_restriction(family):
    return mixture(family, d=5)[0].condition({2: 1.0}).marginal([3, 0, 1]), [rule(family)] * 3


def mixed_types(graph, weights):
    kind, initialise = WEIGHTS[weights]
    circuit = sub.Circuit(
        GRAPHS[graph](4),
        [FAMILIES[family] for family in MIXED],
        num_units=3,
        num_outputs=2,
        weights=kind,
        initialise=initialise,
        seed=5,
        dtype=torch.float64,
    )
    return sub.SquaredCircuit(circuit), [rule(family) for family in MIXED]


def multivariate(graph, weights, density=sub.SquaredCircuit):
    kind, initialise = WEIGHTS[weights]
    circuit = sub.Circuit(
        graph,
        sub.MultivariateGaussian(),
        num_units=3,
        num_outputs=2,
        weights=kind,
        initialise=initialise,
        seed=1,
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.lower.normal_(generator=generator).mul_(0.3)
    return density(circuit), [FINE_LINE] * 3


GROUPS = {
    "one region": sub.flat([[0, 1, 2]]),
    "flat groups": sub.flat([[0, 2], [1]]),
    "deep groups": sub.RegionGraph.from_nested(({0, 1}, 2)),
}
ADDITIVE = ("gaussian", "rbf", "categorical", "binomial")
CASES = (
    {f"squared {kind}": functools.partial(squared, *kind) for kind in squared_kinds()}
    | {
        f"monotonic {kind}": functools.partial(monotonic, *kind)
        for kind in zip(list(GRAPHS)[:4], ADDITIVE, [*LAYERS, *LAYERS], strict=True)
    }
    | {"monotonic spline": functools.partial(additive_spline, "linear")}
    | {f"mixture {f}": functools.partial(mixture, f) for f in ("gaussian", "categorical")}
    | {
        f"{make.__name__} {family}": functools.partial(make, family)
        for make in (marginal, conditional, nested_restriction)
        for family in ("gaussian", "embedding")
    }
    | {
        f"mixed types {kind}": functools.partial(mixed_types, *kind)
        for kind in zip(GRAPHS, WEIGHTS, strict=False)
    }
    | {
        f"multivariate {name}": functools.partial(multivariate, g, "real")
        for name, g in GROUPS.items()
    }
    | {
        f"multivariate {name}, additive": functools.partial(
            multivariate, g, "positive", sub.MonotonicCircuit
        )
        for name, g in GROUPS.items()
    }
)
SQUARED = [case for case in CASES if case.startswith("squared")]
FEW = (set(CASES) - set(SQUARED) | set(SQUARED[::6])) - {"nested_restriction gaussian"}


def parametrized(cases):
    """Few of the squared circuits in every run, everything where slow tests run.

    Among the few, every graph, family, layer, kind of weights and number of outputs occurs.
    """
    return pytest.mark.parametrize(
        "case",
        [pytest.param(case, marks=[] if case in FEW else [pytest.mark.slow]) for case in cases],
    )


every_case = parametrized(CASES)
some_cases = parametrized(list(CASES)[::3])
univariate_cases = parametrized([case for case in CASES if "multi" not in case])


@functools.cache
def ask(case):
    return CASES[case]()


@torch.no_grad()
def probabilities(case, given=None):
    """Rows of the whole domain, but for given values, and their probabilities."""
    density, axes = ask(case)
    axes = [
        (np.array([given[v]]), np.ones(1)) if v in (given or {}) else line
        for v, line in enumerate(axes)
    ]
    x, w = grid(axes)
    mass = density.log_prob(x).exp() * w
    return density, x, mass / mass.sum() if given else mass


def tolerance(density):
    discrete = all(family.num_states is not None for family in density.families)
    return {"rtol": 0, "atol": 1e-10 if discrete else 1e-6}


@every_case
def test_moments_are_sums_over_the_domain(case):
    density, x, mass = probabilities(case)
    mean = mass @ x
    covariance = (x * mass[:, None]).T @ x - mean[:, None] * mean
    with torch.no_grad():
        close = tolerance(density)
        torch.testing.assert_close(density.mean(), mean, **close)
        torch.testing.assert_close(density.covariance(), covariance, **close)
        torch.testing.assert_close(density.variance(), covariance.diagonal(), **close)


@every_case
def test_moments_given_a_value_are_sums_over_a_slice(case):
    density, x, mass = probabilities(case, {1: 1.0})
    mean = mass @ x
    covariance = (x * mass[:, None]).T @ x - mean[:, None] * mean
    with torch.no_grad():
        close = tolerance(density)
        torch.testing.assert_close(density.mean({1: 1.0}), mean, **close)
        torch.testing.assert_close(density.covariance({1: 1.0}), covariance, **close)
        torch.testing.assert_close(density.variance({1: 1.0}), covariance.diagonal(), **close)
        assert density.mean({1: 1.0})[1] == 1.0
        assert density.variance({1: 1.0})[1] == 0.0


@every_case
@torch.no_grad()
def test_univariate_densities_are_sums_over_the_others(case):
    density, x, mass = probabilities(case, {1: 1.0})
    _, axes = ask(case)
    for variable in (0, 2):
        nodes, weights = axes[variable]
        expected = [mass[x[:, variable] == node].sum().item() for node in nodes]
        found = density.pdf(variable, torch.from_numpy(nodes), {1: 1.0})
        torch.testing.assert_close(
            found * torch.from_numpy(weights),
            torch.tensor(expected, dtype=torch.float64),
            **tolerance(density),
        )


@every_case
@torch.no_grad()
def test_distribution_functions_are_sums_or_integrals_of_the_density(case):
    density, axes = ask(case)
    for variable, given in ((0, None), (2, {1: 1.0})):
        nodes, _ = axes[variable]
        if density.families[variable].num_states is not None:
            states = torch.from_numpy(nodes)
            expected = density.pdf(variable, states, given).cumsum(0)
            for shift in (0.0, 0.5):
                found = density.cdf(variable, states + shift, given)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
            continue
        ends = [-0.7, 0.1, 1.3]
        atoms = density.families[variable].atoms
        parts = [with_atoms(min(-1.0, nodes[0]), end, 300, atoms) for end in ends]
        expected = [
            torch.from_numpy(w) @ density.pdf(variable, torch.from_numpy(x), given)
            for x, w in parts
        ]
        found = density.cdf(variable, torch.tensor(ends), given)
        torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-6)


@univariate_cases
@torch.no_grad()
def test_boxes_are_sums_over_a_part_of_the_domain(case):
    density, axes = ask(case)
    discrete = [family.num_states is not None for family in density.families]
    box, inside = {}, list(axes)
    for variable in (0, 2):
        if discrete[variable]:
            box[variable] = {0, 2} if variable else (1, 2)
            states = np.array([0.0, 2.0] if variable else [1.0, 2.0])
            inside[variable] = states, np.ones(2)
        else:
            atoms = density.families[variable].atoms
            box[variable] = (-0.2, 0.4)  # between two knots of the spline
            inside[variable] = with_atoms(-0.2, 0.4, 12, atoms)
    x, w = grid(inside)
    expected = (density.log_prob(x).exp() * w).sum()
    torch.testing.assert_close(density.probability(box), expected, **tolerance(density))
    inside[1] = np.array([1.0]), np.ones(1)
    x, w = grid(inside)
    given = (density.log_prob(x).exp() * w).sum() / density.marginal([1]).log_prob(
        torch.tensor([[1.0]])
    ).exp()
    torch.testing.assert_close(density.probability(box, {1: 1.0}), given[0], **tolerance(density))


@some_cases
@torch.no_grad()
def test_imputation_gives_means_and_modes_given_the_rest_of_a_row(case):
    density, axes = ask(case)
    d = density.num_variables
    x = torch.full((4, d), 1.0, dtype=torch.float64)
    x[0, 0] = x[1, 2] = x[2, 0] = x[2, 2] = math.nan
    x[3] = math.nan
    filled = density.impute(x)
    assert torch.equal(filled[~x.isnan()], x[~x.isnan()])
    for row, before in zip(filled, x, strict=True):
        given = {v: before[v].item() for v in range(d) if not before[v].isnan()}
        mean = density.mean(given)
        for v in set(range(d)) - set(given):
            count = density.families[v].num_states
            best = (
                mean[v]
                if count is None
                else density.pdf(v, torch.arange(count), given).argmax().double()
            )
            torch.testing.assert_close(row[v], best, rtol=0, atol=1e-10)
