"""How the models of the experiments learn: Adam with a rate that falls along a cosine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

import subtractive as sub
from studies.models.ensemble import Ensemble, Member
from studies.models.smoothing import smooth_after_steps

Callback = Callable[[sub.Density, sub.History], object]


@dataclass(frozen=True)
class Schedule:
    """The length of a training run, its first learning rate, which ends at a hundredth of it."""

    epochs: int
    learning_rate: float
    batch_size: int


@dataclass(frozen=True)
class Fitted:
    """What a member of a ensemble came to, at its own best epoch by validation."""

    epoch: int
    valid: float
    test: float


def train(
    density: sub.Density,
    rows: tuple[Tensor, Tensor],
    schedule: Schedule,
    *,
    optimizer: Optimizer | None = None,
    callbacks: Sequence[Callback] = (),
    seed: int = 0,
) -> sub.History:
    """Fit a density to the first of two tables and keep its best epoch by the second."""
    optimizer = optimizer or sub.learning.relative_adam(density, schedule.learning_rate)
    decay = CosineAnnealingLR(optimizer, schedule.epochs, schedule.learning_rate / 100)
    return sub.fit(
        density,
        *rows,
        optimizer=optimizer,
        scheduler=decay,
        batch_size=schedule.batch_size,
        max_epochs=schedule.epochs,
        patience=schedule.epochs,
        callbacks=callbacks,
        seed=seed,
        progress=False,
    )


def train_ensemble(
    members: Sequence[Member],
    data: tuple[Tensor, Tensor, Tensor],
    schedule: Schedule,
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
    optimizer = sub.learning.relative_adam(ensemble.joint, schedule.learning_rate)
    if smoothing is not None:
        layer = ensemble.joint.circuit.input_layers[0]
        strengths = torch.tensor(smoothing)[layer.variables[:, 0] // 2]
        smooth_after_steps(optimizer, layer.get_tensor(layer.names[0]), strengths)
    states = [ensemble.state(number) for number in range(len(members))]
    best, epochs = ensemble.scores(valid), [0] * len(members)

    def keep_best(_: sub.Density, history: sub.History) -> None:
        for number, score in enumerate(ensemble.scores(valid).tolist()):
            if score > best[number]:
                best[number], epochs[number] = score, len(history.epochs)
                states[number] = ensemble.state(number)

    train(
        ensemble.joint,
        (ensemble.columns(rows, seeds), ensemble.columns(valid)),
        schedule,
        optimizer=optimizer,
        callbacks=[keep_best],
    )
    ensemble.load(states)
    for member, state in zip(members, states, strict=True):
        member.load_state_dict(state)
    scores = zip(epochs, best.tolist(), ensemble.scores(test).tolist(), strict=True)
    return [Fitted(*score) for score in scores]
