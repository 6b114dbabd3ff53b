"""Expectations in users' units: sums over points of the exact marginals of variables.

Under monotone transforms no moment has a closed form, but the density of a variable given any
evidence is exact, and smooth between the knots: Gauss-Legendre rules integrate it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.test_functions import DensityAt
from subtractive.inputs.weighted_points import WeightedPoints
from subtractive.tables.affine_means import affine_mean
from subtractive.tables.box_points import Draws, PointsInside, marginals_given
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.joint_boxes import (
    box_weight,
    have_the_same_window,
    joint_variables,
    one_window_weights,
    sample_box,
    without_windows,
)
from subtractive.tables.reading import Floats

# Codes are integrated over panels of at most this width: finely where most of the mass is.
ROW_SAMPLES = 2000  # where there is no closed form
REACH, PANEL, FAR_REACH, FAR_PANEL, NODES = 6.0, 0.03125, 24.0, 0.5, 8


Function = Callable[[Floats], Floats]  # of codes (q,), one or several (r, q)


class Points(NamedTuple):
    """Codes (q,) of a variable, and their weights (q,) in an integral over its base measure."""

    codes: Floats
    weights: Floats

    def inside(self, window: tuple[float, float]) -> Points:
        """Those of a window ``lower < x <= upper``."""
        kept = (self.codes > window[0]) & (self.codes <= window[1])
        return Points(self.codes[kept], self.weights[kept])


def integration_points(
    column: Column, window: tuple[float, float] = (-math.inf, math.inf)
) -> Points:
    """Points that integrate a smooth function of a column's codes over a window of them."""
    if not isinstance(column, Numeric):
        states = np.arange(column.family(signed=True).num_states or 0, dtype=np.float64)
        return Points(states, np.ones(len(states))).inside(window)
    near = np.arange(-REACH, REACH + PANEL / 2, PANEL)
    far = np.arange(REACH, FAR_REACH + FAR_PANEL / 2, FAR_PANEL)
    ends = [end for end in window if math.isfinite(end)]
    edges = np.unique(np.concatenate([near, far, -far, column.transform.breaks, ends]))
    edges = edges[(edges >= window[0]) & (edges <= window[1])]
    edges = edges[np.append(np.diff(edges) > 1e-12, [True])]
    at, weight = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half * (at + 1)).ravel()
    weights = (half * weight).ravel()
    atoms = Points(column.atom_codes, np.ones(len(column.atoms))).inside(window)
    return Points(np.append(nodes, atoms.codes), np.append(weights, atoms.weights))


@torch.no_grad()
def expectations(
    density: Density,
    columns: Sequence[Column],
    evidence: Evidence,
    functions: Mapping[int, Function],
) -> dict[int, Floats]:
    """E[h(x_v) | evidence], (n, r), of r functions of the codes of some variables.

    All rows of evidence must have the same windows. NaN where a variable is observed.
    """
    joint = joint_variables(density, evidence)
    if joint and joint != list(functions) and len(evidence) > 1:
        known = evidence.observed[:, joint].all(1)
        if bool(known.all()):  # inside of their windows, which say nothing more
            evidence = without_windows(evidence, joint)
        elif not bool(known.any()):
            return _by_samples(density, columns, evidence, functions)
        else:
            return _by_parts(density, columns, evidence, functions, known)
    found: dict[int, Floats] = {}
    for opened, group in passes(evidence, functions):
        questions: list[TestFunctions | None] = [None] * len(columns)
        for variable in group:
            points = _points(columns[variable], variable, evidence)
            heights = np.atleast_2d(functions[variable](points.codes))
            rows = np.vstack([np.ones(len(points.codes)), heights]) * points.weights
            question = WeightedPoints(torch.from_numpy(points.codes), torch.from_numpy(rows))
            closed = None
            if opened is None and functions[variable] == columns[variable].numbers:
                closed = affine_mean(columns[variable], question)  # type: ignore[arg-type]
            questions[variable] = closed or question
        asked = evidence if opened is None else without_window(evidence, opened)
        if len(asked) == 1:
            answers = marginals_given(density, asked).expectations(questions)
        else:
            answers = density.expectations(asked, questions)
        for variable in group:
            answer = answers[variable]
            assert answer is not None
            numbers = answer.numpy()
            found[variable] = numbers[:, 1:] / numbers[:, :1]
    return found


