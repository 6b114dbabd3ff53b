"""Whether a model is right about each column: its probability integral transforms."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subtractive.plots.columns import check_column
from subtractive.plots.labels import label
from subtractive.plots.pit import ks_distance, pit_values
from subtractive.plots.style import CYCLE, SOFT, axes_for, legend
from subtractive.tables.containers import AnyTable
from subtractive.tables.table_density import TableQueries

NAMED = 4  # curves with a colour and a name: those furthest off
BAND = 1.358  # the distance that 95 % of samples stay below, times the root of their size


def calibration(
    model: TableQueries,
    data: AnyTable,
    *,
    columns: Sequence[Hashable] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how well calibrated each column is.

    Each curve is the share of rows below the model's quantile at a level, minus the level. It is
    near zero if the model is right, and stays inside the band for 95 percent of right models. At
    most 2000 rows are used.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(3, structure="binary", max_epochs=1, random_state=0)
    >>> ax = sub.plots.calibration(model.fit(table), table, columns=["bill_length_mm"])
    >>> ax.get_xlabel()
    'quantile level'
    """
    for name in columns or ():
        check_column(model, name, "calibration")
    view = model._view()
    found = pit_values(view, view.schema.dated(model._read(data)))
    return draw_calibration(
        axes_for(ax, (4.8, 2.8)), found if columns is None else found[list(columns)]
    )


def draw_calibration(ax: Axes, found: pd.DataFrame) -> Axes:
    """Curves of probability integral transforms, those furthest off with their names."""
    levels = np.linspace(0, 1, 201)
    size = max(int(found.notna().sum().max()), 1)
    band = BAND / np.sqrt(size)
    ax.fill_between([0, 1], -band, band, color=SOFT, alpha=0.18, lw=0, label="95 % band")
    order = sorted(found.columns, key=lambda name: -ks_distance(found[name].to_numpy()))
    for place, name in reversed(list(enumerate(order))):
        known = np.sort(found[name].dropna().to_numpy())
        if len(known) == 0:
            continue
        off = np.searchsorted(known, levels, "right") / len(known) - levels
        is_named = place < NAMED
        ax.plot(
            levels,
            off,
            color=CYCLE[place] if is_named else SOFT,
            lw=1.3 if is_named else 0.6,
            label=label(name) if is_named else None,
        )
    reach = max(1.6 * band, float(np.abs(ax.get_ylim()).max()))
    ax.set_ylim(-reach, reach)
    ax.set_xlim(0, 1)
    ax.axhline(0, color=SOFT, lw=0.8)
    ax.set_xlabel("quantile level", fontsize=9)
    ax.set_ylabel("share of rows below − level", fontsize=9)
    legend(ax, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.28))
    return ax
