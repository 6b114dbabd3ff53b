"""The records in git: one compact JSON file for each run, below ``studies/records``.

A record holds what an experiment's own folder holds (settings, seed, scores, seconds, versions,
commit), but for what is too large to keep, such as the frames of a film.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from studies.grid.experiment import Experiment, Record
from studies.grid.outputs import Collected
from studies.grid.records import Records, commit, identify, versions
from studies.registry import full
from subtractive.io.files import plain, read_json, write_text

ROOT = Path(__file__).parents[1] / "records"
FIELDS = ("run", "settings", "seconds", "versions", "commit", "result")


class NoRecordsError(ValueError):
    """An experiment of which no run was recorded yet."""


@final
class Store:
    """All records below a folder, by the name of their group, such as ``ring/ours``."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._settings: dict[str, dict[str, Any]] = {}
        self._presented: dict[str, Collected] = {}

    @functools.cached_property
    def _groups(self) -> dict[str, list[Record]]:
        groups: dict[str, list[Record]] = {}
        for path in sorted(self.root.rglob("*.json")):
            found = read_json(path)
            missing = [name for name in FIELDS if name not in found]
            if missing:
                raise ValueError(f"{path} is no record of a run: it lacks {', '.join(missing)}.")
            name = path.parent.relative_to(self.root).as_posix()
            self._settings.setdefault(name, found["settings"])
            beside = functools.partial(_beside, path)
            record = Record(found["run"], found["result"], found["seconds"], beside)
            groups.setdefault(name, []).append(record)
        return groups

    def group(self, name: str) -> list[Record]:
        """The records of a group, in the order of their files."""
        if name not in self._groups:
            raise NoRecordsError(f"there are no records of {name!r} below {self.root}.")
        return self._groups[name]

    def select(self, name: str, **settings: Any) -> list[Record]:  # noqa: ANN401 - any setting
        """The records of a group whose runs have these settings."""
        chosen = settings.items()
        return [r for r in self.group(name) if all(r.run.get(k) == v for k, v in chosen)]

    def one(self, name: str, **settings: Any) -> Record:  # noqa: ANN401
        """The one record of a group whose run has these settings."""
        found = self.select(name, **settings)
        if len(found) != 1:
            raise ValueError(f"expected one record of {name} with {settings}, got {len(found)}.")
        return found[0]

    def digest(self, *names: str) -> str:
        """What tells the records of some groups from others."""
        found = [[[r.run, r.result, r.seconds] for r in self.group(name)] for name in names]
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]

    def presented(self, name: str) -> Collected:
        """What an experiment shows of the records of a group, such as ``ring/ours``."""
        if name not in self._presented:
            experiment = full(name.split("/")[0])
            known = experiment.settings()
            records = self.group(name)
            settings = {k: v for k, v in self._settings[name].items() if k in known}
            experiment = experiment.changed(settings)
            order = [identify(run) for run in experiment.runs()]
            place = {run: number for number, run in enumerate(order)}
            records = sorted(records, key=lambda r: place.get(identify(r.run), len(place)))
            self._presented[name] = Collected()
            experiment.present(records, self._presented[name])
        return self._presented[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)


def _is_place(value: object) -> bool:
    """Whether a setting is the path of a file or folder, which says nothing elsewhere."""
    return isinstance(value, str) and "/" in value


def _beside(path: Path, ending: str) -> Path:
    return path.with_suffix(f".{ending}")


def keep(experiment: Experiment, records: Records, folder: Path) -> list[Path]:
    """Copy the records of finished runs of an experiment to a folder, without what is bulky."""
    written = []
    for run in records.known(experiment):
        if records.has(run):
            found = read_json(records.file(run, "json"))
            written.append(write_record(folder, found, experiment.bulky))
    return written


def keep_result(
    folder: Path, run: Mapping[str, Any], result: Mapping[str, Any], seconds: float
) -> Path:
    """Write the record of a run that was done outside of the grid."""
    return write_record(
        folder,
        {
            "run": plain(run),
            "settings": {},
            "seconds": round(seconds, 3),
            "versions": versions(),
            "commit": commit(),
            "result": plain(result),
        },
    )


def write_record(folder: Path, record: Mapping[str, Any], bulky: tuple[str, ...] = ()) -> Path:
    """Write a record on one line; machine paths are no part of it."""
    slim = {name: record.get(name) for name in FIELDS}
    slim["result"] = {k: v for k, v in record["result"].items() if k not in bulky}
    slim["settings"] = {k: v for k, v in record["settings"].items() if not _is_place(v)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{identify(record['run'])}.json"
    write_text(path, json.dumps(slim, separators=(",", ":"), allow_nan=False) + "\n")
    return path
