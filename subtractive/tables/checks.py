"""Random questions to which the rows of a table have an answer, and the model's answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.inputs.layer import InputLayer
from subtractive.tables.asking import Question, count_rows
from subtractive.tables.code_sets import Sets, both
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.conditions import event_sets
from subtractive.tables.joint_boxes import NUM_SAMPLES, counting_error
from subtractive.tables.memory import Memory
from subtractive.tables.queries import draw_inside
from subtractive.tables.reading import Floats, Values
from subtractive.tables.receipts import LEAST_ROWS, Check, Matches, Receipt
from subtractive.tables.remembered_counts import RememberedCounts
from subtractive.tables.schema import Schema
from subtractive.tables.set_weights import log_weights_of_sets
from subtractive.tables.states import States
from subtractive.tables.training_rows import Rows, recode
from subtractive.tables.value_text import value_text
from subtractive.tables.view import View

MOST_TRIES = 8  # questions drawn for each that is asked
AFTER_FIT = 100  # questions that are asked after a fit
MOST_ROWS = 10_000  # that are counted after a fit


class _Drawn(NamedTuple):
    """A random question, as sets of codes, too."""

    question: Question
    given: Sets
    event: Sets
    matches: Matches


def check(view: View, codes: Floats, weights: Floats, num_questions: int, seed: int) -> Check:
    """Questions to which rows of codes (n, d) have an answer: 30 or more match what is given."""
    if weights.sum() < LEAST_ROWS:
        return Check(())
    random = np.random.default_rng(seed)
    columns, names = view.schema.variables, list(view.variables)
    values = {v: _values(columns[v], codes[:, v]) for v in view.variables.values()}
    codes = codes.copy()
    for variable, own in values.items():  # so that ends of intervals are exactly codes of rows
        codes[~np.isnan(codes[:, variable]), variable] = columns[variable].encode(own)
    drawn: list[_Drawn] = []
    for _ in range(MOST_TRIES * num_questions):
        if len(drawn) == num_questions:
            break
        order = [names[i] for i in random.permutation(len(names))]
        cut = int(random.integers(0, min(3, len(names))))
        asked = order[cut : cut + int(random.integers(1, 3))]
        sides = {
            name: _side(columns[view.variables[name]], values[view.variables[name]], random)
            for name in order[:cut] + asked
        }
        if any(side is None for side in sides.values()):
            continue
        question = Question({n: sides[n] for n in asked}, {n: sides[n] for n in order[:cut]})
        given = event_sets(view.schema, question.given) if question.given else {}
        if given is None or count_rows(codes, weights, given, {}).rows < LEAST_ROWS:
            continue  # most questions about few rows end here, before their event is looked up
        event = event_sets(view.schema, question.event or {})
        if event is None:
            continue
        matches = count_rows(codes, weights, given, event)
        if matches.rows >= LEAST_ROWS:
            drawn.append(_Drawn(question, given, event, matches))
    has_joint = has_full_covariances(view.density)
    return Check(_counted(view, drawn) if has_joint else _receipts(view, drawn))


def _counted(view: View, drawn: Sequence[_Drawn]) -> tuple[Receipt, ...]:
    """Answers counted among exact samples: boxes of full covariances are slow integrals."""
    codes = draw_inside(view, NUM_SAMPLES).numpy()
    receipts = []
    for question, given, event, matches in drawn:
        found = count_rows(codes, np.ones(len(codes)), given, event)
        share = found.share if found.rows else 0.0
        error = counting_error(share, found.rows)
        words = _words(question, view.schema)
        receipts.append(Receipt(words, share, error, question.num_columns, matches))
    return tuple(receipts)


def _receipts(view: View, drawn: Sequence[_Drawn]) -> tuple[Receipt, ...]:
    """The model's answers to all questions, in one pass."""
    given = [both(view.sets, one.given) for one in drawn]
    joint = [both(g, one.event) for g, one in zip(given, drawn, strict=True)]
    logs = log_weights_of_sets(view.density, [*given, *joint])
    with np.errstate(invalid="ignore"):
        answers = np.exp(logs[len(drawn) :] - logs[: len(drawn)]).clip(0.0, 1.0)
    return tuple(
        Receipt(
            _words(one.question, view.schema),
            float(answer),
            0.0,
            one.question.num_columns,
            one.matches,
        )
        for one, answer in zip(drawn, np.nan_to_num(answers), strict=True)
    )


