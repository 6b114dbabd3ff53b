"""Samples given sets of values: inside the sets, and with the law of the density there."""

import math

import pytest
import torch
from scipy.stats import chisquare, kstest

import subtractive as sub
from subtractive.inference.evidence import Evidence

COUNT = 4000
FAMILIES = [
    sub.Gaussian(),
    sub.WithAtoms(sub.Gaussian(), atoms=(-0.2, 0.5), non_negative=True),
    sub.Categorical(5),
]


def density(kind, seed=0):
    weights = sub.real_weights if kind == "squared" else sub.positive_weights
    circuit = sub.Circuit(
        sub.random_binary_tree(3, seed=seed),
        FAMILIES,
        num_units=4,
        weights=weights,
        seed=seed,
        dtype=torch.float64,
    )
    return (sub.SquaredCircuit if kind == "squared" else sub.MonotonicCircuit)(circuit)


def evidence(lower, upper, states, count):
    empty = torch.zeros(count, 3, dtype=torch.float64)
    rows = [torch.tensor([bound], dtype=torch.float64) for bound in (lower, upper)]
    return Evidence(empty, empty.bool(), rows[0], rows[1], states)


BOXES = {
    "an interval": ([-0.5, -math.inf, -math.inf], [0.7, math.inf, math.inf], {}),
    "a half-line": ([-math.inf] * 3, [-0.1, math.inf, math.inf], {}),
    "an atom at the upper end": ([-math.inf, -0.4, -math.inf], [math.inf, 0.5, math.inf], {}),
    "an atom alone": ([-math.inf, math.nextafter(0.5, 0), -math.inf], [math.inf, 0.5, 1e9], {}),
    "no atom": ([-math.inf, 0.5, -math.inf], [math.inf, 1.5, math.inf], {}),
    "states": ([-math.inf] * 3, [math.inf] * 3, {2: torch.tensor([1, 0, 0, 1, 1]).bool()}),
    "all at once": ([0.0, -0.2, -math.inf], [2.0, math.inf, 2.0], {}),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", ["squared", "monotonic"])
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_samples_given_a_box_are_inside_and_follow_the_density_there(kind, box):
    p = density(kind)
    lower, upper, states = box
    x = p.sample_given(evidence(*box, COUNT), torch.Generator().manual_seed(0))
    ends = torch.tensor([lower, upper], dtype=torch.float64)
    inside = (x > ends[0]) & (x <= ends[1])
    assert bool(inside.all())
    total = p.log_weight(evidence(*box, 1))
    # P(x_0 <= t | box), of which the uniform law of its values follows.
    highest = x[:, 0].clamp(max=upper[0])
    rows = evidence(*box, COUNT)
    above = rows.upper.repeat(COUNT, 1)
    above[:, 0] = highest
    share = (
        p.log_weight(Evidence(rows.x, rows.observed, rows.lower, above, states)) - total
    ).exp()
    assert kstest(share.numpy(), "uniform").pvalue > 1e-3  # false alarm: 1 in 1000
    for variable, points in ((1, [-0.2, 0.5]), (2, range(5))):
        counts = [float((x[:, variable] == point).sum()) for point in points]
        shares = []
        for point in points:
            box_ = [rows.lower.clone(), rows.upper.clone()]
            is_in = lower[variable] < point <= upper[variable]
            is_in = is_in and (variable not in states or bool(states[variable][point]))
            box_[0][0, variable], box_[1][0, variable] = math.nextafter(point, -9), point
            part = Evidence(rows.x[:1], rows.observed[:1], *box_, states)
            shares.append(float((p.log_weight(part) - total).exp()) if is_in else 0.0)
        expected = [COUNT * share for share in shares] + [COUNT * (1 - sum(shares))]
        kept = [k for k, e in enumerate(expected) if e > 1e-6]
        observed = [*counts, COUNT - sum(counts)]
        assert sum(observed[k] for k in range(len(expected)) if k not in kept) == 0
        if len(kept) > 1:
            scale = sum(observed[k] for k in kept) / sum(expected[k] for k in kept)
            test = chisquare([observed[k] for k in kept], [scale * expected[k] for k in kept])
            assert test.pvalue > 1e-3
