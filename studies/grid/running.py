"""From an experiment to a folder of results, now or bit by bit."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from studies.grid.executors import SerialExecutor
from studies.grid.experiment import Experiment, Run
from studies.grid.outputs import Outputs
from studies.grid.records import Records, versions
from subtractive.io.files import read_json, write_json


def execute(
    experiment: Experiment,
    folder: Path,
    *,
    command: str = "",
    resume: bool = False,
    progress: bool = True,
    executor: Executor | None = None,
    remark: str = "",
) -> Outputs:
    """Do the runs that have no record in the folder yet, then write tables and figures of all.

    What was finished is kept, whenever the process ends: with ``resume`` the next one goes on
    from there.
    """
    mine = {"experiment": experiment.name, "settings": experiment.settings()}
    prepare_folder(folder, mine, command=command, resume=resume)
    records = Records(folder / "runs")
    complete(experiment, records, executor or SerialExecutor(), progress=progress)
    return present(experiment, records, folder, command=command, remark=remark)


def complete(
    experiment: Experiment, records: Records, executor: Executor, *, progress: bool = True
) -> None:
    """Do all runs that have no record; ``ChildProcessError`` if some fail or are left.

    A run that fails in another process does not keep the others from being done.
    """
    folder = records.folder.absolute()  # other processes may have another working directory
    with tqdm(desc=experiment.name, disable=not progress) as bar:
        while missing := records.missing(known := records.known(experiment)):
            bar.total, bar.n = len(known), len(known) - len(missing)
            bar.refresh()
            for run, error in _failures(experiment, missing, folder, executor, bar):
                records.write_failure(run, "".join(traceback.format_exception(error)))
            _check_complete(missing, records)


def _failures(
    experiment: Experiment,
    runs: list[Run],
    folder: Path,
    executor: Executor,
    bar: Any,  # noqa: ANN401 - of tqdm
) -> Iterator[tuple[Run, BaseException]]:
    """Do runs; those that failed, with the reason."""
    futures: dict[Future[None], Run] = {}
    try:
        for run in runs:
            future = executor.submit(perform, experiment, run, folder)
            future.add_done_callback(lambda _: bar.update())
            futures[future] = run
        for future in as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, BrokenProcessPool):
                yield futures[future], error
    except BrokenProcessPool:
        pass  # a process was killed: what is left is seen by the records that are missing
    finally:  # whoever interrupts the experiment does not wait for all of it
        for future in futures:
            future.cancel()


def perform(experiment: Experiment, run: Run, folder: Path) -> None:
    """Do one run and keep its record."""
    records = Records(folder)
    if records.has(run):  # dask computes again what a worker returned before it was killed
        return
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with one_thread():
        result = experiment.perform(run, lambda ending: records.file(run, ending))
    seconds = time.perf_counter() - start
    records.write(run, result, seconds=seconds, settings=experiment.settings())


def present(
    experiment: Experiment, records: Records, folder: Path, *, command: str = "", remark: str = ""
) -> Outputs:
    """Write tables and figures of all runs, with a remark over every table if there is one."""
    outputs = Outputs(folder, experiment.title, command, remark)
    with one_thread():
        experiment.present([records.read(run) for run in records.known(experiment)], outputs)
    outputs.finish()
    return outputs


def prepare_folder(
    folder: Path, mine: dict[str, Any], *, command: str = "", resume: bool = False
) -> None:
    """Make sure that a folder belongs to a configuration, and say so in its ``config.json``."""
    path = folder / "config.json"
    if path.exists():
        different = _differences(read_json(path), mine)
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the models are small, and threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_complete(runs: list[Run], records: Records) -> None:
    left = records.missing(runs)
    failed = [(run, reason) for run in left if (reason := records.failure(run)) is not None]
    if failed:
        run, reason = failed[0]
        raise ChildProcessError(
            f"{len(failed)} of the runs failed, one of them with {reason.splitlines()[-1]!r}: see "
            f"{records.file(run, 'error')}. --resume tries them again."
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