def has_full_covariances(density: Density) -> bool:
    """Whether some input region has several variables."""
    layers = (layer for layer in density.modules() if isinstance(layer, InputLayer))
    return any(layer.variables.shape[1] > 1 for layer in layers)


def _values(column: Column, codes: Floats) -> Values:
    """Users' values of the codes that are there."""
    return column.decode(codes[~np.isnan(codes)])


def _side(column: Column, present: Values, random: np.random.Generator) -> Any:  # noqa: ANN401
    """A random set of values of a column: states, an atom, or an interval between two rows."""
    if len(present) == 0:
        return None
    if isinstance(column, States):
        known = sorted(set(present.tolist()), key=str)
        count = int(random.integers(1, max(2, min(4, len(known)))))
        return [known[i] for i in random.permutation(len(known))[:count]]
    assert isinstance(column, Numeric)
    if column.atoms and random.random() < 0.4:
        return [column.atoms[int(random.integers(len(column.atoms)))]]
    low, high = np.sort(present[random.integers(0, len(present), 2)]).tolist()
    sides = [(None, high), (low, None), (low, high)]
    return sides[int(random.integers(3 if low < high else 2))]


def _words(question: Question, schema: Schema) -> str:
    sides = [
        ", ".join(_phrase(n, schema.column(n).kind, s) for n, s in (side or {}).items())
        for side in question
    ]
    return f"P({sides[0]} | {sides[1]})" if question.given else f"P({sides[0]})"


def _phrase(name: Hashable, kind: str, side: object) -> str:
    """A condition as a question has it: dates as dates, numbers with ten digits."""
    end = partial(value_text, kind=kind, digits=10)
    if isinstance(side, list):
        states = [end(value) if isinstance(value, float) else str(value) for value in side]
        return f"{name} = {' or '.join(states)}"
    assert isinstance(side, tuple)
    low, high = side
    if low is None:
        return f"{name} <= {end(high)}"
    return f"{name} >= {end(low)}" if high is None else f"{end(low)} <= {name} <= {end(high)}"


def remember(view: View, columns: Sequence[Column], rows: Rows, held_out: Rows | None) -> Memory:
    """What a fit leaves behind: counts of all rows, and a check by those that were held out.

    Rows are codes of ``columns``, which may have other transforms than those of the view.
    """
    codes = _recoded(columns, view.schema.variables, rows.x.numpy())
    counts = RememberedCounts.of(view.schema.variables, codes, as_counts(rows.weights.numpy()))
    if held_out is None:
        return Memory(None, counts)
    some = held_out.x[:MOST_ROWS].numpy()
    weights = as_counts(held_out.weights[:MOST_ROWS].numpy())
    codes = _recoded(columns, view.schema.variables, some)
    found = check(view, codes, weights, AFTER_FIT, seed=0)
    return Memory(found if found.receipts else None, counts)


@torch.no_grad()
def served_score(view: View, columns: Sequence[Column], held_out: Rows) -> float:
    """The mean score of held-out rows, codes of ``columns``, as ``score_samples`` tells it.

    Training may have scored them in single precision, or by parts of the model.
    """
    rows = held_out
    if view.schema.variables is not columns:
        rows = recode(held_out, columns, view.schema.variables)
    scores = view.density.log_prob(rows.x) + rows.log_abs_det_jacobian
    return float((rows.weights * scores).sum() / rows.weights.sum())


def as_counts(weights: Floats) -> Floats:
    """Weights of rows that are counts as they are; other ones are made to sum to the rows."""
    are_counts = bool((weights == np.rint(weights)).all())
    return weights if are_counts else weights * len(weights) / weights.sum()


def _recoded(old: Sequence[Column], new: Sequence[Column], codes: Floats) -> Floats:
    """Codes (n, d) of the same values under other transforms of their columns."""
    if old is new:
        return codes
    result = codes.copy()
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        there = ~np.isnan(codes[:, number])
        result[there, number] = after.encode(before.decode(codes[there, number]))
    return result
