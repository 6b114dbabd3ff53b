"""Answers with a receipt: what the model says beside what the rows of a table say."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import bdtr, bdtrc

from subtractive.tables.columns import Numeric, States
from subtractive.tables.conditions import CodeSet, Sets, both, event_sets, given_sets
from subtractive.tables.expectations import one_box
from subtractive.tables.joint_boxes import box_weight, joint_variables
from subtractive.tables.parsing import parse_events
from subtractive.tables.queries import encode, log_total, probability
from subtractive.tables.reading import Floats, Table
from subtractive.tables.schema import Schema
from subtractive.tables.view import View

LEAST_ROWS = 30  # that match what is given, for a question to be compared with a table
LEVEL = 0.05  # of the binomial test
MOST_TRIES = 40  # questions drawn for each that is asked
_QUESTION = re.compile(r"^\s*P\s*\((.*)\)\s*$", re.DOTALL)


class Question(NamedTuple):
    """P(event | given), in users' words."""

    event: Mapping[Hashable, Any]
    given: Mapping[Hashable, Any]


@final
@dataclass(frozen=True)
class Receipt:
    """An answer of a model, and what a reference table says."""

    question: str
    probability: float
    error: float  # a bound, zero if the answer is exact
    rows: int | None = None  # that match what is given
    share: float | None = None  # of them in which the event holds
    p_value: float | None = None  # of a binomial test of the share

    @property
    def agrees(self) -> bool | None:
        """Whether model and table differ by chance only; not known without enough rows."""
        if self.p_value is None or self.rows is None or self.rows < LEAST_ROWS:
            return None
        return self.p_value >= LEVEL

    def __str__(self) -> str:
        text = f"{self.question} {'≈' if self.error else '='} {self.probability:.4f}"
        text += f" ± {self.error:.4f}" if self.error else ""
        if self.rows is None or self.share is None:
            return text + "; no table to compare with"
        text += f"; in the table {self.share:.4f} of {self.rows:,} rows"
        words = {True: "as chance allows", False: "more than by chance", None: "too few rows"}
        return f"{text} ({words[self.agrees]})"

    __repr__ = __str__


@final
@dataclass(frozen=True)
class Check:
    """Random questions: the share of answers within chance of a table, and every one of them."""

    receipts: tuple[Receipt, ...] = field(repr=False)

    @property
    def share(self) -> float:
        """How many of the answers agree with the table."""
        agreed = [receipt.agrees for receipt in self.receipts]
        return sum(map(bool, agreed)) / len(agreed) if agreed else math.nan

    def to_frame(self) -> pd.DataFrame:
        """One row per question, the worst first."""
        rows = [
            (r.question, r.probability, r.share, r.rows, r.p_value, r.agrees)
            for r in sorted(self.receipts, key=lambda receipt: receipt.p_value or 0.0)
        ]
        names = ["question", "probability", "share", "rows", "p_value", "agrees"]
        return pd.DataFrame(rows, columns=names)

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of {len(self.receipts)} answers agree with the table"

    __repr__ = __str__


def parse_question(text: str, schema: Schema) -> Question:
    """``P(weather = rain | precipitation = 0, temp_max > 20)`` as an event and what is given."""
    found = _QUESTION.match(text)
    if found is None:
        raise ValueError(
            f"a question looks like 'P(weather = rain | temp_max > 20)', got {text!r}."
        )
    event, _, given = found[1].partition("|")
    parts = [[part.strip() for part in side.split(",") if part.strip()] for side in (event, given)]
    if not parts[0]:
        raise ValueError(f"a question needs an event before the bar, got {text!r}.")
    sides = [parse_events(side, schema) for side in parts]
    if any(side is None for side in sides):
        raise ValueError(f"the events on one side of the bar contradict each other: {text!r}.")
    return Question(*(side or {} for side in sides))


