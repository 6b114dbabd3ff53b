"""Binary density estimation: sums, and squares that begin where they end, on three trees."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import median
from typing import Any, ClassVar, final

from matplotlib.figure import Figure

import subtractive as sub
from studies.data.binary import SETS, load_binary
from studies.data.splits import Splits
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.evaluation import evaluate, grouped, spread
from studies.models.kinds import MPC, NPC2, SQUARES
from studies.models.tree_mixtures import BINARY, CHOW_LIU, LINEAR, TreeMixture
from subtractive.plots.style import quiet

LONGER = "MPC, longer"
MODELS = (MPC, LONGER, NPC2, SQUARES)
TREES = (LINEAR, BINARY, CHOW_LIU)
COLOURS = dict(zip(MODELS, ("#c7772e", "#a0a0a0", "#5b2a86", "#b04a8f"), strict=True))


@final
@dataclass(frozen=True)
class Debd(Experiment):
    """Binary sets from the folder ``data``, trees, K and seeds; how to learn.

    MPC learns by expectation maximisation. NPC² starts at its square root, as one square, and
    Σ squares as K squares; both learn by Adam, which may subtract. *MPC, longer* goes on by Adam,
    too. All have equally many units, and learn until validation rows gain no more. ``rows`` of 0
    are all rows; a batch is a sixteenth of them, within ``batch_sizes``.
    """

    name: ClassVar[str] = "debd"
    title: ClassVar[str] = "Binary data: sums, and squares that begin where they end"

    data: str = ""
    sets: tuple[str, ...] = SETS
    models: tuple[str, ...] = MODELS
    trees: tuple[str, ...] = TREES
    units: tuple[int, ...] = (16,)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 100
    patience: int = 6
    step_size: float = 1.0
    pseudocount: float = 0.1
    longer_rate: float = 0.01
    squared_rate: float = 0.001
    batch_sizes: tuple[int, int] = (256, 1024)
    rows: int = 0

    def runs(self) -> Sequence[Run]:
        return [
            {"set": name, "model": model, "tree": tree, "units": units, "seed": seed}
            for seed, units, name, tree, model in product(
                self.seeds, self.units, self.sets, self.trees, self.models
            )
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        splits = load_binary(run["set"], self.data).head(self.rows)
        additive, num_epochs = self._sums(run["set"], run["tree"], run["units"], run["seed"])
        density: sub.Density
        if run["model"] in (MPC, LONGER):
            density = copy.deepcopy(additive)
        else:
            num_squares = run["units"] if run["model"] == SQUARES else 1
            density = sub.learning.square_root(additive, num_squares=num_squares)
        if run["model"] != MPC:
            rate = self.longer_rate if run["model"] == LONGER else self.squared_rate
            options = self._options(splits, run["seed"])
            history = sub.fit(density, splits.train, splits.valid, learning_rate=rate, **options)
            num_epochs = len(history.epochs)
        count = sum(parameter.numel() for parameter in density.parameters())
        return evaluate(density.log_prob, splits) | {"parameters": count, "epochs": num_epochs}

    # The models of one tree follow each other, and all begin with the same sums.
    @lru_cache(maxsize=1)  # noqa: B019 - a study lives as long as its process
    def _sums(
        self, name: str, tree: str, units: int, seed: int
    ) -> tuple[sub.MonotonicCircuit, int]:
        splits = load_binary(name, self.data).head(self.rows)
        density = TreeMixture(MPC, tree, units).build(splits.train, sub.Categorical(2), seed)
        assert isinstance(density, sub.MonotonicCircuit)
        history = sub.learning.fit_em(
            density,
            splits.train,
            splits.valid,
            step_size=self.step_size,
            pseudocount=self.pseudocount,
            **self._options(splits, seed),
        )
        return density, len(history.epochs)

    def _options(self, splits: Splits, seed: int) -> dict[str, Any]:
        least, largest = self.batch_sizes
        return {
            "batch_size": min(max(len(splits.train) // 16, least), largest),
            "max_epochs": self.epochs,
            "patience": self.patience,
            "seed": seed,
            "progress": False,
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "scores",
            f"Mean test log-likelihoods in nats over {len(self.seeds)} seeds: median, least and "
            "largest.",
            ["set", "tree", "K", "model", "parameters", "median", "least", "largest", "seconds"],
            score_rows(records),
        )
        outputs.figure(
            "scores",
            "Median test log-likelihoods less that of the additive model on the same tree: above "
            "zero a model is better than it.",
            self._draw(records),
        )

    def _draw(self, records: Sequence[Record]) -> Figure:
        medians = {tuple(row[:4]): row[5] for row in score_rows(records)}
        figure = Figure(figsize=(0.9 * len(self.sets) + 3.0, 3.2), layout="constrained")
        axes = figure.subplots()
        quiet(axes)
        axes.axhline(0, color="grey", lw=0.8)
        places = list(product(self.sets, self.trees))
        for model in self.models:
            gains = [
                medians[name, tree, self.units[-1], model]
                - medians[name, tree, self.units[-1], self.models[0]]
                for name, tree in places
            ]
            axes.plot(range(len(places)), gains, "o", ms=4, color=COLOURS[model], label=model)
        axes.set_xticks(range(len(places)), [f"{name} {tree}" for name, tree in places])
        axes.tick_params(axis="x", rotation=90, labelsize=7)
        axes.set_ylabel(f"nats above {self.models[0]}", fontsize=9)
        axes.legend(fontsize=8, frameon=False)
        return figure


def score_rows(records: Sequence[Record]) -> list[list[Any]]:
    """A row for each model on each tree, over all seeds."""
    rows: list[list[Any]] = []
    names = ("set", "tree", "units", "model")
    for key, group in grouped(records, lambda run: tuple(run[name] for name in names)).items():
        seconds = round(median(record.seconds for record in group), 1)
        rows.append([*key, group[0].result["parameters"], *spread(group), seconds])
    return rows


FULL = Debd()
QUICK = Debd(sets=("nltcs", "plants"), units=(8,), seeds=(0,), epochs=5, rows=4_000)
