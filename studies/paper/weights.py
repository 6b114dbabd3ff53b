"""Learned weights after squaring: how much of them is negative (paper: App. H, histograms)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.training import Schedule, train
from subtractive.data.synthetic import henon
from subtractive.plots.style import MODEL, OTHER, quiet

SQUARED, MONOTONIC = "NPC²", "MPC"
HENON, POWER = "henon", "power"
# Quantiles between which a histogram lies, and the number of its bars.
RANGE, BARS = (0.005, 0.995), 60


@final
@dataclass(frozen=True)
class Weights(Experiment):
    """Sum weights of circuits on binary trees, which start uniform in (0, 1).

    ``henon`` is drawn here; ``power`` is read from ``data``, a folder that holds
    ``power/power_subset.npz``.
    """

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Learned weights of sum layers, after squaring"

    sets: tuple[str, ...] = (HENON,)
    data: str = ""
    rows: int = 10_000
    num_variables: int = 8
    num_units: int = 32
    num_bases: int = 32
    epochs: int = 30
    learning_rate: float = 0.01
    batch_size: int = 512
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        models = (SQUARED, MONOTONIC)
        return [{"set": name, "model": model} for name in self.sets for model in models]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        rows, valid, test = self._load(run["set"])
        squared = run["model"] == SQUARED
        every = torch.cat([rows, valid, test])
        families = [
            sub.Spline(self.num_bases, domain=(a, b), non_negative=not squared)
            for a, b in zip(every.amin(0).tolist(), every.amax(0).tolist(), strict=True)
        ]
        circuit = sub.Circuit(
            sub.random_binary_tree(rows.shape[1], seed=self.seed),
            families,
            num_units=self.num_units,
            weights=sub.real_weights if squared else sub.positive_weights,
            seed=self.seed,
        )
        density = sub.SquaredCircuit(circuit) if squared else sub.MonotonicCircuit(circuit)
        sub.initialise(density, rows, seed=self.seed)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size)
        history = train(density, (rows, valid), schedule, seed=self.seed)
        with torch.no_grad():
            score = float(density.log_prob(test).mean())
            weights = [layer.weights().double() for layer in circuit.sum_layers]
            values = squared_weights(weights) if squared else plain_weights(weights)
        facts = {"test": score, "epoch": history.best_epoch, "parameters": circuit.num_parameters}
        return facts | histogram(values)

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "weights",
            "Weights of sums, each region's divided by their root mean square; of NPC² those of "
            "the squared circuit, w_oi w_pj.",
            ["set", "model", "parameters", "weights", "negative share", "test log-likelihood"],
            [
                [r.run["set"], r.run["model"], r.result["parameters"], r.result["count"]]
                + [r.result["negative"], r.result["test"]]
                for r in records
            ],
        )
        figure = Figure(figsize=(7.6, 2.8 * len(self.sets)), layout="constrained")
        grid = figure.subplots(len(self.sets), 2, squeeze=False)
        for axes, record in zip(grid.flat, records, strict=True):
            _draw(axes, record)
        outputs.figure(
            "weights",
            "Histograms of the weights between their quantiles 0.5 % and 99.5 %. All circuits "
            "start from weights in (0, 1): what is negative was learned.",
            figure,
        )

    def _load(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Rows for training, validation and test, standardised by the first."""
        if name == HENON:
            sizes = [self.rows, self.rows // 10, self.rows // 5]
            table = henon(sum(sizes), self.num_variables, seed=self.seed)
            parts = [*table.split(sizes)]
        elif name == POWER:
            path = Path(self.data) / "power" / "power_subset.npz"
            if not path.is_file():
                raise FileNotFoundError(f"there is no file {path}: --data names its folder.")
            with np.load(path) as arrays:
                parts = [torch.from_numpy(arrays[part]) for part in ("train", "valid", "test")]
            parts = [part.double() for part in parts]
        else:
            raise ValueError(f"sets are {HENON!r} and {POWER!r}, got {name!r}.")
        mean, scale = parts[0].mean(0), parts[0].std(0)
        first, second, third = ((part - mean) / scale for part in parts)
        return first, second, third


def squared_weights(weights: Sequence[Tensor]) -> Tensor:
    """The weights W ⊗ W of the squared circuit, every region's of root mean square one.

    >>> squared_weights([torch.tensor([[[3.0, -3.0]]])])
    tensor([ 1., -1., -1.,  1.])
    """
    flat = [_normalised(layer).flatten(1) for layer in weights]  # (f, o i)
    return torch.cat([(w[:, :, None] * w[:, None, :]).flatten() for w in flat])


def plain_weights(weights: Sequence[Tensor]) -> Tensor:
    """The weights of a circuit, every region's of root mean square one."""
    return torch.cat([_normalised(layer).flatten() for layer in weights])


def histogram(values: Tensor) -> dict[str, Any]:
    """Counts between two quantiles, how many values there are, and the share below zero."""
    array = values.numpy()
    low, high = np.quantile(array, RANGE)
    width = (high - low) / BARS
    edges = width * np.arange(np.floor(low / width), np.ceil(high / width) + 1)  # one is zero
    counts, _ = np.histogram(array, edges)
    negative = float((array < 0).mean())
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "negative": negative,
        "count": len(array),
    }


def _normalised(layer: Tensor) -> Tensor:
    return layer / layer.square().mean((1, 2), keepdim=True).sqrt()


def _draw(axes: Axes, record: Record) -> None:
    quiet(axes)
    edges, counts = np.array(record.result["edges"]), np.array(record.result["counts"])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    colours = [OTHER if place < 0 else MODEL for place in middle]
    axes.bar(middle, counts / record.result["count"], width, color=colours, lw=0)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yscale("log")  # few weights are large, and they matter
    share = record.result["negative"]
    sign = "±²" if record.run["model"] == SQUARED else "+"
    title = f"{record.run['set']}: {record.run['model']} ({sign}), {share:.0%} negative"
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("weight", fontsize=9)
    axes.set_ylabel("share of the weights", fontsize=9)


FULL = Weights()
QUICK = Weights(rows=3_000, num_variables=4, num_units=8, num_bases=16, epochs=10)
