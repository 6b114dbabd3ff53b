"""A sample of the rows of a table that comes in pieces, and the rows that a schema excludes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, final

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from subtractive.tables.columns import Column
from subtractive.tables.containers import AnyTable
from subtractive.tables.reading import Floats, RawColumn, Table, Values, is_frame
from subtractive.tables.schema import Schema
from subtractive.tables.states import States
from subtractive.tables.validation import check_weights

Numbers = npt.NDArray[np.int64]
# Rows that contradict a schema and are added to a sample, of one column and in one pass.
MOST_EXCLUDED = 500


class Piece(NamedTuple):
    """Some rows of a table, their weights (n,), and their places among all rows (n,)."""

    rows: AnyTable
    weights: Floats
    places: Numbers

    def take(self, chosen: npt.NDArray[Any]) -> Piece:
        """Some of the rows, by their numbers."""
        return Piece(take_rows(self.rows, chosen), self.weights[chosen], self.places[chosen])


def number_pieces(pieces: Iterable[Any]) -> Iterator[Piece]:
    """Tables, or pairs (table, weights), with the places of their rows; empty ones left out."""
    start = 0
    for number, given in enumerate(pieces):
        rows, weights = given if isinstance(given, tuple) else (given, None)
        size = len(rows)
        if size == 0:
            continue
        try:
            row_weights = check_weights(weights, size)
        except ValueError as error:
            raise ValueError(f"piece {number} of the table: {error}") from None
        yield Piece(rows, row_weights, np.arange(start, start + size))
        start += size


def join(pieces: Sequence[Piece]) -> Piece:
    """Pieces as one, in the order of their rows."""
    rows = [piece.rows for piece in pieces]
    places = np.concatenate([piece.places for piece in pieces])
    if is_frame(rows[0]):
        whole = nw.concat([nw.from_native(frame, eager_only=True) for frame in rows]).to_native()
    else:
        whole = np.concatenate([np.asarray(array) for array in rows])
    weights = np.concatenate([piece.weights for piece in pieces])
    order = np.argsort(places, kind="stable")
    return Piece(take_rows(whole, order), weights[order], places[order])


def take_rows(table: AnyTable, chosen: npt.NDArray[Any]) -> AnyTable:
    """Some rows of a frame or an array, by their numbers."""
    if not is_frame(table):
        return np.asarray(table)[chosen]
    if hasattr(table, "iloc"):  # narwhals would keep the index of pandas
        return table.iloc[chosen].reset_index(drop=True)
    return nw.from_native(table, eager_only=True)[chosen].to_native()


@final
class RowSample:
    """A uniform sample of the rows of a stream, all of them if there are not more.

    Every row gets a random number, and those with the smallest numbers are kept.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._random = size, np.random.default_rng(seed)
        self._kept: list[tuple[Piece, Floats]] = []
        self._limit, self._count = np.inf, 0
        self.num_rows, self.total_weight = 0, 0.0

    def add(self, piece: Piece) -> None:
        """Take a piece into account."""
        self.num_rows += len(piece.weights)
        self.total_weight += float(piece.weights.sum())
        numbers = self._random.random(len(piece.weights))
        chosen = np.flatnonzero(numbers < self._limit)
        if len(chosen):
            self._kept.append((piece.take(chosen), numbers[chosen]))
            self._count += len(chosen)
        if self._count > 2 * self._size:
            self._shrink()

    def result(self) -> Piece:
        """The rows that were chosen, in their order."""
        if not self._kept:
            raise ValueError("training needs at least one row of data: the table was empty.")
        self._shrink()
        return self._kept[0][0]

    def _shrink(self) -> None:
        numbers = np.concatenate([numbers for _, numbers in self._kept])
        if len(numbers) > self._size:
            self._limit = float(np.partition(numbers, self._size - 1)[self._size - 1])
        kept = []
        for piece, own in self._kept:
            chosen = np.flatnonzero(own <= self._limit)
            kept.append((piece.take(chosen), own[chosen]))
        whole = join([piece for piece, _ in kept])
        places = np.concatenate([piece.places for piece, _ in kept])
        numbers = np.concatenate([own for _, own in kept])[np.argsort(places, kind="stable")]
        self._kept, self._count = [(whole, numbers)], len(numbers)


def excluded_rows(schema: Schema, table: Table) -> Numbers:
    """Rows of a table that a schema takes for impossible or unknown, a few for each column."""
    found: list[Numbers] = [np.zeros(0, dtype=np.int64)]
    firsts: dict[int, RawColumn] = {}
    for raw in table.columns:
        if raw.name in schema.constants:
            wrong = ~raw.missing & (raw.values != schema.constants[raw.name])
        elif raw.name in schema.place:
            place = schema.place[raw.name]
            wrong = _not_of(schema.variables[place], raw.values)
            first = firsts.setdefault(place, raw)
            wrong |= ~raw.missing & ~first.missing & (raw.values != first.values)
        else:
            continue
        found.append(_few(raw.values, np.flatnonzero(wrong)))
    return np.unique(np.concatenate(found))


def _not_of(column: Column, values: Values) -> npt.NDArray[np.bool_]:
    """Which values a column cannot have, or has never had."""
    impossible = ~column.possible(values)
    return impossible | column.unknown(values) if isinstance(column, States) else impossible


def _few(values: Values, rows: Numbers) -> Numbers:
    """Of these rows, one for each of the least, the largest and some other values."""
    if len(rows) == 0:
        return rows
    kind = str if values.dtype == object else float
    _, first = np.unique(values[rows].astype(kind), return_index=True)
    if len(first) > MOST_EXCLUDED:
        first = first[np.linspace(0, len(first) - 1, MOST_EXCLUDED).astype(int)]
    return np.asarray(rows[first])
