"""Expectation maximisation against gradients, and squares from where it ends, on binary sets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import mean, stdev
from typing import Any, ClassVar, final

import torch
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from studies.data.binary import load_binary
from studies.grid.experiment import Place, Record, Run, Staged
from studies.grid.outputs import Page
from studies.models.evaluation import evaluate, grouped
from subtractive.plots.style import quiet

ADAM, EM, SQUARED, ROOT = "Adam", "EM", "squared", "squared, root"
ADDITIVE = (ADAM, EM)
# Learning rates, and pseudocounts of EM, of which the validation rows choose.
CHOICES: Mapping[str, tuple[float, ...]] = {
    ADAM: (0.3, 0.1),
    EM: (1.0, 0.1),
    SQUARED: (0.03, 0.01, 0.003),
    ROOT: (0.01, 0.003, 0.001),
}
# Of the additive model at whose square root a square starts.
PSEUDOCOUNT_OF_ROOT = 1.0


@final
@dataclass(frozen=True)
class ExpectationMaximisation(Staged):
    """Circuits of one tree, size and start, trained in several ways; how long to learn.

    On the first seed every method is tried with all its settings, on the others with the one that
    the validation rows of the first prefer. ``rows`` of 0 are all rows. An epoch has ``batches``
    batches, but no batch is smaller or larger than ``batch_sizes`` say.
    """

    name: ClassVar[str] = "em"
    title: ClassVar[str] = "Binary data: expectation maximisation, gradients, and square roots"

    data: str = ""
    sets: tuple[str, ...] = ("nltcs", "plants", "baudio", "dna")
    methods: tuple[str, ...] = (ADAM, EM, SQUARED, ROOT)
    units: int = 16
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 150
    patience: int = 6
    batches: int = 16
    batch_sizes: tuple[int, int] = (256, 1024)
    rows: int = 0

    def runs(self) -> Sequence[Run]:
        return [
            {"set": name, "method": method, "setting": setting, "seed": self.seeds[0]}
            for name, method in product(self.sets, self.methods)
            for setting in CHOICES[method]
        ]

    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        best = chosen(records, self.seeds[0])
        return [
            {"set": name, "method": method, "setting": best[name, method], "seed": seed}
            for seed in self.seeds[1:]
            for name, method in product(self.sets, self.methods)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        splits = load_binary(run["set"], self.data).head(self.rows)
        tables = (splits.train, splits.valid)
        options = {"max_epochs": self.epochs, "patience": self.patience}
        least, largest = self.batch_sizes
        size = min(max(len(splits.train) // self.batches, least), largest)
        options |= {"batch_size": size, "seed": run["seed"]}
        graph = sub.chow_liu_tree(splits.train.numpy())  # the same for all methods
        warm_up()
        start = time.process_time()
        density, history = self._trained(run, graph, tables, options)
        seconds = time.process_time() - start
        count = sum(parameter.numel() for parameter in density.parameters())
        facts = {"parameters": count, "epochs": len(history.epochs), "cpu": seconds}
        return evaluate(density.log_prob, splits) | facts

    def _trained(
        self,
        run: Run,
        graph: sub.RegionGraph,
        tables: tuple[Tensor, Tensor],
        options: Mapping[str, Any],
    ) -> tuple[sub.Density, sub.History]:
        method, setting = run["method"], run["setting"]
        is_signed = method == SQUARED
        circuit = sub.Circuit(
            graph,
            sub.Embedding(2) if is_signed else sub.Categorical(2),
            num_units=self.units,
            weights=sub.real_weights if is_signed else sub.positive_weights,
            seed=run["seed"],
        )
        density = sub.SquaredCircuit(circuit) if is_signed else sub.MonotonicCircuit(circuit)
        sub.initialise(density, tables[0], seed=run["seed"])
        quietly = {**options, "progress": False}
        if method in (EM, ROOT):
            pseudocount = setting if method == EM else PSEUDOCOUNT_OF_ROOT
            history = sub.learning.fit_em(density, *tables, pseudocount=pseudocount, **quietly)
        if method == ROOT:
            assert isinstance(density, sub.MonotonicCircuit)
            density = sub.learning.square_root(density)
        if method != EM:
            history = sub.fit(density, *tables, learning_rate=setting, **quietly)
        return density, history

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        best = chosen(records, self.seeds[0])
        kept = [r for r in records if best[r.run["set"], r.run["method"]] == r.run["setting"]]
        outputs.table(
            "scores",
            "Mean test log-likelihoods in nats, means over seeds, and seconds of processor time "
            "for one training, with the setting that the validation rows chose.",
            ["set", "method", "setting", "parameters", "seeds", "valid", "test", "± test", "CPU"],
            score_rows(kept),
        )
        outputs.table(
            "differences",
            "Test log-likelihoods of pairs of methods, seed by seed: mean difference in nats, its "
            "least and largest, and how many times as much processor time the first one takes.",
            ["set", "method", "against", "seeds", "difference", "least", "largest", "CPU"],
            difference_rows(kept),
        )
        outputs.figure("scores", "Test log-likelihoods less those of Adam.", draw(kept))


@cache
def warm_up() -> None:
    """Let torch prepare what only the first training of a process waits for."""
    circuit = sub.Circuit(
        sub.flat(2), sub.Categorical(2), num_units=2, weights=sub.positive_weights, seed=0
    )
    sub.fit(sub.MonotonicCircuit(circuit), torch.zeros(4, 2), max_epochs=1, progress=False)


def chosen(records: Sequence[Record], seed: int) -> dict[tuple[str, str], float]:
    """The setting of each method on each set that is best on the validation rows of a seed."""
    first = [record for record in records if record.run["seed"] == seed]
    groups = grouped(first, lambda run: (run["set"], run["method"]))
    return {
        key: max(group, key=lambda r: float(r.result["valid"])).run["setting"]
        for key, group in groups.items()
    }


def score_rows(records: Sequence[Record]) -> list[list[Any]]:
    """A row for each method on each set."""
    rows: list[list[Any]] = []
    for key, group in grouped(records, lambda run: (run["set"], run["method"])).items():
        valid, test, seconds = (
            [float(r.result[name]) for r in group] for name in ("valid", "test", "cpu")
        )
        deviation = round(stdev(test), 3) if len(test) > 1 else None
        facts = [group[0].run["setting"], group[0].result["parameters"], len(group)]
        scores = [round(mean(valid), 3), round(mean(test), 3), deviation]
        rows.append([*key, *facts, *scores, round(mean(seconds), 1)])
    return rows


def difference_rows(records: Sequence[Record]) -> list[list[Any]]:
    """Pairs of methods on each set, seed by seed."""
    rows: list[list[Any]] = []
    for name, group in grouped(records, lambda run: run["set"]).items():
        by_method = grouped(group, lambda run: run["method"])
        for first, second in ((EM, ADAM), (ROOT, EM), (ROOT, SQUARED)):
            one, other = (
                {r.run["seed"]: r.result for r in by_method.get(method, [])}
                for method in (first, second)
            )
            seeds = sorted(one.keys() & other.keys())
            if seeds:
                gains = [one[seed]["test"] - other[seed]["test"] for seed in seeds]
                costs = [sum(some[seed]["cpu"] for seed in seeds) for some in (one, other)]
                # A zero without a sign: no difference is no loss.
                numbers = [round(n, 3) + 0.0 for n in (mean(gains), min(gains), max(gains))]
                ratio = round(costs[0] / costs[1], 2)
                rows.append([name, first, second, len(seeds), *numbers, ratio])
    return rows


def draw(records: Sequence[Record]) -> Figure:
    """A column of points for each set, one for each method and seed."""
    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    axes.axhline(0, color="grey", lw=0.8)
    groups = grouped(records, lambda run: run["set"])
    for place, group in enumerate(groups.values()):
        by_method = grouped(group, lambda run: run["method"])
        middle = mean(r.result["test"] for r in by_method.get(ADAM, group))
        for number, (method, some) in enumerate(by_method.items()):
            heights = [r.result["test"] - middle for r in some]
            places = [place + 0.12 * (number - 1.5)] * len(heights)
            label = method if place == 0 else None
            axes.plot(places, heights, "o", ms=4, color=f"C{number}", label=label)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel("nats above Adam", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


FULL = ExpectationMaximisation()
QUICK = ExpectationMaximisation(sets=("nltcs",), units=4, seeds=(0,), epochs=4, rows=1_000)
