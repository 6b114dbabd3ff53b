"""The distribution of one column: the model's density over the table's histogram."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subtractive.plots.columns import (
    Marginal,
    check_column,
    codes_of,
    edges_between,
    heights_of,
    marginals,
    matching,
    numbers_of,
)
from subtractive.plots.labels import label, value_label
from subtractive.plots.style import (
    DATA,
    MODEL,
    PER_CENT,
    axes_for,
    legend,
    set_ticks,
    without_heights,
)
from subtractive.tables.containers import AnyTable
from subtractive.tables.reading import Floats
from subtractive.tables.table_density import TableQueries

MOST_BARS = 16


def marginal(
    model: TableQueries,
    column: Hashable,
    *,
    data: AnyTable = None,
    given: Mapping[Any, object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the exact density of a column, or the probabilities of its states.

    Atoms, single numbers with a probability of their own, are bars with an axis on the right.
    With ``data``, its rows in which ``given`` holds are drawn behind.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(3, structure="binary", max_epochs=1, random_state=0)
    >>> ax = sub.plots.marginal(model.fit(table), "bill_length_mm", data=table)
    >>> ax.get_xlabel()
    'bill_length_mm'
    """
    check_column(model, column, "a marginal")
    found = marginals(model, given).get(column)
    if found is None:
        raise ValueError(f"column {column!r} is given: it has no distribution left to draw.")
    table = matching(model, data, given)
    ax = axes_for(ax)
    if found.is_states:
        codes = None if table is None else codes_of(model._view(), table, column)
        draw_states(ax, found, codes)
    else:
        values = None if table is None else numbers_of(model._view(), table, column)
        draw_numbers(ax, found, values)
    ax.set_xlabel(label(column, 40), fontsize=9)
    legend(ax)
    return ax


def draw_numbers(ax: Axes, found: Marginal, values: Floats | None) -> None:
    """A density over the histogram of values (n,), and atoms as bars."""
    low, high = found.points[0], found.points[-1]
    tallest = 0.0
    if values is not None and len(values):
        edges = edges_between(low, high, found.column)
        heights = heights_of(values, edges, found.column)
        tallest = float(heights.max())
        ax.stairs(heights, edges, fill=True, color=DATA, label="data")
    ax.plot(found.points, found.density, color=MODEL, lw=1.5, label="model")
    ax.set_ylim(0, 1.08 * max(tallest, top_of(found.density, tallest)) or 1.0)
    without_heights(ax)
    set_ticks(ax.xaxis, found.column.kind, 5)
    if found.values:
        draw_atoms(ax, found, values)
    else:
        ax.set_xlim(low, high)


def top_of(density: Floats, tallest: float) -> float:
    """The top of a curve: a pole, beside which all else would be flat, is cut off."""
    highest = float(density.max(initial=0.0))
    return min(highest, 2 * tallest) if tallest > 0 else highest


def draw_atoms(ax: Axes, found: Marginal, values: Floats | None) -> None:
    """Bars of probabilities at the atoms, on an axis of their own."""
    ends = [*found.points[[0, -1]], *found.values]
    low, high = min(ends), max(ends)
    width = 0.02 * (high - low)
    right = ax.twinx()
    right.spines[["top", "left"]].set_visible(False)
    # Bars at the lower end of a column stand before it, where they hide nothing.
    places = np.array(found.values) - np.where(np.array(found.values) <= low, 1.6 * width, 0.0)
    if values is not None and len(values):
        shares = [float((values == atom).mean()) for atom in found.values]
        right.bar(places - width / 2, shares, width, color=DATA, ec="white", lw=0.5)
    right.bar(places + width / 2, found.probabilities, width, color=MODEL, ec="white", lw=0.5)
    right.set_ylim(0, None)
    right.yaxis.set_major_formatter(PER_CENT)
    right.yaxis.set_major_locator(MaxNLocator(3))
    right.tick_params(labelsize=8, length=3)
    if len(places) == 1:
        right.set_ylabel(f"P(= {found.values[0]:g})", fontsize=8)
    ax.set_xlim(low - 3.2 * width, high + 2 * width)


def draw_states(ax: Axes, found: Marginal, codes: Floats | None) -> int:
    """Bars of the states' probabilities beside their shares; how many rare ones are left out."""
    size = len(found.values)
    shares = np.zeros(size)
    if codes is not None:
        known = codes[~np.isnan(codes)].astype(int)
        shares = np.bincount(known, minlength=size) / max(len(known), 1)
    weight = found.probabilities + shares
    kept = np.sort(np.argsort(-weight, kind="stable")[:MOST_BARS])
    places = np.arange(len(kept))[::-1]
    if codes is None:
        ax.barh(places, found.probabilities[kept], 0.7, color=MODEL, label="model")
    else:
        ax.barh(places + 0.2, shares[kept], 0.38, color=DATA, label="data")
        ax.barh(places - 0.2, found.probabilities[kept], 0.38, color=MODEL, label="model")
    ax.set_yticks(places, [value_label(found.values[state]) for state in kept], fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(PER_CENT)
    return size - len(kept)
