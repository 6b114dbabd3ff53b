"""Cells of rows given the others: gaps that are filled or drawn, columns that are predicted."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from subtractive.tables.cell_values import Content
from subtractive.tables.code_sets import Sets
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.containers import TEMPORAL, AnyTable
from subtractive.tables.expectations import (
    Function,
    box_log_weights,
    expectations,
    one_box,
)
from subtractive.tables.joint_boxes import sample_box
from subtractive.tables.queries import (
    as_generator,
    check_rows,
    draw,
    encode_evidence,
    row_sets,
    sample_count,
    with_rows,
)
from subtractive.tables.reading import Floats, RandomState, Table, Values, is_missing
from subtractive.tables.schema import Encoded
from subtractive.tables.states import States
from subtractive.tables.text_dates import format_dates
from subtractive.tables.view import View


def impute(
    view: View, table: Table, like: AnyTable, n_draws: int | None, random_state: RandomState
) -> AnyTable:
    """Fill gaps by means and modes, or several times by joint draws."""
    rows = encode_evidence(view, table)
    check_rows(rows)
    if n_draws is None:
        return _filled(view, table, like, _typical(view, rows))
    generator = as_generator(random_state)
    tables = []
    for _ in range(sample_count(n_draws)):
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
    _check_inside(np.any([with_rows(one_box(boxes, b), x)[1] for b in range(len(boxes))], axis=0))
    shares = torch.from_numpy(_box_shares(view, x))
    chosen = torch.multinomial(shares, 1, generator=generator)[:, 0]
    drawn = x.clone()
    for box in chosen.unique().tolist():
        rows = (chosen == box).nonzero()[:, 0]
        part, _ = with_rows(one_box(boxes, box), x[rows])
        drawn[rows] = sample_box(view.density, part, generator)
    return drawn


def _check_inside(inside: npt.NDArray[np.bool_]) -> None:
    """Refuse rows (n,) that are not inside of what is given."""
    if not bool(inside.all()):
        raise ValueError(
            f"row {int(np.argmin(inside))} contradicts what is given: nothing can be conditioned "
            "on it."
        )


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
    both = [with_rows(one_box(boxes, box), x) for box in range(len(boxes))]
    parts = [part for part, _ in both]
    _check_inside(np.any([inside for _, inside in both], axis=0))
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
    if isinstance(target, Numeric) and target.kind not in TEMPORAL:
        values: Any = numbers[:, 0]
    else:
        values = _as_told(view, column, target, _typical_values(target, numbers))
    return pd.Series(values, index=index, name=column)


def _as_told(view: View, name: Hashable, column: Column, values: Values) -> Any:  # noqa: ANN401
    """Values of a column as answers tell them: dates, booleans, whole numbers, or as they are."""
    if column.kind in TEMPORAL:
        return view.schema.build_series({name: values})[name]
    kind = {"boolean": bool, "whole": int}.get(column.kind)
    return values if kind is None or values.dtype == object else values.astype(kind)


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
    values = target.decode(np.arange(len(target.values), dtype=np.float64))
    told = pd.Index(_as_told(view, column, target, values), name=column)
    return pd.DataFrame(numbers, index=index, columns=told)


def _others(view: View, table: Table, column: Hashable) -> tuple[int, Encoded]:
    """The variable of a column, and rows (n, d) in which it is missing."""
    view.schema.check_names([column], "predict")
    if column not in view.variables:
        raise ValueError(f"the value of column {column!r} is known: there is nothing to predict.")
    rows = encode_evidence(view, table)
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
