"""How far a study is: which runs are done, by whom the others are being done, what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from studies.grid.experiment import Run
from subtractive.experiments.claims import Claims
from studies.grid.outputs import csv_text, markdown
from studies.grid.records import Runs, identify
from subtractive.io.files import write_text

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "waiting"
# The file of the results so far, rewritten after each run.
TABLE = "progress.csv"


class Progress(NamedTuple):
    """A table of all runs, and how many are in which state."""

    columns: list[str]
    rows: list[list[Any]]
    counts: Mapping[str, int]

    def summary(self) -> str:
        """The counts in words.

        >>> Progress([], [], {"done": 3, "waiting": 1}).summary()
        '3 of 4 done, 1 waiting'
        """
        others = [f"{n} {state}" for state, n in self.counts.items() if state != DONE and n]
        return ", ".join(
            [f"{self.counts.get(DONE, 0)} of {sum(self.counts.values())} done", *others]
        )

    def text(self) -> str:
        """The table and the summary for a terminal."""
        return f"{markdown(self.columns, self.rows)}\n{self.summary()}"


def look(runs: Sequence[Run], store: Runs) -> Progress:
    """The state of every run, and the numbers of those that are done."""
    claims = Claims(store.folder)
    found = [_state(run, store, claims) for run in runs]
    settings = list(dict.fromkeys(name for run in runs for name in run))
    numbers = list(dict.fromkeys(name for *_, result in found for name in result))
    rows = [
        [*(run.get(name) for name in settings), state, note, *(result.get(n) for n in numbers)]
        for run, (state, note, result) in zip(runs, found, strict=True)
    ]
    counts = Counter(state for state, *_ in found)
    ordered = {state: counts[state] for state in (DONE, RUNNING, FAILED, WAITING)}
    return Progress([*settings, "state", "seconds or owner", *numbers], rows, ordered)


def write_progress(runs: Sequence[Run], store: Runs, folder: Path) -> Progress:
    """Write the table of all runs, to be looked at while others go on."""
    progress = look(runs, store)
    write_text(folder / TABLE, csv_text(progress.columns, progress.rows))
    return progress


def _state(run: Run, store: Runs, claims: Claims) -> tuple[str, Any, Mapping[str, Any]]:
    """The state of a run, its seconds or who does it, and its numbers."""
    if store.has(run):
        record = store.read(run)
        numbers = {n: v for n, v in record.result.items() if isinstance(v, int | float)}
        return DONE, record.seconds, numbers
    owner = claims.owner(identify(run))
    if owner is not None:
        return RUNNING, owner, {}
    failure = store.failure(run)
    return (WAITING, None, {}) if failure is None else (FAILED, failure.splitlines()[-1], {})
