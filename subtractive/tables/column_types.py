"""What a user may say about a column: continuous, categories, or set aside."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, final


class DataWarning(UserWarning):
    """Something in a table is handled by a rule that its owner should know of.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     schema = sub.tables.Schema.infer([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    >>> [warning.category.__name__ for warning in said]
    ['DataWarning']
    """


@final
@dataclass(frozen=True)
class Continuous:
    """Numbers with a density: their bounds, the grid they were recorded on, and their atoms.

    Nothing has a density, and nothing is drawn, outside ``lower`` and ``upper``. Numbers that are
    multiples of ``resolution`` are modelled as rounded ones; ``0`` says that they are not.
    ``atoms`` are values with a probability of their own, beside the density of the others. What
    is not given is inferred.

    >>> Continuous(lower=0, atoms=[0])
    Continuous(lower=0.0, upper=inf, resolution=None, atoms=(0.0,))
    """

    lower: float | None = None
    upper: float | None = None
    resolution: float | None = None
    atoms: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        try:
            low = -math.inf if self.lower is None else float(self.lower)
            high = math.inf if self.upper is None else float(self.upper)
            step = None if self.resolution is None else float(self.resolution)
            atoms = None if self.atoms is None else tuple(sorted({float(a) for a in self.atoms}))
        except (TypeError, ValueError):
            low, high, step, atoms = math.nan, math.nan, None, None
        if not low < high:
            raise ValueError(
                "a continuous column needs numbers lower < upper, None being no bound, and a list "
                f"of atoms; got lower={self.lower!r}, upper={self.upper!r}, atoms={self.atoms!r}."
            )
        if step is not None and not 0 <= step < math.inf:
            raise ValueError(
                f"resolution must be a number of at least 0, got {self.resolution!r}."
            )
        outside = [atom for atom in atoms or () if not low <= atom <= high]
        if outside:
            raise ValueError(f"atoms must be inside the bounds ({low}, {high}), got {outside[0]}.")
        for name, value in (("lower", low), ("upper", high), ("resolution", step)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "atoms", atoms)


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
class Ignored:
    """Set aside: missing in samples, untouched where gaps are filled.

    >>> schema = {"name": sub.tables.Ignored()}  # or the word "ignored"
    >>> model = sub.SubtractiveMixture(schema=schema)
    """


ColumnType: TypeAlias = Continuous | Categories | Ignored

NAMES: dict[str, ColumnType] = {
    "continuous": Continuous(),
    "categorical": Categories(),
    "count": Continuous(lower=0, resolution=1),
    "ignored": Ignored(),
}


def as_column_type(given: object, name: Hashable) -> ColumnType:
    """A type of column, or one of their names, as the user gave it."""
    chosen = NAMES.get(given) if isinstance(given, str) else given
    if not isinstance(chosen, Continuous | Categories | Ignored):
        raise ValueError(
            f"column {name!r} must be 'continuous', 'categorical', 'count', 'ignored', or one of "
            f"Continuous(lower=...), Categories(values), Ignored(); got {given!r}."
        )
    return chosen
