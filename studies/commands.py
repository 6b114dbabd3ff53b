"""What the words of the command line do."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from studies.distillation import commands as distillation
from studies.evidence.blocks import BLOCKS, PICTURES
from studies.evidence.pages import (
    outdated_pages,
    outdated_pictures,
    update_pages,
    update_pictures,
)
from studies.evidence.store import Store, keep
from studies.grid.executors import dask_cluster, process_pool
from studies.grid.experiment import Experiment
from studies.grid.progress import list_runs
from studies.grid.records import Records
from studies.grid.running import execute
from studies.registry import EXPERIMENTS, full, quick
from subtractive.io.files import plain

NOT_A_RESULT = "Not a result: the quick form stops before models have converged."


def experiment(options: argparse.Namespace) -> None:
    """List the experiments, or run one of them, or all."""
    if options.name is None:
        width = max(map(len, EXPERIMENTS))
        for name, entry in EXPERIMENTS.items():
            print(f"  {name:{width}}  {entry.summary}")
        return
    everything = options.name == "all"
    for name in EXPERIMENTS if everything else [options.name]:
        if everything and options.data is None and EXPERIMENTS[name].needs_data:
            print(f"studies: {name} is left out: it needs --data.", file=sys.stderr)
            continue
        run_experiment(name, options)


def run_experiment(name: str, options: argparse.Namespace) -> None:
    """Run one experiment in a folder of its own, or list its runs."""
    if options.quick and options.records is not None:
        raise ValueError("--quick is no result: leave it out to keep records.")
    chosen = chosen_experiment(name, options)
    folder = Path(options.out or "out")
    if options.name == "all" or options.out is None:
        form = "-quick" if options.quick else ""
        folder /= f"{name}{form}-paper" if options.protocol == "paper" else f"{name}{form}"
    if options.status:
        records = Records(folder / "runs")
        print(list_runs(records.known(chosen), records))
        return
    with chosen_executor(options) as executor:
        outputs = execute(
            chosen,
            folder,
            command=experiment_command(name, options),
            resume=options.resume,
            progress=not options.quiet,
            executor=executor,
            remark=NOT_A_RESULT if options.quick else "",
        )
    if options.records is not None:
        group = Path(options.records) / name / (options.protocol or "ours")
        outputs.written.extend(keep(chosen, Records(folder / "runs"), group))
    print_json({"experiment": name, "written": [str(path) for path in outputs.written]})


def chosen_experiment(name: str, options: argparse.Namespace) -> Experiment:
    """An experiment with the settings that the options change."""
    chosen = (quick if options.quick else full)(name)
    if options.protocol == "paper":
        chosen = chosen.changed(chosen.paper())
    changes = parse_settings(options.set)
    if options.data is not None and (options.name != "all" or "data" in chosen.settings()):
        changes["data"] = options.data
    return chosen.changed(changes)


def chosen_executor(options: argparse.Namespace) -> AbstractContextManager[Executor]:
    """Where runs are to be done."""
    if options.scheduler is not None:
        return dask_cluster(options.scheduler)
    return process_pool(options.workers)


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
    words = ["python", "-m", "studies", name, *(["--quick"] if options.quick else [])]
    if options.protocol is not None:
        words += ["--protocol", options.protocol]
    if options.data is not None:
        words += ["--data", options.data]
    for phrase in options.set:
        words += ["--set", phrase]
    return shlex.join(words)


def distill(options: argparse.Namespace) -> None:
    """Distil a teacher, or sequences, into models of all sizes."""
    with chosen_executor(options) as executor:
        print_json(distillation.distill(options, executor))


def generate(options: argparse.Namespace) -> None:
    """Write texts that contain words."""
    print_json(distillation.generate_texts(options))


def pages(options: argparse.Namespace) -> None:
    """Write what follows from the records in git, or with ``--check`` fail if something would."""
    store = Store()
    if options.check:
        stale = [*outdated_pages(BLOCKS, store), *outdated_pictures(PICTURES, store)]
        if stale:
            names = ", ".join(path.name for path in stale)
            raise ValueError(f"{names} are not what the records say: run python -m studies pages.")
        written: list[Path] = []
    else:
        written = [*update_pages(BLOCKS, store), *update_pictures(PICTURES, store)]
    print_json({"written": [str(path) for path in written]})


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object, in which a number that JSON does not know is null."""
    print(json.dumps(plain(answer), indent=2, default=str, allow_nan=False))


COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "experiment": experiment,
    "distill": distill,
    "generate": generate,
    "pages": pages,
}
