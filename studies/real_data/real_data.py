"""How good squared circuits can be on real data, beside Gaussian mixtures and a flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, ClassVar, final

import numpy as np
import torch
from matplotlib.figure import Figure

import subtractive as sub
from studies.data.real import load_real
from studies.data.splits import Splits
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.baselines import FLOWS, GAUSSIAN, NSF, fit_flow, fit_gaussian
from studies.models.evaluation import evaluate, grouped, score, spread
from studies.models.kinds import MPC, SQUARES
from studies.models.training import Schedule, train
from studies.models.tree_mixtures import BINARY, TreeMixture
from subtractive.plots.style import MODEL, quiet

EM, FROM_EM, MPC_FROM_EM = "EM", "squares from EM", "MPC from EM"
FRAMES, MPC_FRAMES, LARGER = "frames", "MPC frames", "larger MPC frames"
TREES, GROUPED, ADDITIVE = "trees", "grouped trees", "MPC trees"
MODELS = (
    GAUSSIAN,
    EM,
    FRAMES,
    MPC_FRAMES,
    LARGER,
    FROM_EM,
    MPC_FROM_EM,
    TREES,
    GROUPED,
    ADDITIVE,
    NSF,
)


@dataclass(frozen=True)
class Recipe:
    """How a model of a set is built and trained; EM sees the first ``em_rows`` rows.

    ``units`` are those of each tree, or of each frame. Several ``members`` are trained
    apart, each from a start (and trees) of its own, and mixed with equal weights.
    """

    model: str
    units: int = 0
    epochs: int = 0
    rate: float = 0.03
    batch: int = 512
    squares: int = 8
    trees: int = 1
    members: int = 1
    group: int = 1
    frames: int = 0
    start: str = "clusters"  # of frames
    em_rows: int = 50_000


# By set, those first that say most. Larger additive frames have as many parameters as the squares.
RECIPES: dict[str, tuple[Recipe, ...]] = {
    "bsds300-redrawn": (
        Recipe(GAUSSIAN),
        Recipe(FRAMES, 16, epochs=4, rate=0.01, batch=2048, frames=128, start="directions"),
        Recipe(MPC_FRAMES, 16, epochs=4, rate=0.01, batch=2048, frames=128, start="directions"),
        Recipe(LARGER, 18, epochs=4, rate=0.01, batch=2048, frames=128, start="directions"),
    ),
    "bsds300-quarter": (
        Recipe(GAUSSIAN),
        Recipe(FRAMES, 32, epochs=4, rate=0.01, batch=1024, frames=64),
        Recipe(MPC_FRAMES, 32, epochs=4, rate=0.01, batch=1024, frames=64),
        Recipe(LARGER, 40, epochs=4, rate=0.01, batch=1024, frames=64),
        Recipe(EM, 64, em_rows=100_000),
        # Large batches: most of a step is the integrals of all pairs of components.
        Recipe(FROM_EM, 64, epochs=4, batch=4096, em_rows=100_000),
        Recipe(MPC_FROM_EM, 64, epochs=4, batch=4096, em_rows=100_000),
        Recipe(NSF, 256, epochs=10, rate=1e-3),
    ),
    "power-subset": (
        Recipe(GAUSSIAN),
        Recipe(EM, 64),
        Recipe(FRAMES, 64, epochs=30, frames=8),
        Recipe(MPC_FRAMES, 64, epochs=30, frames=8),
        Recipe(LARGER, 375, epochs=30, frames=8),
        Recipe(TREES, 64, epochs=40),
        Recipe(ADDITIVE, 64, epochs=40),
        Recipe(NSF, 128, epochs=60, rate=2e-3),
    ),
    "kin40k": (
        Recipe(GAUSSIAN),
        Recipe(EM, 64),
        Recipe(TREES, 64, epochs=40, batch=256, squares=16, members=6),
        Recipe(ADDITIVE, 64, epochs=40, batch=256, members=6),
        Recipe(NSF, 128, epochs=60, rate=2e-3),
    ),
    "protein": (
        Recipe(GAUSSIAN),
        Recipe(EM, 64),
        Recipe(FRAMES, 16, epochs=15, frames=64),
        Recipe(MPC_FRAMES, 16, epochs=15, frames=64),
        Recipe(LARGER, 28, epochs=15, frames=64),
        Recipe(FROM_EM, 64, epochs=20),
        Recipe(MPC_FROM_EM, 64, epochs=20),
        Recipe(GROUPED, 48, epochs=30, group=5),
        Recipe(NSF, 128, epochs=60, rate=2e-3),
    ),
    "pumadyn32nm": (
        Recipe(GAUSSIAN),
        Recipe(EM, 16),
        Recipe(TREES, 32, epochs=40, batch=256, members=4),
        Recipe(ADDITIVE, 32, epochs=40, batch=256, members=4),
        Recipe(NSF, 128, epochs=60, rate=2e-3),
    ),
    "miniboone-valid": (
        Recipe(GAUSSIAN),
        Recipe(EM, 16),
        Recipe(FRAMES, 32, epochs=20, rate=0.01, batch=256, frames=8, members=5),
        Recipe(MPC_FRAMES, 32, epochs=20, rate=0.01, batch=256, frames=8, members=5),
        Recipe(LARGER, 44, epochs=20, rate=0.01, batch=256, frames=8, members=5),
        Recipe(FROM_EM, 16, epochs=40, batch=256),
        Recipe(MPC_FROM_EM, 16, epochs=40, batch=256),
        Recipe(NSF, 128, epochs=60, rate=2e-3, batch=256),
    ),
}

# Sets of which nothing was known when the recipes above were frozen, each with the most similar
# set, whose recipes it takes as they are. All other sets are those of the development.
CONFIRMATION = {"parkinsons": "miniboone-valid", "sml": "miniboone-valid"}
# Only the larger additive frames differ: of fewer columns, as many parameters are more units.
UNITS_OF_LARGER = {"parkinsons": 64, "sml": 91}
RECIPES |= {
    name: tuple(
        replace(recipe, units=UNITS_OF_LARGER[name]) if recipe.model == LARGER else recipe
        for recipe in RECIPES[similar]
    )
    for name, similar in CONFIRMATION.items()
}


@final
@dataclass(frozen=True)
class RealData(Experiment):
    """Sets from the folder ``data``, which models, and seeds; ``rows`` of 0 are all rows.

    ``effort`` multiplies the epochs of all recipes, and ``members``, unless 0, replaces theirs.
    """

    name: ClassVar[str] = "real-data"
    title: ClassVar[str] = "Real data: squares, mixtures and a flow"

    data: str = ""
    sets: tuple[str, ...] = tuple(RECIPES)
    models: tuple[str, ...] = MODELS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    rows: int = 0
    effort: float = 1.0
    members: int = 0

    def runs(self) -> Sequence[Run]:
        for name in self.sets:
            if name not in RECIPES:
                raise ValueError(f"there is no recipe for {name!r}: choose from {list(RECIPES)}.")
        known = list(dict.fromkeys(r.model for name in self.sets for r in RECIPES[name]))
        for model in self.models:
            if model not in known and self.models != MODELS:
                raise ValueError(f"no set has a recipe for {model!r}: choose from {known}.")
        return [
            self._run(name, recipe, seed)
            for seed in self.seeds
            for name in self.sets
            for recipe in RECIPES[name]
            if recipe.model in self.models and (seed == self.seeds[0] or recipe.model != GAUSSIAN)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        splits = load_real(run["set"], self.data).head(self.rows)
        facts = {name: value for name, value in run.items() if name not in ("set", "seed")}
        return learn(Recipe(**facts), splits, run["seed"], place)

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        for name in self.sets:
            outputs.text(f"`{name}`: {load_real(name, self.data).note}.")
        outputs.table(
            "scores",
            f"Mean test log-likelihoods in nats over {len(self.seeds)} seeds: median, least and "
            "largest; seconds of one run, the median, other programs running beside.",
            ["set", "model", "K", "parameters", "median", "least", "largest", "seconds"],
            score_rows(records),
        )
        outputs.figure(
            "scores",
            "Test log-likelihoods of all seeds; flows have no exact marginals, all others do.",
            draw_scores(records),
        )

    def _run(self, name: str, recipe: Recipe, seed: int) -> Run:
        changed = replace(
            recipe,
            epochs=round(self.effort * recipe.epochs) or min(1, recipe.epochs),
            members=self.members or recipe.members,
        )
        return {"set": name, **asdict(changed), "seed": seed}


def score_rows(records: Sequence[Record]) -> list[list[Any]]:
    """A row for each recipe of each set, over all seeds."""
    rows: list[list[Any]] = []
    for group in grouped(records, recipe_of).values():
        run = group[0].run
        seconds = round(median(record.seconds for record in group))
        about = [run["set"], run["model"], run["units"] or None, group[0].result["parameters"]]
        rows.append([*about, *spread(group), seconds])
    return sorted(rows, key=lambda row: list(RECIPES).index(row[0]))


def recipe_of(run: Run) -> tuple[Any, ...]:
    """What a run shares with those of other seeds."""
    return tuple(value for name, value in run.items() if name != "seed")


def draw_scores(records: Sequence[Record]) -> Figure:
    """A panel for each set, a row for each model, a point for each seed."""
    names = list(dict.fromkeys(record.run["set"] for record in records))
    figure = Figure(figsize=(2.9 * len(names) + 1.0, 2.8), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        quiet(axes)
        some = [record for record in records if record.run["set"] == name]
        models = list(dict.fromkeys(record.run["model"] for record in some))
        tests = [score(record) for record in some]
        places = [models.index(record.run["model"]) for record in some]
        axes.scatter(tests, places, s=18, color=MODEL, alpha=0.7)
        axes.set_yticks(range(len(models)), models, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("test log-likelihood", fontsize=9)
    return figure


def learn(recipe: Recipe, splits: Splits, seed: int, place: Place) -> dict[str, Any]:
    """Fit a model by its recipe; what it is worth, and the file of a circuit."""
    if recipe.model == GAUSSIAN:
        return fit_gaussian(splits)
    if recipe.model in FLOWS:
        schedule = Schedule(recipe.epochs, recipe.rate, recipe.batch)
        hidden = (recipe.units, recipe.units)
        return fit_flow(recipe.model, splits, schedule, hidden=hidden, seed=seed)
    starts = [START[recipe.model](recipe, splits, one) for one in member_seeds(recipe, seed)]
    before = evaluate(starts[0].log_prob, splits)
    density = starts[0] if len(starts) == 1 else sub.Mixture(starts)
    facts: dict[str, Any] = {"parameters": sum(p.numel() for p in density.parameters())}
    if recipe.model == EM:
        return before | facts
    schedule = Schedule(recipe.epochs, recipe.rate, recipe.batch)
    for member, one in zip(starts, member_seeds(recipe, seed), strict=True):
        train(member, (splits.train, splits.valid), schedule, seed=one)
    density.save(place("model"))
    facts |= {"start": before["test"], "epochs": recipe.epochs}
    return evaluate(density.log_prob, splits) | facts


def member_seeds(recipe: Recipe, seed: int) -> list[int]:
    """A seed for each member; that of a single one is the run's."""
    if recipe.members == 1:
        return [seed]
    return [int(one) for one in np.random.SeedSequence(seed).generate_state(recipe.members)]


