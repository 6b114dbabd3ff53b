"""Questions given a box on columns that share a full covariance: sums over points inside the box.

Given the numbers of these columns everything else has a closed form. One or two of them are
integrated over a grid of their codes, more are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import Expectations
from subtractive.inputs.base import TestFunctions
from subtractive.tables.joint_boxes import (
    atoms_of,
    box_weight,
    inside,
    joint_variables,
    sample_box,
    without_windows,
)
from subtractive.tables.marginal_forms import Marginals
from subtractive.tables.reading import Floats

# Codes are normal scores. A Gauss-Legendre rule of this spacing integrates bells that are as
# narrow as that, which columns with a correlation of 0.99 have given each other.
REACH, SPACING, COARSE = 6.0, 0.125, 0.25
FEWEST = 12
NUM_SAMPLES = 500
NUM_KEPT, MOST_SHOWN = 20_000, 150  # of draws for pictures


def marginals_given(density: Density, box: Evidence) -> Marginals | PointsInside:
    """What answers questions about single columns given one box (1, d)."""
    if joint_variables(density, box):
        return PointsInside(density, box)
    return Marginals(density, box)


@final
class Draws:
    """Samples of a density without windows, kept for boxes that differ in nothing else.

    One who drags the end of an interval asks for many such boxes in turn.
    """

    def __init__(self, density: Density) -> None:
        self.density = density
        self._last: tuple[object, Tensor] | None = None

    @torch.no_grad()
    def inside(self, box: Evidence, variables: list[int]) -> tuple[Tensor, float]:
        """Some samples (r, d) inside a box (1, d), and the log of the share of all that are."""
        free = without_windows(box, variables)
        key = _contents(free)
        last = self._last
        if last is None or last[0] != key:
            rows = free.rows(torch.zeros(NUM_KEPT, dtype=torch.long))
            last = key, self.density.sample_given(rows, torch.Generator().manual_seed(0))
            self._last = last
        found = last[1][inside(last[1], box, variables)]
        share = len(found) / NUM_KEPT
        return found[:MOST_SHOWN], math.log(share) if share else -math.inf


def _contents(evidence: Evidence) -> object:
    """What is given, to be compared."""
    parts = (evidence.x, evidence.observed, evidence.lower, evidence.upper)
    states = tuple((v, tuple(mask.tolist())) for v, mask in sorted(evidence.states.items()))
    known = tuple(None if part is None else tuple(part.nan_to_num().tolist()[0]) for part in parts)
    return known, states


@final
class PointsInside:
    """Points inside a box (1, d): given them, all questions have closed forms."""

    def __init__(self, density: Density, box: Evidence, draws: Draws | None = None) -> None:
        self.density, self.box = density, box
        self.log_weight: float | None = None
        variables = joint_variables(density, box)
        self.is_drawn = len(variables) > 2
        if self.is_drawn and draws is not None:
            codes, log_share = draws.inside(box, variables)
            if len(codes) >= FEWEST:
                self.rows = _observed(box, variables, codes[:, variables])
                free = without_windows(box, variables)
                self.log_weight = float(density.log_weight(free)[0]) + log_share
                return
        if self.is_drawn:
            rows = box.rows(torch.zeros(NUM_SAMPLES, dtype=torch.long))
            codes = sample_box(density, rows, torch.Generator().manual_seed(0))[:, variables]
            self.rows = _observed(box, variables, codes)
            return
        spacing = SPACING if len(variables) == 1 else COARSE
        lines = [_line(density, box, variable, spacing) for variable in variables]
        grid = np.array(list(itertools.product(*(line[0] for line in lines))))
        widths = [math.prod(some) for some in itertools.product(*(line[1] for line in lines))]
        self.log_widths = torch.tensor(widths, dtype=torch.float64).log()
        self.rows = _observed(box, variables, torch.from_numpy(grid))

    @torch.no_grad()
    def weigh(self, functions: Sequence[TestFunctions | None]) -> tuple[float, Expectations]:
        """log of the weight of the box, and expectations (1, q) of other variables."""
        if self.is_drawn:
            answers = self.density.expectations(self.rows, functions)
            means = [
                None if answer is None else answer.mean(0, keepdim=True) for answer in answers
            ]
            if self.log_weight is None:
                self.log_weight = box_weight(self.density, self.box).log_weight
            return self.log_weight, means
        log_weights, answers = self.density.weigh_and_expect(self.rows, functions)
        logs = log_weights + self.log_widths
        shares = logs.softmax(0)[None]
        # What is impossible has no expectations, and does not count.
        found = [None if a is None else shares @ a.nan_to_num(0.0) for a in answers]
        return float(logs.logsumexp(0)), found

    def expectations(self, functions: Sequence[TestFunctions | None]) -> Expectations:
        """Expectations (1, q) of functions of variables that have no window here."""
        return self.weigh(functions)[1]


def _observed(box: Evidence, variables: list[int], codes: Tensor) -> Evidence:
    """The box with some variables at codes (r, k) in place of their windows."""
    rows = without_windows(box, variables).rows(torch.zeros(len(codes), dtype=torch.long))
    x, observed = rows.x.clone(), rows.observed.clone()
    x[:, variables], observed[:, variables] = codes, True
    return replace(rows, x=x, observed=observed)


def _line(density: Density, box: Evidence, variable: int, spacing: float) -> tuple[Floats, Floats]:
    """Codes of a variable inside its window, and their weights in an integral over it."""
    assert box.lower is not None
    assert box.upper is not None
    low, high = float(box.lower[0, variable]), float(box.upper[0, variable])
    # A window that begins far away, where there is hardly anything, still has a length.
    start = max(low, -REACH) if high > -REACH else max(low, high - REACH)
    end = min(high, REACH) if low < REACH else min(high, low + REACH)
    at, weight = np.polynomial.legendre.leggauss(max(FEWEST, math.ceil((end - start) / spacing)))
    half = (end - start) / 2
    # An atom has a probability, not a density: its node counts as it is.
    atoms = np.array([atom for atom in sorted(atoms_of(density, variable)) if low < atom <= high])
    codes = np.append(start + half * (at + 1), atoms)
    return codes, np.append(half * weight, np.ones(len(atoms)))
