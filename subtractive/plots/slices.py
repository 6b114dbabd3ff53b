"""How the distribution of one column changes with another."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from matplotlib.axes import Axes

from subtractive.plots.columns import Marginal, check_column, marginals
from subtractive.plots.labels import label, value_label
from subtractive.plots.marginals import top_of
from subtractive.plots.style import CYCLE, PER_CENT, axes_for, legend, set_ticks, without_heights
from subtractive.tables.states import States
from subtractive.tables.table_density import TableQueries

LEVELS = (0.1, 0.5, 0.9)


def slices(
    model: TableQueries,
    column: Hashable,
    by: Hashable,
    *,
    values: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the exact density of a column given each of some values of another.

    Without ``values`` these are the most probable states of ``by``, at most eight, or its
    quantiles at 10, 50 and 90 per cent.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(3, structure="binary", max_epochs=1, random_state=0)
    >>> ax = sub.plots.slices(model.fit(table), "body_mass_g", "species")
    >>> [line.get_label() for line in ax.lines]
    ['Adelie', 'Chinstrap', 'Gentoo']
    """
    for name in (column, by):
        check_column(model, name, "a slice")
    if column == by:
        raise ValueError(f"slices need two different columns, got {column!r} twice.")
    chosen = _values(model, by) if values is None else list(values)
    if not chosen or len(chosen) > len(CYCLE):
        raise ValueError(f"slices draw 1 to {len(CYCLE)} values, got {len(chosen)}.")
    found = [marginals(model, {by: value})[column] for value in chosen]
    ax = axes_for(ax)
    if found[0].is_states:
        _draw_states(ax, found, [value_label(value) for value in chosen])
    else:
        for one, value, colour in zip(found, chosen, CYCLE, strict=False):
            ax.plot(one.points, one.density, color=colour, lw=1.5, label=value_label(value))
        typical = float(np.median([one.density.max() for one in found]))
        ax.set_ylim(0, 1.08 * max(top_of(one.density, 1.5 * typical) for one in found) or 1.0)
        without_heights(ax)
        set_ticks(ax.xaxis, found[0].column.kind, 5)
    ax.set_xlabel(label(column, 40), fontsize=9)
    legend(ax, title=label(by), title_fontsize=8)
    return ax


def _values(model: TableQueries, by: Hashable) -> list[object]:
    """Values of a column that stand for all of it."""
    column = model._view().schema.column(by)
    if not isinstance(column, States):
        return list(model.quantile(by, LEVELS))
    found = marginals(model, None)[by]
    likely = np.sort(np.argsort(-found.probabilities, kind="stable")[: len(CYCLE)])
    return [column.values[state] for state in likely]


def _draw_states(ax: Axes, found: Sequence[Marginal], names: Sequence[str]) -> None:
    """Bars of the states, a group for each, one bar per slice."""
    width = 0.8 / len(found)
    places = np.arange(len(found[0].values))
    for number, (one, name, colour) in enumerate(zip(found, names, CYCLE, strict=False)):
        at = places + (number - (len(found) - 1) / 2) * width
        ax.bar(at, one.probabilities, width, color=colour, label=name)
    ax.set_xticks(places, [value_label(value, 12) for value in found[0].values], fontsize=8)
    ax.yaxis.set_major_formatter(PER_CENT)
