"""A heuristic search for a mode: good samples, then ascent. Maximising a circuit is NP-hard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LogProb = Callable[[Tensor], Tensor]

_MAX_SWEEPS = 20


def ascend(
    log_prob: LogProb, starts: Tensor, free: Sequence[int], num_states: Sequence[int | None]
) -> Tensor:
    """Improve rows (m, d) in their free variables and return the best one found, (d,).

    Discrete variables are tried state by state, continuous ones follow the gradient; both in
    turns, until neither improves. The result is a local maximum, never worse than the starts.
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
        if not bool((score > before + 1e-9).any()):
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
    """L-BFGS on the smooth variables; a row that it makes worse stays as it was."""
    at = torch.tensor(list(smooth))
    point = rows[:, at].clone().requires_grad_()
    optimiser = torch.optim.LBFGS([point], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = -log_prob(rows.index_copy(1, at, point)).sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimiser.step(loss)
    moved = rows.index_copy(1, at, point.detach())
    with torch.no_grad():
        better = log_prob(moved) > log_prob(rows)
    return torch.where(better[:, None], moved, rows)
