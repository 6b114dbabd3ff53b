"""Questions in words, ``P(weather = rain | precipitation = 0)``, and their receipts."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.columns import Numeric
from subtractive.tables.conditions import event_sets, given_sets, known_values
from subtractive.tables.expectations import one_box
from subtractive.tables.joint_boxes import box_weight, joint_variables
from subtractive.tables.parsing import parse_events
from subtractive.tables.queries import encode, log_total, probability
from subtractive.tables.question_text import example, hide_quoted, phrases
from subtractive.tables.reading import Floats, Table
from subtractive.tables.receipts import Matches, Receipt
from subtractive.tables.schema import Schema
from subtractive.tables.view import View

_QUESTION = re.compile(r"^\s*P\s*\((.*)\)\s*$", re.DOTALL)


class Question(NamedTuple):
    """P(event | given), in users' words; an event of ``None`` contradicts itself."""

    event: Mapping[Hashable, Any] | None
    given: Mapping[Hashable, Any]

    @property
    def num_columns(self) -> int:
        """How many columns it is about."""
        return len({*(self.event or {}), *self.given})


def parse_question(text: str, schema: Schema) -> Question:
    """``P(weather = rain | precipitation = 0, temp_max > 20)`` as an event and what is given.

    Commas or "and" separate conditions; lists are ``weather = rain or snow`` or ``weather in
    (rain, snow)``. Names and values that hold signs are quoted.
    """
    found = _QUESTION.match(text)
    if found is None:
        raise ValueError(f"a question looks like {example(schema)!r}, got {text!r}.")
    try:
        return _parse_sides(found[1], text, schema)
    except ValueError as error:
        reason = error
    if (hidden := hide_quoted(found[1])) != found[1]:
        try:
            return _parse_sides(hidden, text, schema)
        except ValueError as error:
            reason = error
    words = str(reason).rstrip(".")
    raise ValueError(f"{words}. A question that works is {example(schema)!r}.") from None


def _parse_sides(sides: str, text: str, schema: Schema) -> Question:
    parts = [phrases(side, schema) for side in sides.partition("|")[::2]]
    if not parts[0]:
        raise ValueError(f"a question needs an event before the bar, got {text!r}.")
    event, given = (parse_events(part, schema) for part in parts)
    if given is None:
        raise ValueError(f"what is given contradicts itself, so that nothing follows: {text!r}.")
    return Question(event, {name: _as_given(schema, name, side) for name, side in given.items()})


def _as_given(schema: Schema, name: Hashable, side: Any) -> Any:  # noqa: ANN401 - a set
    """A single number is a point where it is no interval: on no grid, and no atom."""
    column = schema.column(name) if name in schema.place else None
    if not isinstance(column, Numeric) or not isinstance(side, list) or len(side) > 1:
        return side
    is_point = column.grid is None and side[0] not in column.atoms
    return side[0] if is_point else side


def ask(view: View, question: Question, text: str, table: Table | None = None) -> Receipt:
    """The model's answer, that of a table or of remembered counts, and how far to trust it."""
    far = tuple(map(str, view.far_columns(question.given)))
    asked = view.given(question.given) if question.given else view
    answer, error = 0.0, 0.0
    if question.event is not None:
        answer, error = probability(asked, question.event), _error(asked, question.event)
    known = known_values(view.schema, question.given)
    check, counts = view.memory
    event = None if question.event is None else event_sets(view.schema, question.event)
    matches = None
    if table is not None:
        given = given_sets(view.schema, known) if known else {}
        codes = encode(view, table).x.numpy()
        matches = count_rows(codes, np.ones(len(codes)), given, event)
    elif counts is not None:
        # A single value is the cell of a grid or an atom there, not a point.
        given = event_sets(view.schema, known) if known else {}
        matches = counts.matches(both(view.sets, given), event)
    held_out = None if check is None else check.counts(question.num_columns)
    return Receipt(text, answer, error, question.num_columns, matches, held_out, far)


def count_rows(codes: Floats, weights: Floats, given: Sets | None, event: Sets | None) -> Matches:
    """The rows of codes (n, d) that match; those that miss a value asked about do not count."""
    variables = sorted({*(given or {}), *(event or {})})
    known = ~np.isnan(codes[:, variables]).any(1)
    rows = float(weights[known & _rows(codes, given)].sum())
    hits = float(weights[known & _rows(codes, both(given, event))].sum())
    return Matches(rows, hits / rows if rows else math.nan, "the table")


def _error(view: View, event: Mapping[Any, object]) -> float:
    """How far an answer may be off: zero where it is exact."""
    evidence = view.event(event)
    if evidence is None or not joint_variables(view.density, evidence):
        return 0.0
    parts = [box_weight(view.density, one_box(evidence, k)) for k in range(len(evidence))]
    if not any(part.error for part in parts):
        return 0.0
    with torch.no_grad():
        share = math.exp(log_total(view) - float(view.density.log_partition()))
    return sum(part.error for part in parts) / share


def _rows(codes: Floats, sets: Sets | None) -> npt.NDArray[np.bool_]:
    """Which rows of codes (n, d) are in the sets."""
    if sets is None:
        return np.zeros(len(codes), dtype=bool)
    inside = np.ones(len(codes), dtype=bool)
    for variable, one in sets.items():
        inside &= _holds(codes[:, variable], one)
    return inside


def _holds(codes: Floats, one: CodeSet) -> npt.NDArray[np.bool_]:
    if one.point is not None:
        return np.asarray(codes == one.point)
    if one.states is not None:
        return np.isin(codes, list(one.states))
    inside = [(codes > low) & (codes <= high) for low, high in one.intervals]
    return np.asarray(np.any(inside, axis=0))
