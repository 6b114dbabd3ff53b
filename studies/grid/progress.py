"""How far an experiment is: which runs are done or have failed, and what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from studies.grid.experiment import Run
from studies.grid.outputs import markdown
from studies.grid.records import Records

DONE, FAILED, MISSING = "done", "failed", "missing"


def list_runs(runs: Sequence[Run], records: Records) -> str:
    """A table of all runs with the numbers of those that are done, and how many are."""
    found = [_state(run, records) for run in runs]
    settings = list(dict.fromkeys(name for run in runs for name in run))
    numbers = list(dict.fromkeys(name for *_, result in found for name in result))
    rows = [
        [*(run.get(name) for name in settings), state, note, *(result.get(n) for n in numbers)]
        for run, (state, note, result) in zip(runs, found, strict=True)
    ]
    counts = Counter(state for state, *_ in found)
    others = [f"{counts[state]} {state}" for state in (FAILED, MISSING) if counts[state]]
    summary = ", ".join([f"{counts[DONE]} of {len(runs)} done", *others])
    return f"{markdown([*settings, 'state', 'seconds or error', *numbers], rows)}\n{summary}"


def _state(run: Run, records: Records) -> tuple[str, Any, Mapping[str, Any]]:
    """The state of a run, its seconds or its error, and its numbers."""
    if records.has(run):
        record = records.read(run)
        numbers = {n: v for n, v in record.result.items() if isinstance(v, int | float)}
        return DONE, record.seconds, numbers
    failure = records.failure(run)
    return (MISSING, None, {}) if failure is None else (FAILED, failure.splitlines()[-1], {})
