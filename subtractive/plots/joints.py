"""The joint density of two columns as shades, with rows of a table as dots."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from subtractive.plots.columns import check_column, codes_of, marginals, matching
from subtractive.plots.labels import label, value_label
from subtractive.plots.style import SHADES, axes_for, set_ticks
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.containers import AnyTable
from subtractive.tables.reading import Floats
from subtractive.tables.states import States
from subtractive.tables.table_density import TableQueries

GRID, MOST_DOTS = 64, 400
JITTER = 0.3


class Side(NamedTuple):
    """One side of the picture: the values at which the density is drawn, and its limits."""

    name: Hashable
    column: Column
    values: Any  # (q,) numbers, or states
    limits: tuple[float, float]


def joint(
    model: TableQueries,
    x: Hashable,
    y: Hashable,
    *,
    data: AnyTable = None,
    given: Mapping[Any, object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the exact joint density of two columns, of numbers or states.

    Shades follow the square root of the density, so that a peak leaves its surroundings visible.
    Dots are at most 400 rows of ``data`` in which ``given`` holds. Atoms are not shaded.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(3, structure="binary", max_epochs=1, random_state=0)
    >>> ax = sub.plots.joint(model.fit(table), "bill_length_mm", "bill_depth_mm", data=table)
    >>> len(ax.images), len(ax.collections)
    (1, 1)
    """
    for name in (x, y):
        check_column(model, name, "a joint density")
    if x == y:
        raise ValueError(f"a joint density needs two different columns, got {x!r} twice.")
    sides = joint_sides(model, (x, y), given)
    ax = axes_for(ax, (3.6, 3.1))
    draw_shades(ax, sides, joint_heights(model, sides, given))
    table = matching(model, data, given)
    if table is not None:
        rows = [codes_of(model._view(), table, side.name) for side in sides]
        draw_dots(ax, sides, rows)
    return ax


def joint_sides(
    model: TableQueries, names: Sequence[Hashable], given: Mapping[Any, object] | None
) -> list[Side]:
    """The sides of a picture of two columns."""
    found = marginals(model, given)
    known = [name for name in names if name not in found]
    if known:
        raise ValueError(f"column {known[0]!r} is given: it has no density left to draw.")
    return [_side(name, found[name].column, found[name].points) for name in names]


def joint_heights(
    model: TableQueries, sides: Sequence[Side], given: Mapping[Any, object] | None
) -> Floats:
    """The exact density at all pairs of values of two sides, (q, r)."""
    across, up = sides
    sizes = len(across.values), len(up.values)
    places = np.divmod(np.arange(sizes[0] * sizes[1]), sizes[1])
    asked = {s.name: list(s.values[at]) for s, at in zip(sides, places, strict=True)}
    density = model.condition(given) if given else model
    scores = density.marginal([side.name for side in sides]).score_samples(pd.DataFrame(asked))
    return np.exp(scores).reshape(sizes)


def draw_shades(ax: Axes, sides: Sequence[Side], heights: Floats) -> None:
    """Shade a joint density (q, r)."""
    across, up = sides
    # One point may be far above all others.
    brightest = float(np.quantile(heights, 0.998)) or float(heights.max()) or 1.0
    smooth = not any(isinstance(side.column, States) for side in sides)
    ax.imshow(
        heights.T,
        origin="lower",
        extent=(*across.limits, *up.limits),
        aspect="auto",
        cmap=SHADES,
        norm=PowerNorm(0.5, vmin=0, vmax=brightest),
        interpolation="bilinear" if smooth else "nearest",
    )
    for side, axis, most in ((across, ax.xaxis, 4), (up, ax.yaxis, 5)):
        if isinstance(side.column, States):
            names = [value_label(value, 14) for value in side.column.values]
            axis.set_ticks(range(len(names)), names, fontsize=8)
        else:
            set_ticks(axis, side.column.kind, most)
    if isinstance(across.column, States) and sum(map(len, map(str, across.column.values))) > 24:
        ax.tick_params("x", labelrotation=40)
    ax.set_xlabel(label(across.name, 30), fontsize=9)
    ax.set_ylabel(label(up.name, 26), fontsize=9)


def draw_dots(ax: Axes, sides: Sequence[Side], rows: Sequence[Floats]) -> None:
    """Dots for rows, evenly taken from all; those of states are spread over their cells."""
    known = np.flatnonzero(~np.isnan(rows[0]) & ~np.isnan(rows[1]))
    known = known[np.linspace(0, len(known) - 1, min(MOST_DOTS, len(known))).astype(int)]
    random = np.random.default_rng(0)
    places = []
    for side, values in zip(sides, rows, strict=True):
        spread = random.uniform(-JITTER, JITTER, len(known))
        places.append(values[known] + (spread if isinstance(side.column, States) else 0.0))
    ax.scatter(places[0], places[1], s=4, c="#1d2430", alpha=0.45, lw=0, rasterized=True)
    ax.set_xlim(*sides[0].limits)
    ax.set_ylim(*sides[1].limits)


def _side(name: Hashable, column: Column, points: Floats) -> Side:
    if isinstance(column, States):
        values = np.empty(len(column.values), dtype=object)
        values[:] = column.values
        return Side(name, column, values, (-0.5, len(values) - 0.5))
    assert isinstance(column, Numeric)
    edges = np.linspace(points[0], points[-1], GRID + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    # An atom has a probability in place of a density: a number beside it is taken.
    free = np.where(np.isin(middles, column.atoms), np.nextafter(middles, np.inf), middles)
    return Side(name, column, free, (edges[0], edges[-1]))
