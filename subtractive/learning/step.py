"""One update of the weights: gradient, agreement of all processes, optimiser."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from subtractive.densities.base import Density
from subtractive.inference.partition import CancellationError
from subtractive.learning.batches import Batch
from subtractive.learning.distributed import Group
from subtractive.learning.objective import negative_log_likelihood


def try_step(
    density: Density,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    *,
    group: Group,
    clip_norm: float | None,
) -> float | None:
    """Take one step; the mean log-likelihood before it, or ``None`` if it was not finite.

    A step that is not finite changes nothing: neither the weights nor the optimiser.
    """
    loss = compute_gradient(density, batch, optimizer, group)
    gradients = [p.grad for p in density.parameters() if p.grad is not None]
    norm = get_total_norm(gradients)
    if not (math.isfinite(loss) and bool(norm.isfinite())):
        optimizer.zero_grad()
        return None
    if clip_norm is not None:
        clip_grads_with_norm_(list(density.parameters()), clip_norm, norm)
    if isinstance(optimizer, torch.optim.LBFGS):  # searches along a line: asks again and again
        optimizer.step(lambda: compute_gradient(density, batch, optimizer, group))
    else:
        optimizer.step()
    return -loss


def compute_gradient(
    density: Density, batch: Batch, optimizer: torch.optim.Optimizer, group: Group
) -> float:
    """Leave the gradient of the whole batch in the parameters; its loss, NaN if Z has vanished."""
    optimizer.zero_grad()
    value = torch.full((1,), math.nan, dtype=torch.float64, device=density.device)
    try:
        loss = negative_log_likelihood(density, batch)
        if loss.requires_grad:
            loss.backward()
        value.copy_(loss.detach())
    except CancellationError:
        pass  # all processes have the same weights, and come here together
    group.add([value, *_gradients(density, group)])
    return float(value)


def _gradients(density: Density, group: Group) -> list[Tensor]:
    """The gradients to be summed: of all parameters, on processes without rows too."""
    if group.size == 1:
        return []
    parameters = [p for p in density.parameters() if p.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [p.grad for p in parameters if p.grad is not None]
