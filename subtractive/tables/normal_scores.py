"""The curve from the numbers of a column to those of a standard normal, by its quantiles."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from subtractive.tables.reading import Floats
from subtractive.tables.transforms import NormalScores

# A curve has so many knots at least and at most, for so many rows each. Smooth columns need few:
# every knot more is one more number that is learned from the rows, and learned wrong.
LEAST_KNOTS, MOST_KNOTS, ROWS_PER_KNOT = 8, 1000, 32
FEWER, FEWEST = 4, 16  # times fewer knots are tried in turn, down to so many
FOLDS = 5  # in which numbers are held out to choose
# Nats per row by which more knots, which samples look better with, may be worse.
ALIKE = 1e-3
# This share of a row is expected beyond an end that only the rows speak for.
BEYOND_AN_END = 0.1


class Distinct(NamedTuple):
    """The different numbers of a column in their order, how many rows have each, (n,), and cells.

    Cells are lower and upper edges (n,): the numbers themselves where there is no resolution.
    """

    values: Floats
    counts: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats, cells: tuple[Floats, Floats]) -> Distinct:
        """Of rows (n,) with weights (n,)."""
        values, first, which = np.unique(values, return_index=True, return_inverse=True)
        counts = np.bincount(which, weights=weights).astype(np.float64)
        return cls(values, counts, cells[0][first], cells[1][first])

    @property
    def has_cells(self) -> bool:
        """Whether numbers stand for cells."""
        return not bool((self.lower == self.upper).all())

    def with_counts(self, counts: Floats) -> Distinct:
        """The numbers of which there are some, if so many rows have each."""
        there = counts > 1e-9
        return Distinct(*(part[there] for part in self._replace(counts=counts)))


class Ends(NamedTuple):
    """Where a column ends: bounds that nothing is beyond, and ends that hardly anything is."""

    low: float = -math.inf
    high: float = math.inf
    first: float = -math.inf
    last: float = math.inf


def normal_scores(
    values: Floats, weights: Floats, cells: tuple[Floats, Floats], ends: Ends
) -> NormalScores | None:
    """The curve through a column's quantiles; ``None`` if it has too few different values.

    Weights (n,) count rows. Numbers (n,) are spread over their ``cells``, lower and upper edges
    (n,), which are the numbers themselves where a column has no resolution. The number of knots
    is the one under which numbers that were held out are most likely.
    """
    distinct = Distinct.of(values, weights, cells)
    most = int(np.clip(distinct.counts.sum() / ROWS_PER_KNOT, LEAST_KNOTS, MOST_KNOTS))
    choices = [most]
    while choices[-1] > FEWEST:
        choices.append(max(FEWEST, choices[-1] // FEWER))
    best = most
    if len(choices) > 1:
        scores = [_held_out_score(distinct, knots, ends) for knots in choices]
        best = next(k for k, s in zip(choices, scores, strict=True) if s >= max(scores) - ALIKE)
    return _curve(distinct, best, ends)


def _held_out_score(distinct: Distinct, knots: int, ends: Ends) -> float:
    """Mean log-density, or log-mass of cells, of rows under curves of the others."""
    # Rows are dealt out number by number: the order in which they came may not matter.
    times = np.maximum(np.rint(distinct.counts), 1).astype(int)
    fold = np.random.default_rng(0).integers(0, FOLDS, int(times.sum()))
    which = np.repeat(np.arange(len(times)), times)
    total = 0.0
    for number in range(FOLDS):
        held = np.bincount(which[fold == number], minlength=len(times)) / times * distinct.counts
        rest = distinct.with_counts(distinct.counts - held)
        curve = _curve(rest, knots, ends) if len(rest.values) >= 2 else None
        if curve is None:
            return -math.inf
        judges = distinct.with_counts(held)
        total += float(judges.counts @ _log_densities(curve, judges))
    return total / float(distinct.counts.sum())


def _log_densities(curve: NormalScores, held: Distinct) -> Floats:
    if held.has_cells:
        lower, upper = (scipy.special.ndtr(curve.forward(x)) for x in (held.lower, held.upper))
        shares = upper - lower
        return np.asarray(np.log(np.maximum(shares, 1e-12)))
    codes = curve.forward(held.values)
    logs = -0.5 * codes**2 + curve.log_abs_det_jacobian(held.values)
    return np.asarray(np.maximum(logs, -700.0))


def _curve(distinct: Distinct, knots: int, ends: Ends) -> NormalScores | None:
    points, heights = _cumulative(distinct)
    count = float(distinct.counts.sum())
    levels = (np.arange(knots) + 0.5) / knots
    tail = levels[0] * 0.25 ** np.arange(1, 12)
    tail = tail[tail * count >= 2]
    levels = np.concatenate([tail[::-1], levels, 1 - tail])
    places = np.interp(levels, heights, points)
    gap = 1e-9 * max(points[-1] - points[0], np.abs(points).max() * 1e-6)
    keep = [0]
    for i in range(1, len(places)):
        if places[i] - places[keep[-1]] > gap:
            keep.append(i)
    x, z = places[keep], scipy.special.ndtri(levels[keep])
    low, high, first, last = ends
    inside = (x > max(low, first + gap)) & (x < min(high, last - gap))
    if inside.sum() < 2:
        return None
    end = float(scipy.special.ndtri(BEYOND_AN_END / count))
    outer = [(first, end)] if math.isfinite(first) else []
    x, z = np.array([*outer, *zip(x[inside], z[inside], strict=True)]).T
    if math.isfinite(last):
        x, z = np.append(x, last), np.append(z, -end)
    secants = np.diff(z) / np.diff(x)
    inner = 2 / (1 / secants[:-1] + 1 / secants[1:])
    slopes = np.concatenate([secants[:1], inner, secants[-1:]])
    return NormalScores(tuple(x.tolist()), tuple(z.tolist()), tuple(slopes.tolist()), low, high)


def _cumulative(distinct: Distinct) -> tuple[Floats, Floats]:
    """The distribution function of a column: where it bends, and how high it is there."""
    shares = distinct.counts / distinct.counts.sum()
    above = np.cumsum(shares)
    if not distinct.has_cells:
        return distinct.values, above - shares / 2
    points = np.stack([distinct.lower, distinct.upper], 1).ravel()
    heights = np.stack([above - shares, above], 1).ravel()
    return np.maximum.accumulate(points), heights
