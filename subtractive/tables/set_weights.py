"""Weights of many sets of codes at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import Sets
from subtractive.tables.expectations import box_log_weights
from subtractive.tables.reading import Floats


@torch.no_grad()
def log_weights_of_sets(density: Density, many: Sequence[Sets | None]) -> Floats:
    """log of the weight of each of many sets of codes (m,), in one pass; of ``None`` minus ∞.

    A list of states is one row of evidence for each of them.
    """
    place, points, windows = [], [], []
    for number, sets in enumerate(many):
        for box in [] if sets is None else _boxes(sets):
            place.append(number)
            points.append({v: side for v, side in box.items() if isinstance(side, float)})
            windows.append({v: side for v, side in box.items() if isinstance(side, tuple)})
    shape = len(place), density.num_variables
    x = torch.zeros(shape, dtype=torch.float64)
    observed = torch.zeros(shape, dtype=torch.bool)
    lower = torch.full(shape, -math.inf, dtype=torch.float64)
    upper = torch.full(shape, math.inf, dtype=torch.float64)
    for row, (known, within) in enumerate(zip(points, windows, strict=True)):
        for variable, code in known.items():
            x[row, variable], observed[row, variable] = code, True
        for variable, (low, high) in within.items():
            lower[row, variable], upper[row, variable] = low, high
    result = np.full(len(many), -np.inf)
    if place:
        logs = box_log_weights(density, Evidence(x, observed, lower, upper))
        np.logaddexp.at(result, place, logs)
    return result


def _boxes(sets: Sets) -> Iterator[dict[int, float | tuple[float, float]]]:
    """Points and windows by variable, which together are the sets and exclude each other."""
    choices: list[list[float | tuple[float, float]]] = []
    for one in sets.values():
        if one.cell is not None:
            choices.append([one.cell])
        elif one.point is not None:
            choices.append([one.point])
        elif one.states is not None:
            choices.append([float(state) for state in sorted(one.states)])
        else:
            choices.append(list(one.intervals))
    for sides in itertools.product(*choices):
        yield dict(zip(sets, sides, strict=True))
