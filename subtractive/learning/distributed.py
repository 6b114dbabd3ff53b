"""Several processes that train one model: each takes its part of every batch.

Under ``torchrun`` every process runs the same program. Gradients are sums over the rows of a batch
plus that of log Z, so that each process computes Z once and its own rows, and one sum over all
processes gives the gradient that a single process would have computed.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous


class LostProcessError(RuntimeError):
    """Another process of the group has died, or does not answer.

    >>> issubclass(sub.learning.LostProcessError, RuntimeError)
    True
    """


@dataclass(frozen=True)
class Group:
    """The processes that train together; a group of one has nobody to talk to."""

    rank: int = 0
    size: int = 1

    def part(self, rows: Tensor) -> Tensor:
        """The rows that this process takes; with few rows, some processes take none."""
        return rows[self.rank :: self.size]

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in place."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            self._call(dist.all_reduce, flat)
            parts = flat.split([tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process, in place."""
        if self.size > 1:
            for tensor in tensors:
                self._call(dist.broadcast, tensor.data, 0)

    def check_same(self, facts: Mapping[str, str]) -> None:
        """Refuse, in all processes alike, to train together on different facts."""
        if self.size == 1:
            return
        everyones: list[dict[str, str]] = [{}] * self.size
        self._call(dist.all_gather_object, everyones, dict(facts))
        for rank, others in enumerate(everyones):
            for name, fact in everyones[0].items():
                if others.get(name) != fact:
                    raise ValueError(
                        "the processes of a group must train the same model on the same data: "
                        f"{name} of process 0 is {fact}, that of process {rank} is "
                        f"{others.get(name)}. Give all of them the same; each takes its own part "
                        "of every batch."
                    )

    def _call(self, operation: object, *arguments: object) -> None:
        try:
            operation(*arguments)  # type: ignore[operator]
        except RuntimeError as error:
            raise LostProcessError(
                f"process {self.rank} of {self.size} lost touch with the others: one of them has "
                f"died or does not answer ({error}). See its own output for the reason; the same "
                "command with resume=True goes on from the last checkpoint."
            ) from error


def find_group(device: torch.device) -> Group:
    """The process group that this process belongs to; under ``torchrun`` it is joined first."""
    if not dist.is_available():
        return Group()
    if not dist.is_initialized() and dist.is_torchelastic_launched():
        _join("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)
    return Group(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Group()


def _join(backend: str) -> None:
    """Meet the others at the store of ``torchrun``, which survives its restarts.

    Each life of the group has keys of its own there: a process that came first would otherwise
    find the address of one that has died.
    """
    store, rank, size = next(iter(rendezvous("env://")))
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend, store=PrefixStore(f"life {life}", store), rank=rank, world_size=size
    )


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
