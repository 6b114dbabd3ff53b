"""Learned weights after squaring: how much of them is negative (paper: App. H, histograms)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from studies.data.real import load_real
from studies.distillation.corpus import EncodedCorpus, read_corpus
from studies.distillation.training import ChainSettings, read_chain, train_chain
from studies.distillation.vocabulary import make_vocabulary
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.kinds import MPC, NPC2
from studies.models.training import Schedule, train
from studies.models.tree_mixtures import BINARY, TreeMixture, spline_families
from studies.paper.weight_histograms import histogram, normalised, plain_values, products
from subtractive.data.synthetic import henon
from subtractive.plots.style import MODEL, OTHER, quiet

HENON, TEXT = "henon", "text"
# The folder of the texts, and the number of tokens of their teacher.
STORIES, NUM_TOKENS = "stories260k", 512


class Learned(NamedTuple):
    """A circuit that has learned, and what it came to."""

    circuit: sub.Circuit
    facts: dict[str, Any]


@final
@dataclass(frozen=True)
class Weights(Experiment):
    """Sum weights of circuits that start without negative ones, K units for each set.

    ``henon`` is drawn here; ``text`` are sequences of a language model, learned by chains of
    tokens; others are the real sets of the folder ``data``, learned by binary trees.
    """

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Learned weights of sum layers, after squaring"

    sets: tuple[str, ...] = (HENON,)
    units: tuple[int, ...] = (32,)
    data: str = ""
    rows: int = 10_000
    num_variables: int = 8
    num_bases: int = 32
    epochs: int = 30
    learning_rate: float = 0.01
    batch_size: int = 512
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        if len(self.units) != len(self.sets):
            raise ValueError(f"give one K for each of {len(self.sets)} sets, got {self.units}.")
        return [
            {"set": name, "model": model, "units": units}
            for name, units in zip(self.sets, self.units, strict=True)
            for model in (NPC2, MPC)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        learned = self._learn_chain(run, place) if run["set"] == TEXT else self._learn_tree(run)
        regions = normalised([layer.weights() for layer in learned.circuit.sum_layers])
        values = products(regions) if run["model"] == NPC2 else plain_values(regions)
        parameters = learned.circuit.num_parameters
        return {**learned.facts, "parameters": parameters, **histogram(values)}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "weights",
            "Weights of sums, each region's divided by their root mean square; of NPC² those of "
            "the squared circuit, w_oi w_pj.",
            ["set", "model", "K", "parameters", "weights", "negative share"]
            + ["test log-likelihood"],
            [
                [r.run["set"], r.run["model"], r.run["units"], r.result["parameters"]]
                + [f"{r.result['total']:,}", r.result["negative"], r.result["test"]]
                for r in records
            ],
        )
        figure = Figure(figsize=(7.6, 2.4 * len(self.sets)), layout="constrained")
        grid = figure.subplots(len(self.sets), 2, squeeze=False)
        for axes, record in zip(grid.flat, records, strict=True):
            _draw(axes, record)
        for axes in grid[-1]:
            axes.set_xlabel("weight", fontsize=9)
        for axes in grid[:, 0]:
            axes.set_ylabel("share of the weights", fontsize=9)
        outputs.figure(
            "weights",
            "Histograms of the weights between their quantiles 0.5 % and 99.5 %. All circuits "
            "start without negative weights: what is negative was learned.",
            figure,
        )

    def _learn_tree(self, run: Run) -> Learned:
        """A circuit over a binary tree, with splines."""
        rows, valid, test = self._load(run["set"])
        families = spline_families([rows, valid, test], run["model"], self.num_bases)
        density = TreeMixture(run["model"], BINARY, run["units"]).build(rows, families, self.seed)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size)
        history = train(density, (rows, valid), schedule, seed=self.seed)
        with torch.no_grad():
            score = float(density.log_prob(test).mean())
        assert isinstance(density, sub.SquaredCircuit | sub.MonotonicCircuit)
        return Learned(density.circuit, {"test": score, "epoch": history.best_epoch})

    def _learn_chain(self, run: Run, place: Place) -> Learned:
        """A chain over the tokens of a language model, from a uniform start."""
        corpus = read_corpus(Path(self.data) / STORIES).head(self.rows)
        texts = EncodedCorpus.of(corpus, make_vocabulary(corpus.train, NUM_TOKENS))
        settings = ChainSettings(
            kind="squared" if run["model"] == NPC2 else "monotonic",
            num_units=run["units"],
            start="uniform",
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.epochs,
            seed=self.seed,
        )
        model_file = place("model")
        facts = train_chain(settings, texts, checkpoint=place("checkpoint"), model_file=model_file)
        chain = read_chain(model_file)
        return Learned(chain.circuit, {"test": facts["test"], "epoch": facts["epochs"]})

    def _load(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Rows for training, validation and test, as they come."""
        if name != HENON:
            return load_real(name, self.data).head(self.rows).rows
        sizes = [self.rows, self.rows // 10, self.rows // 5]
        rows, valid, test = henon(sum(sizes), self.num_variables, seed=self.seed).split(sizes)
        return rows, valid, test


def _draw(axes: Axes, record: Record) -> None:
    quiet(axes)
    edges, counts = np.array(record.result["edges"]), np.array(record.result["counts"])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    colours = [OTHER if place < 0 else MODEL for place in middle]
    axes.bar(middle, counts / record.result["total"], width, color=colours, lw=0)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yscale("log")  # few weights are large, and they matter
    run, share = record.run, record.result["negative"]
    sign = "±²" if run["model"] == NPC2 else "+"
    title = f"{run['set']}, {run['model']} ({sign}), K = {run['units']}: {share:.0%} negative"
    axes.set_title(title, fontsize=9)


FULL = Weights()
QUICK = Weights(rows=3_000, num_variables=4, units=(8,), num_bases=16, epochs=10)
