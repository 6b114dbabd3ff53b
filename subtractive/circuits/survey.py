"""What it costs to send forms through a tree, and the node where it is cheapest for them to meet.

A product of forms over a tree is linear in each of them, so the root need not be where messages
end. An observed side sends a vector for each row, a missing one a gram for all rows, both for next
to nothing; a gram for each row costs K³. Which nodes must send one depends on where messages
meet: none does on a linear tree of which one end is observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from subtractive.circuits.forms import Form, product_rank


class Tree(NamedTuple):
    """Nodes, each a product of its own forms and its children's; the last one is the root.

    ``weights`` (o, i) mix what a node sends to its parent. Children come before parents. Messages
    go both ways: k is the one from node k to its parent, -1 - k the one from its parent to it.
    """

    forms: list[list[Form]]
    weights: list[Tensor]
    parents: list[int]
    children: list[list[int]]

    @property
    def root(self) -> int:
        return len(self.forms) - 1

    def sender(self, message: int) -> int:
        return message if message >= 0 else self.parents[-1 - message]

    def weight(self, message: int) -> Tensor:
        """What mixes a message."""
        return self.weights[message] if message >= 0 else self.weights[-1 - message].T

    def arriving_at(self, node: int) -> list[int]:
        """The messages to a node."""
        return [*self.children[node], *([] if node == self.root else [-1 - node])]

    def parts(self, message: int) -> list[int]:
        """The messages of which a message is made."""
        if message >= 0:
            return self.children[message]
        return [m for m in self.arriving_at(self.parents[-1 - message]) if m != -1 - message]

    def order(self, centre: int) -> list[int]:
        """The messages on the way to a node, each after those of which it is made."""
        order: list[int] = []
        waiting = self.arriving_at(centre)
        while waiting:
            order.append(waiting.pop())
            waiting.extend(self.parts(order[-1]))
        return order[::-1]


class Size(NamedTuple):
    """The shape of a form, and how many multiplications it takes to get there."""

    rows: int
    rank: int | None
    width: int
    cost: int

    @classmethod
    def of(cls, form: Form) -> Size:
        return cls(len(form.some), form.rank, form.some.shape[-1], 0)

    @property
    def numbers(self) -> int:
        """How many numbers a row holds."""
        return self.width * (self.rank or self.width)

    def summed(self, outputs: int) -> Size:
        """The size of ``W F Wᵀ``."""
        once = self.rows * self.width * outputs
        cost = once * (self.width + outputs if self.rank is None else self.rank)
        return Size(self.rows, self.rank, outputs, self.cost + cost)


class Survey:
    """The sizes of all messages, and what a meeting costs at each node."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.products: dict[int, Size] = {}  # of what a message is made of, before it is mixed
        self.sums: dict[int, Size] = {}
        upward = range(tree.root)
        for message in (*upward, *(-1 - node for node in reversed(upward))):
            arrived = self._arrived(tree.sender(message), tree.parts(message))
            self.products[message] = _multiplied(arrived)
            self.sums[message] = self.products[message].summed(len(tree.weight(message)))

    def centre(self) -> int:
        """The node where messages meet at least cost."""
        return min(range(len(self.tree.forms)), key=self._cost)

    def pair(self, node: int) -> list[int]:
        """Two messages of grams to a node with nothing but vectors between them, or none."""
        messages = self.tree.arriving_at(node)
        grams = [message for message in messages if self.products[message].rank is None]
        others = self._arrived(node, (m for m in messages if m not in grams))
        stands_alone = len(grams) == 2 and others and all(size.rank == 1 for size in others)
        return grams if stands_alone else []

    def _arrived(self, node: int, messages: Iterable[int]) -> list[Size]:
        own = [Size.of(form) for form in self.tree.forms[node]]
        return own + [self.sums[message] for message in messages]

    def _cost(self, node: int) -> int:
        pair = self.pair(node)
        sizes = self._arrived(node, (m for m in self.tree.arriving_at(node) if m not in pair))
        if not pair:
            return _met(sizes)
        bridge, (one, other) = _multiplied(sizes), (self.products[message] for message in pair)
        depth = bridge.rows * bridge.width + max(one.rows, other.rows) * (one.width + other.width)
        return bridge.cost + one.cost + other.cost + one.width * other.width * depth


def _multiplied(sizes: Sequence[Size]) -> Size:
    """The size of a product."""
    rows, width = max(size.rows for size in sizes), sizes[0].width
    rank = product_rank([size.rank for size in sizes], width)
    cost = sum(size.cost for size in sizes) + rows * width * (rank or width)
    for size in sizes if rank is None else ():
        if size.rank is not None and size.rank > 1:
            cost += size.rows * size.rank * width**2
    return Size(rows, rank, width, cost)


def _met(sizes: Sequence[Size]) -> int:
    """What it costs to multiply forms and to sum over all units."""
    *others, last = sorted(sizes, key=lambda size: size.rank or size.width + 1)
    rest = _multiplied(others)
    ranks = [size.rank for size in (rest, last) if size.rank is not None]
    once = math.prod(ranks) * rest.width ** (1 if len(ranks) == 2 else 2)
    return rest.cost + last.cost + max(rest.rows, last.rows) * once
