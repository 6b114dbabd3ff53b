"""Four densities of two variables by mixtures of splines, of three kinds (paper: App. H.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, final

import torch
from torch import Tensor

import subtractive as sub
from subtractive.data.synthetic import LogDensity
from subtractive.experiments import plane_pages
from subtractive.experiments.base import Experiment, Place, Record, Run
from subtractive.experiments.outputs import Outputs
from subtractive.experiments.planes import (
    MPC,
    MPC2,
    NPC2,
    SPECTRAL,
    Plane,
    build,
    domain_of,
    load_plane,
    splines_over,
    start,
)
from subtractive.experiments.training import Schedule, train_bundle

INPUTS = "spline"


@final
@dataclass(frozen=True)
class SyntheticContinuous(Experiment):
    """Sets and, in their order, the K that is drawn; all K that are compared; how to learn.

    ``data`` is a folder of arrays to use instead of fresh draws. Models that start from √p begin
    near their end, so they have a schedule of their own.
    """

    name: ClassVar[str] = "synthetic-continuous"
    title: ClassVar[str] = "Rings, cosine, funnel and banana: adding, squaring, subtracting"

    sets: tuple[str, ...] = ("rings", "cosine", "funnel", "banana")
    shown_units: tuple[int, ...] = (8, 12, 4, 4)
    units: tuple[int, ...] = (2, 4, 8, 12, 16)
    models: tuple[str, ...] = (MPC, MPC2, NPC2, SPECTRAL)
    seeds: tuple[int, ...] = tuple(range(10))
    rows: tuple[int, int, int] = (10_000, 1_000, 2_000)
    data: str = ""
    data_seed: int = 42
    num_bases: int = 32
    margin: float = 0.0
    batch_size: int = 256
    epochs: int = 40
    learning_rate: float = 0.03
    root_epochs: int = 20
    root_rate: float = 0.01
    bandwidth: float = 0.5

    def runs(self) -> Sequence[Run]:
        shown = dict(zip(self.sets, self.shown_units, strict=True))
        runs = [
            {"set": name, "inputs": INPUTS, "model": model, "units": units}
            for name in self.sets
            for units in sorted({*self.units, shown[name]})
            for model in self.models
        ]
        return sorted(runs, key=lambda run: run["units"] != shown[str(run["set"])])

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        plane = self._plane(run["set"])
        families = splines_over(plane, run["model"], self.num_bases, self.margin)
        members = []
        for seed in self.seeds:
            member = build(run["model"], families, run["units"], seed)
            start(member, run["model"], plane.train, bandwidth=self.bandwidth, seed=seed)
            members.append(member)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size)
        if run["model"] == SPECTRAL:
            schedule = Schedule(self.root_epochs, self.root_rate, self.batch_size)
        fitted = train_bundle(members, plane.rows, schedule, seeds=self.seeds)
        best = max(range(len(fitted)), key=lambda number: fitted[number].valid)
        members[best].save(place("model"))
        return {
            "parameters": members[0].circuit.num_parameters,
            "members": [
                {"seed": seed, **asdict(result)}
                for seed, result in zip(self.seeds, fitted, strict=True)
            ],
        }

    def present(self, records: Sequence[Record], outputs: Outputs) -> None:
        planes = {name: self._plane(name) for name in self.sets}
        truths = {name: float(p.log_density(p.test).mean()) for name, p in planes.items()}
        outputs.table(
            "scores",
            plane_pages.CAPTION.format(seeds=len(self.seeds)),
            plane_pages.COLUMNS,
            plane_pages.score_rows(records, truths),
        )
        panels = {}
        for name, units in zip(self.sets, self.shown_units, strict=True):
            row = {
                "truth": (on_domain(planes[name].log_density, planes[name]), _note(truths[name]))
            }
            for record in records:
                if record.run["set"] == name and record.run["units"] == units:
                    density = sub.load(record.file("model"))
                    title = f"{record.run['model']}, K = {units}"
                    note = _note(plane_pages.chosen(record))
                    row[title] = (on_domain(density.log_prob, planes[name]), note)
            panels[name] = row
        outputs.figure(
            "densities",
            "Densities, the seed of each model chosen by validation; each row has one colour "
            "scale. Below: mean test log-likelihoods.",
            plane_pages.draw_planes(panels),
        )
        outputs.figure(
            "scores",
            f"Mean test log-likelihood and its standard deviation over {len(self.seeds)} seeds "
            "against the number of components K.",
            plane_pages.draw_curves(records, truths, [INPUTS]),
        )

    def _plane(self, name: str) -> Plane:
        return _load(name, self.data, self.rows, self.data_seed)


@cache
def _load(name: str, folder: str, sizes: tuple[int, int, int], seed: int) -> Plane:
    return load_plane(name, folder, sizes, seed)


@torch.no_grad()
def on_domain(log_density: LogDensity, plane: Plane, points: int = 161) -> Tensor:
    """A density over the domain of the data, (points, points), y first."""
    low, high = domain_of(plane, 0.0)
    lines = [
        torch.linspace(a, b, points, dtype=torch.float64)
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]
    return log_density(torch.cartesian_prod(*lines)).exp().reshape(points, points).T


def _note(score: float) -> str:
    return f"log-likelihood {score:.3f}"


FULL = SyntheticContinuous()
QUICK = SyntheticContinuous(
    units=(4, 8), seeds=(0, 1), rows=(4_000, 500, 1_000), epochs=8, root_epochs=4
)
