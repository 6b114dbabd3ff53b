"""``python -m scorecard``: run the checks, print a line for each, and write the page."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings

from scorecard import page
from scorecard.all_checks import CHECKS
from scorecard.check import Check, Outcome, Size


def main(arguments: list[str] | None = None) -> int:
    """Run the scorecard; 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="scorecard", description="Run the scorecard.")
    parser.add_argument("--only", help="numbers of checks, with commas between them")
    parser.add_argument("--quick", action="store_true", help="small sizes; writes no page")
    parser.add_argument("--soak", type=float, default=120.0, help="seconds of the soak (120)")
    options = parser.parse_args(arguments)
    numbers = [int(n) for n in options.only.split(",")] if options.only else sorted(CHECKS)
    strange = [number for number in numbers if number not in CHECKS]
    if strange:
        parser.error(f"there is no check {strange[0]}; there are 1 to {max(CHECKS)}.")
    size = Size(options.quick, options.soak)
    failed = False
    for number in numbers:
        start, commit = cpu_seconds(), page.commit()
        outcome = run(CHECKS[number], size)
        seconds = cpu_seconds() - start
        print(page.line(CHECKS[number], outcome, seconds), flush=True)
        failed |= not outcome.passed
        if not options.quick:
            soak = options.soak if number == 24 else 0
            # Read again: other checks may have been run beside this one.
            page.write(page.read_record() | {number: page.record(outcome, seconds, commit, soak)})
    return int(failed)


def cpu_seconds() -> float:
    """The seconds that this process and those that it started and awaited have computed."""
    return sum(os.times()[:4])


def run(entry: Check, size: Size) -> Outcome:
    """What a check finds; an error is a failure, and is shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return entry.run(size)
    except Exception as error:
        traceback.print_exc()
        return Outcome(f"{type(error).__name__}: {error}".splitlines()[0], passed=False)


if __name__ == "__main__":
    sys.exit(main())
