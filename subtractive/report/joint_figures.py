"""Figures of a report about two columns at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subtractive.report.figures import (
    DATA,
    MODEL,
    quiet,
    shown_range,
)
from subtractive.report.view import Rows, View, as_tensor, density_of_pairs, num_states
from subtractive.report.words import label
from subtractive.tables.columns import States
from subtractive.tables.reading import Floats

GRID, DOTS, SCATTER = 72, 400, 1500
MOST_STATES = 12
MOST_CURVES = 5


def pair_density(view: View, pair: tuple[int, int]) -> Figure:
    """The exact density of two continuous columns, and some rows as dots."""
    figure = Figure(figsize=(3.6, 3.1), layout="constrained")
    axes = figure.subplots()
    ranges = [shown_range(view, variable) for variable in pair]
    lines = [_centres(low, high) for low, high in ranges]
    across, up = np.meshgrid(*lines)
    density = density_of_pairs(view, pair, (across.ravel(), up.ravel())).reshape(GRID, GRID)
    # Colour follows the square root, so that a sharp peak leaves its surroundings visible.
    brightest = float(np.quantile(density, 0.998)) or float(density.max()) or 1.0
    axes.imshow(
        density,
        origin="lower",
        extent=(*ranges[0], *ranges[1]),
        aspect="auto",
        cmap="viridis",
        norm=PowerNorm(0.5, vmin=0, vmax=brightest),
        interpolation="bilinear",
    )
    left, right = (view.values(variable) for variable in pair)
    rows = view.some_rows(DOTS, np.flatnonzero(~np.isnan(left + right)))
    axes.scatter(left[rows], right[rows], s=3, c="white", alpha=0.6, lw=0, rasterized=True)
    axes.set_xlim(*ranges[0])
    axes.set_ylim(*ranges[1])
    axes.tick_params(labelsize=8, length=3)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(label(view.name(pair[0]), 30), fontsize=9)
    axes.set_ylabel(label(view.name(pair[1]), 26), fontsize=9)
    return figure


def _centres(low: float, high: float) -> Floats:
    """The middles of the cells of a line."""
    edges = np.linspace(low, high, GRID + 1)
    return np.asarray((edges[1:] + edges[:-1]) / 2)


def state_tables(view: View, pair: tuple[int, int]) -> Figure:
    """Joint probabilities of two columns with few states: data left, model right."""
    sizes = [num_states(view, variable) for variable in pair]
    states = torch.cartesian_prod(*(torch.arange(size).double() for size in sizes))
    with torch.no_grad():
        model = view.density.marginal(pair).log_prob(states).exp().reshape(sizes).numpy()
    codes = view.codes[:, list(pair)]
    known = codes[~np.isnan(codes).any(1)]
    counts, *_ = np.histogram2d(
        known[:, 0], known[:, 1], bins=[np.arange(size + 1) - 0.5 for size in sizes]
    )
    data = counts / max(len(known), 1)
    figure = Figure(figsize=(6.0, 0.27 * sizes[0] + 1.3), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    top = max(float(model.max()), float(data.max()))
    for axes, title, share in zip(panels, ("data", "model"), (data, model), strict=True):
        axes.imshow(share, cmap="Purples", vmin=0, vmax=top, aspect="auto")
        axes.set_title(title, fontsize=9)
        _name_states(axes, _states(view, pair[1]))
        axes.tick_params(labelsize=8, length=0)
        axes.set_xlabel(label(view.name(pair[1]), 30), fontsize=9)
        for (i, j), p in np.ndenumerate(share):
            if sizes[1] <= 6 and p >= 0.005:
                ink = "white" if p > 0.55 * top else "#333"
                axes.text(j, i, f"{100 * p:.0f}", ha="center", va="center", fontsize=7, color=ink)
    panels[0].set_yticks(range(sizes[0]), _states(view, pair[0]))
    panels[0].set_ylabel(label(view.name(pair[0]), 22), fontsize=9)
    return figure


def _states(view: View, variable: int) -> list[str]:
    return [label(name, 14) for name in view.states(variable)]


def _name_states(axes: Axes, names: list[str]) -> None:
    """Names below an axis, slanted if they need the space."""
    if sum(map(len, names)) > 24:
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    else:
        axes.set_xticks(range(len(names)), names)


def curves_by_state(view: View, number: int, group: int) -> Figure:
    """The exact density of a continuous column given each frequent state of another."""
    known = view.codes[:, group]
    frequent = np.bincount(known[~np.isnan(known)].astype(int), minlength=num_states(view, group))
    groups = np.sort(np.argsort(-frequent, kind="stable")[:MOST_CURVES])
    groups = groups[frequent[groups] > 0]
    figure = Figure(figsize=(3.6, 0.62 * len(groups) + 0.7), layout="constrained")
    low, high = shown_range(view, number)
    points = np.linspace(low, high, 301)
    column = view.scale(number)
    names, values = _states(view, group), view.values(number)
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, one in zip(panels, groups, strict=True):
        own = values[(known == one) & ~np.isnan(values)]
        heights, edges = np.histogram(own, np.linspace(low, high, 31))
        scaled = heights / (max(len(own), 1) * np.diff(edges))
        with torch.no_grad():
            codes = as_tensor(column.encode(points))
            log_density = view.density.pdf(number, codes, {group: float(one)}).log().numpy()
        curve = np.exp(log_density + column.log_abs_det_jacobian(points))
        axes.stairs(scaled, edges, fill=True, color=DATA)
        axes.plot(points, curve, color=MODEL, lw=1.4)
        axes.set_ylim(0, 1.1 * max(float(scaled.max()), min(curve.max(), 2 * scaled.max())))
        axes.set_xlim(low, high)
        quiet(axes)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylabel(names[one], fontsize=8, rotation=0, ha="right", va="center")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(label(view.name(number), 30), fontsize=9)
    return figure


class Axis(NamedTuple):
    """Where rows and samples lie along one side of a scatter plot."""

    data: Floats
    samples: Floats
    limits: tuple[float, float]
    ticks: list[str] | None  # names of states


def scatters(view: View, pair: tuple[int, int], samples: Floats) -> Figure:
    """Rows left, exact samples (m, d) right, over the same axes."""
    figure = Figure(figsize=(6.8, 3.3), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    rows = view.some_rows(SCATTER, np.flatnonzero(~np.isnan(view.codes[:, list(pair)]).any(1)))
    across, up = (_axis(view, variable, rows, samples) for variable in pair)
    size = min(len(rows), len(samples))  # as many dots on both sides, or densities mislead
    for axes, title, x, y, colour in (
        (panels[0], "data", across.data, up.data, "#3c6e9f"),
        (panels[1], "samples", across.samples, up.samples, MODEL),
    ):
        axes.scatter(x[:size], y[:size], s=5, c=colour, alpha=0.5, lw=0, rasterized=True)
        axes.set_title(f"{size:,} {'rows' if title == 'data' else 'samples'}", fontsize=9)
        axes.set_xlabel(label(view.name(pair[0]), 34), fontsize=9)
        quiet(axes)
        _mark(axes, across, up)
    panels[0].set_ylabel(label(view.name(pair[1]), 28), fontsize=9)
    return figure


def _mark(axes: Axes, across: Axis, up: Axis) -> None:
    axes.set_xlim(*across.limits)
    axes.set_ylim(*up.limits)
    if across.ticks is not None:
        _name_states(axes, across.ticks)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    if up.ticks is not None:
        axes.set_yticks(range(len(up.ticks)), up.ticks)


def _axis(view: View, variable: int, rows: Rows, samples: Floats) -> Axis:
    """Numbers as they are; states and counts side by side, each spread a little."""
    data, drawn = view.codes[rows, variable], samples[:, variable]
    if variable in view.continuous:
        values = view.values(variable)[rows]
        sampled = view.scale(variable).numbers(drawn)
        assert sampled is not None
        return Axis(values, sampled, shown_range(view, variable), None)
    random = np.random.default_rng(view.seed + variable)
    data, drawn = (codes + random.uniform(-0.3, 0.3, len(codes)) for codes in (data, drawn))
    last = num_states(view, variable) - 1
    if last < MOST_STATES and isinstance(view.column(variable), States):
        return Axis(data, drawn, (-0.6, last + 0.6), _states(view, variable))
    top = float(max(data.max(initial=0), drawn.max(initial=0)))
    return Axis(data, drawn, (-1.0, top + 1), None)


def histograms(view: View, variable: int, samples: Floats) -> Figure:
    """Rows and samples of a single variable, as two histograms over the same axis."""
    figure = Figure(figsize=(6.8, 2.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    rows = view.some_rows(SCATTER, np.flatnonzero(~np.isnan(view.codes[:, variable])))
    axis = _axis(view, variable, rows, samples)
    bins = np.linspace(*axis.limits, 31)
    for axes, title, values, colour in (
        (panels[0], "data", axis.data, "#3c6e9f"),
        (panels[1], "samples", axis.samples, MODEL),
    ):
        axes.hist(values, bins, density=True, color=colour)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(label(view.name(variable), 34), fontsize=9)
        axes.set_yticks([])
        quiet(axes)
        if axis.ticks is not None:
            _name_states(axes, axis.ticks)
    return figure
