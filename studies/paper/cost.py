"""Time and memory of c(x) and of Z, of squared and of monotonic circuits (paper: App. C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.profiling import cpu_seconds, peak_megabytes
from subtractive.inference.evidence import make_evidence
from subtractive.plots.style import MODEL, OTHER, quiet

SQUARED, MONOTONIC = "NPC²", "MPC"
VALUE, PARTITION = "value", "partition"
QUANTITIES = {"seconds": ("milliseconds", 1e3), "megabytes": ("MiB", 1.0)}
STYLES = {
    (SQUARED, VALUE): (MODEL, "-", "NPC²: c²(x)"),
    (SQUARED, PARTITION): (MODEL, "--", "NPC²: Z"),
    (MONOTONIC, VALUE): (OTHER, "-", "MPC: c(x)"),
    (MONOTONIC, PARTITION): (OTHER, "--", "MPC: Z"),
}


@final
@dataclass(frozen=True)
class Cost(Experiment):
    """One binary tree over the variables of BSDS300, Gaussian inputs, one thread.

    The batch size varies at ``fixed_units`` and K at ``fixed_batch``.
    """

    name: ClassVar[str] = "cost"
    title: ClassVar[str] = "What c(x) and Z cost against batch size and K"

    num_variables: int = 63
    batches: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    units: tuple[int, ...] = (16, 32, 64, 128, 256)
    fixed_units: int = 128
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
            for model in (SQUARED, MONOTONIC)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        squared = run["model"] == SQUARED
        circuit = sub.Circuit(
            sub.random_binary_tree(self.num_variables, seed=self.seed),
            sub.Gaussian(),
            num_units=run["units"],
            weights=sub.real_weights if squared else sub.positive_weights,
            seed=self.seed,
        )
        density = sub.SquaredCircuit(circuit) if squared else sub.MonotonicCircuit(circuit)
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(max(run["batch"], 1), self.num_variables, generator=generator)
        rows = make_evidence(x, None, density.families, density.device)
        functions: dict[str, Callable[[], object]] = {
            VALUE: lambda: density.log_weight(rows),
            PARTITION: density.log_normaliser,
        }
        function = torch.no_grad()(functions[run["part"]])
        function()  # what happens only once shall not count
        seconds = cpu_seconds({"it": function}, self.budget)["it"]
        return {"seconds": seconds, "megabytes": peak_megabytes(function)}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        columns = ["model", "batch", "K", "c ms", "Z ms", "c MiB", "Z MiB"]
        rows = [
            [r.run["model"], r.run["batch"], r.run["units"]]
            + [
                scale * found.result[quantity]
                for quantity, (_, scale) in QUANTITIES.items()
                for found in (r, partition_of(r, records))
            ]
            for r in records
            if r.run["part"] == VALUE
        ]
        outputs.table(
            "cost",
            f"CPU time of one thread, the best of repeated calls, and the most memory that "
            f"tensors hold during a call; binary tree over {self.num_variables} variables, "
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
        for line, (quantity, (unit, scale)) in zip(grid, QUANTITIES.items(), strict=True):
            for axes, group, name in zip(
                line, (by_batch, by_units), ("batch", "units"), strict=True
            ):
                pairs = [(r, partition_of(r, records)) for r in group]
                _draw_lines(axes, pairs, name, quantity, scale)
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
    axes: Axes, pairs: Sequence[tuple[Record, Record]], name: str, quantity: str, scale: float
) -> None:
    quiet(axes)
    ticks = sorted({value.run[name] for value, _ in pairs})
    for (model, part), (colour, line, label) in STYLES.items():
        points = sorted(
            (value.run[name], scale * (value if part == VALUE else total).result[quantity])
            for value, total in pairs
            if value.run["model"] == model
        )
        across, along = zip(*points, strict=True)
        axes.plot(across, along, color=colour, ls=line, marker="o", ms=3.5, lw=1.4, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#e5e8ec", lw=0.8)


FULL = Cost()
QUICK = Cost(
    num_variables=16,
    batches=(64, 512, 2048),
    units=(16, 64),
    fixed_units=32,
    budget=0.1,
)
