"""Checks 5 to 7: samples against distribution functions that the sampler does not use."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.models import CONTINUOUS, kind, squared
from subtractive.inference.evidence import Evidence

LEVEL = 1e-3  # the false-alarm rate of a whole check, divided among its comparisons
MISS = 1e-4  # how often a planted shift may stay unseen, for each model


@torch.no_grad()
def rosenblatt(p: sub.Density, x: Tensor, known: Tensor) -> Tensor:
    """Uniform numbers (n, k): P(X_j ≤ x_j | what is known and the later variables), last first."""
    known, numbers = known.clone(), []
    for variable in reversed(range(x.shape[1])):
        if known[variable]:
            continue
        total = p.log_weight(Evidence(x, known.expand_as(x)))
        upper = torch.full_like(x, math.inf)
        upper[:, variable] = x[:, variable]
        below = p.log_weight(Evidence(x, known.expand_as(x), None, upper))
        numbers.append((below - total).exp())
        known[variable] = True
    return torch.stack(numbers, 1)


def least_p_value(uniform: Tensor) -> float:
    """Of Kolmogorov–Smirnov tests of every column, times their number (Bonferroni)."""
    values = [stats.kstest(column.numpy(), "uniform").pvalue for column in uniform.T]
    return float(min(1.0, len(values) * min(values)))


def _models(count: int) -> list[tuple[str, sub.SquaredCircuit]]:
    names = ["gaussian", "rbf", "spline"]
    made = []
    for number in range(count):
        graph, layer, weights, outputs = kind(number, 3, seed=5)
        name = names[number % 3]
        family = CONTINUOUS[name]
        made.append((name, squared(graph, family, layer=layer, weights=weights, outputs=outputs)))
    return made


@torch.no_grad()
def rows_to_see(p: sub.Density, variable: int, shift: float, columns: int) -> int:
    """How many rows show a shift of one variable to the test with a chance of 1 - MISS.

    Values moved by δ have the distribution function F(x - δ), so that their uniform numbers are
    away from the diagonal by D = max F(x) - F(x - δ), about δ max f. At that point the empirical
    distribution function of n rows has a standard deviation of at most 1 / (2 √n), and the test
    rejects beyond K / √n with 2 exp(-2 K²) = LEVEL / columns. The shift is thus missed with a
    probability of at most Φ(2 (K - √n D)), which is MISS at the number of rows returned.

    A Gaussian that is moved by 0.02 σ has D = 0.008: 100,000 rows miss one shift in five,
    250,000 rows one in ten thousand.
    """
    middle, spread = p.mean()[variable], p.variance()[variable].sqrt()
    x = middle + spread * torch.linspace(-3, 3, 601, dtype=middle.dtype)
    distance = float((p.cdf(variable, x) - p.cdf(variable, x - shift)).max())
    critical = math.sqrt(math.log(2 * columns / LEVEL) / 2)
    return math.ceil(((critical - stats.norm.ppf(MISS) / 2) / distance) ** 2)


@check(
    5,
    "sampler: Kolmogorov–Smirnov on Rosenblatt uniforms, at least 100,000 rows, every dimension; "
    "planted shifts of 0.02 σ, with as many rows as let the test miss one in 10,000",
    "p > 1e-3 (Bonferroni); 8 of 8 shifts caught",
)
def sampler(size: Size) -> Outcome:
    """Draw from eight models; then move a column of each by 0.02 of its standard deviation."""
    models, shift = _models(size.of(8, 2)), 0.2 if size.quick else 0.02
    least, caught, most = 1.0, 0, 0
    nothing = torch.zeros(3, dtype=torch.bool)
    for number, (_, p) in enumerate(models):
        step = shift * float(p.variance()[2].detach().sqrt())
        n = max(size.of(100_000, 4_000), rows_to_see(p, 2, step, 3))
        x = p.sample(n, generator=torch.Generator().manual_seed(number))
        least = min(least, least_p_value(rosenblatt(p, x, nothing)))
        x[:, 2] += step
        caught += least_p_value(rosenblatt(p, x, nothing)) < LEVEL
        most = max(most, n)
    passed = least > LEVEL / len(models) and caught == len(models)
    figure = f"p {least:.3g} at least, {caught} of {len(models)} shifts caught"
    return Outcome(f"{figure}, up to {most:,} rows", passed)


def chi_square(drawn: Tensor, p: sub.Density, states: int, known: Tensor | None = None) -> float:
    """The p-value of counts of joint states against their probabilities; rare ones are pooled."""
    d = drawn.shape[1]
    rows = torch.tensor(list(itertools.product(range(states), repeat=d)), dtype=torch.float64)
    if known is not None:
        seen = ~known.isnan()
        rows = rows[(rows[:, seen] == known[seen]).all(1)]
    digits = states ** torch.arange(d)
    counts = torch.bincount((drawn.long() * digits).sum(1), minlength=states**d)
    observed = counts[(rows.long() * digits).sum(1)].numpy().astype(float)
    expected = p.log_prob(rows).detach().softmax(0).numpy() * len(drawn)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 1
    observed, expected = observed[keep], expected[keep]
    if len(observed) < 2:
        return 1.0
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


def _discrete(number: int) -> sub.SquaredCircuit:
    family = [sub.Embedding(3), sub.Categorical(3), sub.Binomial(2)][number % 3]
    graph, layer, weights, outputs = kind(number, 4, seed=6)
    layer = "hadamard" if number % 2 else layer
    return squared(graph, family, layer=layer, weights=weights, outputs=outputs)


@check(6, "discrete sampler: chi-square against all states, 100,000 rows", "p > 1e-3 (Bonferroni)")
def discrete_sampler(size: Size) -> Outcome:
    """Count the joint states of samples of models of every kind."""
    n, count = size.of(100_000, 4_000), size.of(12, 2)
    values = []
    for number in range(count):
        p = _discrete(number)
        values.append(
            chi_square(p.sample(n, generator=torch.Generator().manual_seed(number)), p, 3)
        )
    least = min(1.0, count * min(values))
    return Outcome(f"p {least:.3g} at least of {count} models", least > LEVEL)


@check(7, "conditional sampler: as 5 and 6 given evidence, 20 evidences", "p > 1e-3 (Bonferroni)")
def conditional_sampler(size: Size) -> Outcome:
    """Draw given values of one or two variables, ten evidences of either kind."""
    n, count = size.of(100_000, 3_000), size.of(10, 1)
    values = []
    for number, (name, p) in enumerate(_models(count)):
        known = torch.zeros(3, dtype=torch.bool)
        known[number % 3] = True
        evidence = {number % 3: 0.4 if name == "spline" else -0.3}
        x = p.sample(n, given=evidence, generator=torch.Generator().manual_seed(number))
        values.append(least_p_value(rosenblatt(p, x, known)))
    for number in range(count):
        p = _discrete(number)
        known = torch.full((4,), torch.nan, dtype=torch.float64)
        known[number % 4] = number % 3
        x = p.sample(
            n,
            given={number % 4: float(number % 3)},
            generator=torch.Generator().manual_seed(number),
        )
        values.append(chi_square(x, p, 3, known))
    least = min(1.0, len(values) * min(values))
    return Outcome(f"p {least:.3g} at least of {len(values)} evidences", least > LEVEL)