def _by_parts(
    density: Density,
    columns: Sequence[Column],
    evidence: Evidence,
    functions: Mapping[int, Function],
    known: Tensor,
) -> dict[int, Floats]:
    """Rows in which all variables with windows are known, (n,), apart from the others."""
    found: dict[int, Floats] = {}
    for some in (known, ~known):
        rows = some.nonzero()[:, 0]
        for v, part in expectations(density, columns, evidence.rows(rows), functions).items():
            found.setdefault(v, np.full((len(evidence), part.shape[1]), math.nan))[rows] = part
    return found


def _by_samples(
    density: Density,
    columns: Sequence[Column],
    evidence: Evidence,
    functions: Mapping[int, Function],
) -> dict[int, Floats]:
    """Means over exact samples, where a box has no closed form."""
    rows = torch.arange(len(evidence)).repeat_interleave(ROW_SAMPLES)
    drawn = sample_box(density, evidence.rows(rows), torch.Generator().manual_seed(0)).numpy()
    found = {}
    for variable, function in functions.items():
        numbers = np.atleast_2d(function(drawn[:, variable]))  # (r, n · s)
        found[variable] = numbers.reshape(len(numbers), len(evidence), -1).mean(2).T
    return found


def averaged(
    density: Density,
    columns: Sequence[Column],
    evidence: Evidence,
    functions: Mapping[int, Function],
) -> dict[int, Floats]:
    """E[h(x_v)], (r,), given that one of the boxes of evidence holds."""
    log_weights = box_log_weights(density, evidence)
    shares = np.exp(log_weights - log_weights.max())
    shares = shares / shares.sum()
    total: dict[int, Floats] = {}
    for box, share in enumerate(shares):
        if share > 0:
            part = expectations(density, columns, one_box(evidence, box), functions)
            for variable, numbers in part.items():
                total[variable] = total.get(variable, 0.0) + share * numbers[0]
    return total


@torch.no_grad()
def box_log_weights(density: Density, evidence: Evidence) -> Floats:
    """log of the weight of each box, (m,), or of rows with the same windows."""
    # Whether a known value is inside of its window is asked elsewhere.
    known = [v for v in joint_variables(density, evidence) if bool(evidence.observed[:, v].all())]
    evidence = without_windows(evidence, known) if known else evidence
    joint = joint_variables(density, evidence)
    if not joint:
        return np.asarray(density.log_weight(evidence).numpy())
    if len(joint) == 1 and have_the_same_window(evidence, joint[0]):
        return one_window_weights(density, evidence, joint[0])
    return np.array([box_weight(density, one_box(evidence, k))[0] for k in range(len(evidence))])


def one_box(evidence: Evidence, box: int) -> Evidence:
    """One row of evidence."""
    return evidence.rows(torch.tensor([box]))


def window_of(evidence: Evidence, variable: int) -> tuple[float, float]:
    """The window of a variable, in all rows of evidence alike."""
    if evidence.lower is None or evidence.upper is None:
        return -math.inf, math.inf
    return float(evidence.lower[0, variable]), float(evidence.upper[0, variable])


def _points(column: Column, variable: int, evidence: Evidence) -> Points:
    points = integration_points(column, window_of(evidence, variable))
    if variable not in evidence.states:
        return points
    kept = evidence.states[variable].numpy()[points.codes.astype(int)]
    return Points(points.codes[kept], points.weights[kept])


