"""Data as the training loop reads it: tables in memory, or streams of batches."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence, make_evidence
from subtractive.learning.distributed import Group
from subtractive.numerics.validation import check_weights


class Batch(NamedTuple):
    """Rows to take one step on, or this process's part of them.

    ``total`` is the weight of the whole batch, which ``num_parts`` processes share.
    """

    evidence: Evidence
    weights: Tensor  # (n,) in float64
    total: float
    num_parts: int


class Batches(ABC):
    """Data that can be read once per epoch."""

    @abstractmethod
    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """One pass in the order of training."""

    @abstractmethod
    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """One pass for evaluation."""

    @property
    @abstractmethod
    def can_be_read_again(self) -> bool:
        """Whether there can be a second pass."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What tells this data from other data, as far as can be told without reading it."""


@runtime_checkable
class _Array(Protocol):
    def __array__(self) -> np.ndarray[Any, Any]: ...


Table = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[float]] | _Array
Stream = Iterable[Any] | Callable[[], Iterable[Any]]


def as_batches(
    data: Table | Stream, weights: object | None, density: Density, group: Group
) -> Batches:
    """Whatever the user calls data: a table (n, d), or an iterable of tables, checked."""
    if isinstance(data, Tensor | _Array) or (isinstance(data, Sequence) and _is_table(data)):
        return InMemory(data, weights, density, group)
    if not (isinstance(data, Iterable) or callable(data)):
        raise ValueError(
            "data must be a table of numbers (rows, variables), or an iterable of such tables, "
            f"got {type(data).__name__}."
        )
    if weights is not None:
        raise ValueError(
            "weights go with a table; a stream brings its own: let it yield pairs (rows, weights)."
        )
    return Streamed(data, density, group)


def _is_table(data: Sequence[Any]) -> bool:
    """Whether a list is a table, and not a list of tables or of pairs (table, weights)."""
    tables = (part[0] if isinstance(part, tuple | list) and part else part for part in data)
    return not any(_is_array_of_rows(part) for part in tables)


def _is_array_of_rows(part: object) -> bool:
    return isinstance(part, Tensor | _Array) and np.ndim(part) == 2


@final
class InMemory(Batches):
    """A table, checked once; rows of weight zero are left out."""

    def __init__(
        self, data: object, weights: object | None, density: Density, group: Group
    ) -> None:
        rows = data.detach() if isinstance(data, Tensor) else data
        evidence = make_evidence(rows, None, density.families, density.device)
        row_weights = check_weights(weights, len(evidence)).to(density.device)
        kept = row_weights > 0
        if not bool(kept.any()):
            reason = "all weights are zero" if len(evidence) else "got an empty table"
            raise ValueError(f"training needs at least one row of data: {reason}.")
        self._evidence = evidence if bool(kept.all()) else evidence.rows(kept.nonzero()[:, 0])
        self._weights = row_weights[kept]
        self._group = group

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        order = torch.randperm(len(self._weights), generator=generator)
        return self._batches(order, batch_size)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        return self._batches(torch.arange(len(self._weights)), batch_size)

    def _batches(self, order: Tensor, batch_size: int) -> Iterator[Batch]:
        for rows in order.to(self._weights.device).split(batch_size):
            total = float(self._weights[rows].sum())
            mine = self._group.part(rows)
            yield Batch(self._evidence.rows(mine), self._weights[mine], total, self._group.size)

    @property
    def can_be_read_again(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr(tuple(self._evidence.x.shape)).encode())
        for tensor in (self._evidence.x, self._evidence.observed, self._weights):
            digest.update(tensor.contiguous().cpu().numpy().data)
        return digest.hexdigest()


@final
class Streamed(Batches):
    """An iterable of tables (rows, variables), or of pairs (table, weights), checked one by one.

    Every process reads the whole stream and takes its part of every batch.
    """

    def __init__(self, data: Stream, density: Density, group: Group) -> None:
        self._data, self._density, self._group = data, density, group

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        return self._batches()

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        parts = self._data if isinstance(self._data, Iterable) else self._data()
        is_empty = True
        for number, part in enumerate(parts):
            try:
                evidence, weights = self._checked(part)
            except ValueError as error:
                raise ValueError(f"batch {number} of the stream: {error}") from None
            rows = (weights > 0).nonzero()[:, 0]
            if len(rows) > 0:
                is_empty = False
                mine, total = self._group.part(rows), float(weights.sum())
                yield Batch(evidence.rows(mine), weights[mine], total, self._group.size)
        if is_empty:
            raise ValueError(
                "training needs at least one row of data: the stream was empty. An iterator can "
                "be read only once: pass a list, a DataLoader or a function that makes iterators."
            )

    def _checked(self, part: object) -> tuple[Evidence, Tensor]:
        parts = [part]
        if isinstance(part, tuple | list) and part and _is_array_of_rows(part[0]):
            parts = list(part)
        if len(parts) > 2:
            raise ValueError(
                f"expected a table or a pair (table, weights), got {len(parts)} arrays."
            )
        evidence = make_evidence(parts[0], None, self._density.families, self._density.device)
        weights = parts[1] if len(parts) == 2 else None
        return evidence, check_weights(weights, len(evidence)).to(self._density.device)

    @property
    def can_be_read_again(self) -> bool:
        return not isinstance(self._data, Iterator)

    @property
    def fingerprint(self) -> str:
        return "a stream"
