"""The four synthetic sets in 32 x 32 bins, by tables and by binomials (paper: App. H.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Place, Record, Run
from studies.grid.outputs import Page
from studies.models.ensemble import Member
from studies.models.kinds import MPC, MPC2
from studies.paper import synthetic_pages
from studies.paper.synthetic_experiment import SyntheticExperiment
from studies.paper.synthetic_models import SPECTRAL, Bins, build, runs_of
from subtractive.inputs.base import InputFamily

TABLE, BINOMIAL = "embedding", "binomial"


@final
@dataclass(frozen=True)
class SyntheticDiscrete(SyntheticExperiment):
    """As the continuous experiment; tables are categorical for additive models.

    A binomial has one number for 32 states, so it takes many of them: ``binomial_units``, of
    which the last is drawn.
    """

    name: ClassVar[str] = "synthetic-discrete"
    title: ClassVar[str] = "Rings, cosine, funnel and banana in bins: tables and binomials"

    binomial_units: tuple[int, ...] = (16, 32, 64)
    binomial_rate: float = 0.1
    bins: int = 32

    def paper(self) -> dict[str, Any]:
        return super().paper() | {"binomial_units": (32, 64, 96), "binomial_rate": 1e-3}

    def runs(self) -> Sequence[Run]:
        tables = runs_of(self.sets, self.shown_units, self.units, [TABLE], self.models)
        # Only tables can be started from √p.
        models = [model for model in self.models if model != SPECTRAL]
        last = [self.binomial_units[-1]] * len(self.sets)
        binomials = runs_of(self.sets, last, self.binomial_units, [BINOMIAL], models)
        return [*tables, *binomials]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        dataset = self.load(run["set"])
        bins = Bins.over(dataset, self.bins)
        train, valid, test = (bins.number(part).double() for part in dataset.rows)
        rows = (train, valid, test)
        family = family_of(run["inputs"], run["model"], self.bins)

        def make(seed: int) -> Member:
            return build(run["model"], [family, family], run["units"], seed)

        rate = self.binomial_rate if run["inputs"] == BINOMIAL else self.learning_rate
        first, second = bins.number(dataset.test).unbind(1)
        truth = float(bins.log_masses(dataset.log_density)[first, second].mean())
        return {**self.learned(run, make, rows, rate, place), "truth": truth}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        truths = synthetic_pages.truths_of(records)
        outputs.table(
            "scores",
            synthetic_pages.CAPTION.format(seeds=len(self.seeds)),
            synthetic_pages.COLUMNS,
            synthetic_pages.score_rows(records, truths),
        )
        if synthetic_pages.has_models(records):
            self._show_masses(records, truths, outputs)
        outputs.figure(
            "scores",
            f"Mean test log-likelihood and its standard deviation over {len(self.seeds)} seeds "
            "against the number of components K.",
            synthetic_pages.draw_curves(records, truths, [TABLE, BINOMIAL]),
        )

    def _show_masses(
        self, records: Sequence[Record], truths: Mapping[str, float], outputs: Page
    ) -> None:
        last = (self.binomial_units[-1],) * len(self.sets)
        for kind, shown in ((TABLE, self.shown_units), (BINOMIAL, last)):
            group = [record for record in records if record.run["inputs"] == kind]
            panels = {}
            for name, units in zip(self.sets, shown, strict=True):
                dataset = self.load(name)
                masses = Bins.over(dataset, self.bins).log_masses(dataset.log_density)
                row = {"truth": (masses.exp().T, synthetic_pages.note(truths[name]))}
                row |= synthetic_pages.learned(group, name, units, self._on_bins)
                panels[name] = row
            outputs.figure(
                f"masses_{kind}",
                f"Probabilities of the bins, {kind} inputs, the seed of each model chosen by "
                "validation; each row has one colour scale. Below: mean test log-likelihoods.",
                synthetic_pages.draw_densities(panels),
            )

    @torch.no_grad()
    def _on_bins(self, density: sub.Density, _: str) -> Tensor:
        """The probabilities of all bins, y first."""
        states = torch.arange(self.bins, dtype=torch.float64)
        masses = density.log_prob(torch.cartesian_prod(states, states)).exp()
        return masses.reshape(self.bins, self.bins).T


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
