"""The training loop: maximum likelihood by stochastic gradients (paper: Sec. 2, App. H)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm import tqdm

from subtractive.densities.base import Density
from subtractive.learning.objective import mean_log_likelihood, negative_log_likelihood
from subtractive.queries.evidence import Evidence, make_evidence
from subtractive.queries.partition import CancellationError


@dataclass
class History:
    """What happened in training: mean log-likelihoods after each epoch."""

    train: list[float] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    best_epoch: int = 0
    skipped_steps: int = 0


def fit(
    density: Density,
    train: Tensor,
    valid: Tensor | None = None,
    *,
    learning_rate: float = 0.01,
    batch_size: int = 256,
    max_epochs: int = 100,
    patience: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> History:
    """Train a density on rows (n, d) by Adam and leave the best weights in it.

    Best is measured on ``valid``, or on ``train`` without it; training ends after ``patience``
    epochs without a better one. NaN entries are integrated out. A step whose loss or gradient is
    not finite is skipped and counted. Ctrl-C ends training and keeps the best weights so far.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4, seed=0)
    >>> density = sub.SquaredCircuit(circuit)
    >>> history = sub.fit(density, torch.randn(100, 2), max_epochs=3, progress=False)
    >>> history.train[-1] > history.train[0]
    True
    """
    rows = make_evidence(train, None, density.families, density.device)
    held = rows if valid is None else make_evidence(valid, None, density.families, density.device)
    if len(rows) == 0 or len(held) == 0:
        raise ValueError("training needs at least one row of data, got an empty table.")
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(density.parameters(), lr=learning_rate, fused=True)
    history = History()
    best = copy.deepcopy(density.state_dict())
    best_score = mean_log_likelihood(density, held)
    bar = tqdm(range(1, max_epochs + 1), disable=not progress, unit="epoch")
    try:
        for epoch in bar:
            total = _epoch(density, rows, batch_size, optimiser, generator, history)
            history.train.append(total)
            history.valid.append(mean_log_likelihood(density, held))
            bar.set_postfix(train=f"{total:.3f}", valid=f"{history.valid[-1]:.3f}")
            if history.valid[-1] > best_score:
                best_score, history.best_epoch = history.valid[-1], epoch
                best = copy.deepcopy(density.state_dict())
            elif epoch - history.best_epoch >= patience:
                break
    except KeyboardInterrupt:
        bar.write("interrupted: the best weights so far are kept")
    finally:
        density.load_state_dict(best)
        bar.close()
    return history


def _epoch(
    density: Density,
    rows: Evidence,
    batch_size: int,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    history: History,
) -> float:
    """One pass over the rows in random order; the mean log-likelihood seen on the way."""
    losses, sizes = [], []
    for chosen in torch.randperm(len(rows), generator=generator).split(batch_size):
        optimiser.zero_grad()
        loss = _finite_loss(density, rows.rows(chosen))
        if loss is None:
            history.skipped_steps += 1
            continue
        optimiser.step()
        losses.append(loss)
        sizes.append(len(chosen))
    if not losses:
        return -math.inf
    weights = torch.tensor(sizes, dtype=torch.float64)
    return -float((torch.stack(losses) * weights).sum() / weights.sum())


def _finite_loss(density: Density, batch: Evidence) -> Tensor | None:
    """The loss of a batch, its gradients being in place, if all of them are finite numbers."""
    try:
        loss = negative_log_likelihood(density, batch)
    except CancellationError:
        return None
    loss.backward()
    gradients = [p.grad for p in density.parameters() if p.grad is not None]
    finite = bool(loss.isfinite()) and all(bool(g.isfinite().all()) for g in gradients)
    return loss.detach() if finite else None
