"""What the two experiments on synthetic data have in common: their sets, and how models learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from studies.data.synthetic import SyntheticSet
from studies.grid.experiment import Experiment, Place, Run
from studies.models.ensemble import Member
from studies.models.kinds import MPC, MPC2, NPC2, OURS, PAPER
from studies.models.training import PaperSchedule, Schedule
from studies.paper.synthetic_models import (
    SPECTRAL,
    RootGrid,
    fit_members,
    learn,
    learn_from_root,
    load_synthetic,
)


@dataclass(frozen=True)
class SyntheticExperiment(Experiment):
    """Sets and, in their order, the K that is drawn; all K that are compared; how to learn.

    ``data`` is a folder of arrays to use instead of fresh draws. Models that start from √p begin
    near their end, so they have a schedule of their own.
    """

    sets: tuple[str, ...] = ("rings", "cosine", "funnel", "banana")
    shown_units: tuple[int, ...] = (8, 12, 4, 4)
    units: tuple[int, ...] = (4, 8, 12)
    models: tuple[str, ...] = (MPC, MPC2, NPC2, SPECTRAL)
    seeds: tuple[int, ...] = tuple(range(10))
    rows: tuple[int, int, int] = (10_000, 1_000, 2_000)
    data: str = ""
    data_seed: int = 42
    batch_size: int = 256
    epochs: int = 20
    learning_rate: float = 0.03
    root_batch_size: int = 1024
    root_epochs: int = 40
    root_rate: float = 0.02
    protocol: str = OURS
    patience: int = 50  # of the paper's protocol only
    bandwidths: tuple[float, ...] = (0.2, 0.3, 0.5)
    smoothings: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)

    def paper(self) -> dict[str, Any]:
        """App. H.1 and the authors' configuration: Adam at its default rate, a uniform start."""
        return {
            "protocol": PAPER,
            "models": (MPC, MPC2, NPC2),
            "units": (4, 8, 12),
            "batch_size": 256,
            "learning_rate": 1e-3,
            "epochs": 1200,
            "patience": 50,
        }

    def load(self, name: str) -> SyntheticSet:
        """One of the sets."""
        return load_synthetic(name, self.data, self.rows, self.data_seed)

    def learned(
        self,
        run: Run,
        make: Callable[[int], Member],
        rows: tuple[Tensor, Tensor, Tensor],
        rate: float,
        place: Place,
    ) -> Mapping[str, Any]:
        """What the model of a run comes to with every seed, from √p or at the rate given."""
        if self.protocol == PAPER:
            plan = PaperSchedule(self.epochs, self.learning_rate, self.batch_size, self.patience)
            members = [make(seed) for seed in self.seeds]
            return fit_members(members, rows, plan, seeds=self.seeds, place=place)
        if run["model"] == SPECTRAL:
            schedule = Schedule(self.root_epochs, self.root_rate, self.root_batch_size)
            grid = RootGrid(self.bandwidths, self.smoothings)
            return learn_from_root(make, rows, schedule, grid, seeds=self.seeds, place=place)
        schedule = Schedule(self.epochs, rate, self.batch_size)
        return learn(make, rows, schedule, seeds=self.seeds, place=place)
