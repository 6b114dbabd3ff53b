"""Mutual information of pairs of columns: by the model's densities, or by cells of its samples.

Given boxes on columns that share a full covariance, the density of a pair has no closed form.
There it is the larger of two lower bounds, both from samples: the mutual information of cells,
and that of a normal distribution with the correlation of the normal scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy
import torch

from subtractive.tables.joint_boxes import NUM_SAMPLES, joint_variables
from subtractive.tables.queries import as_generator, draw, draw_inside, log_weights
from subtractive.tables.reading import Floats, RandomState
from subtractive.tables.states import States
from subtractive.tables.view import View

NUM_CELLS = 24  # of a column of numbers

Cells: TypeAlias = npt.NDArray[np.int_]


def dependence(view: View, n_samples: int, random_state: RandomState) -> pd.DataFrame:
    """Mutual information of pairs, in nats."""
    if joint_variables(view.density, view.evidence):
        found = _by_cells(view)
    else:
        found = _by_densities(view, n_samples, random_state)
    names = list(view.variables)
    table = np.zeros((len(names), len(names)))
    for (first, second), value in found.items():
        i, j = names.index(first), names.index(second)
        table[i, j] = table[j, i] = max(value, 0.0)
    return pd.DataFrame(table, index=names, columns=names)


def _pairs(view: View) -> list[tuple[Hashable, Hashable]]:
    """Pairs of columns that are not copies of each other."""
    pairs = itertools.combinations(view.variables, 2)
    return [(a, b) for a, b in pairs if view.variables[a] != view.variables[b]]


def _by_densities(
    view: View, n_samples: int, random_state: RandomState
) -> dict[tuple[Hashable, Hashable], float]:
    """The mean of log p(x, y) - log p(x) - log p(y) over samples."""
    x = draw(view, n_samples, as_generator(random_state))
    total = log_weights(view, torch.full_like(x[:1], math.nan))

    def score(places: Sequence[int]) -> Floats:
        some = torch.full_like(x, math.nan)
        some[:, list(places)] = x[:, list(places)]
        return log_weights(view, some) - total

    place = view.variables
    single = {name: score([place[name]]) for name in place}
    return {
        (a, b): float((score([place[a], place[b]]) - single[a] - single[b]).mean())
        for a, b in _pairs(view)
    }


def _by_cells(view: View) -> dict[tuple[Hashable, Hashable], float]:
    codes = draw_inside(view, NUM_SAMPLES).numpy()
    random = np.random.default_rng(0)  # breaks ties, which hides dependence but makes none
    ranks, cells = {}, {}
    for name, place in view.variables.items():
        column, own = view.schema.variables[place], codes[:, place]
        if isinstance(column, States):
            cells[name] = own.astype(int)
            continue
        order = np.lexsort((random.random(len(own)), own))
        rank = np.empty(len(own))
        rank[order] = (np.arange(len(own)) + 0.5) / len(own)
        ranks[name] = scipy.special.ndtri(rank)
        cells[name] = (rank * NUM_CELLS).astype(int)
    found = {}
    for first, second in _pairs(view):
        bounds = [_of_cells(cells[first], cells[second])]
        if first in ranks and second in ranks:
            correlation = np.corrcoef(ranks[first], ranks[second])[0, 1]
            spread = max(1 - correlation**2, 1e-12)
            # What chance alone is expected to give is taken away.
            bounds.append(-0.5 * math.log(spread) - 0.5 / len(codes))
        found[first, second] = max(bounds)
    return found


def _of_cells(first: Cells, second: Cells) -> float:
    """The mutual information of two columns of cells (n,), less its bias (Miller and Madow)."""
    shape = int(first.max()) + 1, int(second.max()) + 1
    counts = np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1])
    joint = counts.reshape(shape) / len(first)
    rows, columns = joint.sum(1), joint.sum(0)
    expected = np.outer(rows, columns)
    some = joint > 0
    value = float((joint[some] * np.log(joint[some] / expected[some])).sum())
    bias = ((rows > 0).sum() - 1) * ((columns > 0).sum() - 1) / (2 * len(first))
    return value - float(bias)
