"""Four densities of two variables by mixtures of splines, of three kinds (paper: App. H.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

import subtractive as sub
from studies.data.synthetic import LogDensity, SyntheticSet
from studies.grid.experiment import Place, Record, Run
from studies.grid.outputs import Page
from studies.models.ensemble import Member
from studies.paper import synthetic_pages
from studies.paper.synthetic_experiment import SyntheticExperiment
from studies.paper.synthetic_models import build, domain_of, runs_of, splines_over

INPUTS = "spline"


@final
@dataclass(frozen=True)
class SyntheticContinuous(SyntheticExperiment):
    """Densities of two variables, with splines over their domain as inputs."""

    name: ClassVar[str] = "synthetic-continuous"
    title: ClassVar[str] = "Rings, cosine, funnel and banana: adding, squaring, subtracting"

    units: tuple[int, ...] = (2, 4, 8, 12)
    num_bases: int = 32
    margin: float = 0.0

    def runs(self) -> Sequence[Run]:
        return runs_of(self.sets, self.shown_units, self.units, [INPUTS], self.models)

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        dataset = self.load(run["set"])
        families = splines_over(dataset, run["model"], self.num_bases, self.margin)

        def make(seed: int) -> Member:
            return build(run["model"], families, run["units"], seed)

        found = self.learned(run, make, dataset.rows, self.learning_rate, place)
        return {**found, "truth": float(dataset.log_density(dataset.test).mean())}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        truths = synthetic_pages.truths_of(records)
        outputs.table(
            "scores",
            synthetic_pages.CAPTION.format(seeds=len(self.seeds)),
            synthetic_pages.COLUMNS,
            synthetic_pages.score_rows(records, truths),
        )
        if synthetic_pages.has_models(records):
            outputs.figure(
                "densities",
                "Densities, the seed of each model chosen by validation; each row has one colour "
                "scale. Below: mean test log-likelihoods.",
                synthetic_pages.draw_densities(self._panels(records, truths)),
            )
        outputs.figure(
            "scores",
            f"Mean test log-likelihood and its standard deviation over {len(self.seeds)} seeds "
            "against the number of components K.",
            synthetic_pages.draw_curves(records, truths, [INPUTS]),
        )

    def _panels(
        self, records: Sequence[Record], truths: Mapping[str, float]
    ) -> dict[str, dict[str, tuple[Tensor, str]]]:
        """The truth of each set, and what the models of the shown K have learned."""
        datasets = {name: self.load(name) for name in truths}

        def on_grid_of(density: sub.Density, name: str) -> Tensor:
            return on_domain(density.log_prob, datasets[name])

        panels = {}
        for name, units in zip(self.sets, self.shown_units, strict=True):
            truth = on_domain(datasets[name].log_density, datasets[name])
            row = {"truth": (truth, synthetic_pages.note(truths[name]))}
            panels[name] = row | synthetic_pages.learned(records, name, units, on_grid_of)
        return panels


@torch.no_grad()
def on_domain(log_density: LogDensity, dataset: SyntheticSet, points: int = 161) -> Tensor:
    """A density over the domain of the data, (points, points), y first."""
    low, high = domain_of(dataset, 0.0)
    lines = [
        torch.linspace(a, b, points, dtype=torch.float64)
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]
    return log_density(torch.cartesian_prod(*lines)).exp().reshape(points, points).T


FULL = SyntheticContinuous()
QUICK = SyntheticContinuous(
    units=(4, 8),
    seeds=(0, 1),
    rows=(4_000, 500, 1_000),
    epochs=8,
    root_epochs=10,
    bandwidths=(0.3,),
    smoothings=(0.1, 1.0),
)
