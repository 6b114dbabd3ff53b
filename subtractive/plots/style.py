"""How all plots look: their colours, and axes without what says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

DATA, MODEL, OTHER, SOFT = "#a9bccf", "#5b2a86", "#c7772e", "#7d8896"
CYCLE = ("#5b2a86", "#c7772e", "#2c7a7b", "#b3365f", "#4a6fa5", "#7a8b2f", "#8a6d3b", "#444b57")
SHADES = "Purples"  # light where nothing is
PER_CENT = FuncFormatter(lambda share, _: f"{100 * share:.3g}%")
SIZE = (3.6, 2.4)
# How microseconds of a column are written.
MOMENTS: dict[str, Callable[[float], str]] = {
    "date": lambda moment: str(pd.Timestamp(moment, unit="us").date()),
    "duration": lambda length: str(pd.Timedelta(length, unit="us")),
    "time": lambda length: str(pd.Timedelta(length, unit="us")).split()[-1][:5],
}


def axes_for(ax: Axes | None, size: tuple[float, float] = SIZE) -> Axes:
    """The axes to draw on: those given, or new ones in a figure of pyplot."""
    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    return quiet(ax)


def panel(size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """A figure for a page, of which pyplot knows nothing, with one pair of axes."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, quiet(figure.subplots())


def quiet(ax: Axes) -> Axes:
    """Leave out the lines that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8, length=3)
    return ax


def without_heights(ax: Axes) -> None:
    """Leave out the axis of a density, of which only the shape is looked at."""
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)


def set_ticks(axis: Axis, kind: str, most: int) -> None:
    """A few numbers along an axis, which are dates in a column of dates."""
    axis.set_major_locator(MaxNLocator(most if kind not in MOMENTS else 3))
    if kind in MOMENTS:
        axis.set_major_formatter(FuncFormatter(lambda place, _: MOMENTS[kind](round(place))))


def legend(ax: Axes, **options: Any) -> None:  # noqa: ANN401 - as matplotlib has it
    """A small legend without a frame."""
    ax.legend(**{"fontsize": 8, "frameon": False, "handlelength": 1.2, **options})
