"""Every kind of graph, family, layer and weight, by name: contract tests run over all of them."""

import functools
import itertools

import numpy as np
import pytest
import torch
from oracles import all_states, gauss_legendre, grid

import subtractive as sub

GRAPHS = {
    "binary": lambda d: sub.random_binary_tree(d, seed=1),
    "linear": lambda d: sub.linear_tree(d, seed=2),
    "flat": sub.flat,
    "nested": lambda d: sub.RegionGraph.from_nested(
        (tuple(range(d - 1)), d - 1) if d > 2 else (0, 1)
    ),
    "quad": lambda d: sub.quad_tree(2, d // 2) if d % 2 == 0 else sub.quad_tree(1, d),
    "chow-liu": lambda d: sub.chow_liu_tree(np.random.default_rng(3).normal(size=(50, d))),
}
LAYERS = {"hadamard": sub.HadamardLayer, "kronecker": sub.KroneckerLayer}
WEIGHTS = {
    "real": (sub.real_weights, sub.init.normal()),
    "positive": (sub.positive_weights, sub.init.uniform()),
    "complex": (sub.complex_weights, sub.init.normal()),
}
NUM_STATES = 3
DISCRETE = {
    "categorical": sub.Categorical(NUM_STATES),
    "embedding": sub.Embedding(NUM_STATES),
    "binomial": sub.Binomial(NUM_STATES - 1),
}
CONTINUOUS = {
    "gaussian": sub.Gaussian(),
    "rbf": sub.RBF((-1.0, 0.3, 1.2), 0.8),
    "spline": sub.Spline(6, order=2, domain=(-1.0, 2.0)),
}
ATOMS = (0.0, 1.5)
FAMILIES = DISCRETE | CONTINUOUS | {"atoms": sub.WithAtoms(sub.Gaussian(), ATOMS)}
KINDS = list(itertools.product(GRAPHS, FAMILIES, LAYERS, WEIGHTS, (1, 3)))


def _choices(kinds, count):
    """What occurs together in some kinds, so many choices at a time."""
    return {some for kind in kinds for some in itertools.combinations(enumerate(kind), count)}


def covering(kinds, together=2):
    """Few of the kinds, in which every pair of choices that occurs in all of them occurs.

    Or every single choice, or so many ``together``. Greedy: next comes the kind with most pairs
    that are still missing; among equals, with most triples; among those, the first.
    """
    return list(_covering(tuple(kinds), together))


@functools.cache
def _covering(kinds, together):
    pairs, triples = _choices(kinds, together), _choices(kinds, together + 1)
    of_kind = {k: (_choices([k], together), _choices([k], together + 1)) for k in kinds}
    chosen = []
    while pairs:
        chosen.append(
            max(kinds, key=lambda k: (len(pairs & of_kind[k][0]), len(triples & of_kind[k][1])))
        )
        pairs -= of_kind[chosen[-1]][0]
        triples -= of_kind[chosen[-1]][1]
    return chosen


def every_kind(names, kinds, together=2):
    """Run a test on a covering set of kinds, and on all others where slow tests run."""
    few = set(covering(kinds, together))
    return pytest.mark.parametrize(
        names,
        [pytest.param(*kind, marks=[] if kind in few else [pytest.mark.slow]) for kind in kinds],
    )


def build(graph, family, *, layer="hadamard", weights="real", outputs=1, d=4, seed=0, **options):
    """A random circuit of one kind, in float64."""
    kind, initialise = WEIGHTS[weights]
    settings = {"num_units": 3, "num_outputs": outputs, "seed": seed, "dtype": torch.float64}
    return sub.Circuit(
        GRAPHS[graph](d),
        FAMILIES[family],
        weights=kind,
        initialise=initialise,
        product=LAYERS[layer],
        **(settings | options),
    )


def axis(family):
    """Nodes and weights that integrate products of the family's functions over its domain."""
    if family in DISCRETE:
        return np.arange(NUM_STATES, dtype=float), np.ones(NUM_STATES)
    if family == "spline":
        spans = [gauss_legendre(a, a + 0.75, 4) for a in (-1.0, -0.25, 0.5, 1.25)]
        return tuple(np.concatenate(parts) for parts in zip(*spans, strict=True))
    line = gauss_legendre(-9.0, 9.0, 48)
    if family == "atoms":
        return np.append(line[0], ATOMS), np.append(line[1], np.ones(len(ATOMS)))
    return line


def domain(family, d):
    """Points and weights over the whole domain of d variables."""
    return grid([axis(family)] * d)


def points(family, n, d, seed=0):
    """Random rows that are possible under the family."""
    generator = torch.Generator().manual_seed(seed)
    if family in DISCRETE:
        states = all_states([NUM_STATES] * d)
        return states[torch.randint(len(states), (n,), generator=generator)]
    unit = torch.rand(n, d, generator=generator, dtype=torch.float64)
    if family == "atoms":  # every other number
        atoms = torch.tensor(ATOMS, dtype=torch.float64)[(unit > 0.75).long()]
        return torch.where(unit > 0.5, atoms, unit * 8 - 2)
    return unit * 3 - 1 if family == "spline" else unit * 4 - 2
