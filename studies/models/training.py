"""How the models of the experiments learn: by our recipe, or by that of the paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

import subtractive as sub
from studies.models.ensemble import Ensemble, Member
from studies.models.smoothing import smooth_after_steps

Callback = Callable[[sub.Density, sub.History], object]


class Training(ABC):
    """How long a model learns and at which rates."""

    epochs: int
    batch_size: int

    @property
    @abstractmethod
    def patience(self) -> int:
        """Epochs without a better validation score, after which it ends."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """By which share of itself a score must be better to count as better."""

    @abstractmethod
    def optimizer(self, density: sub.Density) -> Optimizer: ...

    @abstractmethod
    def scheduler(self, optimizer: Optimizer) -> LRScheduler: ...


@final
@dataclass(frozen=True)
class Schedule(Training):
    """Ours: all epochs, at a rate that falls along a cosine to a hundredth of the first."""

    epochs: int
    learning_rate: float
    batch_size: int

    @property
    def patience(self) -> int:
        return self.epochs

    @property
    def threshold(self) -> float:
        return 0.0

    def optimizer(self, density: sub.Density) -> Optimizer:
        return sub.learning.relative_adam(density, self.learning_rate)

    def scheduler(self, optimizer: Optimizer) -> LRScheduler:
        return CosineAnnealingLR(optimizer, self.epochs, self.learning_rate / 100)


@final
@dataclass(frozen=True)
class PaperSchedule(Training):
    """The paper's: Adam at one rate, until validation has not been better for a while.

    A score is better by a thousandth of itself at least, as in the authors' program.
    """

    epochs: int
    learning_rate: float
    batch_size: int
    waiting: int  # epochs

    @property
    def patience(self) -> int:
        return self.waiting

    @property
    def threshold(self) -> float:
        return 1e-3

    def optimizer(self, density: sub.Density) -> Optimizer:
        return torch.optim.Adam(density.parameters(), self.learning_rate)

    def scheduler(self, optimizer: Optimizer) -> LRScheduler:
        return LambdaLR(optimizer, lambda epoch: 1.0)


@dataclass(frozen=True)
class Fitted:
    """What a member of a ensemble came to, at its own best epoch by validation."""

    epoch: int
    valid: float
    test: float


def train(
    density: sub.Density,
    rows: tuple[Tensor, Tensor],
    schedule: Training,
    *,
    optimizer: Optimizer | None = None,
    callbacks: Sequence[Callback] = (),
    patience: int | None = None,
    seed: int = 0,
) -> sub.History:
    """Fit a density to the first of two tables and keep its best epoch by the second."""
    optimizer = optimizer or schedule.optimizer(density)
    return sub.fit(
        density,
        *rows,
        optimizer=optimizer,
        scheduler=schedule.scheduler(optimizer),
        batch_size=schedule.batch_size,
        max_epochs=schedule.epochs,
        patience=schedule.patience if patience is None else patience,
        callbacks=callbacks,
        seed=seed,
        progress=False,
    )


def train_ensemble(
    members: Sequence[Member],
    data: tuple[Tensor, Tensor, Tensor],
    schedule: Training,
    *,
    seeds: Sequence[int],
    smoothing: Sequence[float] | None = None,
) -> list[Fitted]:
    """Fit all members side by side, and leave each at its own best epoch by validation.

    ``data`` are rows for training, validation and test; every member sees the rows in an order
    of its own, which its seed decides. ``smoothing`` has a strength for each member.
    """
    ensemble = Ensemble(members)
    rows, valid, test = data
    optimizer = schedule.optimizer(ensemble.joint)
    if smoothing is not None:
        layer = ensemble.joint.circuit.input_layers[0]
        strengths = torch.tensor(smoothing)[layer.variables[:, 0] // 2]
        smooth_after_steps(optimizer, layer.get_tensor(layer.names[0]), strengths)
    states = [ensemble.state(number) for number in range(len(members))]
    best, epochs = ensemble.scores(valid), [0] * len(members)

    def keep_best(_: sub.Density, history: sub.History) -> bool:
        epoch = len(history.epochs)
        # Who has lost patience learns on beside the others, but nobody looks.
        learning = [n for n, last in enumerate(epochs) if epoch - last <= schedule.patience]
        scores = ensemble.scores(valid).tolist()
        for number in learning:
            if scores[number] > best[number] + schedule.threshold * abs(best[number]):
                best[number], epochs[number] = scores[number], epoch
                states[number] = ensemble.state(number)
        return not learning

    train(
        ensemble.joint,
        (ensemble.columns(rows, seeds), ensemble.columns(valid)),
        schedule,
        optimizer=optimizer,
        callbacks=[keep_best],
        patience=schedule.epochs,  # members end by their own scores, not by the sum of them
    )
    ensemble.load(states)
    for member, state in zip(members, states, strict=True):
        member.load_state_dict(state)
    scores = zip(epochs, best.tolist(), ensemble.scores(test).tolist(), strict=True)
    return [Fitted(*score) for score in scores]
