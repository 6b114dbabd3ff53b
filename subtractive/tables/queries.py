"""Scores, probabilities, samples, imputations and predictions of the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.columns import Column, Numeric, States
from subtractive.tables.conditions import TEMPORAL
from subtractive.tables.containers import AnyTable
from subtractive.tables.expectations import (
    Function,
    box_log_weights,
    expectations,
    log_weights_of_sets,
    one_box,
)
from subtractive.tables.joint_boxes import sample_box
from subtractive.tables.reading import (
    Content,
    Floats,
    RandomState,
    Table,
    Values,
    is_missing,
    read_mapping,
)
from subtractive.tables.schema import Encoded
from subtractive.tables.text_dates import format_dates
from subtractive.tables.validation import check_weights
from subtractive.tables.view import View

# Rows that are encoded and scored at a time, which bounds the memory of a long table.
ROWS_AT_ONCE = 2**16
MOST_BYTES = 2**37


def score_rows(view: View, table: Table) -> Floats:
    """The log-density of each row of a table that has been read, some rows at a time."""
    total = log_total(view)
    parts = [np.zeros(0)]
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        rows = encode(view, table.rows(slice(start, start + ROWS_AT_ONCE)))
        logs = log_weights(view, rows.x)
        some = sorted(rows.censored)
        logs[some] = log_weights_of_sets(view.density, [row_sets(view, rows, n) for n in some])
        scores = logs - total + rows.log_abs_det_jacobian
        parts.append(np.where(rows.possible, scores, -np.inf))
    return np.concatenate(parts)


def row_sets(view: View, rows: Encoded, row: int) -> Sets | None:
    """What is known of a row with censored cells, and what is given."""
    x = rows.x[row].tolist()
    points = {v: CodeSet(code) for v, code in enumerate(x) if code == code}
    return both(view.sets, {**points, **rows.censored[row]})


def mean_score(view: View, table: Table, sample_weight: object) -> float:
    """The weighted mean log-density of a table that has been read."""
    weights = check_weights(sample_weight, table.num_rows)
    counts = weights > 0
    return float(np.average(score_rows(view, table.rows(counts)), weights=weights[counts]))


@torch.no_grad()
def log_total(view: View) -> float:
    """log of the weight of what is given."""
    if not view.sets:
        return float(view.density.log_partition())
    return float(np.logaddexp.reduce(box_log_weights(view.density, view.evidence)))


@torch.no_grad()
def log_weights(view: View, x: torch.Tensor) -> Floats:
    """log of the weights (n,) of rows of codes (n, d), NaN being anything that is given."""
    boxes = view.evidence
    parts = []
    for box in range(len(boxes)):
        evidence, inside = with_rows(one_box(boxes, box), x)
        scores = box_log_weights(view.density, evidence)
        parts.append(np.where(inside, scores, -np.inf))
    return np.asarray(np.logaddexp.reduce(parts))


def with_rows(box: Evidence, x: torch.Tensor) -> tuple[Evidence, Any]:
    """A box of one row with the observed codes of rows (n, d), and which rows are inside it."""
    seen = ~x.isnan()
    inside = torch.ones(len(x), dtype=torch.bool)
    if box.lower is not None and box.upper is not None:
        values = x.nan_to_num(0.0)
        inside = ((~seen) | ((values > box.lower) & (values <= box.upper))).all(1)
    for variable, mask in box.states.items():
        state = x[:, variable].nan_to_num(0.0).long()
        inside = inside & (~seen[:, variable] | mask[state])
    observed = seen | box.observed
    joined = torch.where(seen, x.nan_to_num(0.0), box.x.expand_as(x))
    return replace(box, x=torch.where(observed, joined, 0.0), observed=observed), inside.numpy()


def encode(view: View, table: Table) -> Encoded:
    """A table with the columns of a view, as codes (n, d) of all variables."""
    renamed = [
        replace(raw, name=name) for raw, name in zip(table.columns, view.names, strict=True)
    ]
    view.schema.report_unknown(renamed)
    return view.schema.encode(renamed, table.num_rows)


def probability(view: View, event: Mapping[Any, object]) -> float:
    """P(event | what is given)."""
    evidence = view.event(event)
    if evidence is None:
        return 0.0
    inside = np.logaddexp.reduce(box_log_weights(view.density, evidence))
    return float(min(1.0, np.exp(inside - log_total(view))))


def sample(
    view: View,
    n_samples: int | None,
    random_state: RandomState,
    names: Sequence[Hashable] | None = None,
) -> AnyTable:
    """Exact samples given sets of values, of the columns of a view or of those named."""
    count = _count(1 if n_samples is None else n_samples)
    check_memory(count, view)
    x = draw(view, count, as_generator(random_state))
    values = view.schema.decode(x)
    for raw in read_mapping(view.values):  # as given, not as encoded and back
        values[raw.name] = np.repeat(raw.values, count)
    return view.schema.build({name: values[name] for name in names or view.names})


@torch.no_grad()
def draw(view: View, count: int, generator: torch.Generator) -> torch.Tensor:
    """Codes (n, d) of samples given sets of values."""
    boxes = view.evidence
    log_shares = box_log_weights(view.density, boxes)
    shares = torch.from_numpy(np.exp(log_shares - log_shares.max()))
    if len(boxes) == 1:
        chosen = torch.zeros(count, dtype=torch.long)
    else:
        chosen = torch.multinomial(shares, max(count, 1), replacement=True, generator=generator)
    drawn = torch.zeros(count, boxes.x.shape[1], dtype=torch.float64)
    for box in chosen[:count].unique().tolist():
        rows = (chosen[:count] == box).nonzero()[:, 0]
        part = one_box(boxes, box).rows(torch.zeros(len(rows), dtype=torch.long))
        drawn[rows] = sample_box(view.density, part, generator)
    return drawn


def check_memory(count: int, view: View) -> None:
    """Refuse more samples than any machine holds at a time, before the memory runs out."""
    needed = 8 * count * len(view.schema.variables)
    if needed > MOST_BYTES:
        raise ValueError(
            f"{count} samples take {needed / 1e9:.0f} GB of memory at least. Draw fewer at a "
            "time; the command line, subtractive sample, writes any number to a file."
        )


def check_count(n_samples: int | None, table: Table) -> None:
    """A table of given values yields a sample for each row, and no other number."""
    if n_samples not in (None, table.num_rows):
        raise ValueError(
            f"a table of given values yields one sample for each of its {table.num_rows} "
            f"rows, got n_samples={n_samples}. Leave n_samples out."
        )


def impute(
    view: View, table: Table, like: AnyTable, n_draws: int | None, random_state: RandomState
) -> AnyTable:
    """Fill gaps by means and modes, or several times by joint draws."""
    rows = encode(view, table)
    check_rows(rows)
    if n_draws is None:
        return _filled(view, table, like, _typical(view, rows))
    generator = as_generator(random_state)
    tables = []
    for _ in range(_count(n_draws)):
        x = _drawn_rows(view, rows.x, generator)
        for row in sorted(rows.censored):
            x[row] = draw(replace(view, sets=_possible(row_sets(view, rows, row))), 1, generator)
        tables.append(_filled(view, table, like, view.schema.decode(x)))
    return tables


def _filled(
    view: View, table: Table, like: AnyTable, filled: Mapping[Hashable, Values]
) -> AnyTable:
    columns = {}
    for name, raw in zip(view.names, table.columns, strict=True):
        if name in view.schema.aside:
            columns[name] = np.full(table.num_rows, None, dtype=object)
        else:
            gaps, values = is_missing(raw.values), filled[name]
            if raw.content is Content.TEXT and name in view.schema.place:
                fmt = view.schema.column(name).text_format
                values = format_dates(np.asarray(values, dtype=np.float64), fmt) if fmt else values
            columns[name] = np.where(gaps, values, raw.values) if gaps.any() else raw.values
    return view.schema.build(columns, like)


@torch.no_grad()
def _drawn_rows(view: View, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    boxes = view.evidence
    shares = torch.from_numpy(_box_shares(view, x))
    chosen = torch.multinomial(shares, 1, generator=generator)[:, 0]
    drawn = x.clone()
    for box in chosen.unique().tolist():
        rows = (chosen == box).nonzero()[:, 0]
        part, _ = with_rows(one_box(boxes, box), x[rows])
        drawn[rows] = sample_box(view.density, part, generator)
    return drawn


def _possible(sets: Sets | None) -> Sets:
    if sets is None:
        raise ValueError("a row contradicts what is given: nothing can be conditioned on it.")
    return sets


def _typical(view: View, rows: Encoded) -> dict[Hashable, Values]:
    """The mean, or the most probable state, of every variable that has gaps in rows (n, d)."""
    x = rows.x
    gaps = [v for v in view.variables.values() if bool(x[:, v].isnan().any())]
    numbers = row_expectations(view, rows, gaps)
    filled: dict[Hashable, Values] = {}
    for name in view.names:
        place = view.schema.place.get(name)
        if place is None or place not in view.variables.values():
            filled[name] = np.array([view.values.get(name)] * len(x))
            continue
        column, codes = view.schema.variables[place], x[:, place].numpy()
        filled[name] = column.decode(np.nan_to_num(codes))  # known by way of a copy
        if place in numbers:
            values = _filled_values(column, numbers[place])
            filled[name] = np.where(np.isnan(codes), values, filled[name])
    return filled


def _filled_values(column: Column, numbers: Floats) -> Values:
    """What a gap is filled with: of numbers the mean, or the value next to it that may occur."""
    values = column.numbers(np.arange(numbers.shape[1], dtype=np.float64))
    if isinstance(column, Numeric) or values is None:
        return _typical_values(column, numbers)
    means = np.nan_to_num(numbers) @ values
    nearest = np.abs(means[:, None] - values).argmin(1)
    return column.decode(nearest.astype(np.float64))


def _typical_values(column: Column, numbers: Floats) -> Values:
    """Values (n,) from means (n, 1), or from probabilities of states (n, v)."""
    if isinstance(column, Numeric):
        return column.rounded(numbers[:, 0])
    return column.decode(np.nan_to_num(numbers).argmax(1).astype(np.float64))


def row_expectations(view: View, rows: Encoded, variables: Sequence[int]) -> dict[int, Floats]:
    """Means (n, 1) of numbers, and probabilities (n, v) of states, given each of rows (n, d)."""
    found = _row_expectations(view, rows.x, variables)
    for row in sorted(rows.censored):
        part = replace(view, sets=_possible(row_sets(view, rows, row)))
        asked = [v for v in variables if bool(rows.x[row, v].isnan())]
        means = _row_expectations(part, torch.full_like(rows.x[:1], math.nan), asked)
        for variable, numbers in means.items():
            found[variable][row] = numbers[0]
    return found


def _row_expectations(view: View, x: torch.Tensor, variables: Sequence[int]) -> dict[int, Floats]:
    columns, boxes = view.schema.variables, view.evidence
    functions = {variable: _summary(columns[variable]) for variable in variables}
    parts = [with_rows(one_box(boxes, box), x)[0] for box in range(len(boxes))]
    found = [expectations(view.density, columns, part, functions) for part in parts]
    if len(parts) == 1:
        return found[0]
    shares = _box_shares(view, x)
    return {
        v: np.sum([shares[:, [k]] * part[v] for k, part in enumerate(found)], axis=0)
        for v in variables
    }


def _summary(column: Column) -> Function:
    """The number that a code stands for, or which state it is, (v, q)."""
    if isinstance(column, States):
        return lambda codes: np.eye(len(column.values))[:, codes.astype(int)]
    assert isinstance(column, Numeric)
    return column.numbers


def _box_shares(view: View, x: torch.Tensor) -> Floats:
    """The probability of each box of what is given, (n, m), given rows of codes (n, d)."""
    boxes = view.evidence
    parts = [with_rows(one_box(boxes, box), x) for box in range(len(boxes))]
    scores = [np.where(ok, box_log_weights(view.density, e), -np.inf) for e, ok in parts]
    table = np.stack(scores, 1)
    return np.asarray(np.exp(table - np.logaddexp.reduce(table, axis=1)[:, None]))


def predict(view: View, table: Table, column: Hashable, index: pd.Index | None) -> pd.Series:
    """The mean, or the most probable value, of a column given the others of each row."""
    place, rows = _others(view, table, column)
    numbers = row_expectations(view, rows, [place])[place]
    target = view.schema.variables[place]
    values = _typical_values(target, numbers)
    if target.kind in TEMPORAL:
        values = view.schema.build_series({column: values})[column]
    elif isinstance(target, Numeric):
        values = numbers[:, 0]
    return pd.Series(values, index=index, name=column)


def predict_proba(
    view: View, table: Table, column: Hashable, index: pd.Index | None
) -> pd.DataFrame:
    """The probabilities of a column's values given the other columns of each row."""
    place, rows = _others(view, table, column)
    target = view.schema.variables[place]
    if not isinstance(target, States):
        raise ValueError(
            f"column {column!r} holds numbers with a density, not categories: ask for its "
            "distribution with cdf or quantile."
        )
    numbers = row_expectations(view, rows, [place])[place]
    return pd.DataFrame(numbers, index=index, columns=pd.Index(target.values, name=column))


