"""Questions of ``subtractive query`` in words, and of quantiles and intervals."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from subtractive.cli.streams import names_in, pieces
from subtractive.tables.parsing import find_column
from subtractive.tables.receipts import Receipt
from subtractive.tables.table_density import TableDensity


def further_answers(
    model: TableDensity, options: argparse.Namespace, given: Mapping[Hashable, Any] | None
) -> dict[str, Any]:
    """What ``--ask``, ``--quantile`` and ``--interval`` ask for."""
    answers: dict[str, Any] = {}
    if options.ask and given:
        raise ValueError(
            '--ask has what is given after the bar, as in "P(age > 40 | city = Oslo)".'
        )
    if options.reference is not None and not options.ask:
        raise ValueError("--reference is a table to compare answers of --ask with.")
    if options.ask:
        table = None if options.reference is None else _reference(model, options)
        answers["ask"] = [_told(model.ask(question, table)) for question in options.ask]
    for what, phrases in (("quantile", options.quantile), ("interval", options.interval)):
        for phrase in phrases:
            name, levels = _levels(phrase, model)
            if what == "quantile":
                values = model.quantile(name, levels, given)
            elif len(levels) == 1:
                values = model.interval(name, levels[0], given)
            else:
                raise ValueError(f"an interval has one level, as age=0.9, got {phrase!r}.")
            told = {str(key): _plain(value) for key, value in values.items()}
            answers.setdefault(what, {})[str(name)] = told
    return answers


def _levels(phrase: str, model: TableDensity) -> tuple[Hashable, Sequence[float]]:
    """``age=0.1,0.9`` as a column and levels."""
    text, _, words = phrase.rpartition("=")
    try:
        levels = [float(word) for word in words.split(",")]
    except ValueError:
        levels = []
    if not text or not levels:
        raise ValueError(f"cannot read {phrase!r}: expected NAME=LEVEL, such as age=0.9.")
    return find_column(text, model.view.schema), levels


def _reference(model: TableDensity, options: argparse.Namespace) -> pd.DataFrame:
    """The whole table to compare with."""
    source = argparse.Namespace(data=options.reference, part=None, missing=options.missing)
    names = list(model.view.schema.names)
    parts = [p[names_in(model, p)].set_axis(names, axis=1) for p in pieces(model, source)]
    return pd.concat(parts, ignore_index=True)


def _told(receipt: Receipt) -> dict[str, Any]:
    return {
        "question": receipt.question,
        "probability": receipt.probability,
        "error": receipt.error,
        "rows": receipt.rows,
        "share": receipt.share,
        "agrees": receipt.agrees,
        "receipt": str(receipt),
    }


def _plain(value: Any) -> float | str:  # noqa: ANN401 - a number, or a date
    return float(value) if isinstance(value, int | float) else str(value)
