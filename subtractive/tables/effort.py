"""How long a fit may take: in words, or in seconds of processor time."""

from __future__ import annotations

import math
import time
from typing import final

from subtractive.densities.base import Density
from subtractive.learning.history import History

# Seconds of processor time for tables of up to so many values, and in proportion for larger ones.
EFFORTS = {"fast": 15.0, "balanced": 110.0, "best": 600.0}
VALUES = 600_000


def seconds_of(effort: object, num_values: int = 0) -> float:
    """The seconds that an effort stands for, for a table of so many values.

    >>> seconds_of("fast"), seconds_of("fast", 6_000_000), seconds_of(30, 6_000_000)
    (15.0, 150.0, 30.0)
    """
    if isinstance(effort, str) and effort in EFFORTS:
        return EFFORTS[effort] * max(1.0, num_values / VALUES)
    is_number = isinstance(effort, int | float) and not isinstance(effort, bool)
    if not is_number or not 0 < effort < math.inf:  # type: ignore[operator]
        raise ValueError(
            f"effort must be one of {', '.join(map(repr, EFFORTS))}, or seconds above zero, got "
            f"{effort!r}."
        )
    return float(effort)  # type: ignore[arg-type]


@final
class Budget:
    """Processor time, of all threads together, that is used up from now on.

    Not the time on the wall: a busy machine must not change the model that is learned.
    """

    def __init__(self, seconds: float, *, used: float = 0.0) -> None:
        """So many seconds, of which some are ``used`` already."""
        self.seconds, self._start = seconds, time.process_time() - used

    @property
    def used(self) -> float:
        """The seconds until now."""
        return time.process_time() - self._start

    @property
    def left(self) -> float:
        """The seconds until the end; negative beyond it."""
        return self.seconds - self.used

    def part(self, share: float) -> Budget:
        """A budget that begins now, with a share of the seconds until the end of this one."""
        return Budget(max(0.0, share * self.left))


@final
class EndOf:
    """Stops training when there is no time left for so many more epochs."""

    def __init__(self, budget: Budget, *, epochs: float) -> None:
        self.budget, self.epochs, self._start = budget, epochs, budget.used

    def __call__(self, _: Density, history: History) -> bool:
        """Whether to stop, after an epoch."""
        cost = (self.budget.used - self._start) / max(1, len(history.epochs))
        return self.budget.left <= self.epochs * cost
