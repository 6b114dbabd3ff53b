"""Checks 1 to 4: masses, marginals and conditionals against sums and quadrature."""

from __future__ import annotations

import itertools

import numpy as np
import torch

import subtractive as sub
from scorecard.check import Outcome, Size, check, worst
from scorecard.models import CONTINUOUS, grid, kind, points, rule, squared

# family, number of variables, number of states: 65,536 joint states at most
DISCRETE = [
    (sub.Embedding(2), 16, 2),
    (sub.Categorical(4), 8, 4),
    (sub.Binomial(3), 8, 4),
    (sub.Embedding(16), 4, 16),
]


@check(1, "normalisation, discrete: sum over all states, up to 2^16", "|sum − 1| ≤ 1e-10")
@torch.no_grad()
def discrete_normalisation(size: Size) -> Outcome:
    """Sum the probabilities of all joint states of models of every kind."""
    errors = []
    for number in range(size.of(24, 2)):
        family, d, states = DISCRETE[number % len(DISCRETE)]
        d = d if not size.quick else d // 2
        graph, layer, weights, outputs = kind(number, d)
        # A wide Kronecker product over many children is no layer of this size.
        p = squared(graph, family, layer=_layer(layer, graph), weights=weights, outputs=outputs)
        rows = torch.tensor(list(itertools.product(range(states), repeat=d)), dtype=torch.float64)
        errors.append(abs(float(p.log_prob(rows).logsumexp(0).exp()) - 1))
    return worst(errors, 1e-10, "models")


@check(
    2, "normalisation, continuous: Gauss–Legendre in 1 to 3 dimensions", "|integral − 1| ≤ 1e-6"
)
@torch.no_grad()
def continuous_normalisation(size: Size) -> Outcome:
    """Integrate densities of every kind numerically."""
    errors = []
    for number, name in enumerate(list(CONTINUOUS) * size.of(6, 1)):
        d = 1 + number % size.of(3, 2)
        graph, layer, weights, outputs = kind(number, max(d, 2))
        if d == 1:
            graph = sub.flat(1)
        p = squared(graph, CONTINUOUS[name], layer=layer, weights=weights, outputs=outputs)
        x, w = grid([rule(name)] * d)
        errors.append(abs(float((p.log_prob(x).exp() * w).sum()) - 1))
    return worst(errors, 1e-6, "models")


@check(3, "marginal = integral of the joint: quadrature over random subsets", "relative ≤ 1e-6")
@torch.no_grad()
def marginals(size: Size) -> Outcome:
    """Compare marginals with integrals of the joint over one or two variables of four."""
    errors = []
    random = np.random.default_rng(0)
    for number in range(size.of(100, 6)):
        name = list(CONTINUOUS)[number % 4]
        graph, layer, weights, outputs = kind(number, 4)
        p = squared(graph, CONTINUOUS[name], layer=layer, weights=weights, outputs=outputs)
        hidden = sorted(random.choice(4, size=random.integers(1, 3), replace=False).tolist())
        nodes, w = grid([rule(name)] * len(hidden))
        x = points(name, 1, 4, number)
        rows = x.repeat(len(nodes), 1)
        rows[:, hidden] = nodes
        joint = float((p.log_prob(rows).exp() * w).sum())
        observed = torch.ones(4, dtype=torch.bool)
        observed[hidden] = False
        errors.append(abs(float(p.log_marginal(x, observed).exp()) / joint - 1))
    return worst(errors, 1e-6, "subsets")


@check(4, "chain rule: the joint is the product of conditionals, in random orders", "log ≤ 1e-8")
@torch.no_grad()
def chain_rule(size: Size) -> Outcome:
    """Multiply the conditionals of the variables, one after the other in a random order."""
    errors, d = [], 6
    for number in range(size.of(20, 2)):
        name = ["gaussian", "rbf", "spline"][number % 3]
        graph, layer, weights, outputs = kind(number, d)
        p = squared(
            graph, CONTINUOUS[name], layer=_layer(layer, graph), weights=weights, outputs=outputs
        )
        rows = points(name, size.of(50, 5), d, number)
        for row, joint in zip(rows, p.log_prob(rows).tolist(), strict=True):
            order = np.random.default_rng(number).permutation(d).tolist()
            given: dict[int, float] = {}
            total = 0.0
            for variable in order:
                density = p.pdf(variable, row[variable : variable + 1], given=given or None)
                total += float(density.log())
                given[variable] = float(row[variable])
            errors.append(abs(total - joint))
    return worst(errors, 1e-8, "rows")


def _layer(layer: str, graph: sub.RegionGraph) -> str:
    widest = max((len(p.children) for r in graph.regions for p in r.partitions), default=1)
    return "hadamard" if widest > 4 else layer
