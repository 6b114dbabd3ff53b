"""Learning tables that do not fit into memory: from a sample first, then from all rows in passes.

The learner sees two things: the rows of the sample, as it would see a table in memory, and then a
stream of encoded batches (rows, weights), which is all that passes over a long table need.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.squared import SquaredCircuit
from subtractive.learning.history import History
from subtractive.learning.loop import fit
from subtractive.learning.relative_adam import relative_adam
from subtractive.tables.column_types import DataWarning
from subtractive.tables.columns import Column
from subtractive.tables.reading import Floats, Table
from subtractive.tables.row_sample import (
    Numbers,
    Piece,
    RowSample,
    excluded_rows,
    join,
    number_pieces,
)
from subtractive.tables.scale_limits import limit_scales, scale_limits
from subtractive.tables.schema import Schema
from subtractive.tables.training_rows import Rows, dither
from subtractive.tables.validation import read_table
from subtractive.tables.weight_average import WeightAverage

Pieces = Iterable[Any] | Callable[[], Iterable[Any]]
MakeSchema = Callable[[Table, Floats], Schema]
BATCH = 2048
# Numbers that are shuffled together, and steps between two looks at the held-out rows.
SHUFFLED, STEPS_OF_EPOCH = 2**23, 250
# Passes go on until so many steps were taken, at a rate that falls from this to a tenth of it.
STEPS, RATE = 1500, 0.003
MOST_ROUNDS, MOST_HELD_OUT = 4, 20_000


class Sampled(NamedTuple):
    """A sample of a long table, and where its rows can be read again."""

    train: Piece
    held: Piece | None  # None if the sample is the whole table
    pieces: Callable[[], Iterable[Any]]
    num_rows: int | None  # None if it is not known before the end


def as_passes(pieces: Pieces) -> tuple[Callable[[], Iterable[Any]], bool]:
    """A function that starts a pass over the pieces of a table, and whether it can do so again."""
    if isinstance(pieces, Iterator):
        return lambda: pieces, False
    if callable(pieces):
        return pieces, True
    if isinstance(pieces, Iterable):
        return lambda: pieces, True
    raise ValueError(
        "the pieces of a table are an iterable of frames or arrays, or a function that makes an "
        f"iterator of them for every pass; got {type(pieces).__name__}."
    )


def sample_table(pieces: Pieces, size: int, seed: int, make: MakeSchema) -> Sampled:
    """Sample the rows, so that the schema of the sample excludes none of them.

    What can be read once is sampled at its beginning.
    """
    start_pass, again = as_passes(pieces)
    if not again:
        return _sample_beginning(iter(start_pass()), size)
    sample = RowSample(size, seed)
    for piece in number_pieces(start_pass()):
        sample.add(piece)
    rows = sample.result()
    if sample.num_rows <= size:
        return Sampled(rows, None, start_pass, sample.num_rows)
    held, train = _split(rows, seed)
    train = _with_excluded_rows(start_pass, train, sample.num_rows, make)
    return Sampled(train, held, start_pass, sample.num_rows)


def _sample_beginning(pieces: Iterator[Any], size: int) -> Sampled:
    first: list[Piece] = []
    count = 0
    while count < size and (given := next(pieces, None)) is not None:
        first += number_pieces([given])
        count = sum(len(piece.weights) for piece in first)
    if not first:
        raise ValueError("training needs at least one row of data: the table was empty.")
    rows = join(first)
    following = next(pieces, None)
    if following is None:
        return Sampled(rows, None, lambda: (), count)

    def rest() -> Iterator[Any]:
        yield following
        yield from pieces

    held, train = _split(rows, 0)
    # Places of the rest start anew: none of its rows is held out.
    return Sampled(train, held._replace(places=-1 - held.places), rest, None)


def _split(rows: Piece, seed: int) -> tuple[Piece, Piece]:
    """A tenth of the rows to judge by, and the others."""
    order = np.random.default_rng([seed, 1]).permutation(len(rows.weights))
    count = max(1, min(len(order) // 10, MOST_HELD_OUT))
    return rows.take(np.sort(order[:count])), rows.take(np.sort(order[count:]))


def _with_excluded_rows(
    start_pass: Callable[[], Iterable[Any]], sample: Piece, num_rows: int, make: MakeSchema
) -> Piece:
    """The sample, with rows added until its schema excludes no row of the table.

    Added rows weigh what one row of the table weighs beside the sample, which stands for all.
    """
    weight = len(sample.weights) / num_rows
    for _ in range(MOST_ROUNDS):
        with warnings.catch_warnings():  # told when the last schema is made
            warnings.simplefilter("ignore", DataWarning)
            schema = make(read_table(sample.rows), sample.weights)
        excluded = [
            piece.take(chosen)
            for piece in number_pieces(start_pass())
            if len(chosen := excluded_rows(schema, read_table(piece.rows)))
        ]
        if not excluded:
            break
        added = [piece._replace(weights=weight * piece.weights) for piece in excluded]
        sample = join([sample, *added])
    return sample


def encode_held_out(schema: Schema, held: Piece) -> Rows:
    """Held-out rows as the model sees them; what the schema excludes is left out."""
    encoded = schema.encode_table(read_table(held.rows))
    chosen = torch.from_numpy(np.flatnonzero(encoded.possible & (held.weights > 0)))
    rows = Rows(
        encoded.x,
        torch.from_numpy(held.weights),
        torch.from_numpy(encoded.log_abs_det_jacobian),
    )
    return rows.take(chosen)


@final
class EncodedStream:
    """Batches of encoded rows and weights from passes over a table, a few at each call.

    Calls go on where the last one ended, so that held-out rows are looked at more often than once
    per pass. Rows are shuffled within a buffer.
    """

    def __init__(self, sampled: Sampled, schema: Schema, max_passes: int, seed: int) -> None:
        self._sampled, self._schema = sampled, schema
        self._generator = torch.Generator().manual_seed(seed)
        self._batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        self.columns = schema.variables
        self.num_excluded = 0
        self.num_epochs, self._steps = 1, 0
        if sampled.num_rows is not None:
            steps = math.ceil(sampled.num_rows / BATCH)
            steps *= min(max_passes, max(1, math.ceil(STEPS / steps)))
            self.num_epochs = math.ceil(steps / STEPS_OF_EPOCH)
            self._steps = math.ceil(steps / self.num_epochs)

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._sampled.num_rows is None:  # one pass, which cannot be divided
            yield from self._one_pass()
            return
        for _ in range(self._steps):
            batch = next(self._batches, None)
            if batch is None:
                self._batches = self._one_pass()
                batch = next(self._batches)
            yield batch

    def _one_pass(self) -> Iterator[tuple[Tensor, Tensor]]:
        width = len(self._schema.variables)
        parts: list[tuple[Tensor, Tensor]] = []
        for x, weights in self._encoded():
            parts.append((x, weights))
            if sum(len(w) for _, w in parts) * width >= SHUFFLED:
                yield from self._shuffled(parts)
                parts = []
        if parts:
            yield from self._shuffled(parts)

    def _shuffled(self, parts: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        x, weights = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        parts.clear()
        order = torch.randperm(len(x), generator=self._generator)
        for some in order.split(BATCH):
            yield dither(x[some], self._schema.variables, self._generator), weights[some]

    def _encoded(self) -> Iterator[tuple[Tensor, Tensor]]:
        held = self._sampled.held
        places: Numbers = np.zeros(0, np.int64) if held is None else held.places
        for piece in number_pieces(self._sampled.pieces()):
            encoded = self._schema.encode_table(read_table(piece.rows))
            possible = encoded.possible
            self.num_excluded += int((~possible).sum())
            kept = possible & (piece.weights > 0) & ~np.isin(piece.places, places)
            chosen = torch.from_numpy(np.flatnonzero(kept))
            yield encoded.x[chosen], torch.from_numpy(piece.weights)[chosen]


def train_on_stream(
    density: Density, stream: EncodedStream, held: Rows, *, progress: bool
) -> History:
    """Go on with a density, in place, over all rows; held-out rows find it at least as likely."""
    keep_limits = _scale_limiter(density, stream.columns)
    num_epochs = stream.num_epochs
    optimizer = relative_adam(density, RATE)
    average = WeightAverage(density, held, STEPS_OF_EPOCH)
    optimizer.register_step_post_hook(lambda *_: keep_limits())
    optimizer.register_step_post_hook(lambda *_: average.update())
    history = fit(
        density,
        stream,
        held.x,
        valid_weights=held.weights,
        optimizer=optimizer,
        scheduler=CosineAnnealingLR(optimizer, num_epochs, RATE / 10),
        batch_size=BATCH,
        max_epochs=num_epochs,
        patience=max(10, num_epochs // 3),
        callbacks=[average.judge],
        progress=progress,
    )
    if average.best_score > history.best_score:
        density.load_state_dict(average.best)
        history.best_score, history.best_epoch = average.best_score, average.best_epoch
    if stream.num_excluded:
        warnings.warn(
            f"{stream.num_excluded} rows were left out, because they contradict the schema of the "
            "rows before them. Pass a function that makes an iterator for every pass, so that the "
            "schema is of all rows, or declare the columns in schema={...}.",
            DataWarning,
            stacklevel=4,
        )
    shift = held.mean_log_jacobian
    epochs = [e._replace(train=e.train + shift, valid=e.valid + shift) for e in history.epochs]
    return replace(history, epochs=epochs, best_score=history.best_score + shift)


def _scale_limiter(density: Density, columns: tuple[Column, ...]) -> Callable[[], None]:
    """What brings the widths of members back into their limits after a step.

    A member that starts outside of them, as a broad component does, is meant to be there.
    """
    limits = scale_limits(columns)
    parts = density.members if isinstance(density, Mixture) else [density]
    members = [member for member in parts if isinstance(member, Density)]
    bounded = []
    for member in members:
        power = 2 if isinstance(member, SquaredCircuit) else 1
        limited = copy.deepcopy(member)
        limit_scales(limited, limits, power)
        pairs = zip(limited.parameters(), member.parameters(), strict=True)
        if all(torch.equal(one, other) for one, other in pairs):
            bounded.append((member, power))

    def keep_limits() -> None:
        for member, power in bounded:
            limit_scales(member, limits, power)

    return keep_limits
