"""What is asked: a density, the schema of its columns, which of them are left, what is given."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.column_types import DataWarning
from subtractive.tables.columns import Numeric
from subtractive.tables.conditions import (
    READERS,
    as_evidence,
    end_numbers,
    event_sets,
    given_sets,
    known_values,
    plain_sides,
)
from subtractive.tables.containers import AnyTable
from subtractive.tables.expectations import box_log_weights
from subtractive.tables.joint_boxes import variables_of_joint_regions
from subtractive.tables.memory import Memory
from subtractive.tables.reading import Table
from subtractive.tables.schema import Schema
from subtractive.tables.unseen_numbers import is_far
from subtractive.tables.validation import read_table

Given = Mapping[Any, object] | None


@final
@dataclass(frozen=True)
class View:
    """Some columns of a density, given sets of values of some variables."""

    schema: Schema
    density: Density
    names: tuple[Hashable, ...]  # of the columns that are left
    sets: Sets = field(default_factory=dict)
    known: Mapping[Hashable, Any] = field(default_factory=dict)  # given values, in users' words
    memory: Memory = Memory()

    def read(self, given: AnyTable) -> Table:
        """A table with the columns of this density, all of them and in their order."""
        table = read_table(given)
        is_array = table.columns and isinstance(table.names[0], int)
        if table.names == self.names or (is_array and len(table.names) == len(self.names)):
            return table
        raise ValueError(
            f"the table needs the columns {list(self.names)}, in this order, got "
            f"{list(table.names)}."
        )

    def given(self, given: Given) -> View:
        """The density given more than what is given already, which must be possible."""
        if given is None or (isinstance(given, Mapping) and not given):
            return self
        view = self.narrowed(given)
        if np.isneginf(box_log_weights(view.density, view.evidence)).all():
            raise ValueError(impossible(given))
        return view

    def narrowed(self, given: Mapping[Any, object]) -> View:
        """The same, where it turns out later whether the model thinks that possible."""
        if not isinstance(given, Mapping):
            raise ValueError(
                f"condition needs values by column, such as {{'age': 40}}, got {given!r}."
            )
        given = plain_sides(given)
        again = [name for name in given if name in self.known]
        if again:
            raise ValueError(f"column {again[0]!r} is given already.")
        asked = known_values(self.schema, given)
        sets = both(self.sets, self._answerable(given_sets(self.schema, asked)))
        if sets is None:
            raise ValueError(
                f"what is given has probability zero, so that nothing can be conditioned on it: "
                f"{dict(given)!r} is outside the bounds, contradicts a constant or a copy of "
                "another column, or what was given before."
            )
        points = {n: self._read(n, v) for n, v in given.items() if self._is_point(n, sets)}
        left = tuple(name for name in self.names if name not in points)
        view = replace(self, names=left, sets=sets, known={**self.known, **points})
        if not view.variables:
            raise ValueError(
                "condition must leave at least one column free whose values are not known."
            )
        self._warn_of_far_values(given, asked)
        return view

    def _answerable(self, sets: Sets | None) -> Sets | None:
        """The same sets; cells of columns that share a full covariance are their middles.

        Boxes have no closed form there, and cells are narrow.
        """
        if sets is None:
            return None
        joint = variables_of_joint_regions(self.density)
        return {v: replace(one, cell=None) if v in joint else one for v, one in sets.items()}

    def _warn_of_far_values(
        self, given: Mapping[Any, object], asked: Mapping[Any, object]
    ) -> None:
        far = self.far_columns(given)
        for name, side in given.items():
            is_new = asked[name] is not side
            if name not in far and not is_new:
                continue
            what = "is far from" if name in far else "is not among"
            follows = "what follows from it is a guess"
            if is_new:
                nearest = "the nearest of them answers"
                follows = f"{nearest}, which is a guess" if name in far else nearest
            warnings.warn(
                f"the given value {side!r} of column {name!r} {what} all values of "
                f"the table that the model was fitted to: {follows}.",
                DataWarning,
                stacklevel=6,
            )

    def far_columns(self, given: Mapping[Any, object]) -> list[Hashable]:
        """The columns of which numbers are given that are far from all those of training."""
        far = []
        asked = known_values(self.schema, given)
        for name, side in given.items():
            column = self.schema.column(name) if name in self.schema.place else None
            if isinstance(column, Numeric):
                sets = given_sets(self.schema, {name: side})
                if sets is not None and _is_far(column, sets[self.schema.place[name]]):
                    far.append(name)
            elif column is not None and asked[name] is not side:
                if all(is_far(column, value) for value in end_numbers(column, side)):
                    far.append(name)
        return far

    def restricted(self, columns: Sequence[Hashable]) -> View:
        """The density of some columns, in the order given."""
        if isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray):
            raise ValueError(f"marginal needs a list of columns, got {columns!r}.")
        names = tuple(columns)
        self.schema.check_names(names, "marginal")
        strange = [name for name in names if name not in self.names]
        if strange:
            raise ValueError(f"marginal names {strange[0]!r}, whose value is known.")
        kept = [name for name in names if name in self.schema.place]
        if not kept or len(set(names)) < len(names):
            raise ValueError(
                f"marginal needs different columns, at least one of them not constant, got "
                f"{list(names)}."
            )
        return replace(self, names=names)

    @property
    def evidence(self) -> Evidence:
        """What is given, as boxes (m, d) that exclude each other."""
        return as_evidence(self.sets, [family.num_states for family in self.density.families])

    def event(self, event: Mapping[Any, object]) -> Evidence | None:
        """What is given and an event as boxes; ``None`` if they exclude each other."""
        known = [name for name in event if name in self.known] if event else []
        if known:
            raise ValueError(f"column {known[0]!r} is both in the event and given: drop one.")
        sets = both(self.sets, event_sets(self.schema, event))
        states = [family.num_states for family in self.density.families]
        return None if sets is None else as_evidence(sets, states)

    @property
    def variables(self) -> dict[Hashable, int]:
        """The variable of each column that is left, modelled, and not known."""
        place = {n: self.schema.place[n] for n in self.names if n in self.schema.place}
        return {n: p for n, p in place.items() if p not in self.sets or self.sets[p].point is None}

    @property
    def values(self) -> dict[Hashable, Any]:
        """The values of columns that are known: constants, what is given, and copies of it."""
        place = self.schema.place
        given = {place[name]: value for name, value in self.known.items() if name in place}
        copies = {name: given[p] for name, p in place.items() if p in given}
        return {**self.schema.constants, **copies}

    def _read(self, name: Hashable, value: object) -> object:
        """A value that is given; dates, durations and times in words as what they are."""
        column = self.schema.column(name) if name in self.schema.place else None
        if column is None or column.text_format or not isinstance(value, str):
            return value
        return READERS[column.kind](value) if column.kind in READERS else value

    def _is_point(self, name: Hashable, sets: Sets) -> bool:
        place = self.schema.place.get(name)
        return place is None or sets[place].point is not None


def impossible(given: Mapping[Any, object]) -> str:
    """What is wrong with evidence of probability zero."""
    return f"what is given has probability zero: {dict(given)!r}."


def _is_far(column: Numeric, one: CodeSet) -> bool:
    """Whether no number of a set is near those of training; atoms are."""
    codes = column.atom_codes.tolist()
    if one.point is not None:
        return one.point not in codes and not column.nearby[0] <= one.point <= column.nearby[1]
    return not any(
        any(low < code <= high for code in codes)
        or (low <= column.nearby[1] and high >= column.nearby[0])
        for low, high in one.intervals
    )
