"""The four synthetic sets in 32 x 32 bins, by tables and by binomials (paper: App. H.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

import subtractive as sub
from subtractive.experiments import plane_pages
from subtractive.experiments.base import Experiment, Place, Record, Run
from subtractive.experiments.bundle import Member
from subtractive.experiments.outputs import Outputs
from subtractive.experiments.planes import (
    MPC,
    MPC2,
    NPC2,
    SPECTRAL,
    Bins,
    Plane,
    RootGrid,
    build,
    learn,
    learn_from_root,
    load_plane,
    runs_of,
)
from subtractive.experiments.training import Schedule
from subtractive.inputs.base import InputFamily

TABLE, BINOMIAL = "embedding", "binomial"


@final
@dataclass(frozen=True)
class SyntheticDiscrete(Experiment):
    """As the continuous experiment; tables are categorical for additive models.

    A binomial has one number for 32 states, so it takes many of them: ``binomial_units``, of
    which the last is drawn.
    """

    name: ClassVar[str] = "synthetic-discrete"
    title: ClassVar[str] = "Rings, cosine, funnel and banana in bins: tables and binomials"

    sets: tuple[str, ...] = ("rings", "cosine", "funnel", "banana")
    shown_units: tuple[int, ...] = (8, 12, 4, 4)
    units: tuple[int, ...] = (4, 8, 12)
    binomial_units: tuple[int, ...] = (16, 32, 64)
    models: tuple[str, ...] = (MPC, MPC2, NPC2, SPECTRAL)
    seeds: tuple[int, ...] = tuple(range(10))
    rows: tuple[int, int, int] = (10_000, 1_000, 2_000)
    bins: int = 32
    data: str = ""
    data_seed: int = 42
    batch_size: int = 256
    epochs: int = 20
    learning_rate: float = 0.03
    binomial_rate: float = 0.1
    root_batch_size: int = 1024
    root_epochs: int = 40
    root_rate: float = 0.02
    bandwidths: tuple[float, ...] = (0.2, 0.3, 0.5)
    smoothings: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)

    def runs(self) -> Sequence[Run]:
        tables = runs_of(self.sets, self.shown_units, self.units, [TABLE], self.models)
        # Only tables can be started from √p.
        models = [model for model in self.models if model != SPECTRAL]
        last = [self.binomial_units[-1]] * len(self.sets)
        binomials = runs_of(self.sets, last, self.binomial_units, [BINOMIAL], models)
        return [*tables, *binomials]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        plane = self._plane(run["set"])
        bins = Bins.over(plane, self.bins)
        train, valid, test = (bins.number(part).double() for part in plane.rows)
        rows = (train, valid, test)
        family = family_of(run["inputs"], run["model"], self.bins)

        def make(seed: int) -> Member:
            return build(run["model"], [family, family], run["units"], seed)

        if run["model"] == SPECTRAL:
            schedule = Schedule(self.root_epochs, self.root_rate, self.root_batch_size)
            grid = RootGrid(self.bandwidths, self.smoothings)
            return learn_from_root(make, rows, schedule, grid, seeds=self.seeds, place=place)
        rate = self.binomial_rate if run["inputs"] == BINOMIAL else self.learning_rate
        schedule = Schedule(self.epochs, rate, self.batch_size)
        return learn(make, rows, schedule, seeds=self.seeds, place=place)

    def present(self, records: Sequence[Record], outputs: Outputs) -> None:
        masses, truths = {}, {}
        for name in self.sets:
            plane = self._plane(name)
            bins = Bins.over(plane, self.bins)
            masses[name] = bins.log_masses(plane.log_density)
            first, second = bins.number(plane.test).unbind(1)
            truths[name] = float(masses[name][first, second].mean())
        outputs.table(
            "scores",
            plane_pages.CAPTION.format(seeds=len(self.seeds)),
            plane_pages.COLUMNS,
            plane_pages.score_rows(records, truths),
        )
        last = (self.binomial_units[-1],) * len(self.sets)
        for kind, shown in ((TABLE, self.shown_units), (BINOMIAL, last)):
            group = [record for record in records if record.run["inputs"] == kind]
            panels = {}
            for name, units in zip(self.sets, shown, strict=True):
                row = {"truth": (masses[name].exp().T, plane_pages.note(truths[name]))}
                row |= plane_pages.learned(group, name, units, self._on_bins)
                panels[name] = row
            outputs.figure(
                f"masses_{kind}",
                f"Probabilities of the bins, {kind} inputs, the seed of each model chosen by "
                "validation; each row has one colour scale. Below: mean test log-likelihoods.",
                plane_pages.draw_planes(panels),
            )
        outputs.figure(
            "scores",
            f"Mean test log-likelihood and its standard deviation over {len(self.seeds)} seeds "
            "against the number of components K.",
            plane_pages.draw_curves(records, truths, [TABLE, BINOMIAL]),
        )

    @torch.no_grad()
    def _on_bins(self, density: sub.Density, _: str) -> Tensor:
        """The probabilities of all bins, y first."""
        states = torch.arange(self.bins, dtype=torch.float64)
        masses = density.log_prob(torch.cartesian_prod(states, states)).exp()
        return masses.reshape(self.bins, self.bins).T

    def _plane(self, name: str) -> Plane:
        return load_plane(name, self.data, self.rows, self.data_seed)


def family_of(inputs: str, model: str, bins: int) -> InputFamily:
    """Tables that are real where the model may subtract, or binomials."""
    if inputs == BINOMIAL:
        return sub.Binomial(bins - 1)
    return sub.Categorical(bins) if model in (MPC, MPC2) else sub.Embedding(bins)


FULL = SyntheticDiscrete()
QUICK = SyntheticDiscrete(
    units=(4, 8),
    binomial_units=(16, 32),
    seeds=(0, 1),
    rows=(4_000, 500, 1_000),
    epochs=8,
    root_epochs=10,
    bandwidths=(0.3,),
    smoothings=(0.1, 1.0),
)