def passes(evidence: Evidence, variables: Iterable[int]) -> Iterator[tuple[int | None, list[int]]]:
    """The variables to be asked about in each pass, and the one whose window is to be opened.

    Those without a window take one pass together, each of the others one of its own.
    """
    every, restricted = list(variables), evidence.restricted()
    free = [variable for variable in every if variable not in restricted]
    if free:
        yield None, free
    for variable in every:
        if variable in restricted:
            yield variable, [variable]


def without_window(evidence: Evidence, variable: int) -> Evidence:
    """The same evidence on all other variables: the window of this one is in its points."""

    def opened(bound: Tensor | None, value: float) -> Tensor | None:
        if bound is None:
            return None
        bound = bound.clone()
        bound[:, variable] = value
        return bound

    return replace(
        evidence,
        lower=opened(evidence.lower, -math.inf),
        upper=opened(evidence.upper, math.inf),
        states={v: mask for v, mask in evidence.states.items() if v != variable},
    )


def heights(
    density: Density, evidence: Evidence, points: Mapping[int, Floats]
) -> dict[int, Floats]:
    """The densities of variables at codes (q,), given that one of the boxes of evidence holds."""
    return weigh_heights(density, evidence, points)[1]


@torch.no_grad()
def weigh_heights(
    density: Density,
    evidence: Evidence,
    points: Mapping[int, Floats],
    draws: Draws | None = None,
) -> tuple[float, dict[int, Floats]]:
    """log of the weight of evidence, and :func:`heights`; zeros if evidence is impossible."""
    boxes = [one_box(evidence, box) for box in range(len(evidence))]
    parts = [_weigh_box(density, box, points, draws) for box in boxes]
    whole = float(np.logaddexp.reduce([log_weight for log_weight, _ in parts]))
    total = {variable: np.zeros(len(codes)) for variable, codes in points.items()}
    for _, found in parts:
        for variable, (log_share, numbers) in found.items():
            if log_share > -math.inf:
                total[variable] += np.exp(log_share - whole) * np.maximum(numbers, 0.0)
    return whole, total


def _weigh_box(
    density: Density, box: Evidence, points: Mapping[int, Floats], draws: Draws | None
) -> tuple[float, dict[int, tuple[float, Floats]]]:
    """log of the weight of a box; for each variable a log-weight and densities to be times it."""
    found: dict[int, tuple[float, Floats]] = {}
    log_weight = None
    for opened, group in passes(box, points):
        # The density without the window, where it is inside, times the weight without it.
        asked = box if opened is None else without_window(box, opened)
        questions: list[TestFunctions | None] = [None] * density.num_variables
        for variable in group:
            questions[variable] = DensityAt(torch.from_numpy(points[variable]))
        log_share, answers = _weigh(density, asked, questions, draws)
        log_weight = log_share if opened is None else log_weight
        for variable in group:
            answer = answers[variable]
            assert answer is not None
            codes = points[variable]
            inside = np.isin(codes, _points_inside(codes, variable, box))
            found[variable] = log_share, inside * answer[0].numpy()
    if log_weight is None:
        log_weight = float(box_log_weights(density, box)[0])
    return log_weight, found


def _weigh(
    density: Density, box: Evidence, questions: Sequence[TestFunctions | None], draws: Draws | None
) -> tuple[float, Sequence[Tensor | None]]:
    """log of the weight of a box, and expectations, in one pass if there is a closed form."""
    if joint_variables(density, box):
        return PointsInside(density, box, draws).weigh(questions)
    log_weight, answers = density.weigh_and_expect(box, questions)
    return float(log_weight[0]), answers


def _points_inside(codes: Floats, variable: int, evidence: Evidence) -> Floats:
    low, high = window_of(evidence, variable)
    kept = (codes > low) & (codes <= high)
    if variable in evidence.states:
        kept &= evidence.states[variable].numpy()[codes.astype(int)]
    return codes[kept]
