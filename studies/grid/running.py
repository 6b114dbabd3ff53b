"""From an experiment to a folder of results, now or bit by bit."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from subtractive import __version__
from studies.grid.experiment import Experiment, Run
from subtractive.experiments.claims import Claims
from studies.grid.outputs import Outputs
from studies.grid.progress import DONE, FAILED, RUNNING, write_progress
from studies.grid.records import Runs, identify
from subtractive.io.files import read_json, write_json

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")
# Seconds between looks at what other processes do.
PAUSE = 0.5

Perform = Callable[[Experiment, Run, Runs], None]
Fail = Callable[[Run, Exception], None]
Watch = Callable[[Experiment, Runs], None]


def execute(
    experiment: Experiment,
    folder: Path,
    *,
    command: str = "",
    resume: bool = False,
    progress: bool = True,
    workers: Workers | None = None,
) -> Outputs:
    """Do the runs that have no record in the folder yet, then write tables and figures of all.

    What was finished is kept, whenever the process ends: with ``resume`` the next one goes on
    from there, or helps those that are at work on the same folder, here or elsewhere.
    """
    begin(experiment, folder, command=command, resume=resume)
    store = Runs(folder / "runs")
    store.forget_failures()
    with tqdm(desc=experiment.name, disable=not progress) as bar, one_thread():
        if workers is None:
            work(experiment, store, do=perform, fail=_raise, watch=partial(_show, bar, folder))
        else:
            workers.work(experiment, folder, watch=partial(_show, bar, folder))
        store.forget_claims()
        outputs = Outputs(folder, experiment.title, command)
        records = [store.read(run) for run in store.known(experiment)]
        experiment.present(records, outputs)
    outputs.finish()
    return outputs


@dataclass(frozen=True)
class Workers:
    """So many processes on this machine; each run may be shared by several of ``torchrun``."""

    count: int
    processes_per_run: int = 1

    def __post_init__(self) -> None:
        for name, value in (("workers", self.count), ("torchrun", self.processes_per_run)):
            if value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}.")

    def work(self, experiment: Experiment, folder: Path, *, watch: Watch) -> None:
        """Let the workers do all runs; ``ChildProcessError`` if some are left or have failed."""
        store = Runs(folder / "runs")
        command = [sys.executable, "-m", "subtractive.experiments.worker", str(folder)]
        command += ["--torchrun", str(self.processes_per_run)]
        started = [subprocess.Popen(command) for _ in range(self.count)]
        try:
            while any(process.poll() is None for process in started):
                start = time.perf_counter()
                watch(experiment, store)
                # Of a large study a look takes time that the workers need.
                time.sleep(PAUSE + 4 * (time.perf_counter() - start))
        finally:
            for process in started:
                process.terminate()
                process.wait()
        watch(experiment, store)
        _check_complete(experiment, store)


def work(
    experiment: Experiment,
    store: Runs,
    *,
    do: Perform,
    fail: Fail,
    watch: Watch = lambda *_: None,
) -> None:
    """Do runs that nobody has done or is doing, until all of them are done or have failed."""
    store.folder.mkdir(parents=True, exist_ok=True)
    claims = Claims(store.folder)
    while True:
        runs = [run for run in store.missing(store.known(experiment)) if not store.failure(run)]
        if not runs:
            watch(experiment, store)
            return
        for run in runs:
            with claims.hold(identify(run)) as is_mine:
                # Somebody may have done it between the look and the claim.
                if not is_mine or store.has(run) or store.failure(run):
                    continue
                watch(experiment, store)
                try:
                    do(experiment, run, store)
                except Exception as error:
                    fail(run, error)
                break
        else:
            time.sleep(PAUSE)  # others are at work on all that is left


def perform(experiment: Experiment, run: Run, store: Runs) -> None:
    """Do one run and keep its record."""
    store.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    result = experiment.perform(run, lambda ending: store.file(run, ending))
    store.write(run, result, seconds=time.perf_counter() - start)


def begin(experiment: Experiment, folder: Path, *, command: str, resume: bool) -> None:
    """Make sure that the folder belongs to this experiment with these settings, and say so in it.

    Several processes may do this at the same time: they write the same.
    """
    path = folder / "config.json"
    mine = {"experiment": experiment.name, "settings": experiment.settings()}
    if path.exists():
        found = read_json(path)
        different = _differences(found, mine)
        if different:
            raise ValueError(
                f"{folder} holds results of another configuration: {different}. Choose another "
                "folder with --out."
            )
        if not resume:
            raise ValueError(
                f"{folder} already holds results of this experiment. Add --resume to go on with "
                "them, or choose another folder with --out."
            )
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose a folder with --out.")
    write_json(path, {**mine, "command": command, "versions": versions()})


def versions() -> dict[str, str]:
    """What the numbers may depend on."""
    found = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "subtractive": __version__, **found}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the models are small, and threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _raise(_: Run, error: Exception) -> None:
    raise error


def _show(bar: Any, folder: Path, experiment: Experiment, store: Runs) -> None:  # noqa: ANN401
    """Bring the bar and the table of results so far up to date."""
    seen = write_progress(store.known(experiment), store, folder)
    bar.total, bar.n = len(seen.rows), seen.counts[DONE]
    bar.set_postfix_str(f"{seen.counts[RUNNING]} running, {seen.counts[FAILED]} failed")
    bar.refresh()


def _check_complete(experiment: Experiment, store: Runs) -> None:
    left = list(store.missing(store.known(experiment)))
    failed = [(run, reason) for run in left if (reason := store.failure(run)) is not None]
    if failed:
        run, reason = failed[0]
        raise ChildProcessError(
            f"{len(failed)} of the runs failed, one of them with {reason.splitlines()[-1]!r}: see "
            f"{store.file(run, 'error')}. --resume tries them again."
        )
    if left:
        raise ChildProcessError(
            f"{len(left)} runs are left because workers were killed: go on with --resume."
        )


def _differences(found: dict[str, Any], mine: dict[str, Any]) -> str:
    """What two configurations differ in, in words; empty if in nothing."""
    if found.get("experiment") != mine["experiment"]:
        return f"the experiment is {found.get('experiment')!r}, not {mine['experiment']!r}"
    theirs, ours = found.get("settings", {}), mine["settings"]
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    return ", ".join(f"{name} is {theirs.get(name)!r}, not {ours.get(name)!r}" for name in names)
