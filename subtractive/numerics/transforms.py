"""What other parts of PyTorch do around a computation: transforms of functions, autocast."""

from __future__ import annotations

import torch
from torch import Tensor


def is_transformed() -> bool:
    """Whether a transform of :mod:`torch.func` is at work: vmap, grad, jacrev, ..."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor is several at once, so that nothing may be written into it."""
    kinds = torch._C._functorch
    return bool(kinds.is_batchedtensor(tensor) or kinds.is_legacy_batchedtensor(tensor))


def without_autocast(device: torch.device) -> torch.autocast:
    """A context in which products keep the precision of their factors."""
    return torch.autocast(device.type, enabled=False)
