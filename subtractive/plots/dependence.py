"""Which columns depend on each other: a matrix of mutual information."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from subtractive.plots.labels import label
from subtractive.plots.style import SHADES, axes_for
from subtractive.tables.table_density import TableQueries

MOST_NUMBERS = 10  # columns, up to which the cells hold numbers


def dependence(
    model: TableQueries,
    *,
    given: Mapping[Any, object] | None = None,
    n_samples: int = 1000,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mutual information of all pairs of columns, in nats, estimated by samples.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(3, structure="binary", max_epochs=1, random_state=0)
    >>> ax = sub.plots.dependence(model.fit(table), n_samples=100)
    >>> ax.images[0].get_array().shape
    (8, 8)
    """
    found = model.dependence(given, n_samples=n_samples)
    size = 1.6 + 0.34 * len(found)
    return draw_matrix(axes_for(ax, (size + 0.6, size)), found)


def draw_matrix(ax: Axes, found: pd.DataFrame) -> Axes:
    """Shade a square table of mutual information, its diagonal left empty."""
    values = found.to_numpy(dtype=np.float64, copy=True)
    np.fill_diagonal(values, np.nan)
    top = float(np.nanmax(values, initial=0.0)) or 1.0
    image = ax.imshow(values, cmap=SHADES, vmin=0, vmax=top)
    names = [label(name, 18) for name in found.columns]
    ax.set_xticks(range(len(names)), names, rotation=50, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(labelsize=8 if len(names) <= 20 else 6, length=0)
    ax.spines[:].set_visible(False)
    if len(names) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            if value >= 0.005:
                ink = "white" if value > 0.55 * top else "#333"
                text = f"{value:.2f}"
                ax.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, shrink=0.7)
    bar.set_label("mutual information, nats", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return ax
