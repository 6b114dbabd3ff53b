"""The training loop: maximum likelihood by stochastic gradients (paper: Sec. 2, App. H)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from subtractive.densities.base import Density
from subtractive.learning.agreement import shared_facts
from subtractive.learning.batches import Batches, Stream, Table, as_batches
from subtractive.learning.checkpoint import Checkpoint, load_run, resuming
from subtractive.learning.distributed import Group, find_group
from subtractive.learning.history import History
from subtractive.learning.relative_adam import relative_adam
from subtractive.learning.run import Run
from subtractive.learning.settings import Callback, Settings

MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]


def fit(
    density: Density,
    train: Table | Stream,
    valid: Table | Stream | None = None,
    *,
    weights: object | None = None,
    valid_weights: object | None = None,
    learning_rate: float = 0.03,
    decay: float = 0.5,
    batch_size: int = 256,
    max_epochs: int = 100,
    max_seconds: float = math.inf,
    patience: int = 10,
    clip_norm: float | None = None,
    optimizer: Optimizer | MakeOptimizer | None = None,
    scheduler: LRScheduler | MakeScheduler | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool | str | os.PathLike[str] = False,
    seed: int = 0,
    progress: bool = True,
) -> History:
    """Train a density by maximum likelihood and leave the best weights in it.

    Data is a table (rows, variables), or an iterable of tables or of pairs (table, weights), read
    once per epoch: a list, a ``DataLoader``, or a function that makes an iterator. Missing
    entries, NaN, are integrated out exactly. A row of weight 2 counts as two rows.

    *When it ends.* After ``max_epochs``, ``max_seconds``, or ``patience`` epochs without a better
    mean log-likelihood on ``valid`` (without it, on ``train``). The best weights, the start among
    them, are restored; Ctrl-C does the same.

    *How it steps.* By :func:`relative_adam` with ``learning_rate``, multiplied by ``decay`` after
    ``patience / 2`` epochs without a better score, or by any ``optimizer`` and ``scheduler``
    (stepped once per epoch): objects, or functions that make them. ``clip_norm`` limits the norm
    of the gradient. Steps that are not finite are left out and counted; after ten in a row the
    run goes back to the best weights with a fifth of the rate.

    *What it saves.* The whole run to the file ``checkpoint``, every ``checkpoint_seconds`` and at
    the end. ``resume=True`` goes on from there, if the file exists, as if nothing had happened;
    ``resume=path`` from another file.

    *Who trains.* Under ``torchrun`` all processes together, each on its part of every batch. They
    must have the same data, settings and version, which is checked before the first step.

    ``callbacks`` are called as ``callback(density, history)`` after each epoch; one that returns
    ``True`` ends the training.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4, seed=0)
    >>> density = sub.SquaredCircuit(circuit)
    >>> history = sub.fit(density, torch.randn(100, 2), max_epochs=3, progress=False)
    >>> history.train[-1] > history.train[0]
    True
    """
    settings = Settings(batch_size, max_epochs, max_seconds, patience, clip_norm, tuple(callbacks))
    group = find_group(density.device)
    rows = as_batches(train, weights, density, group)
    held = _held(rows, valid, valid_weights, density, group)
    _check_passes(rows, max_epochs)
    chosen = _make_optimizer(density, optimizer, learning_rate)
    rate = _make_scheduler(chosen, scheduler, decay, patience)
    saved = _saved_run(checkpoint, resume=resume)
    if group.size > 1:
        steps = {"optimizer": chosen, "scheduler": rate, "decay": decay, "seed": seed}
        group.check_same(shared_facts(density, (rows, held), settings, steps, saved))
    run = Run(
        density,
        chosen,
        rate,
        generator=torch.Generator().manual_seed(seed),
        group=group,
        identity={"batch_size": batch_size, "seed": seed, "data": rows.fingerprint},
    )
    if saved is not None:
        state = load_run(saved, run.state_dict())
        with resuming(saved, density):
            run.load_state_dict(state)
    file = None
    if checkpoint is not None and group.rank == 0:
        file = Checkpoint(checkpoint, checkpoint_seconds)
    return run.train(rows, held, settings, checkpoint=file, progress=progress)


def _check_passes(rows: Batches, max_epochs: int) -> None:
    if max_epochs > 1 and not rows.can_be_read_again:
        raise ValueError(
            f"train is an iterator, which can be read once, but max_epochs is {max_epochs}. Pass "
            "a list, a DataLoader or a function that makes iterators, or max_epochs=1."
        )


def _held(
    rows: Batches,
    valid: Table | Stream | None,
    weights: object | None,
    density: Density,
    group: Group,
) -> Batches | None:
    """What the score is measured on; of a stream that is gone when it has been read, nothing."""
    if valid is None and weights is not None:
        raise ValueError("valid_weights are the weights of valid, which is not given.")
    if valid is None:
        return rows if rows.can_be_read_again else None
    held = as_batches(valid, weights, density, group)
    if not held.can_be_read_again:
        raise ValueError(
            "valid is read after every epoch, but an iterator can be read once. Pass a table, a "
            "list, a DataLoader or a function that makes iterators."
        )
    return held


def _make_optimizer(
    density: Density, optimizer: Optimizer | MakeOptimizer | None, learning_rate: float
) -> Optimizer:
    if optimizer is None:
        if not 0 < learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a positive number, got {learning_rate}.")
        return relative_adam(density, learning_rate)
    made = optimizer if isinstance(optimizer, Optimizer) else optimizer(density.parameters())
    if not isinstance(made, Optimizer):
        raise ValueError(
            "optimizer must be a torch optimiser, or a function from parameters to one, such as "
            f"lambda p: torch.optim.SGD(p, lr=0.1); got {type(made).__name__}."
        )
    own = {id(parameter) for parameter in density.parameters()}
    if not any(id(p) in own for group in made.param_groups for p in group["params"]):
        raise ValueError("optimizer holds none of the density's parameters: it would not train.")
    return made


def _make_scheduler(
    optimizer: Optimizer,
    scheduler: LRScheduler | MakeScheduler | None,
    decay: float,
    patience: int,
) -> LRScheduler:
    if scheduler is None:
        if not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}.")
        if decay == 1:
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
        return ReduceLROnPlateau(
            optimizer, "max", decay, patience // 2, threshold=0.0, threshold_mode="abs"
        )
    made = scheduler if isinstance(scheduler, LRScheduler) else scheduler(optimizer)
    if not isinstance(made, LRScheduler):
        raise ValueError(
            "scheduler must be a torch scheduler, or a function from the optimiser to one, such "
            "as lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 50); got "
            f"{type(made).__name__}."
        )
    return made


def _saved_run(
    checkpoint: str | os.PathLike[str] | None, *, resume: bool | str | os.PathLike[str]
) -> str | os.PathLike[str] | None:
    """The file to go on from, if any."""
    if not isinstance(resume, bool):
        return resume
    if resume and checkpoint is None:
        raise ValueError("resume=True goes on from checkpoint=path, which is not given.")
    return checkpoint if resume and checkpoint and os.path.exists(checkpoint) else None
