"""The one traversal of a circuit: messages in pieces, from the leaves through all calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.scaled import Message
from subtractive.numerics.signed_log import SignedLog
from subtractive.regions.folding import FoldedSchedule

M = TypeVar("M", LeafMessage, Message, LeafMessage | SignedLog)
Piece = tuple[int, int]  # a tensor, and the first region of a part that one call reads
Waiting = dict[Piece, M]


def traverse(
    schedule: FoldedSchedule,
    waiting: Mapping[Piece, M],
    rule: Callable[[int, Sequence[M]], M],
    calls: Iterable[int] | None = None,
) -> Waiting[M]:
    """Send messages through some calls, or through all, and return what was not read.

    ``rule(number, children)`` makes the message of a call. Whatever was read is let go.
    """
    left = dict(waiting)
    for number in range(len(schedule.calls)) if calls is None else calls:
        call = schedule.calls[number]
        children = [
            left.pop((source, places.start))
            for source, places in zip(call.sources, call.places, strict=True)
        ]
        left.update(_pieces(schedule, len(schedule.leaves) + number, rule(number, children)))
    return left


def waiting_leaves(schedule: FoldedSchedule, leaves: Sequence[M]) -> Waiting[M]:
    """The leaves in the pieces in which they are read."""
    waiting: Waiting[M] = {}
    for tensor, leaf in enumerate(leaves):
        waiting.update(_pieces(schedule, tensor, leaf))
    return waiting


def root_of(schedule: FoldedSchedule, left: Mapping[Piece, M]) -> M:
    """The root's message."""
    return left[len(schedule.leaves) + len(schedule.calls) - 1, 0]


def _pieces(schedule: FoldedSchedule, tensor: int, message: M) -> Waiting[M]:
    """A tensor in the parts that its readers take; the root is one piece."""
    parts = schedule.parts[tensor]
    if len(parts) < 2:
        return {(tensor, 0): message}
    found = split(message, [part.stop - part.start for part in parts])
    return {(tensor, part.start): piece for part, piece in zip(parts, found, strict=True)}


def split(message: M, sizes: Sequence[int]) -> Sequence[M]:
    """A message in consecutive groups of regions."""
    # Not sliced: in the backward pass the parts are joined, not added to zeros.
    return [message] if len(sizes) == 1 else message.split(list(sizes))
