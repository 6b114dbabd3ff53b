"""Samples are tested where it hurts: through the model's own conditional distribution functions.

If x is drawn from p, the numbers P(X_k <= x_k | x_1 .. x_{k-1}) are independent and uniform. They
are computed from integrals over half-lines, which the sampler does not use. Every test has a fixed
seed and a false-alarm rate of 1e-3, divided by the number of coordinates it looks at.
"""

import itertools

import pytest
import torch
from registry import CONTINUOUS, GRAPHS, LAYERS, WEIGHTS, build, points
from scipy import stats

import subtractive as sub
from subtractive.circuits import layers
from subtractive.queries.evidence import Evidence

NUM_DRAWS = 100_000
RATE = 1e-3

# Every graph and family, with layers, weights and numbers of outputs in turn.
TURNS = itertools.cycle(itertools.product(LAYERS, WEIGHTS, (1, 3)))
KINDS = [(*pair, *next(TURNS)) for pair in itertools.product(GRAPHS, CONTINUOUS)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def rosenblatt(density, x, given=()):
    """P(X_k <= x_k | the given and the earlier variables), (n, k), for the variables not given."""
    free = [variable for variable in range(x.shape[1]) if variable not in given]
    observed = torch.zeros_like(x, dtype=torch.bool)
    observed[:, list(given)] = True
    columns = []
    for variable in free:
        before = Evidence(torch.where(observed, x, 0.0), observed.clone())
        upper = torch.full_like(x, torch.inf)
        upper[:, variable] = x[:, variable]
        below = Evidence(before.x, before.observed, None, upper)
        columns.append((density.log_weight(below) - density.log_weight(before)).exp())
        observed[:, variable] = True
    return torch.stack(columns, 1)


def smallest_p_value(uniforms):
    """Of Kolmogorov-Smirnov tests of each coordinate, times their number."""
    columns = uniforms.clamp(0, 1).T.numpy()
    return min(stats.kstest(column, "uniform").pvalue for column in columns) * len(columns)


@pytest.mark.parametrize(("graph", "family", "layer", "weights", "outputs"), KINDS)
def test_samples_are_uniform_through_their_distribution_functions(
    graph, family, layer, weights, outputs
):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs, d=3)
    density = sub.SquaredCircuit(circuit)
    x = density.sample(NUM_DRAWS, generator=seeded())
    assert smallest_p_value(rosenblatt(density, x)) > RATE


@pytest.mark.parametrize("graph", GRAPHS)
def test_samples_of_monotonic_circuits_are_uniform_too(graph):
    density = sub.MonotonicCircuit(build(graph, "gaussian", weights="positive", outputs=2, d=3))
    x = density.sample(NUM_DRAWS, generator=seeded())
    assert smallest_p_value(rosenblatt(density, x)) > RATE


def test_samples_of_mixtures_and_restrictions_are_uniform_too():
    members = [sub.SquaredCircuit(build(g, "gaussian", d=3)) for g in ("linear", "flat")]
    mixture = sub.Mixture(members, weights=[0.3, 0.7])
    for density in (mixture, mixture.condition({1: 0.4}), members[0].marginal([2, 0])):
        x = density.sample(NUM_DRAWS, generator=seeded())
        assert smallest_p_value(rosenblatt(density, x)) > RATE


@pytest.mark.parametrize("number", range(20))
def test_samples_given_evidence_are_uniform(number):
    graph = list(GRAPHS)[number % len(GRAPHS)]
    family = list(CONTINUOUS)[number % len(CONTINUOUS)]
    density = sub.SquaredCircuit(build(graph, family, outputs=2, d=4))
    variable = number % 4
    value = points(family, 1, 4, seed=number)[0, variable].item()
    x = density.sample(20_000, given={variable: value}, generator=seeded(number))
    assert torch.equal(x[:, variable], torch.full((20_000,), value, dtype=torch.float64))
    # Twenty evidences share the false-alarm rate.
    assert smallest_p_value(rosenblatt(density, x, given=[variable])) > RATE / 20


def test_one_evidence_per_row_gives_one_sample_per_row():
    density = sub.SquaredCircuit(build("binary", "gaussian", outputs=2, d=4))
    known = points("gaussian", NUM_DRAWS, 4)
    known[:, [0, 3]] = torch.nan
    x = density.sample(given=known, generator=seeded())
    assert torch.equal(x[:, [1, 2]], known[:, [1, 2]])
    assert smallest_p_value(rosenblatt(density, x, given=[1, 2])) > RATE


@pytest.mark.parametrize("seed", range(8))
def test_a_shift_of_a_fiftieth_of_a_standard_deviation_is_caught(seed):
    density = sub.SquaredCircuit(build("binary", "gaussian", outputs=2, d=3))
    x = density.sample(NUM_DRAWS, generator=seeded(seed))
    x[:, 1] += 0.02 * density.variance()[1].sqrt().detach()
    assert smallest_p_value(rosenblatt(density, x)) < RATE


def test_an_environment_without_its_sibling_is_caught(monkeypatch):
    whole = layers.below_hadamard

    def forgetful(above, siblings):
        known = [sibling for sibling in siblings if not sibling.is_gram]
        return whole(above, known) if known else above

    density = sub.SquaredCircuit(build("binary", "gaussian", outputs=2, d=3))
    monkeypatch.setattr(layers, "below_hadamard", forgetful)
    x = density.sample(NUM_DRAWS, generator=seeded())
    assert smallest_p_value(rosenblatt(density, x)) < RATE
