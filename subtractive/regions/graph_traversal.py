"""The traversal of messages where several nodes read the same one: graphs that are not trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from subtractive.regions.folding import FoldedSchedule, Index


class Selectable(Protocol):
    """A message of which some regions can be taken."""

    def take(self, index: Index, /) -> Any:  # noqa: ANN401 - a message of the same kind
        """The messages of some regions."""


M = TypeVar("M", bound=Selectable)


def traverse_graph(
    schedule: FoldedSchedule, leaves: Sequence[M], rule: Callable[[int, Sequence[M]], M]
) -> list[M]:
    """The messages of all tensors, the leaves first and the root last; none is dropped.

    ``rule(number, children)`` makes the message of a call.
    """
    messages = list(leaves)
    for number, call in enumerate(schedule.calls):
        children = [
            messages[source].take(index)
            for source, index in zip(call.sources, call.reads, strict=True)
        ]
        messages.append(rule(number, children))
    return messages
