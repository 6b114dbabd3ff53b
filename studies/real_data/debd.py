"""Binary density estimation: kinds of weights and kinds of trees on the sets of the literature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any, ClassVar, final

from matplotlib.figure import Figure

import subtractive as sub
from studies.data.binary import SETS, load_binary
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.evaluation import evaluate, grouped, spread
from studies.models.kinds import COMPLEX, MPC, MPC2, NPC2, SQUARES
from studies.models.training import Schedule, train
from studies.models.tree_mixtures import BINARY, CHOW_LIU, LINEAR, TreeMixture
from subtractive.inputs.base import InputFamily
from subtractive.plots.style import quiet

TREES = (LINEAR, BINARY, CHOW_LIU)
COLOURS = dict(
    zip(
        (MPC, MPC2, NPC2, SQUARES, COMPLEX),
        ("#c7772e", "#3b7d8c", "#5b2a86", "#b04a8f", "#7a8f3b"),
        strict=True,
    )
)


@final
@dataclass(frozen=True)
class Debd(Experiment):
    """Binary sets from the folder ``data``, models, trees, K and seeds; how to learn.

    All models of one K have equally many units; a sum of squares has ``squares`` outputs at its
    root. ``rows`` of 0 are all rows.
    """

    name: ClassVar[str] = "debd"
    title: ClassVar[str] = "Binary data: adding, squaring, subtracting, complex weights"

    data: str = ""
    sets: tuple[str, ...] = SETS
    models: tuple[str, ...] = (MPC, MPC2, NPC2, SQUARES, COMPLEX)
    trees: tuple[str, ...] = TREES
    units: tuple[int, ...] = (16,)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    squares: int = 4
    epochs: int = 40
    learning_rate: float = 0.03
    batch_size: int = 512
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
        outputs = self.squares if run["model"] == SQUARES else 1
        mixture = TreeMixture(run["model"], run["tree"], run["units"], outputs=outputs)
        density = mixture.build(splits.train, family_of(run["model"]), run["seed"])
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size)
        history = train(density, (splits.train, splits.valid), schedule, seed=run["seed"])
        count = sum(parameter.numel() for parameter in density.parameters())
        facts = {"parameters": count, "epochs": len(history.epochs)}
        return evaluate(density.log_prob, splits) | facts

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "scores",
            f"Mean test log-likelihoods in nats over {len(self.seeds)} seeds: median, least and "
            f"largest; {SQUARES} has {self.squares} of them.",
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


def family_of(model: str) -> InputFamily:
    """Tables of two numbers: probabilities where nothing may be negative."""
    return sub.Categorical(2) if model in (MPC, MPC2) else sub.Embedding(2)


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
