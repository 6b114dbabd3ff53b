"""The command that shows a model in the browser."""

from __future__ import annotations

import argparse

from subtractive.cli.streams import names_in
from subtractive.explorer.answers import Answers
from subtractive.explorer.launch import serve
from subtractive.io.table_reading import read_frame
from subtractive.tables.parsing import parse_missing
from subtractive.tables.table_density import TableDensity


def explore(model: TableDensity, options: argparse.Namespace) -> None:
    """Serve the page until Ctrl-C."""
    table = None
    if options.data is not None:
        read = read_frame(options.data, parse_missing(options.missing))
        table = read[names_in(model, read)].set_axis(list(model.view.schema.names), axis=1)
    answers = Answers.of(model, table, options.model)
    serve(answers, port=options.port, open_browser=not options.no_browser)
