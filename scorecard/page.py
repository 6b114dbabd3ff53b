"""The scorecard as lines on a terminal, as a page of the docs, and as a record."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import subtractive as sub
from scorecard.check import CHECKS, Check, Outcome
from scorecard.processes import ROOT

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow")
PAGE, RECORD = ROOT / "docs" / "scorecard.md", ROOT / "scorecard" / "last_run.json"

HEADER = """\
# Scorecard

What the library promises, measured. `make scorecard` runs every check, prints a line for each, and
writes this page and `scorecard/last_run.json`; `make scorecard ARGS="--only 1,2,22"` runs some of
them, `ARGS="--soak 3600"` makes the soak of check 24 last an hour. The exit code is 1 if a check
fails. `make test` runs a smaller form of most, `make test-all` of every one. Each check is one
function in `scorecard/`, with an oracle of its own.

"""


def line(entry: Check, outcome: Outcome, seconds: float) -> str:
    """A check on one line of a terminal."""
    verdict = "ok  " if outcome.passed else "FAIL"
    return (
        f"{verdict} {entry.number:2d}  {entry.title}  |  target: {entry.target}  |  "
        f"{outcome.figure}  |  {seconds:.0f} s CPU"
    )


def record(outcome: Outcome, seconds: float, commit: str, soak: float) -> dict[str, Any]:
    """What is kept of a check of a commit."""
    kept = {
        "figure": outcome.figure,
        "passed": outcome.passed,
        "seconds": round(seconds, 1),
        "date": today(),
        "commit": commit,
    }
    return kept | ({"soak_seconds": soak} if soak else {})


def today() -> str:
    """The date, in universal time."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def commit() -> str:
    """The commit that was measured, with a plus if files other than the results were changed."""
    try:
        name = _git("describe", "--always")
        own = [f":!{path.relative_to(ROOT)}" for path in (PAGE, RECORD)]
        return name + ("+" if _git("status", "--porcelain", "--", ".", *own) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def read_record(path: Path = RECORD) -> dict[int, dict[str, Any]]:
    """The last run of each check; nothing if there was none."""
    if not path.exists():
        return {}
    return {int(number): kept for number, kept in json.loads(path.read_text())["checks"].items()}


def write(results: Mapping[int, dict[str, Any]], page: Path = PAGE, file: Path = RECORD) -> None:
    """Write the record and the page."""
    packages = {name: version(name) for name in PACKAGES}
    checks = {str(number): results[number] for number in sorted(results)}
    content = {"subtractive": sub.__version__, "packages": packages, "checks": checks}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    page.write_text(_page(results, packages), encoding="utf-8")


def _page(results: Mapping[int, dict[str, Any]], packages: Mapping[str, str]) -> str:
    dates = sorted({kept["date"] for kept in results.values()})
    told = ", ".join(f"{name} {number}" for name, number in packages.items())
    lines = [
        HEADER + f"Last run: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, subtractive "
        f"{sub.__version__}, Python {platform.python_version()}, {told}, {platform.machine()}. "
        "Seconds are CPU seconds of a check and of the processes that it started.",
        "",
        "| # | check | target | figure | verdict | seconds | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, entry in sorted(CHECKS.items()):
        kept = results.get(number)
        if kept is None:
            lines.append(f"| {number} | {entry.title} | {entry.target} | not run | | | |")
            continue
        verdict = "passed" if kept["passed"] else "**failed**"
        figure = kept["figure"].replace("|", "\\|")
        lines.append(
            f"| {number} | {_cell(entry.title)} | {_cell(entry.target)} | {figure} | {verdict} | "
            f"{kept['seconds']:.0f} | {kept['commit']} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
