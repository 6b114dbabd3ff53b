"""What other parts of PyTorch do around a computation: transforms of functions, autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def is_transformed() -> bool:
    """Whether a transform of :mod:`torch.func` is at work: vmap, grad, jacrev, ..."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor is several at once: nothing may depend on its numbers."""
    functorch = torch._C._functorch
    if functorch.is_legacy_batchedtensor(tensor):
        return True
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Switch autocast off inside a function: where terms cancel, half precision has no digits."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        if not kinds:
            return function(*args, **kwargs)
        with torch.autocast(kinds[0], enabled=False), torch.autocast(kinds[-1], enabled=False):
            return function(*args, **kwargs)

    return wrapped
