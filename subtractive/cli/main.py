"""The command line: ``subtractive fit data.csv -o model`` and its relatives.

This file knows words only. What they do is in :mod:`subtractive.cli.commands`, which is imported
when a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from subtractive import __version__
from subtractive.cli.importing import import_or_end

EPILOG = """\
examples:
  subtractive fit people.csv -o people.model        learn the joint density of all columns
  subtractive score people.model new.csv            log-density of every row
  subtractive sample people.model -n 5 --given city=Oslo
  subtractive impute people.model gaps.csv          fill the gaps with conditional means and modes
  subtractive query people.model --probability "age>40" --given city=Oslo
  subtractive query people.model --ask "P(age > 40 | city = Oslo)" --interval age=0.9
  subtractive report people.model new.csv -o report.html       a page of pictures
  subtractive explore people.model new.csv          select and see what follows, in the browser

Tables are CSV or Parquet by their ending; "-" is standard input or output, as CSV.
Results go to standard output, errors to standard error, and progress, if that is a terminal.
Exit codes: 0 done, 1 unexpected failure, 2 wrong arguments or data, 130 interrupted.
"""

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

COLUMN = "NAME=KIND"
COLUMN_HELP = (
    "say what a column is, where it should not be inferred: NAME=continuous, NAME=categorical, "
    "NAME=count, or bounds as NAME=0:1 and NAME=0: (repeatable)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler shall not write to stderr
    try:
        import_or_end("subtractive.cli.commands").run(options)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        return _fail(": ".join(["interrupted", *map(str, interrupt.args)]), 130)
    except BrokenPipeError:  # the reader, head or less, has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        if options.debug:
            raise
        return _fail(str(error), 2)
    except Exception as error:
        if options.debug:
            raise
        reason = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        return _fail(reason, 1)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="subtractive",
        description="Joint densities of tables, by adding and subtracting, with exact answers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"subtractive {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_fit(commands)
    _add_asking(commands)
    _add_showing(commands)
    return parser


def _add_fit(commands: Commands) -> None:
    fit = _command(commands, "fit", "learn the joint density of a table")
    fit.add_argument("data", help="table to learn from: a file, or a folder of files")
    fit.add_argument("-o", "--output", required=True, help="model file to write")
    fit.add_argument("--components", type=int, help="functions per column and units per layer")
    fit.add_argument("--kind", choices=["squared", "monotonic", "squared-monotonic"])
    fit.add_argument("--structure", choices=["auto", "binary", "linear", "flat", "chow-liu"])
    fit.add_argument("--squares", type=int, help="how many squares are summed")
    fit.add_argument("--structures", type=int, help="mixture over this many random trees")
    fit.add_argument("--effort", type=_effort, help="fast, balanced, best, or CPU seconds")
    fit.add_argument("--covariance", choices=["full", "diagonal"], help="of flat mixtures")
    fit.add_argument("--column", action="append", default=[], metavar=COLUMN, help=COLUMN_HELP)
    fit.add_argument("--weights", metavar="NAME", help="column that holds the weights of rows")
    _add_missing(fit)
    fit.add_argument("--epochs", type=int, help="passes over the data at most")
    fit.add_argument(
        "--out-of-core",
        action="store_true",
        help="read the table in passes: for tables that do not fit into memory (folders always)",
    )
    fit.add_argument("--unknown", choices=["error", "missing"], help="unseen categories later on")
    fit.add_argument(
        "--keep-partial", action="store_true", help="after Ctrl-C, write the best model so far"
    )
    fit.add_argument("--quiet", action="store_true", help="no progress on the terminal")
    _add_seed(fit)


def _add_asking(commands: Commands) -> None:
    score = _command(commands, "score", "log-density of every row")
    score.add_argument("model")
    score.add_argument("data")
    score.add_argument("--mean", action="store_true", help="print the mean as JSON instead")
    _add_missing(score)
    _add_part(score)
    _add_output(score)
    sample = _command(commands, "sample", "draw rows, exactly, given evidence or not")
    sample.add_argument("model")
    sample.add_argument("-n", "--number", type=int, default=10, help="how many (10)")
    _add_given(sample)
    _add_seed(sample)
    _add_part(sample)
    _add_output(sample)
    _add_escape(sample)
    impute = _command(commands, "impute", "fill the gaps of a table")
    impute.add_argument("model")
    impute.add_argument("data")
    impute.add_argument("--sample", action="store_true", help="draw them instead of averaging")
    _add_seed(impute)
    _add_missing(impute)
    _add_part(impute)
    _add_output(impute)
    _add_escape(impute)
    query = _command(commands, "query", "probabilities and means given evidence, as JSON")
    query.add_argument("model")
    query.add_argument(
        "data", nargs="?", help="table whose rows are evidence: one answer per row, as a table"
    )
    query.add_argument(
        "--probability",
        action="append",
        default=[],
        metavar="EVENT",
        help='"age>40", "20<age<=30", age=20..30, city=Oslo,Bergen (repeatable: all of them)',
    )
    query.add_argument("--mean", action="append", default=[], metavar="NAME")
    _add_questions(query)
    _add_given(query)
    _add_missing(query)
    _add_part(query)
    _add_output(query)


def _add_questions(query: argparse.ArgumentParser) -> None:
    query.add_argument(
        "--quantile", action="append", default=[], metavar="NAME=LEVELS", help="age=0.1,0.5,0.9"
    )
    query.add_argument(
        "--interval",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="the values between which the column is with this probability: age=0.9",
    )
    query.add_argument(
        "--ask",
        action="append",
        default=[],
        metavar="QUESTION",
        help='"P(age > 40 | city = Oslo)", answered with a receipt (repeatable)',
    )
    query.add_argument("--reference", metavar="TABLE", help="whose rows --ask compares with")


def _add_showing(commands: Commands) -> None:
    info = _command(commands, "info", "what a model file holds, as JSON")
    info.add_argument("model")
    report = _command(commands, "report", "write a page of pictures about a model and a table")
    report.add_argument("model")
    report.add_argument("data", help="table to show, best one that the model was not fitted on")
    report.add_argument("-o", "--output", default="report.html", help="page (report.html)")
    _add_missing(report)
    report.add_argument("--quiet", action="store_true", help="no progress on the terminal")
    _add_seed(report)
    explore = _command(commands, "explore", "look at a model and a table in the browser")
    explore.add_argument("model")
    explore.add_argument("data", nargs="?", help="table to compare with")
    _add_missing(explore)
    explore.add_argument("--port", type=int, default=0, help="of the server (a free one)")
    explore.add_argument("--no-browser", action="store_true", help="only print the address")
    demo = _command(commands, "demo", "fit small data and draw pictures")
    demo.add_argument("-o", "--output", default="out", help="folder for the pictures (out)")


def _command(commands: Commands, name: str, summary: str) -> argparse.ArgumentParser:
    description = f"{summary[0].upper()}{summary[1:]}."
    return commands.add_parser(name, help=summary, description=description)


def _effort(text: str) -> str | float:
    """An effort in words, or in seconds."""
    try:
        return float(text)
    except ValueError:
        return text


def _add_given(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--given",
        action="append",
        default=[],
        metavar="EVIDENCE",
        help="age=40, age=30..50, age>40, city=Oslo,Bergen (repeatable: all of them)",
    )


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="of everything random (0)")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default="-", help="table to write (standard output)")


def _add_missing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--missing",
        metavar="WORDS",
        help="words for missing values in CSV files, with commas between them, beside empty cells "
        "(NA,None,null and others; '' for empty cells only)",
    )


def _add_part(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part", metavar="I/N", help="only the I-th of N parts of the rows, for many processes"
    )


def _add_escape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--escape-formulas",
        action="store_true",
        help="an apostrophe before texts that spreadsheets would run: = + - @",
    )


def _fail(message: str, code: int) -> int:
    print(f"subtractive: {message}", file=sys.stderr)
    return code
