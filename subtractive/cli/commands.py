"""What the words of the command line do.

What learns or draws is in :mod:`subtractive.cli.fitting`, which is imported when it is asked for:
a query need not wait for scikit-learn and matplotlib.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from subtractive.cli.importing import import_or_end
from subtractive.cli.printing import print_json
from subtractive.cli.streams import answer_rows, impute, sample, score
from subtractive.storage import read_density
from subtractive.tables.memory import Memory, memory_from
from subtractive.tables.parsing import find_column, parse_events, parse_given
from subtractive.tables.stored_schema import describing_a_table, read_schema
from subtractive.tables.table_density import TableDensity
from subtractive.tables.view import View


def run(options: argparse.Namespace) -> None:
    """Run the command that was asked for; what it warns of goes to standard error in one line."""
    warnings.showwarning = _show_warning
    COMMANDS[options.command](options)


def query(options: argparse.Namespace) -> None:
    """Print probabilities and means, or write those given each row of a table."""
    further = options.ask or options.quantile or options.interval or options.reference
    if not options.probability and not options.mean and not further:
        raise ValueError(
            'nothing is asked: add --probability "age>40", --mean age, --quantile age=0.9, '
            '--interval age=0.9 or --ask "P(age > 40 | city = Oslo)".'
        )
    model = load_model(options.model)
    if options.data is not None:
        if further:
            raise ValueError(
                "each row of a table is asked for --probability and --mean only. The table to "
                "compare answers of --ask with is --reference TABLE."
            )
        answer_rows(model, options)
        return
    given = parse_given(options.given, model.view.schema)
    answers: dict[str, Any] = {}
    if options.probability:
        event = parse_events(options.probability, model.view.schema)
        answers["probability"] = 0.0 if event is None else model.probability(event, given or None)
    if options.mean:
        names = [find_column(name, model.view.schema) for name in options.mean]
        means = model.mean(given=given or None)
        known = [name for name in names if name not in means.index]
        if known:
            raise ValueError(f"column {known[0]!r} is given: its mean is not asked.")
        answers["mean"] = {str(name): _plain(means[name]) for name in names}
    if further:
        questions = import_or_end("subtractive.cli.questions")
        answers |= questions.further_answers(model, options, given or None)
    print_json(answers)


def _plain(value: Any) -> float | str:  # noqa: ANN401 - a number, or a date
    return float(value) if isinstance(value, int | float) else str(value)


COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "score": lambda options: score(load_model(options.model), options),
    "sample": lambda options: sample(load_model(options.model), options),
    "impute": lambda options: impute(load_model(options.model), options),
    "query": query,
    "fit": lambda options: import_or_end("subtractive.cli.fitting").fit(options),
    "info": lambda options: import_or_end("subtractive.cli.fitting").info(options),
    "report": lambda options: import_or_end("subtractive.cli.fitting").report(options),
    "explore": lambda options: import_or_end("subtractive.cli.exploring").explore(
        load_model(options.model), options
    ),
    "demo": lambda options: import_or_end("subtractive.cli.demo").run(options.output),
}


def load_model(path: str) -> TableDensity:
    """The density of a table in a file."""
    density, description = read_density(path)
    if "estimator" not in description:
        raise ValueError(
            f"{path} holds a density without a table: it was saved by a program. Load it with "
            "subtractive.load()."
        )
    with describing_a_table(path):
        data = description["estimator"]
        schema = read_schema(data["schema"], density)
        memory = memory_from(data["memory"], schema.variables) if "memory" in data else Memory()
        return TableDensity(View(schema, density, schema.names, memory=memory))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"subtractive: warning: {message}", file=sys.stderr)
