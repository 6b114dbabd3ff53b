"""What PyTorch does around a computation: transforms of functions, autocast, memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

# Just below 32 MiB, the largest tensor whose release glibc learns from.
_LEARNED_BYTES = 31 * 2**20


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


def listed(tensor: Tensor) -> list[Any]:
    """The entries (n) of a tensor: torch 2.6 transforms ``item`` but not ``tolist``."""
    return [entry.item() for entry in tensor] if is_transformed() else tensor.tolist()


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


@cache
def keep_freed_memory() -> None:
    """Let the allocator keep the memory of large tensors that are freed, once per process.

    By default glibc takes every tensor beyond 128 KiB from the system and gives it back when it is
    freed; a loop over blocks of rows then spends half of its time in page faults. Whenever such a
    tensor is freed, glibc raises that limit to its size, and keeps twice as much at hand. Nothing
    is written to this one, so that it takes no memory. Other allocators are not affected.
    """
    torch.empty(_LEARNED_BYTES, dtype=torch.uint8)
