"""What a user may say about a column: continuous, perhaps with bounds, categories or counts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, final


class DataWarning(UserWarning):
    """Something in a table is handled by a rule that its owner should know of."""


@final
@dataclass(frozen=True)
class Continuous:
    """Real numbers, between ``bounds`` if given: ``(0, None)`` for positive ones, ``(0, 1)``.

    Nothing has a density, and nothing is drawn, outside the bounds. Between two bounds the model
    uses splines; with one bound it works on the logarithm of the distance to it, so that values
    on the bound itself are outside; without any it uses Gaussians.

    >>> Continuous(bounds=(0, None)).bounds
    (0.0, inf)
    """

    bounds: tuple[float | None, float | None] = (None, None)

    def __post_init__(self) -> None:
        try:
            low, high = self.bounds
            low = -math.inf if low is None else float(low)
            high = math.inf if high is None else float(high)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not low < high:
            raise ValueError(
                "bounds must be (low, high) with low < high, None being no bound, such as "
                f"(0, None); got {self.bounds!r}."
            )
        object.__setattr__(self, "bounds", (low, high))


@final
@dataclass(frozen=True)
class Categories:
    """One of finitely many values: those given, or else those that the table holds.

    >>> Categories(["low", "high"]).values
    ('low', 'high')
    """

    values: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            return
        is_list = isinstance(self.values, Iterable) and not isinstance(self.values, str | bytes)
        values = tuple(self.values) if is_list else ()
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise ValueError(
                f"categories must be a list of at least two different values, got {self.values!r}."
            )
        object.__setattr__(self, "values", values)


@final
@dataclass(frozen=True)
class Counts:
    """Whole numbers from zero to ``largest``: if not given, twice the largest in the table."""

    largest: int | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.largest, int) and not isinstance(self.largest, bool)
        if self.largest is not None and not (whole and self.largest >= 1):
            raise ValueError(f"largest must be a whole number above zero, got {self.largest!r}.")


Kind: TypeAlias = Continuous | Categories | Counts

NAMES: dict[str, Kind] = {
    "continuous": Continuous(),
    "categorical": Categories(),
    "count": Counts(),
}


def as_kind(given: object, name: Hashable) -> Kind:
    """A kind, or one of its names, as the user gave it for a column."""
    kind = NAMES.get(given) if isinstance(given, str) else given
    if not isinstance(kind, Continuous | Categories | Counts):
        raise ValueError(
            f"column {name!r} must be 'continuous', 'categorical', 'count', or one of "
            "Continuous(bounds=...), Categories(values), Counts(largest); got "
            f"{given!r}."
        )
    return kind
