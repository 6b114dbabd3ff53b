"""What the page knows of a column: its axis or its states, its atoms, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from subtractive.plots.columns import edges_between
from subtractive.tables import summaries
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.reading import Floats
from subtractive.tables.states import States
from subtractive.tables.table_density import TableQueries
from subtractive.tables.value_text import value_text

T = TypeVar("T", bound=np.generic)
LEAST_STEPS, MOST_STEPS = 10, 1000
EVERY = 2  # of the points at which a model tells densities, these are enough for a small picture


@final
@dataclass(frozen=True)
class ShownColumn:
    """A column on the page. ``key`` names it there, and is unique."""

    key: str
    name: Hashable
    column: Column
    points: Floats  # (q,), at which the density of numbers is drawn; none of states

    @property
    def states(self) -> tuple[Any, ...]:
        """The values that have a probability each, none of numbers."""
        return self.column.values if isinstance(self.column, States) else ()

    @property
    def atoms(self) -> tuple[float, ...]:
        """The numbers that have a probability beside the density."""
        return self.column.atoms if isinstance(self.column, Numeric) else ()

    @property
    def low(self) -> float:
        """Where the axis begins; atoms are inside."""
        return float(min([*self.points, *self.atoms]))

    @property
    def high(self) -> float:
        """Where the axis ends."""
        return float(max([*self.points, *self.atoms]))

    @property
    def step(self) -> float:
        """By how much a slider moves: the grid of the column, if it is not too fine."""
        width = (self.high - self.low) or 1.0
        assert isinstance(self.column, Numeric)
        grid = 0.0 if self.column.grid is None else self.column.grid.step
        if width / MOST_STEPS <= grid <= width / LEAST_STEPS:
            return grid
        return 10.0 ** math.floor(math.log10(width / 200))

    @cached_property
    def edges(self) -> Floats:
        """The edges of the bars of a histogram; on a grid all bars hold as many of its values."""
        return edges_between(self.low, self.high, self.column)

    def describe(self) -> dict[str, Any]:
        """All of it for the page."""
        facts: dict[str, Any] = {"key": self.key, "kind": self.column.kind}
        values = self.states or self.atoms
        facts["labels"] = [value_text(value, self.column.kind) for value in values]
        if not self.states:
            facts |= {
                "points": self.points.tolist(),
                "edges": self.edges.tolist(),
                "atoms": list(self.atoms),
                "low": self.low,
                "high": self.high,
                "step": self.step,
            }
        return facts


def shown_columns(model: TableQueries) -> list[ShownColumn]:
    """The columns of a model that are not known."""
    view = model._view()
    told = summaries.marginals(view)
    numbers = told[told["density"].notna()].groupby("column", sort=False)["value"]
    points = {name: thinned(np.sort(values.to_numpy(dtype=float))) for name, values in numbers}
    keys = [str(name) for name in view.variables]
    return [
        ShownColumn(
            key if keys.count(key) == 1 else f"{key} ({place})",
            name,
            view.schema.variables[place],
            points.get(name, np.zeros(0)),
        )
        for key, (name, place) in zip(keys, view.variables.items(), strict=True)
    ]


def thinned(points: npt.NDArray[T]) -> npt.NDArray[T]:
    """Some of the points of a curve, both ends among them if their number is odd."""
    return points[::EVERY]
