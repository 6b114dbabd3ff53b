"""Commands that learn a model, describe it or draw it."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import subtractive as sub
from subtractive.cli.printing import print_json
from subtractive.io.table_passes import TablePasses
from subtractive.io.table_reading import read_frame
from subtractive.io.writing import check_writable
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.parsing import parse_columns, parse_missing
from subtractive.tables.value_text import value_text


def fit(options: argparse.Namespace) -> None:
    """Learn a table and write the model; after Ctrl-C the best so far, if that is wanted."""
    start = time.monotonic()
    check_writable(options.output)
    model = SubtractiveMixture(**fit_settings(options))
    try:
        table = passes_over(options) if is_out_of_core(options) else frame_of(options)
        table.fit(model)
    except KeyboardInterrupt as interrupt:
        partial = getattr(interrupt, "partial", None)
        if not options.keep_partial or partial is None:
            kept = "there was no model yet" if options.keep_partial else "see --keep-partial"
            raise KeyboardInterrupt(f"nothing was written ({kept})") from None
        partial.save(options.output)
        print_fit(options.output, partial, table.num_rows(), start)
        raise KeyboardInterrupt(f"{options.output} holds the best model so far") from None
    model.save(options.output)
    print_fit(options.output, model, table.num_rows(), start)


class Source(NamedTuple):
    """A table to learn: what an estimator does with it, and how many rows it has."""

    fit: Callable[[SubtractiveMixture], object]
    num_rows: Callable[[], int | None]


def frame_of(options: argparse.Namespace) -> Source:
    """A table in memory."""
    frame = read_frame(options.data, parse_missing(options.missing))
    weights = None
    if options.weights is not None:
        if options.weights not in frame:
            raise ValueError(f"there is no column {options.weights!r} to take the weights from.")
        weights = frame.pop(options.weights)
    return Source(lambda model: model.fit(frame, sample_weight=weights), lambda: len(frame))


def passes_over(options: argparse.Namespace) -> Source:
    """A table that is read in passes."""
    passes = TablePasses(
        options.data, missing=parse_missing(options.missing), weights=options.weights
    )
    return Source(lambda model: model.fit_pieces(passes), lambda: passes.num_rows)


def is_out_of_core(options: argparse.Namespace) -> bool:
    """Whether the table is read in passes: folders always are."""
    if options.out_of_core or os.path.isdir(options.data):
        return True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if os.path.isfile(options.data) and os.path.getsize(options.data) > memory / 8:
        warnings.warn(
            f"{options.data} may not fit into memory: --out-of-core reads it in passes.",
            stacklevel=2,
        )
    return False


def fit_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the estimator that were chosen; the others have its defaults."""
    chosen = {
        "n_components": options.components,
        "kind": options.kind,
        "structure": options.structure,
        "n_squares": options.squares,
        "n_structures": options.structures,
        "covariance": options.covariance,
        "effort": options.effort,
        "max_epochs": options.epochs,
        "unknown": options.unknown,
        "schema": parse_columns(options.column) or None,
        "verbose": not options.quiet,
        "random_state": options.seed,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def print_fit(output: str, model: SubtractiveMixture, num_rows: int | None, start: float) -> None:
    """Say what was learned, from what, and how long it took with everything that was tried."""
    history = model.history_
    print_json(
        {
            "model": output,
            "rows": num_rows,
            "columns": len(model.schema_.names),
            "epochs": len(history.epochs),
            "stopped": history.stopped,
            "seconds": round(time.monotonic() - start, 1),
        }
    )


def info(options: argparse.Namespace) -> None:
    """Print what a model file holds."""
    model = load_estimator(options.model)
    density, schema = model.density_, model.schema_
    print_json(
        {
            "file_bytes": os.path.getsize(options.model),
            "parameters": sum(p.numel() for p in density.parameters()),
            "settings": {k: v for k, v in model.get_params().items() if k != "schema"},
            "columns": {str(name): describe(schema, name) for name in schema.names},
            "best_validation_score": model.history_.best_score,
            "epochs": len(model.history_.epochs),
            "stopped": model.history_.stopped,
        }
    )


def report(options: argparse.Namespace) -> None:
    """Write a page of pictures."""
    check_writable(options.output)
    model = load_estimator(options.model)
    frame = read_frame(options.data, parse_missing(options.missing))
    title = "Standard input" if options.data == "-" else os.path.basename(options.data)
    sub.write_report(
        model,
        frame,
        options.output,
        title=title,
        seed=options.seed,
        progress=not options.quiet,
    )
    print_json({"report": options.output, "rows": len(frame), "columns": len(frame.columns)})


def load_estimator(path: str) -> SubtractiveMixture:
    """The estimator in a file."""
    model = sub.load(path)
    if not isinstance(model, SubtractiveMixture):
        raise ValueError(
            f"{path} holds a density without a table: it was saved by a program. Load it with "
            "subtractive.load()."
        )
    return model


def describe(schema: Any, name: Any) -> str:  # noqa: ANN401 - a name of any kind
    """A column in a few words."""
    if name in schema.constants:
        return f"constant {value_text(schema.constants[name], schema.kind(name))}"
    if name in schema.aside:
        return "set aside"
    column = schema.variables[schema.place[name]]
    if column.name != name:
        return f"copy of {column.name!r}"
    states = column.family(signed=True).num_states
    return "continuous" if states is None else f"{states} states"
