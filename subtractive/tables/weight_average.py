"""Averages of weights over steps: what oscillates while steps are large comes to rest in them."""

from __future__ import annotations

import copy
import math
from typing import final

import torch

from subtractive.densities.base import Density
from subtractive.inference.partition import CancellationError
from subtractive.learning.history import History
from subtractive.tables.training_rows import Rows


@final
class WeightAverage:
    """An exponential average of the weights of a density, judged by held-out rows every epoch.

    ``horizon`` is the number of steps after which weights have faded to a third.
    """

    def __init__(self, density: Density, valid: Rows, horizon: float) -> None:
        self._source, self._average, self._valid = density, copy.deepcopy(density), valid
        self._decay, self._steps = math.exp(-1 / horizon), 0
        self.best_score, self.best_epoch = -math.inf, 0
        self.best = copy.deepcopy(density.state_dict())

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights after a step into the average."""
        self._steps += 1
        # The first steps count more, so that the start is forgotten at once.
        share = max(1 - self._decay, 1 / self._steps)
        pairs = zip(self._average.parameters(), self._source.parameters(), strict=True)
        for mean, weight in pairs:
            mean.lerp_(weight, share)

    def judge(self, density: Density, history: History) -> bool:
        """Keep the average of now if held-out rows find it most likely; never end the run."""
        weights = self._valid.weights
        try:
            with torch.no_grad():
                scores = self._average.log_prob(self._valid.x)
            score = float((weights * scores).sum() / weights.sum())
        except CancellationError:
            score = -math.inf
        if score > self.best_score:
            self.best_score, self.best_epoch = score, len(history.epochs)
            self.best = copy.deepcopy(self._average.state_dict())
        return False