def _others(view: View, table: Table, column: Hashable) -> tuple[int, Encoded]:
    """The variable of a column, and rows (n, d) in which it is missing."""
    view.schema.check_names([column], "predict")
    if column not in view.variables:
        raise ValueError(f"the value of column {column!r} is known: there is nothing to predict.")
    rows = encode(view, table)
    place = view.variables[column]
    x = rows.x.clone()
    x[:, place] = math.nan
    impossible = {n: w for n, w in rows.impossible.items() if view.variables.get(n) != place}
    censored = {
        row: {v: s for v, s in c.items() if v != place} for row, c in rows.censored.items()
    }
    rows = rows._replace(x=x, impossible=impossible, censored=censored)
    check_rows(rows)
    return place, rows


def as_generator(random_state: RandomState) -> torch.Generator:
    """A generator from an int, a ``RandomState``, or ``None`` for numpy's own."""
    return torch.Generator().manual_seed(draw_seed(random_state))


def draw_seed(random_state: RandomState) -> int:
    """A seed drawn as scikit-learn does from an int, a ``RandomState`` or ``None``."""
    from sklearn.utils import check_random_state  # which takes long to import

    return int(check_random_state(random_state).randint(2**31 - 1))


def _count(n_samples: object) -> int:
    if not isinstance(n_samples, int | np.integer) or isinstance(n_samples, bool) or n_samples < 0:
        raise ValueError(f"n_samples must be a whole number of at least 0, got {n_samples!r}.")
    return int(n_samples)


def check_rows(rows: Encoded) -> None:
    """Refuse rows that have probability zero."""
    for name, wrong in rows.impossible.items():
        raise ValueError(
            f"the value of column {name!r} in row {int(wrong.nonzero()[0][0])} has probability "
            "zero (it is outside the bounds, or differs from a constant or from its copy): "
            "nothing can be conditioned on it."
        )
