"""A heuristic search for a mode: good samples, then ascent. Maximising a circuit is NP-hard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LogProb = Callable[[Tensor], Tensor]

_MAX_SWEEPS = 20
_DEEP = 1e3  # nats below its start: no way to a mode


@torch.no_grad()
def best_rows(log_prob: LogProb, rows: Tensor, count: int) -> Tensor:
    """The ``count`` rows of highest density, best first, among rows (n, d)."""
    if len(rows) == 0 or count < 1:
        raise ValueError(
            f"the search for a mode needs at least one sample and one start, got {len(rows)} "
            f"samples and num_starts={count}."
        )
    return rows[log_prob(rows).argsort(descending=True)[:count]]


def ascend(
    log_prob: LogProb, starts: Tensor, free: Sequence[int], num_states: Sequence[int | None]
) -> Tensor:
    """Improve rows (m, d) in their free variables and return the best one found, (d,).

    Discrete variables are tried state by state, continuous ones follow the gradient; both in
    turns, until neither improves. The result is never worse than the starts, and mostly a local
    maximum; nothing says that it is the highest one. Maxima on the edge of a domain, as splines
    may have, are approached only.
    """
    discrete = [variable for variable in free if num_states[variable] is not None]
    smooth = [variable for variable in free if num_states[variable] is None]
    rows = starts
    score = log_prob(rows).detach()
    for _ in range(_MAX_SWEEPS):
        before = score
        for variable in discrete:
            rows = _best_state(log_prob, rows, variable, num_states[variable] or 1)
        if smooth:
            rows = _climb(log_prob, rows, smooth)
        score = log_prob(rows).detach()
        if not bool((score > before + 1e-7).any()):
            break
    return rows[score.argmax()]


@torch.no_grad()
def _best_state(log_prob: LogProb, rows: Tensor, variable: int, count: int) -> Tensor:
    states = torch.arange(count, dtype=rows.dtype)
    trial = rows[:, None].repeat(1, count, 1)  # (m, v, d)
    trial[..., variable] = states
    scores = log_prob(trial.flatten(0, 1)).reshape(len(rows), count)
    best = rows.clone()
    best[:, variable] = states[scores.argmax(1)]
    return best


def _climb(log_prob: LogProb, rows: Tensor, smooth: Sequence[int]) -> Tensor:
    """L-BFGS on the smooth variables of all rows; each keeps the best point it has passed."""
    at = torch.tensor(list(smooth))
    best, score = rows, log_prob(rows).detach()
    # Outside the domain the density is zero: a row that steps there must not stop the others.
    floor = score - _DEEP
    point = rows[:, at].clone().requires_grad_()
    optimiser = torch.optim.LBFGS([point], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        nonlocal best, score
        moved = rows.index_copy(1, at, point)
        here = log_prob(moved)
        better = here.detach() > score
        best = torch.where(better[:, None], moved.detach(), best)
        score = torch.where(better, here.detach(), score)
        total = -torch.maximum(here, floor).sum()
        # Not backward(): the parameters' own gradients are the user's.
        (point.grad,) = torch.autograd.grad(total, point)
        return total

    with torch.enable_grad():
        optimiser.step(loss)
    return best
