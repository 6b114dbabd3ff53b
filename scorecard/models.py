"""Random models of every kind, for the checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import subtractive as sub

DOUBLE = torch.float64
WEIGHTS = {
    "real": sub.real_weights,
    "complex": sub.complex_weights,
    "positive": sub.positive_weights,
}
LAYERS = {"hadamard": sub.HadamardLayer, "kronecker": sub.KroneckerLayer}
CONTINUOUS = {
    "gaussian": sub.Gaussian(),
    "rbf": sub.RBF((-1.0, 0.3, 1.2), 0.8),
    "spline": sub.Spline(6, order=2, domain=(-1.0, 2.0)),
    "atoms": sub.WithAtoms(sub.Gaussian(), (0.0, 1.5)),
}


# Region graphs of d variables from a seed.
GRAPHS: dict[str, Callable[[int, int], sub.RegionGraph]] = {
    "binary": lambda d, seed: sub.random_binary_tree(d, seed=seed),
    "linear": lambda d, seed: sub.linear_tree(d, seed=seed),
    "flat": lambda d, seed: sub.flat(d),
    "chow-liu": lambda d, seed: sub.chow_liu_tree(
        np.random.default_rng(seed).normal(size=(50, d))
    ),
}


def squared(
    graph: sub.RegionGraph,
    families: object,
    *,
    weights: str = "real",
    layer: str = "hadamard",
    units: int = 3,
    outputs: int = 2,
    seed: int = 0,
) -> sub.SquaredCircuit:
    """The square of a random circuit, in double precision."""
    initialise = sub.init.uniform() if weights == "positive" else sub.init.normal()
    return sub.SquaredCircuit(
        sub.Circuit(
            graph,
            families,
            num_units=units,
            num_outputs=outputs,
            weights=WEIGHTS[weights],
            initialise=initialise,
            product=LAYERS[layer],
            seed=seed,
            dtype=DOUBLE,
        )
    )


def kind(number: int, d: int, seed: int = 0) -> tuple[sub.RegionGraph, str, str, int]:
    """A (graph, layer, weights, outputs): all of them in turn, as numbers go up."""
    names = list(itertools.product(GRAPHS, LAYERS, WEIGHTS, (1, 3)))
    order = np.random.default_rng(seed).permutation(len(names))
    graph, layer, weights, outputs = names[order[number % len(names)]]
    return GRAPHS[graph](d, number), layer, weights, outputs


def rule(family: str) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights that integrate squares of the functions of a family over its domain."""
    if family == "spline":
        spans = [_legendre(a, a + 0.75, 5) for a in (-1.0, -0.25, 0.5, 1.25)]
        nodes, weights = (np.concatenate(parts) for parts in zip(*spans, strict=True))
        return nodes, weights
    nodes, weights = _legendre(-9.0, 9.0, 48)
    if family == "atoms":  # the base measure has a count at them
        return np.append(nodes, [0.0, 1.5]), np.append(weights, [1.0, 1.0])
    return nodes, weights


def grid(rules: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Tensor, Tensor]:
    """The product of rules: points (n, d) and weights (n,)."""
    points = np.array(list(itertools.product(*(nodes for nodes, _ in rules))))
    weights = np.array([math.prod(w) for w in itertools.product(*(w for _, w in rules))])
    return torch.from_numpy(points), torch.from_numpy(weights)


def points(family: str, n: int, d: int, seed: int) -> Tensor:
    """Random rows that are possible under a family."""
    unit = torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    if family == "spline":
        return 3 * unit - 1
    x = 4 * unit - 2
    return torch.where(unit > 0.7, 1.5, x) if family == "atoms" else x


def _legendre(low: float, high: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = (high - low) / 2
    return low + half * (nodes + 1), half * weights
