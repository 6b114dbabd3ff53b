"""Figures of a report that have no plot of their own: data and model side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subtractive.plots.columns import edges_between, heights_of, marginals
from subtractive.plots.labels import label
from subtractive.plots.marginals import top_of
from subtractive.plots.style import (
    DATA,
    MODEL,
    OTHER,
    SHADES,
    panel,
    quiet,
    set_ticks,
    without_heights,
)
from subtractive.report.baselines import Comparison
from subtractive.report.context import Context, Rows, num_states
from subtractive.tables.reading import Floats
from subtractive.tables.states import States

MOST_STATES, MOST_CURVES, SCATTER = 12, 5, 1000
DOTS = "#3c6e9f"


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


def state_tables(context: Context, pair: tuple[int, int]) -> Figure:
    """Joint probabilities of two columns with few states: data left, model right."""
    sizes = [num_states(context, variable) for variable in pair]
    states = torch.cartesian_prod(*(torch.arange(size).double() for size in sizes))
    with torch.no_grad():
        model = context.density.marginal(pair).log_prob(states).exp().reshape(sizes).numpy()
    codes = context.codes[:, list(pair)]
    known = codes[~np.isnan(codes).any(1)]
    counts, *_ = np.histogram2d(
        known[:, 0], known[:, 1], bins=[np.arange(size + 1) - 0.5 for size in sizes]
    )
    data = counts / max(len(known), 1)
    figure = Figure(figsize=(4.8, 0.27 * sizes[0] + 1.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    top = max(float(model.max()), float(data.max()))
    for axes, title, share in zip(panels, ("data", "model"), (data, model), strict=True):
        axes.imshow(share, cmap=SHADES, vmin=0, vmax=top, aspect="auto")
        axes.set_title(title, fontsize=9)
        _name_states(axes, _states(context, pair[1]))
        axes.tick_params(labelsize=8, length=0)
        axes.set_xlabel(label(context.name(pair[1]), 24), fontsize=9)
        for (i, j), p in np.ndenumerate(share):
            if sizes[1] <= 6 and p >= 0.005:
                ink = "white" if p > 0.55 * top else "#333"
                axes.text(j, i, f"{100 * p:.0f}", ha="center", va="center", fontsize=7, color=ink)
    panels[0].set_yticks(range(sizes[0]), _states(context, pair[0]))
    panels[0].set_ylabel(label(context.name(pair[0]), 22), fontsize=9)
    return figure


def curves_by_state(context: Context, number: int, group: int) -> Figure:
    """The exact density of a continuous column given each frequent state of another."""
    known = context.codes[:, group]
    frequent = np.bincount(
        known[~np.isnan(known)].astype(int), minlength=num_states(context, group)
    )
    groups = np.sort(np.argsort(-frequent, kind="stable")[:MOST_CURVES])
    groups = groups[frequent[groups] > 0]
    figure = Figure(figsize=(3.6, 0.62 * len(groups) + 0.7), layout="constrained")
    column, states = context.scale(number), context.column(group)
    assert isinstance(states, States)
    names, values = _states(context, group), context.values(number)
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, one in zip(panels, groups, strict=True):
        given = {context.name(group): [states.values[one]]}
        found = marginals(context.model, given)[context.name(number)]
        edges = edges_between(found.points[0], found.points[-1], column, 30)
        heights = heights_of(values[(known == one) & ~np.isnan(values)], edges, column)
        axes.stairs(heights, edges, fill=True, color=DATA)
        axes.plot(found.points, found.density, color=MODEL, lw=1.4)
        tallest = float(heights.max())
        axes.set_ylim(0, 1.1 * max(tallest, top_of(found.density, tallest)) or 1.0)
        axes.set_xlim(found.points[0], found.points[-1])
        without_heights(quiet(axes))
        axes.set_ylabel(names[one], fontsize=8, rotation=0, ha="right", va="center")
    set_ticks(axes.xaxis, column.kind, 5)
    axes.set_xlabel(label(context.name(number), 30), fontsize=9)
    return figure


class Axis(NamedTuple):
    """Where rows and samples lie along one side of a scatter plot."""

    data: Floats
    samples: Floats
    limits: tuple[float, float]
    ticks: list[str] | None  # names of states


def scatters(context: Context, pair: tuple[int, int], samples: Floats) -> Figure:
    """Rows left, exact samples (m, d) right, as many and over the same axes."""
    figure = Figure(figsize=(4.8, 2.8), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    known = np.flatnonzero(~np.isnan(context.codes[:, list(pair)]).any(1))
    rows = context.some_rows(SCATTER, known)
    across, up = (_axis(context, variable, rows, samples) for variable in pair)
    size = min(len(rows), len(samples), SCATTER)
    for axes, title, x, y, colour in (
        (panels[0], "rows", across.data, up.data, DOTS),
        (panels[1], "samples", across.samples, up.samples, MODEL),
    ):
        axes.scatter(x[:size], y[:size], s=4, c=colour, alpha=0.5, lw=0, rasterized=True)
        axes.set_title(f"{size:,} {title}", fontsize=9)
        axes.set_xlabel(label(context.name(pair[0]), 24), fontsize=9)
        quiet(axes)
        _mark(axes, across, up)
    panels[0].set_ylabel(label(context.name(pair[1]), 28), fontsize=9)
    return figure


def histograms(context: Context, variable: int, samples: Floats) -> Figure:
    """Rows and samples of a single variable, as two histograms over the same axes."""
    figure = Figure(figsize=(4.8, 2.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    rows = context.some_rows(SCATTER, np.flatnonzero(~np.isnan(context.codes[:, variable])))
    axis = _axis(context, variable, rows, samples)
    bins = np.linspace(*axis.limits, 31)
    for axes, title, values, colour in (
        (panels[0], "data", axis.data, DOTS),
        (panels[1], "samples", axis.samples, MODEL),
    ):
        axes.hist(values, bins, density=True, color=colour)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(label(context.name(variable), 24), fontsize=9)
        without_heights(quiet(axes))
        if axis.ticks is not None:
            _name_states(axes, axis.ticks)
    return figure


def _states(context: Context, variable: int) -> list[str]:
    return [label(name, 14) for name in context.states(variable)]


def _name_states(axes: Axes, names: Sequence[str]) -> None:
    """Names below an axis, slanted if they need the space."""
    if sum(map(len, names)) > 20:
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    else:
        axes.set_xticks(range(len(names)), names)


def _mark(axes: Axes, across: Axis, up: Axis) -> None:
    axes.set_xlim(*across.limits)
    axes.set_ylim(*up.limits)
    if across.ticks is not None:
        _name_states(axes, across.ticks)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    if up.ticks is not None:
        axes.set_yticks(range(len(up.ticks)), up.ticks)


def _axis(context: Context, variable: int, rows: Rows, samples: Floats) -> Axis:
    """Numbers as they are recorded; states and counts side by side, each spread a little."""
    data, drawn = context.codes[rows, variable], samples[:, variable]
    if variable in context.continuous:
        column = context.scale(variable)
        sampled = np.asarray(column.decode(drawn), dtype=np.float64)
        return Axis(context.values(variable)[rows], sampled, context.limits(variable), None)
    random = np.random.default_rng(context.seed + variable)
    data, drawn = (codes + random.uniform(-0.3, 0.3, len(codes)) for codes in (data, drawn))
    last = num_states(context, variable) - 1
    if last < MOST_STATES and isinstance(context.column(variable), States):
        return Axis(data, drawn, (-0.6, last + 0.6), _states(context, variable))
    top = float(max(data.max(initial=0), drawn.max(initial=0)))
    return Axis(data, drawn, (-1.0, top + 1), None)
