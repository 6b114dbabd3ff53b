"""A check of the scorecard: what it is called, what it must reach, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Outcome(NamedTuple):
    """What a check has found: a figure in words, and whether it reaches the target."""

    figure: str
    passed: bool


@dataclass(frozen=True)
class Size:
    """How much is tried: all of what the scorecard states, or a quick form of it."""

    quick: bool = False
    soak_seconds: float = 120.0

    def of(self, full: int, quick: int) -> int:
        """A number of examples."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Check:
    """One line of the scorecard."""

    number: int
    title: str
    target: str
    run: Callable[[Size], Outcome]


CHECKS: dict[int, Check] = {}


def check(
    number: int, title: str, target: str
) -> Callable[[Callable[[Size], Outcome]], Callable[[Size], Outcome]]:
    """Enter a function into the scorecard."""

    def enter(run: Callable[[Size], Outcome]) -> Callable[[Size], Outcome]:
        CHECKS[number] = Check(number, title, target, run)
        return run

    return enter


def worst(errors: list[float], limit: float, what: str) -> Outcome:
    """The largest of some errors against its limit; NaN is no figure that passes."""
    largest = max(errors, key=lambda error: float("inf") if error != error else error)
    return Outcome(f"{largest:.1e} at worst of {len(errors)} {what}", largest <= limit)
