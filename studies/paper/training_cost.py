"""Time and memory of the parts of a training step on the paper's sets (paper: App. C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import subtractive as sub
from studies.data.uci import SHAPES
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.kinds import MPC, NPC2
from studies.models.tree_mixtures import BINARY, TreeMixture, spline_families
from studies.paper.cost_parts import (
    COLOURS,
    PARTITION,
    QUANTITIES,
    VALUE,
    measure,
    step_parts,
    with_gradients,
)
from studies.paper.uci_paper import BEST, NUM_BASES, NUM_TREES
from subtractive.inputs.base import InputFamily
from subtractive.plots.style import quiet

GAUSSIAN, SPLINE = "Gaussian", "spline"
# The settings of Fig. C.2, the best of each model and set, and those of Fig. C.3, one for all.
EACH_BEST, SAME = "best", "same"
PARTS = {VALUE: "c(x), c²(x)", PARTITION: "Z"}


class Size(NamedTuple):
    """What the cost of a step depends on, besides the number of variables."""

    units: int
    batch: int
    inputs: str


# The best settings on binary trees, whose scores App. C quotes (paper: Table H.6).
BEST_SIZES = {
    ("gas", NPC2): Size(1024, 512, GAUSSIAN),
    ("gas", MPC): Size(1024, 4096, GAUSSIAN),
    ("hepmass", NPC2): Size(256, 512, GAUSSIAN),
    ("hepmass", MPC): Size(128, 512, GAUSSIAN),
    ("miniboone", NPC2): Size(32, 512, GAUSSIAN),
    ("miniboone", MPC): Size(32, 512, GAUSSIAN),
    ("bsds300", NPC2): Size(128, 512, SPLINE),
    ("bsds300", MPC): Size(512, 512, SPLINE),
}


@final
@dataclass(frozen=True)
class TrainingCost(Experiment):
    """Mixtures of binary trees over as many variables as the sets have; rows are normal noise.

    ``units`` and ``batch`` are those of models of the same size; ``most_units`` and
    ``most_rows`` are bounds on the best settings, for trials.
    """

    name: ClassVar[str] = "training-cost"
    title: ClassVar[str] = "What the parts of a training step cost"

    sets: tuple[str, ...] = ("gas", "hepmass", "miniboone", "bsds300")
    trees: int = NUM_TREES
    num_bases: int = NUM_BASES
    units: int = 512
    batch: int = 512
    most_units: int = 1024
    most_rows: int = 4096
    budget: float = 1.0
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        return [
            {"settings": kind, "set": name, "model": model, **self._size(kind, name, model)}
            for kind in (EACH_BEST, SAME)
            for name in self.sets
            for model in (NPC2, MPC)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(run["batch"], SHAPES[run["set"]][-1], generator=generator)
        mixture = TreeMixture(run["model"], BINARY, run["units"], self.trees)
        density = mixture.build(x, self._families(run, x), self.seed, from_rows=False)
        return {
            f"{name}_{quantity}": number
            for name, part in step_parts(density, x).items()
            for quantity, number in measure(with_gradients(part, density), self.budget).items()
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        columns = ["settings", "set", "variables", "model", "K", "batch", "inputs"]
        outputs.table(
            "training-cost",
            f"Forward and backward passes of {self.trees} binary trees: CPU time of one thread, "
            "the best of repeated calls, and the most memory that tensors hold during a call; "
            "32-bit parameters, Z of squares in 64 bit. The last column is the paper's.",
            [*columns, "c s", "Z s", "c MiB", "Z MiB", "paper's log-likelihood"],
            [_row(record) for record in records],
        )
        outputs.figure(
            "training-cost",
            "One training step against the number of variables. Left: the best settings of each "
            f"model, whose K stands at the points. Right: K = {self.units}, batches of "
            f"{self.batch}, Gaussian inputs. Rows share their axis.",
            self._draw(records),
        )

    def _size(self, kind: str, name: str, model: str) -> dict[str, Any]:
        if kind == SAME:
            return Size(self.units, self.batch, GAUSSIAN)._asdict()
        best = BEST_SIZES[name, model]
        units, batch = min(best.units, self.most_units), min(best.batch, self.most_rows)
        return Size(units, batch, best.inputs)._asdict()

    def _families(self, run: Run, x: torch.Tensor) -> Sequence[InputFamily] | InputFamily:
        if run["inputs"] == GAUSSIAN:
            return sub.Gaussian()
        return spline_families([x], run["model"], self.num_bases)

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = Figure(figsize=(10.0, 5.2), layout="constrained")
        grid = figure.subplots(len(QUANTITIES), 4, sharey="row", sharex=True)
        titles = {EACH_BEST: "best settings", SAME: f"K = {self.units}"}
        panels = [(kind, part) for kind in titles for part in PARTS]
        for line, (quantity, unit) in zip(grid, QUANTITIES.items(), strict=True):
            for axes, (kind, part) in zip(line, panels, strict=True):
                chosen = [record for record in records if record.run["settings"] == kind]
                _draw_lines(axes, chosen, f"{part}_{quantity}", with_units=kind == EACH_BEST)
            line[0].set_ylabel(unit, fontsize=9)
        for axes, (kind, part) in zip(grid[0], panels, strict=True):
            axes.set_title(f"{PARTS[part]}, {titles[kind]}", fontsize=10)
        for axes in grid[-1]:
            axes.set_xlabel("variables", fontsize=9)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=2, fontsize=9, frameon=False
        )
        return figure


def _row(record: Record) -> list[Any]:
    run, result = record.run, record.result
    name, model = run["set"], run["model"]
    scores = BEST[model, BINARY, run["inputs"]]
    return [
        *(run["settings"], name, SHAPES[name][-1], model),
        *(run["units"], run["batch"], run["inputs"]),
        *(result[f"{part}_{quantity}"] for quantity in QUANTITIES for part in PARTS),
        scores[name][0] if run["settings"] == EACH_BEST else None,
    ]


def _draw_lines(axes: Axes, records: Sequence[Record], quantity: str, *, with_units: bool) -> None:
    quiet(axes)
    for model in (NPC2, MPC):
        chosen = [record for record in records if record.run["model"] == model]
        across = [SHAPES[record.run["set"]][-1] for record in chosen]
        along = [record.result[quantity] for record in chosen]
        axes.plot(across, along, color=COLOURS[model], marker="o", ms=3.5, lw=1.4, label=model)
        if with_units:
            # Above one line and below the other: where they meet, both can be read.
            _write_units(axes, chosen, quantity, 6 if model == NPC2 else -12)
    axes.set_yscale("log")
    ticks = sorted({SHAPES[record.run["set"]][-1] for record in records})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.12, y=0.15)
    axes.grid(axis="y", color="#e5e8ec", lw=0.8)


def _write_units(axes: Axes, records: Sequence[Record], quantity: str, above: float) -> None:
    for record in records:
        axes.annotate(
            str(record.run["units"]),
            (SHAPES[record.run["set"]][-1], record.result[quantity]),
            (0, above),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=COLOURS[record.run["model"]],
        )


FULL = TrainingCost()
QUICK = TrainingCost(
    sets=("gas", "hepmass"),
    trees=2,
    num_bases=16,
    units=32,
    batch=128,
    most_units=64,
    most_rows=256,
    budget=0.1,
)
