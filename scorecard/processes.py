"""Programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that finds the library and uses one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def run_program(program: str, *arguments: str, folder: str | None = None) -> str:
    """Run a program in a fresh interpreter; what it prints, without blanks at the ends.

    It is started by a small process, because the system counts the memory of whoever starts a
    process as that process's own at first.
    """
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"a program of the scorecard failed: {done.stderr[-2000:]}")
    return done.stdout.strip()
