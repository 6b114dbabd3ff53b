"""Sets of codes of one variable: what is given, asked, or known of a censored cell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class CodeSet:
    """A set of codes of one variable: a point, or states, or intervals ``lower < x <= upper``.

    A point on a grid stands for all codes of its ``cell``, which are rounded to it.
    """

    point: float | None = None
    states: frozenset[int] | None = None
    intervals: tuple[tuple[float, float], ...] = ()
    cell: tuple[float, float] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return self.point is None and not self.states and not self.intervals

    def __and__(self, other: CodeSet) -> CodeSet:
        if self.point is not None or other.point is not None:
            one, rest = (self, other) if self.point is not None else (other, self)
            assert one.point is not None
            return one if rest.holds(one.point) else CodeSet()
        if self.states is not None and other.states is not None:
            return CodeSet(states=self.states & other.states)
        pairs = itertools.product(self.intervals, other.intervals)
        both = ((max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs)
        return CodeSet(intervals=tuple(one for one in both if one[0] < one[1]))

    def holds(self, code: float) -> bool:
        """Whether a code is in it."""
        if self.point is not None:
            return code == self.point
        if self.states is not None:
            return code in self.states
        return any(low < code <= high for low, high in self.intervals)


Sets = dict[int, CodeSet]  # by variable


def both(left: Sets | None, right: Sets | None) -> Sets | None:
    """What is in both sets; ``None`` if there is nothing."""
    if left is None or right is None:
        return None
    joined = dict(left)
    for variable, one in right.items():
        joined[variable] = one & joined[variable] if variable in joined else one
        if joined[variable].is_empty:
            return None
    return joined
