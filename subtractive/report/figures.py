"""Figures of a report about training and single columns: one small figure per statement."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from subtractive.learning.history import History
from subtractive.report.baselines import Comparison
from subtractive.report.view import View, density_of_values, num_states, probabilities
from subtractive.report.words import label
from subtractive.tables.columns import States
from subtractive.tables.reading import Floats

DATA, MODEL, OTHER = "#a9bccf", "#5b2a86", "#c7772e"
PANEL = (3.6, 2.3)
PER_CENT = FuncFormatter(lambda share, _: f"{100 * share:g}%")
MOST_BARS, CURVE_POINTS = 16, 401


def panel(size: tuple[float, float] = PANEL) -> tuple[Figure, Axes]:
    """A figure with one quiet pair of axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    return figure, axes


def quiet(axes: Axes) -> None:
    """Leave out the lines and digits that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=3)


def _legend(figure: Figure) -> None:
    """Above the axes, where it hides nothing."""
    figure.legend(fontsize=8, frameon=False, loc="outside upper right", ncols=2, handlelength=1.2)


def training_curves(history: History) -> Figure:
    """Mean log-likelihood per epoch, of training and of validation rows."""
    figure, axes = panel((4.8, 2.6))
    epochs = [row.epoch for row in history.epochs]
    mark = "o" if len(epochs) < 3 else ""
    axes.plot(epochs, history.train, color=OTHER, lw=1.4, marker=mark, ms=4, label="training")
    axes.plot(epochs, history.valid, color=MODEL, lw=1.4, marker=mark, ms=4, label="validation")
    best = [row for row in history.epochs if row.epoch == history.best_epoch]
    for row in best:
        axes.plot(row.epoch, row.valid, "o", color=MODEL, ms=7, mfc="white", label="best epoch")
    axes.set_ylim(*_without_the_start([*history.train, *history.valid]))
    axes.set_xlabel("epoch", fontsize=9)
    axes.set_ylabel("mean log-likelihood", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def _without_the_start(scores: list[float]) -> tuple[float, float]:
    """Limits that show the end of training: its first steps may be far below."""
    finite = np.array([score for score in scores if np.isfinite(score)] or [0.0, 1.0])
    top, middle = float(finite.max()), float(np.median(finite))
    bottom = max(float(finite.min()), top - 8 * (top - middle)) if top > middle else finite.min()
    space = 0.06 * (top - float(bottom)) or 0.5
    return float(bottom) - space, top + space


def comparison(result: Comparison) -> Figure:
    """Dots for mean log-likelihoods, with two standard errors on either side."""
    figure, axes = panel((4.8, 0.5 * len(result.rivals) + 0.8))
    rivals = result.rivals[::-1]
    for place, rival in enumerate(rivals):
        if np.isfinite(rival.mean):
            colour = MODEL if rival is result.rivals[0] else OTHER
            axes.errorbar(rival.mean, place, xerr=2 * rival.error, fmt="o", color=colour, ms=7)
    axes.set_yticks(
        range(len(rivals)), [rival.name.replace(", ", ",\n") for rival in rivals], fontsize=9
    )
    axes.set_ylim(-0.6, len(rivals) - 0.4)
    axes.set_xlabel("mean log-likelihood (further right is better)", fontsize=9)
    axes.grid(axis="x", color="#e5e8ec", lw=0.8)
    axes.set_axisbelow(True)
    return figure


def shown_range(view: View, variable: int) -> tuple[float, float]:
    """The values that a picture of a continuous column shows: most of the data, no far outlier."""
    column = view.scale(variable)
    values = view.values(variable)
    values = values[~np.isnan(values) & column.possible(values)]
    if len(np.unique(values)) < 2:
        ends = view.density.quantile(variable, torch.tensor([0.005, 0.995], dtype=torch.float64))
        drawn = column.numbers(ends.detach().numpy())
        assert drawn is not None
        values = np.concatenate([values, drawn])
    first, last = np.quantile(values, [0.01, 0.99])
    reach = 0.6 * (last - first)
    low, high = values.min(), values.max()
    if reach > 0:
        low, high = max(low, first - reach), min(high, last + reach)
    space = 0.04 * (high - low)
    return max(low - space, column.low), min(high + space, column.high)


def continuous_marginal(view: View, variable: int) -> Figure:
    """The exact density of a column over the histogram of its values."""
    figure, axes = panel()
    low, high = shown_range(view, variable)
    known = view.values(variable)
    known = known[~np.isnan(known)]
    edges = _edges(low, high, len(known), whole=view.scale(variable).kind == "whole")
    counts, _ = np.histogram(known, edges)
    heights = counts / (max(len(known), 1) * np.diff(edges))
    points = np.linspace(low, high, CURVE_POINTS)
    curve = density_of_values(view, variable, points)
    axes.stairs(heights, edges, fill=True, color=DATA, label="data")
    axes.plot(points, curve, color=MODEL, lw=1.5, label="model")
    # A column on a logarithmic scale may have a pole, which must not flatten the rest.
    tallest = float(heights.max())
    highest = min(float(curve.max()), 2 * tallest) if tallest > 0 else float(curve.max())
    axes.set_ylim(0, 1.08 * max(tallest, highest))
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    _legend(figure)
    return figure


def _edges(low: float, high: float, count: int, *, whole: bool) -> Floats:
    """The edges of a histogram; of whole numbers each bar has the same number of them."""
    bars = int(np.clip(2 * np.cbrt(count), 10, 50))
    if whole:
        width = max(1, int(np.ceil((high - low) / bars)))
        first = np.floor(low)
        return np.asarray(np.arange(first, high + width + 1, width) - 0.5)
    return np.linspace(low, high, bars + 1)


def discrete_marginal(view: View, variable: int) -> Figure:
    """Probabilities of the states of a column beside their shares in the data."""
    known = view.codes[:, variable]
    known = known[~np.isnan(known)].astype(int)
    model = probabilities(view, variable)
    data = np.bincount(known, minlength=len(model)) / max(len(known), 1)
    if isinstance(view.column(variable), States):
        return _bars(view, variable, model, data)
    return _counts(model, data)


def _bars(view: View, variable: int, model: Floats, data: Floats) -> Figure:
    names = [label(name, 18) for name in view.states(variable)]
    kept = np.arange(len(model))
    if len(model) > MOST_BARS:
        kept = np.sort(np.argsort(-data, kind="stable")[:MOST_BARS])
    figure, axes = panel((PANEL[0], max(PANEL[1], 0.24 * len(kept) + 0.6)))
    places = np.arange(len(kept))[::-1]
    axes.barh(places + 0.2, data[kept], 0.38, color=DATA, label="data")
    axes.barh(places - 0.2, model[kept], 0.38, color=MODEL, label="model")
    axes.set_yticks(places, [names[i] for i in kept], fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(PER_CENT)
    _legend(figure)
    return figure


def _counts(model: Floats, data: Floats) -> Figure:
    """Counts from zero on, as far as one in a thousand goes."""
    figure, axes = panel()
    beyond = np.flatnonzero(np.maximum(1 - model.cumsum(), 1 - data.cumsum()) > 1e-3)
    last = int(beyond[-1]) + 2 if len(beyond) else 1
    places = np.arange(min(last + 1, len(model)))
    axes.bar(places, data[places], 0.9, color=DATA, label="data")
    axes.plot(places, model[places], "o-", color=MODEL, ms=3, lw=1, label="model")
    axes.yaxis.set_major_formatter(PER_CENT)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    _legend(figure)
    return figure


def hidden_states(view: View, variable: int) -> int:
    """How many categories the figure of a column leaves out."""
    is_bars = isinstance(view.column(variable), States)
    return max(0, num_states(view, variable) - MOST_BARS) if is_bars else 0
