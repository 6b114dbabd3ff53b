"""Distribution functions and quantiles of columns, of many of them in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.test_functions import CumulativeAt
from subtractive.tables.box_points import PointsInside, marginals_given
from subtractive.tables.columns import BEYOND, Column, Numeric
from subtractive.tables.expectations import (
    box_log_weights,
    one_box,
    passes,
    window_of,
    without_window,
)
from subtractive.tables.marginal_forms import Marginals
from subtractive.tables.reading import Floats

# All codes, atoms beyond the others among them, are between these points.
_NEAR, _FAR = np.linspace(-6.0, 6.0, 49), np.geomspace(6.5, BEYOND + 40.0, 12)
_FIRST = np.concatenate([-_FAR[::-1], _NEAR, _FAR])
# A quantile is sought beside the place where a line between two points has its level, at these
# shares of their distance, until it is known to this width.
_BESIDE, _WIDTH, _MOST_ROUNDS = 8.0 ** -np.arange(1.0, 9.0), 1e-11, 60


def cumulative(
    density: Density, evidence: Evidence, points: Mapping[int, Floats]
) -> dict[int, Floats]:
    """P(x_v <= t) at codes t (q,) of some variables, given that a box of evidence holds."""
    return Distributions(density, evidence).cumulative(points)


@final
class Distributions:
    """The distribution functions of all variables, given that a box of evidence holds."""

    def __init__(self, density: Density, evidence: Evidence) -> None:
        self.families = density.families
        parts = [one_box(evidence, box) for box in range(len(evidence))]
        self.boxes = [_Box(density, part) for part in parts]
        self.shares = np.ones(1)
        if len(evidence) > 1:
            log_weights = box_log_weights(density, evidence)
            shares = np.exp(log_weights - log_weights.max())
            self.shares = shares / shares.sum()

    def cumulative(self, points: Mapping[int, Floats]) -> dict[int, Floats]:
        """P(x_v <= t) at codes t (q,) of some variables."""
        result = {variable: np.zeros(len(codes)) for variable, codes in points.items()}
        for box, share in zip(self.boxes, self.shares, strict=True):
            for variable, heights in _of_box(box, points).items():
                result[variable] += share * heights
        return result

    def quantile_codes(self, variables: Sequence[int], levels: Floats) -> dict[int, Floats]:
        """The codes (q,) at which the distribution functions of variables reach levels (q,)."""
        points = {}
        for variable in variables:
            atoms = np.array(self.families[variable].atoms)
            # A jump at an atom is between two neighbouring numbers.
            points[variable] = np.unique([*_FIRST, *atoms, *np.nextafter(atoms, -np.inf)])
        brackets: dict[int, Floats] = {}
        for _ in range(_MOST_ROUNDS):
            for variable, found in self.cumulative(points).items():
                before = brackets.get(variable)
                brackets[variable] = _brackets(points[variable], found, levels, before)
            wide = {v: b for v, b in brackets.items() if (b[1] - b[0]).max() > _WIDTH}
            points = {v: np.unique(_beside(bracket, levels)) for v, bracket in wide.items()}
            if not points:
                break
        return {variable: brackets[variable][1] for variable in variables}


@final
class _Box:
    """One box, and what is known of the marginals given it."""

    def __init__(self, density: Density, evidence: Evidence) -> None:
        self.density, self.evidence = density, evidence
        self._marginals: dict[int | None, Marginals | PointsInside] = {}

    def marginals(self, without: int | None) -> Marginals | PointsInside:
        """The marginals of all variables, or those without the window of one of them."""
        if without not in self._marginals:
            asked = self.evidence if without is None else without_window(self.evidence, without)
            self._marginals[without] = marginals_given(self.density, asked)
        return self._marginals[without]


@torch.no_grad()
def _of_box(box: _Box, points: Mapping[int, Floats]) -> dict[int, Floats]:
    density, evidence = box.density, box.evidence
    heights = {}
    for opened, group in passes(evidence, points):
        questions: list[TestFunctions | None] = [None] * density.num_variables
        for variable in group:
            window = window_of(evidence, variable)
            codes = np.append(np.clip(points[variable], *window), window)
            questions[variable] = CumulativeAt(torch.from_numpy(codes))
        answers = box.marginals(opened).expectations(questions)
        for variable in group:
            answer = answers[variable]
            assert answer is not None
            found, low, high = np.split(answer[0].numpy(), [-2, -1])
            heights[variable] = np.clip((found - low) / (high - low), 0.0, 1.0)
    return heights


def _brackets(points: Floats, heights: Floats, levels: Floats, before: Floats | None) -> Floats:
    """Points around each level, and the heights there: low, high, F(low), F(high), (4, q)."""
    heights = np.maximum.accumulate(heights)  # but for rounding they are in order
    place = np.searchsorted(heights, levels, side="left")
    low, high = np.clip(place - 1, 0, None), np.clip(place, None, len(points) - 1)
    found = np.stack([points[low], points[high], heights[low], heights[high]])
    if before is None:
        return found
    # A level may be between a point and an end of the last bracket.
    found[0::2] = np.where((place > 0) & (found[0] > before[0]), found[0::2], before[0::2])
    is_inside = (place < len(points)) & (found[1] < before[1])
    found[1::2] = np.where(is_inside, found[1::2], before[1::2])
    return found


def _beside(bracket: Floats, levels: Floats) -> Floats:
    """Points inside brackets (4, q), most of them near where a line has the level."""
    low, high, first, last = bracket
    width = high - low
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num((levels - first) / (last - first), nan=0.5)
    guess = low + width * np.clip(share, 0.0, 1.0)
    steps = width * _BESIDE[:, None]
    near = np.concatenate([guess[None], guess - steps, guess + steps, (low + high)[None] / 2])
    return np.asarray(np.clip(near, low, high).ravel())


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