def from_em(recipe: Recipe, splits: Splits, seed: int) -> sub.Density:
    """A Gaussian mixture found by EM, as a sum of squares or additive."""
    rows = splits.train[: recipe.em_rows]
    work = len(rows) * recipe.units * rows.shape[1] ** 2
    found = sub.learning.fit_gaussian_mixture(
        rows, recipe.units, num_restarts=3 if work < 5e7 else 1, seed=seed
    )
    kept = found.weights > 0
    parts = (found.weights[kept], found.means[kept], found.covariances[kept])
    if recipe.model == FROM_EM:
        return sub.reductions.squared_gaussian_mixture(*parts, dtype=torch.float64)
    return sub.reductions.monotonic_gaussian_mixture(*parts, dtype=torch.float64)


def from_frames(recipe: Recipe, splits: Splits, seed: int) -> sub.Density:
    """Frames, with several Gaussians in each."""
    return sub.learning.semi_tied_mixture(
        splits.train,
        recipe.frames,
        recipe.units,
        is_squared=recipe.model == FRAMES,
        start=recipe.start,
        seed=seed,
    )


def from_columns(recipe: Recipe, splits: Splits, seed: int) -> sub.Density:
    """Random binary trees, of single variables or of groups of correlated ones."""
    model = MPC if recipe.model == ADDITIVE else SQUARES
    mixture = TreeMixture(model, BINARY, recipe.units, recipe.trees, recipe.squares)
    if recipe.group == 1:
        return mixture.build(splits.train, sub.Gaussian(), seed)
    return mixture.build_grouped(splits.train, recipe.group, seed)


START: dict[str, Callable[[Recipe, Splits, int], sub.Density]] = {
    EM: from_em,
    FROM_EM: from_em,
    MPC_FROM_EM: from_em,
    FRAMES: from_frames,
    MPC_FRAMES: from_frames,
    LARGER: from_frames,
    TREES: from_columns,
    GROUPED: from_columns,
    ADDITIVE: from_columns,
}

FULL = RealData()
QUICK = RealData(sets=("power-subset", "miniboone-valid"), seeds=(0,), rows=4_000, effort=0.1)
