"""Handwritten digits of 8 x 8 pixels: which structure, and whether to add or to square."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, stdev
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor

import subtractive as sub
from studies.digits.kinds import KINDS, fitted
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.evaluation import grouped
from subtractive.plots.style import quiet

SIDE, NUM_STATES = 8, 17
STRUCTURES = ("chow-liu", "quad-4", "quad-2", "linear", "random")
OTHER_KINDS = tuple(kind for kind in KINDS if kind not in ("additive", "squared"))
ROOTS = tuple(name for name, kind in KINDS.items() if kind.root_epochs)


class Digits(NamedTuple):
    """Rows of 64 pixels with 17 states each: 1078 to learn from, 360 to choose, 359 to test."""

    train: Tensor
    valid: Tensor
    test: Tensor


def load() -> Digits:
    """The digits of scikit-learn, shuffled once for all runs."""
    pixels = load_digits().data
    order = np.random.default_rng(0).permutation(len(pixels))
    train, valid, test = np.split(pixels[order], [1078, 1438])
    return Digits(*(torch.from_numpy(part) for part in (train, valid, test)))


def region_graph(structure: str, rows: Tensor, seed: int) -> sub.RegionGraph:
    """A region graph over the pixels; only the random one depends on the seed."""
    if structure == "quad graph":
        return sub.regions.quad_graph(SIDE, SIDE)
    if structure == "chow-liu":
        return sub.chow_liu_tree(rows.numpy())
    if structure == "linear":
        return sub.linear_tree(SIDE * SIDE)
    if structure == "random":
        return sub.random_binary_tree(SIDE * SIDE, seed=seed)
    return sub.quad_tree(SIDE, SIDE, num_children=int(structure.removeprefix("quad-")))


@torch.no_grad()
def bits_per_dimension(density: sub.Density, rows: Tensor) -> float:
    """The mean of −log₂ p(x) / d."""
    return -float(density.log_prob(rows).mean()) / (rows.shape[1] * math.log(2))


@final
@dataclass(frozen=True)
class DigitsExperiment(Experiment):
    """Adding and squaring on all trees, other kinds on one, adding on a graph; how to learn.

    All have ``units`` units in every layer, so that kinds on one structure differ by at most a few
    parameters.
    """

    name: ClassVar[str] = "digits"
    title: ClassVar[str] = "Digits: structures, sums and squares"

    structures: tuple[str, ...] = STRUCTURES
    kinds: tuple[str, ...] = ("additive", "squared")
    other_kinds: tuple[str, ...] = OTHER_KINDS
    roots: tuple[str, ...] = ROOTS
    graphs: tuple[str, ...] = ("quad graph",)
    units: int = 16
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 100
    patience: int = 6
    batch_size: int = 256

    def runs(self) -> Sequence[Run]:
        cells = [
            *product(self.structures, self.kinds),
            *product(("quad-4",), self.other_kinds),
            *product(("chow-liu",), self.roots),
            *product(self.graphs, ("additive",)),
        ]
        return [
            {"structure": structure, "kind": kind, "seed": seed}
            for seed in self.seeds
            for structure, kind in cells
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        digits = load()
        start = time.process_time()
        graph = region_graph(run["structure"], digits.train, run["seed"])
        density, history = fitted(
            KINDS[run["kind"]],
            graph,
            (digits.train, digits.valid),
            sizes=(NUM_STATES, self.units),
            seed=run["seed"],
            options={
                "max_epochs": self.epochs,
                "patience": self.patience,
                "batch_size": self.batch_size,
            },
        )
        seconds = time.process_time() - start
        count = sum(parameter.numel() for parameter in density.parameters())
        scores = {
            name: bits_per_dimension(density, rows) for name, rows in digits._asdict().items()
        }
        return scores | {"parameters": count, "epochs": len(history.epochs), "cpu": seconds}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "scores",
            "Bits per dimension, lower is better: means over seeds, and the standard deviation of "
            "the test score. Every kind has equally many units.",
            ["structure", "kind", "parameters", "seeds", "train", "valid", "test", "± test"],
            score_rows(records),
        )
        outputs.table(
            "differences",
            "Test scores less those of the additive model on the same structure (additive ones: "
            "less that on the Chow-Liu tree), seed by seed: negative is better.",
            ["structure", "kind", "against", "seeds", "mean", "least", "largest"],
            difference_rows(records),
        )
        outputs.figure(
            "scores",
            "Bits per dimension on rows to learn from (open) and to test (filled), one point per "
            "seed.",
            draw(records),
        )


def score_rows(records: Sequence[Record]) -> list[list[Any]]:
    """A row for each kind on each structure, over all seeds."""
    rows: list[list[Any]] = []
    for key, group in grouped(records, lambda run: (run["structure"], run["kind"])).items():
        results = [record.result for record in group]
        means = [round(mean(r[name] for r in results), 4) for name in ("train", "valid", "test")]
        spread = round(stdev(r["test"] for r in results), 4) if len(group) > 1 else None
        rows.append([*key, results[0]["parameters"], len(group), *means, spread])
    return rows


def difference_rows(records: Sequence[Record]) -> list[list[Any]]:
    """Test scores less those of another model with the same seed, for each kind and structure."""
    by_seed = {
        key: {record.run["seed"]: record.result["test"] for record in group}
        for key, group in grouped(records, lambda run: (run["structure"], run["kind"])).items()
    }
    rows: list[list[Any]] = []
    for (structure, kind), scores in by_seed.items():
        other = ("chow-liu" if kind == "additive" else structure, "additive")
        seeds = sorted(scores.keys() & by_seed.get(other, {}).keys())
        if other != (structure, kind) and seeds:
            gaps = [scores[seed] - by_seed[other][seed] for seed in seeds]
            numbers = [round(gap, 4) for gap in (mean(gaps), min(gaps), max(gaps))]
            rows.append([structure, kind, " ".join(other), len(seeds), *numbers])
    return rows


def draw(records: Sequence[Record]) -> Figure:
    """One column of points for each kind on each structure."""
    groups = grouped(records, lambda run: (run["structure"], run["kind"]))
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    colours = {kind: f"C{number}" for number, kind in enumerate(KINDS)}
    for place, ((_, kind), group) in enumerate(groups.items()):
        for name, filled in (("train", False), ("test", True)):
            heights = [record.result[name] for record in group]
            face = colours[kind] if filled else "none"
            axes.scatter(
                [place] * len(heights), heights, s=18, facecolors=face, edgecolors=colours[kind]
            )
    names = [f"{structure}\n{kind}" for structure, kind in groups]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_ylabel("bits per dimension", fontsize=9)
    return figure


FULL = DigitsExperiment()
QUICK = DigitsExperiment(structures=("quad-4", "linear"), units=4, seeds=(0,), epochs=5)
