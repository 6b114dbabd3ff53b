"""Entropies of some variables, and what they say about others: exact marginals, sampled points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subtractive.inference.divergence import Estimate, estimate
from subtractive.inference.evidence import check_variables

LogMarginal = Callable[[Tensor, Tensor], Tensor]  # of rows (n, d) and a mask (d,)


@torch.no_grad()
def conditional_entropy(
    log_marginal: LogMarginal, x: Tensor, variables: Sequence[int], known: Sequence[int]
) -> Estimate:
    """H(A | B) = −E[log p(a, b) − log p(b)] by rows x (n, d) drawn from p."""
    joint, condition = _masks(x.shape[1], variables, known)
    terms = -log_marginal(x, joint | condition)
    return estimate(terms + log_marginal(x, condition) if bool(condition.any()) else terms)


@torch.no_grad()
def mutual_information(
    log_marginal: LogMarginal,
    x: Tensor,
    sides: tuple[Sequence[int], Sequence[int]],
    given: Sequence[int],
) -> Estimate:
    """I(A; B) = E[log p(a, b) − log p(a) − log p(b)] by rows x (n, d) drawn from p.

    ``given`` are variables that are fixed in all rows, and cannot be on either side.
    """
    one, other, _ = _masks(x.shape[1], *sides, given)
    if not bool(other.any()):
        raise ValueError("mutual information needs variables on both sides, got none.")
    return estimate(log_marginal(x, one | other) - log_marginal(x, one) - log_marginal(x, other))


def _masks(num_variables: int, *sets: Sequence[int]) -> list[Tensor]:
    """Masks (d,) of sets of variables that must not overlap, the first of them not empty."""
    masks = []
    for variables in sets:
        mask = torch.zeros(num_variables, dtype=torch.bool)
        mask[list(check_variables(variables, num_variables))] = True
        masks.append(mask)
    if not bool(masks[0].any()):
        raise ValueError("expected at least one variable, got none.")
    if bool((torch.stack(masks).sum(0) > 1).any()):
        raise ValueError(
            "the sets of variables must not overlap, got "
            f"{', '.join(str(list(variables)) for variables in sets)}."
        )
    return masks
