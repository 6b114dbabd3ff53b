"""Tables and figures of the main table: the best of each grid, repetitions, models in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.grid.experiment import Record
from studies.grid.outputs import Page
from studies.models.evaluation import mean_and_deviation, score
from studies.models.kinds import NPC2
from studies.paper.uci_paper import BEST, OTHERS, REPEATED, Number
from subtractive.plots.style import quiet

# Two records of one point, NPC² first.
Pair = tuple[Record, Record]
POINT = ("set", "tree", "inputs", "units", "rate", "batch", "seed")
LOOKS = {"Gaussian": ("o", "Blues"), "spline": ("D", "Reds")}


def best_records(records: Sequence[Record], by: tuple[str, ...]) -> list[Record]:
    """Of all circuits that share some settings, the one with the best validation score."""
    best: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if "tree" not in record.run or not _is_number(record.result["valid"]):
            continue
        key = tuple(record.run[name] for name in by)
        if key not in best or record.result["valid"] > best[key].result["valid"]:
            best[key] = record
    return list(best.values())


def write_tables(records: Sequence[Record], outputs: Page, seeds: Sequence[int]) -> None:
    """The three tables, the paper's numbers beside."""
    first = [record for record in records if record.run["seed"] == seeds[0]]
    outputs.table(
        "best",
        "Mean test log-likelihoods and two standard errors of the settings with the best "
        "validation score, and the paper's.",
        ["set", "model", "inputs", "K", "rate", "batch", "test", "± 2 se", "paper", "± 2 se "],
        [*_other_rows(first), *_best_rows(first)],
    )
    outputs.table(
        "repetitions",
        f"Means and standard deviations of test log-likelihoods over {len(seeds)} seeds with the "
        "settings that the grid found best.",
        ["set", "model", "mean", "std", "paper", "std "],
        _repeated_rows(records, first),
    )
    outputs.table(
        "pairs",
        "NPC² against the other models at equal size and settings: the share of points where it "
        "is better, and the median of the differences.",
        ["set", "against", "inputs", "pairs", "better", "median gain"],
        [row for other in ("MPC", "MPC²") for row in _pair_rows(pairs_of(records, other), other)],
    )


def pairs_of(records: Sequence[Record], other: str) -> list[Pair]:
    """NPC² and another model at the same points of the grid."""

    def points(model: str) -> dict[tuple[Any, ...], Record]:
        return {
            tuple(record.run[name] for name in POINT): record
            for record in records
            if record.run["model"] == model
            and "tree" in record.run
            and _is_number(record.result["test"])
        }

    ours, theirs = points(NPC2), points(other)
    return [(ours[point], theirs[point]) for point in ours if point in theirs]


def draw_pairs(pairs: Sequence[Pair], other: str) -> Figure:
    """A panel for each set: NPC² upwards, the other model to the right, on one scale."""
    names = list(dict.fromkeys(pair[0].run["set"] for pair in pairs))
    figure = Figure(figsize=(2.8 * len(names) + 0.8, 3.0), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        some = [pair for pair in pairs if pair[0].run["set"] == name]
        _draw_panel(axes, some)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(other, fontsize=9)
        axes.set_ylabel(NPC2, fontsize=9)
    return figure


def _draw_panel(axes: Axes, pairs: Sequence[Pair]) -> None:
    quiet(axes)
    sizes = sorted({pair[0].run["units"] for pair in pairs})
    for inputs, (marker, colours) in LOOKS.items():
        some = [pair for pair in pairs if pair[0].run["inputs"] == inputs]
        if some:
            # From the middle of the colour map: the smallest K must not be white.
            shades = [(1 + sizes.index(p[0].run["units"])) / len(sizes) for p in some]
            axes.scatter(
                [pair[1].result["test"] for pair in some],
                [pair[0].result["test"] for pair in some],
                c=0.3 + 0.7 * np.array(shades),
                cmap=colours,
                vmin=0,
                vmax=1,
                marker=marker,
                s=22,
                label=inputs,
            )
    values = [record.result["test"] for pair in pairs for record in pair]
    # A diverged run must not hide the others.
    low, high = max(min(values), median(values) - 20 * _spread(values)), max(values)
    margin = 0.05 * max(high - low, 1e-3)
    line = (low - margin, high + margin)
    axes.plot(line, line, color="grey", lw=0.8, ls="--")
    axes.set(xlim=line, ylim=line, aspect="equal")
    shade = f"K = {sizes[0]}" if len(sizes) == 1 else f"K = {sizes[0]} (pale) .. {sizes[-1]}"
    axes.legend(fontsize=7, frameon=False, loc="lower right", title=shade, title_fontsize=7)


def _other_rows(records: Sequence[Record]) -> list[list[Any]]:
    return [
        [
            record.run["set"],
            record.run["model"],
            *[None] * 4,
            record.result["test"],
            record.result["two_errors"],
            *_number(OTHERS.get(record.run["model"], {}).get(record.run["set"])),
        ]
        for record in records
        if "tree" not in record.run
    ]


def _best_rows(records: Sequence[Record]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for record in best_records(records, ("set", "model", "tree", "inputs")):
        run, result = record.run, record.result
        paper = BEST.get((run["model"], run["tree"], run["inputs"]), {}).get(run["set"])
        about = [run["set"], _words(record), run["inputs"], run["units"], run["rate"]]
        scores = [result["test"], result["two_errors"]]
        rows.append([*about, run["batch"], *scores, *_number(paper)])
    return sorted(rows, key=lambda row: (row[0], row[1]))


def _repeated_rows(records: Sequence[Record], first: Sequence[Record]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for best in best_records(first, ("set", "model", "tree")):
        same = [record for record in records if _same_but_seed(record, best)]
        mean, deviation = mean_and_deviation([score(record) for record in same])
        paper = REPEATED.get((best.run["model"], best.run["tree"]), {}).get(best.run["set"])
        rows.append([best.run["set"], _words(best), mean, deviation, *_number(paper)])
    return sorted(rows, key=lambda row: (row[0], row[1]))


def _pair_rows(pairs: Sequence[Pair], other: str) -> list[list[Any]]:
    groups: dict[tuple[str, str], list[float]] = {}
    for ours, theirs in pairs:
        gains = groups.setdefault((ours.run["set"], ours.run["inputs"]), [])
        gains.append(ours.result["test"] - theirs.result["test"])
    return [
        [name, other, inputs, len(gains), float(np.mean(np.array(gains) > 0)), median(gains)]
        for (name, inputs), gains in groups.items()
    ]


def _same_but_seed(one: Record, other: Record) -> bool:
    return {**one.run, "seed": 0} == {**other.run, "seed": 0}


def _words(record: Record) -> str:
    return f"{record.run['model']} ({record.run['tree']})"


def _number(paper: Number | None) -> list[float | None]:
    return [None, None] if paper is None else list(paper)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _spread(values: Sequence[float]) -> float:
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high - low) or 1.0
