"""What the words of the command line do."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from subtractive import SubtractiveMixture, demo, load, write_report
from subtractive.distillation import commands as distillation
from subtractive.experiments.progress import look
from subtractive.experiments.registry import EXPERIMENTS, full, quick
from subtractive.experiments.running import Workers, execute
from subtractive.experiments.store import Runs
from subtractive.io.files import plain
from subtractive.tables.phrases import find_column, parse_columns, parse_events, parse_given
from subtractive.tables.table_files import read_frame, write_frame


def run(options: argparse.Namespace) -> None:
    """Run the command that was asked for; what it warns of goes to standard error in one line."""
    warnings.showwarning = _show_warning
    COMMANDS[options.command](options)


def fit(options: argparse.Namespace) -> None:
    """Learn a table and write the model."""
    if not Path(options.output).absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {options.output}: its folder does not exist.")
    frame = read_frame(options.data)
    weights = None
    if options.weights is not None:
        if options.weights not in frame:
            raise ValueError(f"there is no column {options.weights!r} to take the weights from.")
        weights = frame.pop(options.weights)
    chosen = {
        "n_components": options.components,
        "kind": options.kind,
        "structure": options.structure,
        "n_squares": options.squares,
        "n_structures": options.structures,
        "covariance": options.covariance,
        "max_epochs": options.epochs,
        "unknown": options.unknown,
        "schema": parse_columns(options.column) or None,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    model = SubtractiveMixture(**given, verbose=not options.quiet, random_state=options.seed)
    model.fit(frame, sample_weight=weights)
    model.save(options.output)
    history = model.history_
    print_json(
        {
            "model": options.output,
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
    draws = 1 if options.sample else None
    filled = model.impute(frame, n_draws=draws, random_state=options.seed)
    filled = filled[0] if options.sample else filled
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
        names = [find_column(name, model.schema_) for name in options.mean]
        known = [name for name in names if name in given]
        if known:
            raise ValueError(f"column {known[0]!r} is given: its mean is not asked.")
        means = model.mean(given=given or None)
        answers["mean"] = {str(name): float(means[name]) for name in names}
    print_json(answers)


def info(options: argparse.Namespace) -> None:
    """Print what a model file holds."""
    model = load_model(options.model)
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
    model, frame = load_model(options.model), read_frame(options.data)
    write_report(model, frame, options.output, seed=options.seed)
    print_json({"report": options.output, "rows": len(frame), "columns": len(frame.columns)})


def experiment(options: argparse.Namespace) -> None:
    """List the experiments, or run one of them, or all."""
    if options.name is None:
        width = max(map(len, EXPERIMENTS), default=0)
        for name, entry in EXPERIMENTS.items():
            print(f"  {name:{width}}  {entry.summary}")
        return
    everything = options.name == "all"
    for name in EXPERIMENTS if everything else [options.name]:
        if everything and options.data is None and EXPERIMENTS[name].needs_data:
            print(f"subtractive: {name} is left out: it needs --data.", file=sys.stderr)
            continue
        chosen = (quick if options.quick else full)(name)
        changes = parse_settings(options.set)
        if options.data is not None and (not everything or "data" in chosen.settings()):
            changes["data"] = options.data
        chosen = chosen.changed(changes)
        folder = Path(options.out or "out")
        if everything or options.out is None:
            folder /= f"{name}-quick" if options.quick else name
        if options.status:
            store = Runs(folder / "runs")
            print(look(store.known(chosen), store).text())
            continue
        outputs = execute(
            chosen,
            folder,
            command=experiment_command(name, options),
            resume=options.resume,
            progress=not options.quiet,
            workers=chosen_workers(options),
        )
        print_json({"experiment": name, "written": [str(path) for path in outputs.written]})


def chosen_workers(options: argparse.Namespace) -> Workers | None:
    """Other processes to do the runs, if any are asked for."""
    if options.workers is None and options.torchrun == 1:
        return None
    return Workers(1 if options.workers is None else options.workers, options.torchrun)


def parse_settings(phrases: Sequence[str]) -> dict[str, Any]:
    """Settings from ``NAME=VALUE``, the value being JSON or else a text."""
    settings: dict[str, Any] = {}
    for phrase in phrases:
        name, equals, text = phrase.partition("=")
        if not equals:
            raise ValueError(f"a setting is NAME=VALUE, got {phrase!r}.")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def experiment_command(name: str, options: argparse.Namespace) -> str:
    """The words that do the same again."""
    words = ["subtractive", "experiment", name, *(["--quick"] if options.quick else [])]
    if options.data is not None:
        words += ["--data", options.data]
    for phrase in options.set:
        words += ["--set", phrase]
    return shlex.join(words)


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
    "experiment": experiment,
    "demo": run_demo,
    "distill": lambda options: print_json(distillation.distill(options)),
    "generate": lambda options: print_json(distillation.generate_texts(options)),
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
    if name in schema.aside:
        return "set aside"
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
