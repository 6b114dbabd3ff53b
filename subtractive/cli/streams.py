"""Commands that go through the rows of a table, or draw them, in constant memory."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from subtractive.cli.printing import print_json
from subtractive.io.csv_parts import Part
from subtractive.io.table_reading import read_pieces
from subtractive.io.table_writing import open_table, without_formulas
from subtractive.io.writing import check_writable
from subtractive.tables.columns import Numeric
from subtractive.tables.containers import TEMPORAL, AnyTable
from subtractive.tables.parsing import find_column, parse_events, parse_given, parse_missing
from subtractive.tables.reading import Floats
from subtractive.tables.row_queries import row_probabilities
from subtractive.tables.schema import Schema
from subtractive.tables.table_density import TableDensity

BLOCK = 2**14  # rows that are drawn from one seed


def score(model: TableDensity, options: argparse.Namespace) -> None:
    """Write the log-density of every row, or print their mean."""
    if options.mean:
        total, rows = 0.0, 0
        for piece in pieces(model, options):
            total += float(scores(model, piece).sum())
            rows += len(piece)
        print_json({"mean_log_density": total / rows if rows else None, "rows": rows})
        return
    check_output(options)
    with open_table(options.output) as write:
        for piece in pieces(model, options):
            write(pd.DataFrame({"log_density": scores(model, piece)}))


def sample(model: TableDensity, options: argparse.Namespace) -> None:
    """Write rows that were drawn, block by block, each from a seed of its own."""
    given = parse_given(options.given, model.view.schema) or None
    if options.number < 0:
        raise ValueError(f"-n is a number of rows, at least 0, got {options.number}.")
    check_output(options)
    start, stop = part_of(options).cut(0, options.number)
    with open_table(options.output) as write:
        for block in range(start // BLOCK, max(start // BLOCK + 1, -(-stop // BLOCK))):
            first = block * BLOCK
            size = min(BLOCK, options.number - first)
            drawn = model.sample(size, given=given, random_state=seed_of(options.seed, block))
            rows = as_frame(drawn).iloc[max(0, start - first) : max(0, stop - first)]
            write(without_formulas(rows) if options.escape_formulas else rows)


def impute(model: TableDensity, options: argparse.Namespace) -> None:
    """Write a table without gaps, its columns in their order, those of no variable as they are."""
    check_output(options)
    part = part_of(options).index - 1
    with open_table(options.output) as write:
        for number, piece in enumerate(pieces(model, options)):
            names, filled = names_in(model, piece), piece.copy()
            if len(piece):
                seed = seed_of(options.seed, part, number)
                known = model.impute(
                    piece[names].set_axis(list(model.view.schema.names), axis=1),
                    n_draws=1 if options.sample else None,
                    random_state=seed,
                )
                filled[names] = as_frame(known[0] if options.sample else known)
            write(without_formulas(filled) if options.escape_formulas else filled)


def answer_rows(model: TableDensity, options: argparse.Namespace) -> None:
    """Write probabilities and means given the other columns of every row."""
    schema = model.view.schema
    given = parse_given(options.given, schema)
    event = parse_events(options.probability, schema) if options.probability else {}
    means = [find_column(name, schema) for name in options.mean]
    check_means(schema, means, given)
    check_output(options)
    with open_table(options.output) as write:
        for piece in pieces(model, options, needs_all=False):
            rows = evidence_of(model, piece, given)
            answers: dict[str, Any] = {}
            if options.probability:
                answers["probability"] = probabilities(model, rows, event)
            for name in means:
                answers[f"mean_{name}"] = _means(model, rows, name)
            write(pd.DataFrame(answers))


def _means(model: TableDensity, rows: pd.DataFrame, name: Hashable) -> Any:  # noqa: ANN401
    """The means of a column given each row; of few numbers by their probabilities."""
    column = model.view.schema.column(name)
    if len(rows) == 0:
        return []
    if isinstance(column, Numeric) or column.kind in TEMPORAL:
        return model.predict(rows, name)
    shares = model.predict_proba(rows, name)
    return shares.to_numpy() @ shares.columns.to_numpy(dtype=np.float64)


def check_means(schema: Schema, names: Sequence[Hashable], given: Mapping[Hashable, Any]) -> None:
    """Refuse means of what is given, and of what has none."""
    for name in names:
        if name in given:
            raise ValueError(f"column {name!r} is given: its mean is not asked.")
        column = schema.column(name) if name in schema.place else None
        if column is None or column.numbers(np.zeros(1)) is None:
            raise ValueError(f"column {name!r} has no mean: it is constant, or not of numbers.")


def probabilities(
    model: TableDensity, rows: pd.DataFrame, event: Mapping[Hashable, Any] | None
) -> Floats:
    """P(event | row) for each row, (n,); zero if the event contradicts itself."""
    if event is None or len(rows) == 0:
        return np.zeros(len(rows))
    return row_probabilities(model.view, model.view.read(rows), event)


def evidence_of(
    model: TableDensity, piece: pd.DataFrame, given: Mapping[Hashable, Any]
) -> pd.DataFrame:
    """Rows with all columns of the model: missing where the table has none, or as given."""
    columns = {}
    for name in model.view.schema.names:
        called = name if name in piece.columns else str(name)
        if name in given:
            columns[name] = pd.Series([given[name]] * len(piece))
        elif called in piece.columns:
            columns[name] = piece[called].reset_index(drop=True)
        else:
            columns[name] = pd.Series(np.full(len(piece), np.nan))
    return pd.DataFrame(columns)


def scores(model: TableDensity, piece: pd.DataFrame) -> Floats:
    """The log-densities of the rows of a piece, (n,)."""
    known = piece[names_in(model, piece)].set_axis(list(model.view.schema.names), axis=1)
    return model.score_samples(known) if len(piece) else np.zeros(0)


def pieces(
    model: TableDensity, options: argparse.Namespace, *, needs_all: bool = True
) -> Iterator[pd.DataFrame]:
    """The rows of the table, or of a part of it, some at a time; it may lack columns, or not."""
    names = model.view.schema.names
    is_named = all(isinstance(name, str) for name in names)
    texts = [str(name) for name in names if is_text(model.view.schema, name)]
    strange: set[Hashable] = set()
    for piece in read_pieces(
        options.data,
        numbers={*map(str, names)}.difference(texts) if is_named else None,
        texts=texts,
        part=None if options.part is None else part_of(options),
        missing=parse_missing(options.missing),
    ):
        known = names_in(model, piece) if needs_all else [*names, *map(str, names)]
        new = set(piece.columns) - {*known, *strange}
        if new:
            strange |= new
            warnings.warn(
                f"columns that the model does not have are left as they are: "
                f"{sorted(map(str, new))}.",
                stacklevel=2,
            )
        yield piece


def names_in(model: TableDensity, piece: pd.DataFrame) -> list[Hashable]:
    """What a table calls the columns of the model, in the order of the model."""
    names = model.view.schema.names
    for called in (names, tuple(map(str, names))):
        if all(name in piece.columns for name in called):
            return list(called)
    if isinstance(names[0], int) and len(names) == len(piece.columns):
        return list(piece.columns)
    lacking = [name for name in names if name not in piece.columns]
    raise ValueError(f"the table lacks the columns {lacking}; it has {list(piece.columns)}.")


def is_text(schema: Schema, name: Hashable) -> bool:
    """Whether the values of a column are texts."""
    if name in schema.constants:
        return isinstance(schema.constants[name], str)
    if name in schema.aside:
        return False
    return bool(schema.variables[schema.place[name]].decode(np.zeros(1)).dtype == object)


def as_frame(rows: AnyTable) -> pd.DataFrame:
    """A data frame, whatever the model was fitted on."""
    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)


def check_output(options: argparse.Namespace) -> None:
    """Fail before any work is done if its result cannot be written."""
    if options.output != "-":
        check_writable(options.output)


def part_of(options: argparse.Namespace) -> Part:
    """The part of the work that this process does: all of it, if none is named."""
    return Part(1, 1) if options.part is None else Part.parse(options.part)


def seed_of(seed: int, *place: int) -> int:
    """The seed itself for the first block of rows, others for other blocks."""
    if not any(place):
        return seed
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0])
