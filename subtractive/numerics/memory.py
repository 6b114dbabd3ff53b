"""Memory that is used again and again."""

from __future__ import annotations

import functools

import torch

# Just below 32 MiB, the largest tensor whose release glibc learns from.
_LEARNED_BYTES = 31 * 2**20


@functools.cache
def keep_freed_memory() -> None:
    """Let the allocator keep the memory of large tensors that are freed, once per process.

    By default glibc takes every tensor beyond 128 KiB from the system and gives it back when it is
    freed; a loop over blocks of rows then spends half of its time in page faults. Whenever such a
    tensor is freed, glibc raises that limit to its size, and keeps twice as much at hand. Nothing
    is written to this one, so that it takes no memory. Other allocators are not affected.
    """
    torch.empty(_LEARNED_BYTES, dtype=torch.uint8)
