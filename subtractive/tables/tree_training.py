"""How one hidden Chow-Liu tree of a table starts, and how EM trains it."""

from __future__ import annotations

import math
from typing import final

import torch

from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.learning.em import fit_em
from subtractive.learning.hidden_chow_liu import hidden_chow_liu_tree
from subtractive.learning.history import History
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.tables.effort import Budget, EndOf
from subtractive.tables.scale_limits import limit_scales, limit_shares, scale_limits
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import DitheredBatches, num_trained_rows

PSEUDOCOUNT = 0.1  # rows in each unit; a whole row would already blur what is known well
MAX_EPOCHS, PATIENCE = 30, 2
# Small batches and large steps: their noise leads out of poor optima. Steps that shrink with every
# batch end sooner, and in poorer ones.
BATCH, STEP_SIZE = 512, 0.5
# Steps of EM over all rows at the end of each tree, while held-out rows gain: small batches leave
# even the shares of single values off by the noise of the last of them, whole steps do not.
WHOLE_STEPS, WHOLE_BATCH = 16, 2048


@final
class TreeTraining:
    """The Chow-Liu tree of some rows, and hidden trees over it."""

    def __init__(self, data: Data, *, max_epochs: int, seed: int) -> None:
        self.columns, self.train, self.start, self.valid = data
        self.num_rows = num_trained_rows(self.train)
        self.max_epochs, self.seed = max_epochs, seed
        self.families = [column.family(signed=False) for column in self.columns]
        self.limits = scale_limits(self.columns)
        self.graph = chow_liu_tree(self.start.x.numpy())

    def tree(self, num_states: int, number: int, distant: float) -> MonotonicCircuit:
        """The tree of a member, by its number, at its start."""
        tree = hidden_chow_liu_tree(
            self.start.x,
            self.families,
            num_states,
            weights=self.train.weights,
            graph=self.graph,
            distant=distant,
            seed=self.seed + number,
            dtype=torch.float32,
        )
        self._limit(tree)
        return tree

    def by_small_steps(
        self,
        tree: MonotonicCircuit,
        number: int,
        budget: Budget,
        *,
        most: int | None = None,
    ) -> History:
        """EM of small batches."""
        size = max(32, min(BATCH, self.num_rows // 8))
        return fit_em(
            tree,
            self._batches(size, number),
            self.valid.x,
            valid_weights=self.valid.weights,
            step_size=lambda step: STEP_SIZE,
            pseudocount=PSEUDOCOUNT,
            max_epochs=min(self.max_epochs, most or MAX_EPOCHS),
            patience=PATIENCE,
            after_step=self._limit,
            callbacks=[EndOf(budget, epochs=2)],  # one of them for a step of all rows
            progress=False,
        )

    def by_whole_steps(self, tree: MonotonicCircuit, number: int, budget: Budget) -> History:
        """EM of all rows at once."""
        return fit_em(
            tree,
            self._batches(WHOLE_BATCH, number),
            self.valid.x,
            valid_weights=self.valid.weights,
            batches_per_step=math.inf,
            pseudocount=PSEUDOCOUNT,
            max_epochs=min(self.max_epochs, WHOLE_STEPS),
            patience=1,
            after_step=self._limit,
            callbacks=[EndOf(budget, epochs=1)],
            progress=False,
        )

    def _batches(self, size: int, number: int) -> DitheredBatches:
        generator = torch.Generator().manual_seed(self.seed + number)
        return DitheredBatches(self.train, self.columns, size, generator)

    def _limit(self, density: Density) -> None:
        limit_scales(density, self.limits, 1)
        limit_shares(density, float(self.train.weights.sum()))
