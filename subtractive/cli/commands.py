"""What the words of the command line do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from subtractive import SubtractiveMixture, load, write_report
from subtractive.cli import demo
from subtractive.cli.parsing import find_column, parse_columns, parse_events, parse_given
from subtractive.io.files import plain
from subtractive.io.writing import check_writable
from subtractive.tables.model_selection import FitInterrupted
from subtractive.tables.table_files import read_frame, write_frame


def run(options: argparse.Namespace) -> None:
    """Run the command that was asked for; what it warns of goes to standard error in one line."""
    warnings.showwarning = _show_warning
    COMMANDS[options.command](options)


def fit(options: argparse.Namespace) -> None:
    """Learn a table and write the model; after Ctrl-C the best so far, if that is wanted."""
    check_writable(options.output)
    frame = read_frame(options.data)
    weights = None
    if options.weights is not None:
        if options.weights not in frame:
            raise ValueError(f"there is no column {options.weights!r} to take the weights from.")
        weights = frame.pop(options.weights)
    model = SubtractiveMixture(**fit_settings(options))
    try:
        model.fit(frame, sample_weight=weights)
    except FitInterrupted as interrupt:
        if not options.keep_partial or interrupt.partial is None:
            kept = "there was no model yet" if options.keep_partial else "see --keep-partial"
            raise KeyboardInterrupt(f"nothing was written ({kept})") from None
        interrupt.partial.save(options.output)
        print_fit(options.output, interrupt.partial, frame)
        raise KeyboardInterrupt(f"{options.output} holds the best model so far") from None
    model.save(options.output)
    print_fit(options.output, model, frame)


def fit_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the estimator that were chosen; the others have its defaults."""
    chosen = {
        "n_components": options.components,
        "kind": options.kind,
        "structure": options.structure,
        "n_squares": options.squares,
        "n_structures": options.structures,
        "covariance": options.covariance,
        "max_epochs": options.epochs,
        "unknown": options.unknown,
        "columns": parse_columns(options.column) or None,
        "verbose": not options.quiet,
        "random_state": options.seed,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def print_fit(output: str, model: SubtractiveMixture, frame: pd.DataFrame) -> None:
    """Say what was learned, and from what."""
    history = model.history_
    print_json(
        {
            "model": output,
            "rows": len(frame),
            "columns": len(frame.columns),
            "epochs": len(history.epochs),
            "stopped": history.stopped,
            "seconds": round(history.seconds, 3),
        }
    )


def score(options: argparse.Namespace) -> None:
    """Write the log-density of every row, or print their mean."""
    model, frame = load_model(options.model), read_frame(options.data)
    scores = model.score_samples(frame)
    if options.mean:
        print_json({"mean_log_density": float(scores.mean()), "rows": len(scores)})
    else:
        write_frame(pd.DataFrame({"log_density": scores}), options.output)


def sample(options: argparse.Namespace) -> None:
    """Write rows that were drawn."""
    model = load_model(options.model)
    given = parse_given(options.given, model.schema_)
    rows = model.sample(options.number, given=given or None, random_state=options.seed)
    write_frame(as_frame(rows), options.output)


def impute(options: argparse.Namespace) -> None:
    """Write a table without gaps."""
    model, frame = load_model(options.model), read_frame(options.data)
    filled = model.impute(frame, sample=options.sample, random_state=options.seed)
    write_frame(as_frame(filled), options.output)


def query(options: argparse.Namespace) -> None:
    """Print probabilities and means."""
    if not options.probability and not options.mean:
        raise ValueError('nothing is asked: add --probability "age>40" or --mean age.')
    model = load_model(options.model)
    given = parse_given(options.given, model.schema_)
    answers: dict[str, Any] = {}
    if options.probability:
        event = parse_events(options.probability, model.schema_)
        answers["probability"] = model.probability(event, given or None)
    if options.mean:
        asked = model.condition(given) if given else model
        names = [find_column(name, model.schema_) for name in options.mean]
        known = [name for name in names if name in given]
        if known:
            raise ValueError(f"column {known[0]!r} is given: its mean is not asked.")
        means = asked.marginal(names).mean_
        answers["mean"] = {str(name): float(m) for name, m in zip(names, means, strict=True)}
    print_json(answers)


def info(options: argparse.Namespace) -> None:
    """Print what a model file holds."""
    model = load_model(options.model)
    density, schema = model.density_, model.schema_
    print_json(
        {
            "file_bytes": os.path.getsize(options.model),
            "parameters": sum(p.numel() for p in density.parameters()),
            "settings": {k: v for k, v in model.get_params().items() if k != "columns"},
            "columns": {str(name): describe(schema, name) for name in schema.names},
            "best_validation_score": model.history_.best_score,
            "epochs": len(model.history_.epochs),
            "stopped": model.history_.stopped,
        }
    )


def report(options: argparse.Namespace) -> None:
    """Write a page of pictures."""
    model, frame = load_model(options.model), read_frame(options.data)
    write_report(model, frame, options.output, seed=options.seed)
    print_json({"report": options.output, "rows": len(frame), "columns": len(frame.columns)})


def run_demo(options: argparse.Namespace) -> None:
    """Run the demo."""
    demo.run(Path(options.output))


COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "fit": fit,
    "score": score,
    "sample": sample,
    "impute": impute,
    "query": query,
    "info": info,
    "report": report,
    "demo": run_demo,
}


def load_model(path: str) -> SubtractiveMixture:
    """The model of a table in a file."""
    model = load(path)
    if not isinstance(model, SubtractiveMixture):
        raise ValueError(
            f"{path} holds a density without a table: it was saved by a program. Load it with "
            "subtractive.load()."
        )
    return model


def as_frame(rows: Any) -> pd.DataFrame:  # noqa: ANN401 - an array or a data frame
    """A data frame, whatever the model was fitted on."""
    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)


def describe(schema: Any, name: Any) -> str:  # noqa: ANN401 - a name of any kind
    """A column in a few words."""
    if name in schema.constants:
        return f"constant {schema.constants[name]!r}"
    column = schema.variables[schema.place[name]]
    if column.name != name:
        return f"copy of {column.name!r}"
    states = column.family(signed=True).num_states
    return "continuous" if states is None else f"{states} states"


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object, in which a number that JSON does not know is null."""
    print(json.dumps(plain(answer), indent=2, default=str, allow_nan=False))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"subtractive: warning: {message}", file=sys.stderr)
