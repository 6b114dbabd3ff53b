"""Tables and figures of the synthetic experiments: scores against K, densities beside truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Record
from studies.models.kinds import MPC, MPC2, NPC2
from studies.paper.synthetic_models import SPECTRAL
from subtractive.plots.planes import find_peak
from subtractive.plots.style import quiet

COLOURS = {MPC: "#c7772e", MPC2: "#3b7d8c", NPC2: "#5b2a86", SPECTRAL: "#b04a8f"}
COLUMNS = ["set", "inputs", "model", "K", "parameters", "median", "mean", "std", "chosen"]
CAPTION = (
    "Mean test log-likelihoods over {seeds} seeds: median, mean and standard deviation of the "
    "seeds, and the seed with the best validation score."
)


def scores(record: Record) -> list[float]:
    """The test scores of all seeds of a run; of a model that fails altogether, -inf."""
    return [_number(member["test"]) for member in record.result["members"]]


def chosen(record: Record) -> float:
    """The test score of the seed with the best validation score."""
    best = max(record.result["members"], key=lambda member: _number(member["valid"]))
    return _number(best["test"])


def truths_of(records: Sequence[Record]) -> dict[str, float]:
    """The mean log-likelihood of the test rows of each set under the density they come from."""
    return {record.run["set"]: _number(record.result["truth"]) for record in records}


def has_models(records: Sequence[Record]) -> bool:
    """Whether the models are beside their records, which those in git are not."""
    return any(record.file("model").exists() for record in records)


def score_rows(records: Sequence[Record], truths: Mapping[str, float]) -> list[list[Any]]:
    """A row for the truth of each set, and one for each run."""
    rows: list[list[Any]] = [
        [name, "", "truth", None, None, truth, None, None, None] for name, truth in truths.items()
    ]
    for record in records:
        run, values = record.run, scores(record)
        about = [run["set"], run["inputs"], run["model"], run["units"]]
        spread = [float(np.median(values)), float(np.mean(values)), float(np.std(values))]
        rows.append([*about, record.result["parameters"], *spread, chosen(record)])
    order = {name: place for place, name in enumerate(truths)}
    return sorted(rows, key=lambda row: (order[row[0]], row[1], row[3] or 0))


def draw_curves(
    records: Sequence[Record], truths: Mapping[str, float], inputs: Sequence[str]
) -> Figure:
    """Test log-likelihood against K: a column for each set, a row for each kind of inputs."""
    figure = Figure(
        figsize=(2.9 * len(truths) + 0.5, 2.5 * len(inputs) + 0.5), layout="constrained"
    )
    grid = figure.subplots(len(inputs), len(truths), squeeze=False)
    for row, kind in zip(grid, inputs, strict=True):
        for axes, (name, truth) in zip(row, truths.items(), strict=True):
            group = [r for r in records if r.run["set"] == name and r.run["inputs"] == kind]
            _draw_curve(axes, group, truth)
            axes.set_title(name if len(inputs) == 1 else f"{name}, {kind} inputs", fontsize=10)
        row[0].set_ylabel("test log-likelihood", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("K", fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False
    )
    return figure


def _draw_curve(axes: Axes, group: Sequence[Record], truth: float) -> None:
    quiet(axes)
    models = list(dict.fromkeys(record.run["model"] for record in group))
    widest = max(record.run["units"] for record in group)
    for place, model in enumerate(models):
        points = sorted(
            (record.run["units"], scores(record))
            for record in group
            if record.run["model"] == model
        )
        # Side by side, so that the error bars of one model do not hide those of another.
        shift = 0.01 * widest * (place - (len(models) - 1) / 2)
        axes.errorbar(
            [units + shift for units, _ in points],
            [np.mean(values) for _, values in points],
            [np.std(values) for _, values in points],
            color=COLOURS[model],
            marker="o",
            ms=3.5,
            lw=1.3,
            capsize=2,
            label=model,
        )
    axes.axhline(truth, color="black", lw=0.9, ls="--", label="truth")
    axes.margins(y=0.08)
    sizes = sorted({record.run["units"] for record in group})
    axes.set_xticks(sizes)
    if len(sizes) == 1:  # models stand beside each other, not all over the axis
        axes.set_xlim(0.9 * sizes[0], 1.1 * sizes[0])


def draw_densities(panels: Mapping[str, Mapping[str, tuple[Tensor, str]]]) -> Figure:
    """Densities as heat maps, a row for each set on one colour scale, each with a note below.

    A panel is a density on a grid (y, x) and the note.
    """
    columns = max(len(row) for row in panels.values())
    figure = Figure(figsize=(2.2 * columns + 0.3, 2.5 * len(panels)), layout="constrained")
    figure.get_layout_engine().set(hspace=0.04)  # type: ignore[union-attr,call-arg]
    grid = figure.subplots(len(panels), columns, squeeze=False)
    for line, (name, row) in zip(grid, panels.items(), strict=True):
        peak = max(find_peak(density) for density, _ in row.values())
        for axes, (title, (density, note)) in zip(line, row.items(), strict=False):
            axes.imshow(density.numpy(), origin="lower", cmap="viridis", vmin=0, vmax=peak)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(title, fontsize=10)
            axes.set_xlabel(note, fontsize=9)
        line[0].set_ylabel(name, fontsize=10)
        for axes in line[len(row) :]:
            axes.set_visible(False)
    return figure


def learned(
    records: Sequence[Record],
    name: str,
    units: int,
    on_grid: Callable[[sub.Density, str], Tensor],
) -> dict[str, tuple[Tensor, str]]:
    """The panels of the models of one set and K: the seed that validation has chosen."""
    panels = {}
    for record in records:
        kept = record.file("model").exists()
        if kept and record.run["set"] == name and record.run["units"] == units:
            density = sub.load(record.file("model"))
            assert isinstance(density, sub.Density)
            title = f"{record.run['model']}, K = {units}"
            panels[title] = (on_grid(density, name), note(chosen(record)))
    return panels


def note(score: float) -> str:
    """What stands below a panel."""
    return f"log-likelihood {score:.3f}"


def _number(value: float | None) -> float:
    return -np.inf if value is None else value
