"""Which products and sums the quick way up a circuit takes, decided before any number is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.route import Route
from subtractive.numerics.leaf_message import LeafMessage

# After how many products in a row the numbers are brought back to one: each may square the range
# of their exponents, and grams, in double precision, have eight times that of vectors.
_VECTOR_LEVELS, _NARROW_GRAM_LEVELS, _GRAM_LEVELS = 2, 1, 4

# From so many units on, slopes of grams are computed in single precision where the parameters are
# in it, too: of fewer, converting them would cost more than it saves.
NARROW_FROM = 96


class Kind(NamedTuple):
    """What a leaf is."""

    is_exponent: bool
    is_gram: bool


class Child(NamedTuple):
    """What a step reads: consecutive regions of a tensor, perhaps all of them."""

    tensor: int
    part: int
    first: int
    is_all: bool


class Parts:
    """The parts of tensors that children read. Each tensor is split once: views are not free."""

    def __init__(self, tensors: Sequence[Tensor | None], sizes: Sequence[Sequence[int]]) -> None:
        self._tensors, self._sizes = tensors, sizes
        self._split: dict[int, tuple[Tensor, ...]] = {}

    def __getitem__(self, child: Child) -> Tensor:
        tensor = self._tensors[child.tensor]
        assert tensor is not None
        if child.is_all:
            return tensor
        if child.tensor not in self._split:
            self._split[child.tensor] = tensor.split(list(self._sizes[child.tensor]))
        return self._split[child.tensor][child.part]

    def forget(self, tensor: int) -> None:
        """Let go of a tensor."""
        self._split.pop(tensor, None)


class Step(NamedTuple):
    """One product of children and the sum over it."""

    children: tuple[Child, ...]
    adds: bool  # whether all children are leaves and exponents, which are added up
    is_gram: bool
    is_scaled: bool  # whether the sums are divided by their largest
    ends: tuple[int, ...]  # tensors of which nothing is left to be read after this step


class Plan(NamedTuple):
    """What is multiplied and summed where: constant for differentiation."""

    steps: tuple[Step, ...]
    is_exponent: tuple[bool, ...]  # of each leaf
    is_gram: tuple[bool, ...]  # of each leaf and the result of each step
    sizes: tuple[tuple[int, ...], ...]  # of the parts of each of them, in regions
    settled: tuple[int, ...]  # leaves that are not only added up
    squares: bool  # whether a root of vectors is squared
    is_narrow: bool  # whether slopes of grams are in single precision, as those of vectors

    def part(self, numbers: Sequence[int], read: Collection[int]) -> Plan:
        """Only some steps, numbered anew, which do not need the others.

        Tensors that are ``read`` afterwards are scaled and kept.
        """
        count = len(self.is_exponent)
        place = {count + old: count + new for new, old in enumerate(numbers)}
        steps = []
        for number in numbers:
            step = self.steps[number]
            children = (c._replace(tensor=place.get(c.tensor, c.tensor)) for c in step.children)
            steps.append(
                step._replace(
                    children=tuple(children),
                    is_scaled=step.is_scaled or count + number in read,
                    ends=tuple(place.get(end, end) for end in step.ends if end not in read),
                )
            )
        inner = {c.tensor for step in steps if not step.adds for c in step.children}
        is_gram = (*self.is_gram[:count], *(self.is_gram[count + number] for number in numbers))
        sizes = (*self.sizes[:count], *(self.sizes[count + number] for number in numbers))
        settled = tuple(number for number in self.settled if number in inner)
        return self._replace(steps=tuple(steps), is_gram=is_gram, sizes=sizes, settled=settled)

    def floors(self, units: Sequence[float], weights: Sequence[Tensor]) -> list[float]:
        """What sums must exceed for underflow to have taken no digit, of scaled steps and root.

        Bounds on sizes and errors go up the circuit: ``units`` are the largest weights, and a
        product that underflows is wrong by the smallest number there is.
        """
        count = len(self.is_gram) - len(self.steps)
        sizes, errors, floors = [1.0] * count, [0.0] * count, []
        for step, unit, weight in zip(self.steps, units, weights, strict=True):
            real, width = torch.finfo(weight.dtype), weight.shape[2]
            size, error = 1.0, real.tiny
            for child in () if step.adds else step.children:
                twice = step.is_gram and not self.is_gram[child.tensor]  # vectors are squared
                for _ in range(2 if twice else 1):
                    error = error * sizes[child.tensor] + size * errors[child.tensor] + real.tiny
                    size = size * sizes[child.tensor]
            for _ in range(2 if step.is_gram else 1):
                error = width * (unit * error + real.tiny)
                size = size * max(1.0, width * unit)
            if step.is_scaled:
                floors.append(error / real.eps)
                size, error = 1.0, 0.0
            sizes.append(size)
            errors.append(error)
        return [*floors, errors[-1] / torch.finfo(weights[-1].dtype).eps]


def kinds_of(leaves: Sequence[LeafMessage]) -> tuple[Kind, ...] | None:
    """The kinds of all leaves, or ``None`` if one is of none: mantissa *and* exponent, complex."""
    for mantissa, exponent in leaves:
        if (mantissa is None) == (exponent is None):
            return None
        if mantissa is not None and mantissa.is_complex():
            return None
    return tuple(Kind(leaf.mantissa is None, leaf.is_gram) for leaf in leaves)


def make_plan(
    route: Route, kinds: Sequence[Kind], *, squares: bool, is_narrow: bool
) -> Plan | None:
    """The plan of a route, or ``None`` if it has a product that is not foreseen.

    These are products of one or two children, or of any number of leaves that are exponents.
    """
    gram_levels = _NARROW_GRAM_LEVELS if is_narrow else _GRAM_LEVELS
    is_gram, levels = [kind.is_gram for kind in kinds], [0] * len(kinds)
    last_visit = {s: k for k, visit in enumerate(route.visits) for s in visit.sources}
    steps: list[Step] = []
    for visit in route.visits:
        children = tuple(
            Child(source, route.parts[source].index(at), at.start, len(route.parts[source]) == 1)
            for source, at in zip(visit.sources, visit.places, strict=True)
        )
        alike = len({is_gram[source] for source in visit.sources}) == 1
        leaves = [kinds[source] for source in visit.sources if source < len(kinds)]
        adds = alike and len(leaves) == len(children) and all(k.is_exponent for k in leaves)
        if len(children) > 2 and not adds:
            return None
        squared = any(is_gram[source] for source in visit.sources)
        level = 1 + max(levels[source] for source in visit.sources)
        is_scaled = level >= (gram_levels if squared else _VECTOR_LEVELS)
        is_root = len(steps) == len(route.visits) - 1
        ends = tuple(s for s in set(visit.sources) if last_visit[s] == len(steps))
        steps.append(Step(children, adds, squared, is_scaled and not is_root, ends))
        is_gram.append(squared)
        levels.append(0 if is_scaled else level)
    read = {child.tensor for step in steps if not step.adds for child in step.children}
    settled = tuple(number for number in range(len(kinds)) if number in read)
    is_exponent = tuple(kind.is_exponent for kind in kinds)
    sizes = tuple(tuple(part.stop - part.start for part in parts) for parts in route.parts)
    return Plan(tuple(steps), is_exponent, tuple(is_gram), sizes, settled, squares, is_narrow)
