"""Distribution functions and quantiles of columns, of many of them in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.test_functions import CumulativeAt
from subtractive.tables.columns import BEYOND, Column, Numeric
from subtractive.tables.expectations import (
    box_log_weights,
    one_box,
    window_of,
    without_window,
)
from subtractive.tables.joint_boxes import NUM_SAMPLES, joint_variables, sample_box
from subtractive.tables.reading import Floats

# All codes, atoms beyond the others among them, are in this range; it is cut into so many cells,
# and the cell of a quantile again and again.
_RANGE, _FIRST_CELLS, _CELLS, _ROUNDS = BEYOND + 40.0, 320, 16, 10


def cumulative(
    density: Density, evidence: Evidence, points: Mapping[int, Floats]
) -> dict[int, Floats]:
    """P(x_v <= t) at codes t (q,) of some variables, given that a box of evidence holds."""
    log_weights = box_log_weights(density, evidence)
    shares = np.exp(log_weights - log_weights.max())
    result = {variable: np.zeros(len(codes)) for variable, codes in points.items()}
    for box, share in enumerate(shares / shares.sum()):
        part = one_box(evidence, box)
        for variable, heights in _of_box(density, part, points).items():
            result[variable] += share * heights
    return result


@torch.no_grad()
def _of_box(
    density: Density, evidence: Evidence, points: Mapping[int, Floats]
) -> dict[int, Floats]:
    if (joint := joint_variables(density, evidence)) and joint != list(points):
        return _among_samples(density, evidence, points)
    free = [variable for variable in points if not evidence.is_restricted([variable])]
    heights = {}
    for group in (free, *([variable] for variable in points if variable not in free)):
        questions: list[TestFunctions | None] = [None] * density.num_variables
        for variable in group:
            window = window_of(evidence, variable)
            codes = np.append(np.clip(points[variable], *window), window)
            questions[variable] = CumulativeAt(torch.from_numpy(codes))
        asked = evidence if group is free else without_window(evidence, group[0])
        answers = density.expectations(asked, questions) if group else []
        for variable in group:
            answer = answers[variable]
            assert answer is not None
            found, low, high = np.split(answer[0].numpy(), [-2, -1])
            heights[variable] = np.clip((found - low) / (high - low), 0.0, 1.0)
    return heights


def _among_samples(
    density: Density, evidence: Evidence, points: Mapping[int, Floats]
) -> dict[int, Floats]:
    """Shares of exact samples, where a box has no closed form."""
    rows = evidence.rows(torch.zeros(NUM_SAMPLES, dtype=torch.long))
    drawn = sample_box(density, rows, torch.Generator().manual_seed(0)).numpy()
    sorted_ = {variable: np.sort(drawn[:, variable]) for variable in points}
    return {v: np.searchsorted(sorted_[v], t, "right") / NUM_SAMPLES for v, t in points.items()}


def quantile_codes(
    density: Density, evidence: Evidence, variables: Sequence[int], levels: Floats
) -> dict[int, Floats]:
    """The codes (q,) at which the distribution functions of variables reach levels (q,)."""
    grid = np.linspace(-_RANGE, _RANGE, _FIRST_CELLS + 1)
    first = cumulative(density, evidence, dict.fromkeys(variables, grid))
    ends = {}
    for variable, heights in first.items():
        cell = np.clip(np.searchsorted(heights, levels, side="left") - 1, 0, _FIRST_CELLS - 1)
        ends[variable] = np.stack([grid[cell], grid[cell + 1]], 1)  # (q, 2)
    for _ in range(_ROUNDS):
        edges = {v: np.linspace(e[:, 0], e[:, 1], _CELLS + 1, axis=1) for v, e in ends.items()}
        inner = {v: e[:, 1:-1].ravel() for v, e in edges.items()}
        for variable, heights in cumulative(density, evidence, inner).items():
            cell = (heights.reshape(len(levels), -1) < levels[:, None]).sum(1)
            rows = np.arange(len(levels))
            own = edges[variable]
            ends[variable] = np.stack([own[rows, cell], own[rows, cell + 1]], 1)
    return {variable: ends[variable][:, 1] for variable in variables}


def snapped(column: Numeric, codes: Floats) -> Floats:
    """Codes (q,) with those that are atoms up to rounding replaced by them."""
    for atom in column.atom_codes:
        codes = np.where(np.abs(codes - atom) < 1e-9, atom, codes)
    return codes


def state_quantiles(column: Column, probabilities: Floats, levels: Floats) -> Floats:
    """The smallest numbers whose cumulative probability reaches levels (q,)."""
    values = column.numbers(np.arange(len(probabilities), dtype=np.float64))
    if values is None:
        raise ValueError(
            f"column {column.name!r} holds categories, which have no quantiles. Ask for "
            "probabilities."
        )
    order = np.argsort(values, kind="stable")
    heights = np.cumsum(probabilities[order])
    place = np.searchsorted(heights, levels * heights[-1] - 1e-12)
    return np.asarray(values[order][np.minimum(place, len(values) - 1)])


def check_levels(levels: object) -> Floats:
    """Levels (q,) between 0 and 1, as the user gave them."""
    try:
        row = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    except (TypeError, ValueError):
        row = np.array([math.nan])
    if row.ndim != 1 or not bool(((row > 0) & (row < 1)).all()):
        raise ValueError(f"levels must be numbers between 0 and 1, got {levels!r}.")
    return row
