"""Time and memory of c(x) and of Z, of squared and of monotonic circuits (paper: App. C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.kinds import MPC, NPC2
from studies.models.tree_mixtures import BINARY, TreeMixture
from studies.paper.cost_parts import COLOURS, PARTITION, QUANTITIES, VALUE, measure, step_parts
from subtractive.plots.style import quiet

STYLES = {
    (NPC2, VALUE): ("-", "NPC²: c²(x)"),
    (NPC2, PARTITION): ("--", "NPC²: Z"),
    (MPC, VALUE): ("-", "MPC: c(x)"),
    (MPC, PARTITION): ("--", "MPC: Z"),
}


@final
@dataclass(frozen=True)
class Cost(Experiment):
    """Mixtures of random binary trees over the variables of BSDS300, Gaussian inputs, one thread.

    The batch size varies at ``fixed_units`` and K at ``fixed_batch``.
    """

    name: ClassVar[str] = "cost"
    title: ClassVar[str] = "What c(x) and Z cost against batch size and K"

    num_variables: int = 63
    trees: int = 32
    batches: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    units: tuple[int, ...] = (16, 32, 64, 128, 256)
    fixed_units: int = 256
    fixed_batch: int = 512
    budget: float = 1.0
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        # Z does not depend on the batch: it is measured once for each K.
        points = [
            (PARTITION, 0, units) for units in dict.fromkeys((*self.units, self.fixed_units))
        ]
        points += [(VALUE, batch, self.fixed_units) for batch in self.batches]
        points += [(VALUE, self.fixed_batch, units) for units in self.units]
        return [
            {"part": part, "model": model, "batch": batch, "units": units}
            for part, batch, units in dict.fromkeys(points)
            for model in (NPC2, MPC)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(max(run["batch"], 1), self.num_variables, generator=generator)
        mixture = TreeMixture(run["model"], BINARY, run["units"], self.trees)
        density = mixture.build(x, sub.Gaussian(), self.seed, from_rows=False)
        part = torch.no_grad()(step_parts(density, x)[run["part"]])
        return measure(part, self.budget)

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        columns = ["model", "batch", "K", "c s", "Z s", "c MiB", "Z MiB"]
        rows = [
            [r.run["model"], r.run["batch"], r.run["units"]]
            + [
                found.result[quantity]
                for quantity in QUANTITIES
                for found in (r, partition_of(r, records))
            ]
            for r in records
            if r.run["part"] == VALUE
        ]
        outputs.table(
            "cost",
            f"CPU time of one thread, the best of repeated calls, and the most memory that "
            f"tensors hold during a call; {self.trees} binary trees over {self.num_variables} "
            "variables, one after the other, "
            "Gaussian inputs, 32-bit parameters, Z of squares in 64 bit, no gradients.",
            columns,
            rows,
        )
        outputs.figure(
            "cost",
            f"Left: against the batch size, K = {self.fixed_units}. Right: against K, batches of "
            f"{self.fixed_batch}. Rows share their axis.",
            self._draw(records),
        )

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = Figure(figsize=(7.6, 5.6), layout="constrained")
        grid = figure.subplots(2, 2, sharey="row")
        values = [r for r in records if r.run["part"] == VALUE]
        by_batch = [r for r in values if r.run["units"] == self.fixed_units]
        by_units = [r for r in values if r.run["batch"] == self.fixed_batch]
        for line, (quantity, unit) in zip(grid, QUANTITIES.items(), strict=True):
            for axes, group, name in zip(
                line, (by_batch, by_units), ("batch", "units"), strict=True
            ):
                pairs = [(r, partition_of(r, records)) for r in group]
                _draw_lines(axes, pairs, name, quantity)
            line[0].set_ylabel(unit, fontsize=9)
        grid[1][0].set_xlabel(f"batch size (K = {self.fixed_units})", fontsize=9)
        grid[1][1].set_xlabel(f"K (batches of {self.fixed_batch})", fontsize=9)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False
        )
        return figure


def partition_of(record: Record, records: Sequence[Record]) -> Record:
    """The record of Z that belongs to one of c(x)."""
    wanted = {**record.run, "part": PARTITION, "batch": 0}
    return next(other for other in records if dict(other.run) == wanted)


def _draw_lines(
    axes: Axes, pairs: Sequence[tuple[Record, Record]], name: str, quantity: str
) -> None:
    quiet(axes)
    ticks = sorted({value.run[name] for value, _ in pairs})
    for (model, part), (line, label) in STYLES.items():
        points = sorted(
            (value.run[name], (value if part == VALUE else total).result[quantity])
            for value, total in pairs
            if value.run["model"] == model
        )
        across, along = zip(*points, strict=True)
        colour = COLOURS[model]
        axes.plot(across, along, color=colour, ls=line, marker="o", ms=3.5, lw=1.4, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#e5e8ec", lw=0.8)


FULL = Cost()
QUICK = Cost(
    num_variables=16,
    trees=2,
    batches=(64, 512, 2048),
    units=(16, 64),
    fixed_units=32,
    budget=0.1,
)
