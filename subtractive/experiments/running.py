"""From an experiment to a folder of results, now or bit by bit."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from subtractive import __version__
from subtractive.experiments.base import Experiment, Run
from subtractive.experiments.outputs import Outputs
from subtractive.experiments.store import Runs, read_json, write_json

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")


def execute(
    experiment: Experiment,
    folder: Path,
    *,
    command: str = "",
    resume: bool = False,
    progress: bool = True,
) -> Outputs:
    """Do the runs that have no record in the folder yet, then write tables and figures of all.

    What was finished is kept, whenever the process ends: with ``resume`` the next one goes on
    from there.
    """
    begin(experiment, folder, command=command, resume=resume)
    store, runs = Runs(folder / "runs"), experiment.runs()
    bar = tqdm(total=len(runs), desc=experiment.name, disable=not progress)
    with bar, one_thread():
        bar.update(len(runs) - len(list(store.missing(runs))))
        for run in store.missing(runs):
            bar.set_postfix_str(words(run))
            perform(experiment, run, store)
            bar.update()
        outputs = Outputs(folder, experiment.title, command)
        experiment.present([store.read(run) for run in runs], outputs)
    outputs.finish()
    return outputs


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


def words(run: Run) -> str:
    """A run in a few words."""
    return " ".join(f"{name}={value}" for name, value in run.items())


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the models are small, and threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _differences(found: dict[str, Any], mine: dict[str, Any]) -> str:
    """What two configurations differ in, in words; empty if in nothing."""
    if found.get("experiment") != mine["experiment"]:
        return f"the experiment is {found.get('experiment')!r}, not {mine['experiment']!r}"
    theirs, ours = found.get("settings", {}), mine["settings"]
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    return ", ".join(f"{name} is {theirs.get(name)!r}, not {ours.get(name)!r}" for name in names)
