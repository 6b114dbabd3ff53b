"""The results of runs: one JSON record each, written atomically.

A folder of records needs no index and no lock: the name of a record follows from the settings of
its run, a record that exists is complete, and a run that has one is not done again. Two processes
that do the same run write the same.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.grid.experiment import Experiment, Record, Run, Staged
from subtractive import __version__
from subtractive.io.files import FileFormatError, plain, read_json, write_json, write_text

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")


class Records:
    """The finished runs in a folder.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = Records(Path(folder))
    ...     records.write({"seed": 1}, {"score": -2.5}, seconds=0.1)
    ...     records.missing([{"seed": 1}, {"seed": 2}])
    [{'seed': 2}]
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, run: Run, ending: str) -> Path:
        """The file of a run with an ending: ``json`` is its record, ``error`` why it failed."""
        return self.folder / f"{identify(run)}.{ending}"

    def has(self, run: Run) -> bool:
        """Whether a run is finished."""
        return self.file(run, "json").exists()

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that have no record yet."""
        return [run for run in runs if not self.has(run)]

    def known(self, experiment: Experiment) -> list[Run]:
        """The runs of an experiment, with those that follow from others once these are done."""
        runs = list(experiment.runs())
        if isinstance(experiment, Staged) and all(map(self.has, runs)):
            runs += experiment.following([self.read(run) for run in runs])
        return runs

    def write(
        self,
        run: Run,
        result: Mapping[str, Any],
        *,
        seconds: float,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what came out of a run; a number that JSON does not know becomes null."""
        record = {
            "run": plain(run),
            "settings": dict(settings or {}),
            "seconds": round(seconds, 3),
            "versions": versions(),
            "commit": commit(),
            "result": plain(result),
        }
        write_json(self.file(run, "json"), record)
        self.file(run, "error").unlink(missing_ok=True)

    def read(self, run: Run) -> Record:
        """The record of a finished run."""
        path = self.file(run, "json")
        record = read_json(path)
        if record.get("run") != plain(run):
            raise FileFormatError(f"{path} is the record of another run: remove it.")
        return Record(run, record["result"], record["seconds"], lambda end: self.file(run, end))

    def write_failure(self, run: Run, reason: str) -> None:
        """Keep why a run failed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.file(run, "error"), reason)

    def failure(self, run: Run) -> str | None:
        """Why a run failed when it was last tried, if it did."""
        path = self.file(run, "error")
        return path.read_text(encoding="utf-8") if path.exists() else None


def identify(run: Run) -> str:
    """The name of a run: its settings in order, and a checksum for what a name cannot hold.

    >>> identify({"set": "rings", "units": 8})
    'set=rings,units=8-c227a12a'
    """
    text = json.dumps(plain(run), sort_keys=True)
    words = ",".join(f"{name}={value}" for name, value in run.items())
    readable = re.sub(r"[^A-Za-z0-9=,.+-]+", "_", words)[:100]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@cache
def commit() -> str:
    """The commit of the code that runs, with a plus where files differ from it; or unknown."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12"]
    try:
        found = subprocess.run(
            [*words, "--exclude=*", "--dirty=+"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def versions() -> dict[str, str]:
    """What the numbers may depend on."""
    found = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "subtractive": __version__, **found}