def ask(view: View, question: Question, text: str, table: Table | None) -> Receipt:
    """The model's answer, and that of a table."""
    asked = view.given(question.given) if question.given else view
    answer, error = probability(asked, question.event), _error(asked, question.event)
    if table is None:
        return Receipt(text, answer, error)
    codes = encode(view, table).x.numpy()
    given = given_sets(view.schema, question.given) if question.given else {}
    matches = _rows(view.schema, codes, given)
    holds = _rows(view.schema, codes, both(given, event_sets(view.schema, question.event)))
    known = _known(codes, [*(given or {}), *(event_sets(view.schema, question.event) or {})])
    rows, hits = int((matches & known).sum()), int((holds & known).sum())
    share = hits / rows if rows else math.nan
    return Receipt(text, answer, error, rows, share, _p_value(hits, rows, answer))


def check(view: View, table: Table, num_questions: int, seed: int) -> Check:
    """Random questions to which a table has an answer: at least 30 rows match what is given."""
    random = np.random.default_rng(seed)
    names = list(view.variables)
    receipts: list[Receipt] = []
    for _ in range(MOST_TRIES * num_questions):
        if len(receipts) == num_questions:
            break
        order = [names[i] for i in random.permutation(len(names))]
        cut = int(random.integers(0, min(3, len(names))))
        asked = order[cut : cut + int(random.integers(1, 3))]
        question = Question(
            {name: _side(view, table, name, random) for name in asked},
            {name: _side(view, table, name, random) for name in order[:cut]},
        )
        receipt = ask(view, question, _words(question), table)
        if receipt.rows is not None and receipt.rows >= LEAST_ROWS:
            receipts.append(receipt)
    return Check(tuple(receipts))


def _error(view: View, event: Mapping[Any, object]) -> float:
    """How far an answer may be off: zero where it is exact."""
    evidence = view.event(event)
    if evidence is None or not joint_variables(view.density, evidence):
        return 0.0
    parts = [box_weight(view.density, one_box(evidence, k)) for k in range(len(evidence))]
    with torch.no_grad():
        share = math.exp(log_total(view) - float(view.density.log_partition()))
    return sum(part.error for part in parts) / share


def _rows(schema: Schema, codes: Floats, sets: Sets | None) -> npt.NDArray[np.bool_]:
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


def _known(codes: Floats, variables: list[int]) -> npt.NDArray[np.bool_]:
    return np.asarray(~np.isnan(codes[:, sorted(set(variables))]).any(1))


def _p_value(hits: int, rows: int, probability: float) -> float:
    """Of the two-sided binomial test that the event has this probability."""
    if rows == 0:
        return math.nan
    below, above = bdtr(hits, rows, probability), bdtrc(hits - 1, rows, probability)
    return float(min(1.0, 2 * min(below, above)))


def _side(view: View, table: Table, name: Hashable, random: np.random.Generator) -> object:
    """A random set of values of a column: states, an atom, or an interval between two rows."""
    column = view.schema.column(name)
    raw = table.columns[view.names.index(name)]
    present = raw.values[~raw.missing]
    if isinstance(column, States):
        known = sorted(set(present[~column.unknown(present)].tolist()), key=str)
        count = int(random.integers(1, max(2, min(4, len(known)))))
        return [known[i] for i in random.permutation(len(known))[:count]]
    assert isinstance(column, Numeric)
    if column.atoms and random.random() < 0.4:
        return [column.atoms[int(random.integers(len(column.atoms)))]]
    low, high = np.sort(present[random.integers(0, len(present), 2)]).tolist()
    sides = [(None, high), (low, None), (low, high)]
    return sides[int(random.integers(3 if low < high else 2))]


def _words(question: Question) -> str:
    sides = [", ".join(_phrase(n, s) for n, s in side.items()) for side in question]
    return f"P({sides[0]} | {sides[1]})" if question.given else f"P({sides[0]})"


def _phrase(name: Hashable, side: object) -> str:
    if isinstance(side, list):
        return f"{name} = {' or '.join(map(str, side))}"
    assert isinstance(side, tuple)
    low, high = side
    if low is None:
        return f"{name} <= {high:g}"
    return f"{name} >= {low:g}" if high is None else f"{low:g} <= {name} <= {high:g}"
