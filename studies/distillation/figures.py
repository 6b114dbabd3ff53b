"""Pictures of a distillation: log-likelihood against size, and the weights that were learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from studies.grid.experiment import Record, Run

COLOURS = ("#3b528b", "#e8743b", "#5ec962", "#440154")


def likelihood_figure(records: Sequence[Record], label_of: Callable[[Run], str]) -> Figure:
    """Median and central 90 % of the runs of each model against K, train and test."""
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(label_of(record.run), []).append(record)
    sizes = sorted({record.run["num_units"] for record in records})
    for axes, part in zip(panels, ("train", "test"), strict=True):
        for colour, (label, group) in zip(COLOURS, groups.items(), strict=False):
            _draw_runs(axes, group, part, label, colour)
        teacher = records[0].result["teacher"].get(part)
        if teacher is not None:
            axes.axhline(teacher, color="0.3", linestyle="--", linewidth=1, label="teacher")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("K, units per layer")
        axes.set_title(part, fontsize=10)
    panels[0].set_ylabel("mean log-likelihood (nats)")
    panels[1].legend(fontsize=8, frameon=False)
    return figure


def weight_figure(weights: Mapping[str, Tensor]) -> Figure:
    """Histograms of the sum weights of some models, the central 99 % of each."""
    figure = Figure(figsize=(3.6 * len(weights), 3.0), layout="constrained")
    panels = figure.subplots(1, len(weights), squeeze=False)[0]
    for axes, colour, (label, values) in zip(panels, COLOURS, weights.items(), strict=False):
        numbers = values.double().numpy()
        low, high = np.quantile(numbers, [0.005, 0.995])
        axes.hist(numbers[(numbers >= low) & (numbers <= high)], bins=60, color=colour)
        axes.axvline(0.0, color="0.3", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(f"{label}: {100 * (numbers < 0).mean():.0f} % negative", fontsize=10)
        axes.set_xlabel("weight")
    panels[0].set_ylabel("count")
    return figure


def _draw_runs(axes: Axes, records: Sequence[Record], part: str, label: str, colour: str) -> None:
    scores: dict[int, list[float]] = {}
    for record in records:
        scores.setdefault(record.run["num_units"], []).append(record.result[part])
    sizes = sorted(scores)
    low, middle, high = (
        [float(np.quantile(scores[size], level)) for size in sizes] for level in (0.05, 0.5, 0.95)
    )
    axes.fill_between(sizes, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(sizes, middle, color=colour, marker="o", markersize=4, label=label)
