"""A process that does runs of a study: ``python -m subtractive.experiments.worker FOLDER``.

It learns from the folder what the study is. With ``--only NAME`` it does one run, together with
other processes if ``torchrun`` started it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from subtractive.experiments.base import Experiment, Run
from subtractive.experiments.registry import full
from subtractive.experiments.running import Perform, one_thread, perform, work
from subtractive.experiments.store import Runs, identify
from subtractive.io.files import read_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Do runs until none is left."""
    parser = argparse.ArgumentParser(description="Do runs of a study.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="do this one run only")
    parser.add_argument("--torchrun", type=int, default=1, help="processes that share a run")
    options = parser.parse_args(arguments)
    experiment, store = read_study(options.folder), Runs(options.folder / "runs")
    if options.only is not None:
        perform_together(experiment, options.only, store)
        return 0
    do: Perform = perform
    if options.torchrun > 1:
        do = partial(perform_by_torchrun, options.folder, options.torchrun)
    with one_thread():
        work(experiment, store, do=do, fail=partial(_note_failure, store))
    return 0


def read_study(folder: Path) -> Experiment:
    """The experiment whose results a folder holds."""
    config = read_json(folder / "config.json")
    return full(config["experiment"]).changed(config["settings"])


def perform_together(experiment: Experiment, name: str, store: Runs) -> None:
    """Do a run as one of the processes of ``torchrun``; the first one keeps the record."""
    run = next(run for run in store.known(experiment) if identify(run) == name)
    if os.environ.get("RANK", "0") == "0":
        perform(experiment, run, store)
    else:  # files such as checkpoints are those of all processes
        experiment.perform(run, lambda ending: store.file(run, ending))


def perform_by_torchrun(
    folder: Path, processes: int, experiment: Experiment, run: Run, store: Runs
) -> None:
    """Let several processes do a run."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "subtractive.experiments.worker"]
    subprocess.run([*command, str(folder), "--only", identify(run)], check=True)
    if not store.has(run):
        raise ChildProcessError(f"torchrun ended without a record of {identify(run)}.")


def _note_failure(store: Runs, run: Run, error: Exception) -> None:
    store.note_failure(run, "".join(traceback.format_exception(error)))


if __name__ == "__main__":
    sys.exit(main())
