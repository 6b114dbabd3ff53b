"""The paper's main table: mixtures over random trees on five continuous sets (App. H.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, final

from torch.optim import Adam

import subtractive as sub
from studies.data.real import load_real
from studies.data.splits import Splits
from studies.grid.experiment import Place, Record, Run, Staged
from studies.grid.outputs import Page
from studies.models.baselines import (
    COUPLING,
    FLOWS,
    GAUSSIAN,
    GMM,
    MAF,
    NSF,
    fit_flow,
    fit_gaussian,
    fit_mixture,
)
from studies.models.evaluation import evaluate
from studies.models.kinds import MPC, MPC2, NPC2, OURS, PAPER
from studies.models.training import Schedule
from studies.models.tree_mixtures import BINARY, LINEAR, TreeMixture, spline_families
from studies.paper import uci_pages
from studies.paper.uci_paper import NUM_BASES, NUM_TREES, SETS, Grid, grid_of
from subtractive.inputs.base import InputFamily


@final
@dataclass(frozen=True)
class Uci(Staged):
    """Sets from the folder ``data``, and what is tried: where a list is empty, the paper's grid.

    The grid is searched with the first seed; the best settings by validation of each set, model
    and kind of tree are then repeated with the others. ``rows`` of 0 are all rows.
    """

    name: ClassVar[str] = "uci"
    title: ClassVar[str] = "Continuous real data: mixtures over random trees"

    data: str = ""
    sets: tuple[str, ...] = SETS
    models: tuple[str, ...] = (MPC, MPC2, NPC2)
    trees: tuple[str, ...] = (LINEAR, BINARY)
    inputs: tuple[str, ...] = ("Gaussian", "spline")
    rates: tuple[float, ...] = ()
    units: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    competitors: tuple[str, ...] = (GAUSSIAN, GMM, COUPLING, MAF, NSF)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    num_trees: int = NUM_TREES
    num_bases: int = NUM_BASES
    max_epochs: int = 500
    patience: int = 10
    mixture_sizes: tuple[int, ...] = (4, 16, 64)
    flow_rate: float = 1e-3
    flow_batch: int = 512
    flow_epochs: int = 200
    flow_hidden: tuple[int, ...] = (256, 256)
    rows: int = 0
    device: str = "cpu"
    protocol: str = OURS

    def paper(self) -> dict[str, Any]:
        """App. H.3: uniform weights and Adam at one rate; the authors' code has the patience."""
        return {"protocol": PAPER, "max_epochs": 1200, "patience": 25}

    def runs(self) -> Sequence[Run]:
        others = [
            {"set": name, "model": model, "seed": self.seeds[0]}
            for name, model in product(self.sets, self.competitors)
        ]
        points = [
            point
            for name, tree in product(self.sets, self.trees)
            for point in self._points(name, tree)
        ]
        return [*others, *sorted(points, key=lambda point: int(point["units"]))]

    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        best = uci_pages.best_records(records, ("set", "model", "tree"))
        return [{**record.run, "seed": seed} for record in best for seed in self.seeds[1:]]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        splits = load_real(run["set"], self.data).head(self.rows)
        if "tree" not in run:
            return self._fit_baseline(run, splits)
        mixture = TreeMixture(run["model"], run["tree"], run["units"], self.num_trees)
        is_paper = self.protocol == PAPER
        families = self._families(run, splits)
        density = mixture.build(splits.train, families, run["seed"], from_rows=not is_paper)
        density, splits = density.to(self.device), splits.to(self.device)
        rate = run["rate"]
        history = sub.fit(
            density,
            splits.train,
            splits.valid,
            learning_rate=rate,
            optimizer=(lambda p: Adam(p, lr=rate)) if is_paper else None,
            decay=1.0 if is_paper else 0.5,
            batch_size=run["batch"],
            max_epochs=self.max_epochs,
            patience=self.patience,
            checkpoint=place("checkpoint"),
            checkpoint_seconds=600.0,
            resume=True,
            seed=run["seed"],
            progress=False,
        )
        place("checkpoint").unlink(missing_ok=True)
        density.save(place("model"))
        count = sum(parameter.numel() for parameter in density.parameters())
        facts = {"parameters": count, "epochs": len(history.epochs), "stopped": history.stopped}
        return evaluate(density.log_prob, splits) | facts

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        for name in self.sets:
            outputs.text(f"`{name}`: {load_real(name, self.data).note}.")
        uci_pages.write_tables(records, outputs, self.seeds)
        for other in (MPC, MPC2):
            pairs = uci_pages.pairs_of(records, other)
            if pairs:
                outputs.figure(
                    "against_mpc" if other == MPC else "against_mpc2",
                    f"Test log-likelihoods of NPC² against those of {other} with the same trees, "
                    "inputs, K, learning rate and batch size: above the line NPC² is better. Dark "
                    "points have large K.",
                    uci_pages.draw_pairs(pairs, other),
                )

    def _points(self, name: str, tree: str) -> list[dict[str, Any]]:
        """The grid of a set and a kind of tree, by the first seed."""
        paper = grid_of(name, tree)
        grid = Grid(self.rates or paper.rates, self.units or paper.units, paper.batches)
        return [
            {
                "set": name,
                "model": model,
                "tree": tree,
                "inputs": inputs,
                "units": units,
                "rate": rate,
                "batch": batch,
                "seed": self.seeds[0],
            }
            for units, rate, batch, inputs, model in product(
                grid.units, grid.rates, self.batches or grid.batches, self.inputs, self.models
            )
        ]

    def _families(self, run: Run, splits: Splits) -> Sequence[InputFamily] | InputFamily:
        if run["inputs"] == "Gaussian":
            return sub.Gaussian()
        if run["inputs"] == "spline":
            return spline_families(splits.rows, run["model"], self.num_bases)
        raise ValueError(f"inputs are 'Gaussian' and 'spline', got {run['inputs']!r}.")

    def _fit_baseline(self, run: Run, splits: Splits) -> dict[str, Any]:
        model, seed = run["model"], run["seed"]
        if model == GAUSSIAN:
            return fit_gaussian(splits)
        if model == GMM:
            return fit_mixture(splits, self.mixture_sizes, seed)
        if model not in FLOWS:
            known = (GAUSSIAN, GMM, *FLOWS)
            raise ValueError(f"competitors are {', '.join(known)}, got {model!r}.")
        schedule = Schedule(self.flow_epochs, self.flow_rate, self.flow_batch)
        there = splits.to(self.device)
        return fit_flow(model, there, schedule, hidden=self.flow_hidden, seed=seed)


FULL = Uci()
QUICK = Uci(
    sets=("power-subset", "miniboone-valid"),
    inputs=("Gaussian",),
    rates=(0.01,),
    units=(8, 16),
    batches=(512,),
    seeds=(0, 1),
    num_trees=2,
    max_epochs=8,
    patience=3,
    mixture_sizes=(4, 16),
    flow_epochs=4,
    flow_hidden=(64, 64),
    rows=6_000,
)
