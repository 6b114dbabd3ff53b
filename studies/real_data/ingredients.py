"""What helps a squared tree on real data, and what does not: one change at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, ClassVar, final

from matplotlib.figure import Figure

import subtractive as sub
from studies.data.real import load_real
from studies.data.splits import Splits
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.evaluation import evaluate, grouped, score, spread
from studies.models.kinds import COMPLEX, MPC, SQUARES
from studies.models.training import Schedule, train
from studies.models.tree_mixtures import BINARY, CHOW_LIU, LINEAR, TreeMixture, spline_families
from subtractive.inputs.base import InputFamily
from subtractive.plots.style import MODEL, quiet

GAUSSIANS, UNIFORM, QUANTILES = "Gaussians", "splines", "splines at quantiles"


@dataclass(frozen=True)
class Tree:
    """A squared tree; ``trees`` are trained together, ``group`` is the size of input regions."""

    model: str = SQUARES
    tree: str = BINARY
    squares: int = 8
    trees: int = 1
    group: int = 1
    inputs: str = GAUSSIANS

    def build(self, splits: Splits, num_units: int, seed: int) -> sub.Density:
        """The density at its start."""
        mixture = TreeMixture(self.model, self.tree, num_units, self.trees, self.squares)
        if self.group > 1:
            return mixture.build_grouped(splits.train, self.group, seed)
        return mixture.build(splits.train, self._inputs(splits, num_units), seed)

    def _inputs(self, splits: Splits, num_bases: int) -> Sequence[InputFamily] | InputFamily:
        if self.inputs == GAUSSIANS:
            return sub.Gaussian()
        at_quantiles = self.inputs == QUANTILES
        return spline_families(splits.rows, self.model, num_bases, at_quantiles=at_quantiles)


BASE = "8 squares, binary tree, Gaussians"
CHANGES: dict[str, Tree] = {
    BASE: Tree(),
    "additive": Tree(MPC),
    "1 square": Tree(squares=1),
    "2 squares": Tree(squares=2),
    "4 squares": Tree(squares=4),
    "16 squares": Tree(squares=16),
    "complex weights, 1 square": Tree(COMPLEX, squares=1),
    "complex weights": Tree(COMPLEX),
    "linear tree": Tree(tree=LINEAR),
    "Chow-Liu tree": Tree(tree=CHOW_LIU),
    "2 trees": Tree(trees=2),
    "4 trees": Tree(trees=4),
    "pairs of correlated columns": Tree(group=2),
    "groups of 3 columns": Tree(group=3),
    "splines, uniform knots": Tree(inputs=UNIFORM),
    "splines, knots at quantiles": Tree(inputs=QUANTILES),
}


@final
@dataclass(frozen=True)
class Ingredients(Experiment):
    """Sets from the folder ``data``, changes and seeds; ``rows`` of 0 are all rows."""

    name: ClassVar[str] = "ingredients"
    title: ClassVar[str] = "What helps: one change at a time"

    data: str = ""
    sets: tuple[str, ...] = ("power-subset", "protein")
    changes: tuple[str, ...] = tuple(CHANGES)
    seeds: tuple[int, ...] = (0, 1, 2)
    num_units: int = 32
    epochs: int = 10
    rate: float = 0.03
    batch: int = 512
    rows: int = 0

    def runs(self) -> Sequence[Run]:
        for change in self.changes:
            if change not in CHANGES:
                raise ValueError(f"there is no change {change!r}: choose from {list(CHANGES)}.")
        return [
            {"set": name, "change": change, "seed": seed}
            for seed in self.seeds
            for name in self.sets
            for change in self.changes
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        splits = load_real(run["set"], self.data).head(self.rows)
        density = CHANGES[run["change"]].build(splits, self.num_units, run["seed"])
        schedule = Schedule(self.epochs, self.rate, self.batch)
        train(density, (splits.train, splits.valid), schedule, seed=run["seed"])
        parameters = sum(p.numel() for p in density.parameters())
        return evaluate(density.log_prob, splits) | {"parameters": parameters}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "gains",
            f"Mean test log-likelihoods in nats of trees with K = {self.num_units} after "
            f"{self.epochs} epochs, {len(self.seeds)} seeds: median, least and largest; the "
            "median gain over the first row with the same seed, and for how many seeds there is "
            "one; seconds of one run, the median, other programs running beside.",
            [*"set change parameters median least largest gain better seconds".split()],
            gain_rows(records),
        )
        outputs.figure(
            "gains",
            "Gains in test log-likelihood over the first row with the same seed, by seed.",
            draw_gains(records),
        )


def gains(records: Sequence[Record], some: Sequence[Record]) -> list[float]:
    """How much better each run is than the base of the same set and seed, where that is known."""
    base = {
        (record.run["set"], record.run["seed"]): score(record)
        for record in records
        if record.run["change"] == BASE
    }
    keys = [(record.run["set"], record.run["seed"]) for record in some]
    return [
        score(record) - base[key] for record, key in zip(some, keys, strict=True) if key in base
    ]


def set_and_change(run: Run) -> tuple[str, str]:
    """What a run shares with those of other seeds."""
    return run["set"], run["change"]


def gain_rows(records: Sequence[Record]) -> list[list[Any]]:
    """A row for each change of each set, over all seeds."""
    rows: list[list[Any]] = []
    for (name, change), some in grouped(records, set_and_change).items():
        gained = gains(records, some)
        seconds = round(median(record.seconds for record in some))
        better = f"{sum(gain > 0 for gain in gained)} of {len(gained)}"
        compared = [median(gained), better] if gained and change != BASE else [None, None]
        rows.append(
            [name, change, some[0].result["parameters"], *spread(some), *compared, seconds]
        )
    names = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: names.index(row[0]))


def lowest_shown(values: Sequence[float]) -> float:
    """Where a picture begins: three times the middle half below it, or at the least value."""
    if len(values) < 4:
        return min(values)
    first, _, third = quantiles(values, n=4)
    return max(min(values), first - 3 * (third - first))


def draw_gains(records: Sequence[Record]) -> Figure:
    """A panel for each set, a row for each change, a point for each seed."""
    names = list(dict.fromkeys(record.run["set"] for record in records))
    changes = [c for c in dict.fromkeys(record.run["change"] for record in records) if c != BASE]
    size = (3.4 * len(names) + 1.6, 0.22 * len(changes) + 1.0)
    figure = Figure(figsize=size, layout="constrained")
    groups = grouped(records, set_and_change)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axes, name in zip(panels, names, strict=True):
        quiet(axes)
        rows = [gains(records, groups.get((name, change), [])) for change in changes]
        low = lowest_shown([gain for row in rows for gain in row])
        for place, row in enumerate(rows):
            inside = [gain for gain in row if gain >= low]
            axes.scatter(inside, [place] * len(inside), s=16, color=MODEL, alpha=0.7)
            if len(inside) < len(row):  # a diverged run must not hide the others
                axes.annotate(f"◂ {min(row):.1f}", (low, place), fontsize=7, va="center")
        axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
        axes.locator_params(axis="x", nbins=5)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("gain in nats", fontsize=9)
    panels[0].set_yticks(range(len(changes)), changes, fontsize=8)
    panels[0].invert_yaxis()
    return figure


FULL = Ingredients()
QUICK = Ingredients(sets=("power-subset",), seeds=(0,), num_units=8, epochs=2, rows=2_000)
