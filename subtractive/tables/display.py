"""How densities of tables look in a notebook and at a prompt: short, and in users' words."""

from __future__ import annotations

import math

import numpy as np

from subtractive.io.html import html_table
from subtractive.learning.history import History
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.schema import Schema, describe_column
from subtractive.tables.states import States
from subtractive.tables.view import View

MOST_NAMES, MOST_LETTERS = 6, 40


def view_text(view: View) -> str:
    """A density in one line: its columns, and what is given.

    ``TableDensity of 3 columns (bill, mass, sex) given species = Gentoo``
    """
    names = [_short(name) for name in view.names]
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
    text = f"TableDensity of {columns} ({', '.join(names[:MOST_NAMES])}{more})"
    given = given_words(view)
    return text + (f" given {'; '.join(f'{n} {w}' for n, w in given.items())}" if given else "")


def view_html(view: View) -> str:
    """A density as a small table: a row for each column, and what is given."""
    given = given_words(view)
    known = [name for name in view.known if name not in view.names]
    rows = [
        [name, describe_column(view.schema, name)["kind"], given.get(_short(name), "")]
        for name in (*known, *view.names)
    ]
    return html_table("TableDensity", ["column", "kind", "given"], rows)


def given_words(view: View) -> dict[str, str]:
    """What is given, by column: ``= 40``, ``in Oslo, Bergen`` or ``20 to 30``."""
    words = {_short(name): f"= {_short(value)}" for name, value in view.known.items()}
    names = {place: column.name for place, column in enumerate(view.schema.variables)}
    for place, one in view.sets.items():
        if one.point is None:
            words[_short(names[place])] = _set_words(view.schema.variables[place], one)
    return words


def estimator_html(schema: Schema, history: History) -> str:
    """A fitted estimator: its columns, and how it was trained."""
    count = len(schema.names)
    title = f"SubtractiveMixture, fitted: {count} column{'' if count == 1 else 's'}"
    facts = [(name, describe_column(schema, name)) for name in schema.names]
    rows = [[name, fact["kind"], fact["support"], fact["atoms"]] for name, fact in facts]
    table = html_table(title, ["column", "kind", "support", "atoms"], rows, most=12)
    return f"<div>{table}{history._repr_html_()}</div>"


def _set_words(column: Column, one: CodeSet) -> str:
    if isinstance(column, States):
        values = [_short(column.values[state]) for state in sorted(one.states or ())]
        more = f" and {len(values) - MOST_NAMES} more" if len(values) > MOST_NAMES else ""
        return f"in {', '.join(values[:MOST_NAMES])}{more}"
    assert isinstance(column, Numeric)
    return " or ".join(_interval(column, low, high) for low, high in one.intervals)


def _interval(column: Numeric, low: float, high: float) -> str:
    """An interval of codes in users' numbers, which on a grid are those inside."""
    ends = [float(column.numbers(np.array([end]))[0]) for end in (low, high)]
    if column.grid is not None:
        ends = [column.grid.ceil(ends[0]), column.grid.floor(ends[1])]
    if math.isinf(low):
        return f"<= {ends[1]:g}"
    if math.isinf(high):
        return f">= {ends[0]:g}"
    return f"= {ends[0]:g}" if ends[0] == ends[1] else f"{ends[0]:g} to {ends[1]:g}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
