"""The command line of the studies: ``python -m studies ring --quick`` and its relatives.

This file knows words only. What they do is in :mod:`studies.commands`, which is imported when a
command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

EPILOG = """\
examples:
  python -m studies                                 what experiments there are
  python -m studies ring --quick                    one of them, small
  python -m studies all --quick --workers 2         those that need no data, in two processes
  python -m studies uci --data DIR --scheduler tcp://HOST:8786          on a dask cluster
  python -m studies distill --teacher stories.bin -o runs               see distill --help
  python -m studies ring --protocol paper --records studies/records    keep records for the pages
  python -m studies pages                           write the pages anew from studies/records
  python -m studies generate runs --tokenizer tok.bin --must-contain dog

Results go to standard output, progress and errors to standard error.
Exit codes: 0 done, 1 unexpected failure, 2 wrong arguments or data, 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(words)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler shall not write to stderr
    try:
        import_module("studies.commands").COMMANDS[options.command](options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        if options.debug:
            raise
        return _fail(str(error), 2)
    return 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command: one of its own, or the name of an experiment."""
    command = words[0] if words and words[0] in PARSERS else "experiment"
    prog = "python -m studies" if command == "experiment" else f"python -m studies {command}"
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog, formatter_class=formatter)
    parser.set_defaults(command=command)
    PARSERS[command](parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(words if command == "experiment" else words[1:])


def _add_experiment(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run an experiment, or list them."
    parser.epilog = EPILOG
    parser.add_argument("name", nargs="?", help="its name, or all; without it: the list")
    parser.add_argument("--quick", action="store_true", help="a small form of it, in minutes")
    parser.add_argument("--out", metavar="DIR", help="folder for the results (out/NAME)")
    parser.add_argument("--resume", action="store_true", help="go on with what is there")
    parser.add_argument("--data", metavar="DIR", help="use arrays from here: --set data=DIR")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value for a setting, as JSON or text: config.json has them all (repeatable)",
    )
    parser.add_argument(
        "--protocol",
        choices=["paper", "ours"],
        help="the settings of the paper's appendix and its authors' code, or our recipes (ours)",
    )
    parser.add_argument(
        "--records", metavar="DIR", help="also keep compact records here, for studies/records"
    )
    _add_executor(parser)
    parser.add_argument("--status", action="store_true", help="only list the runs in the folder")


def _add_distill(parser: argparse.ArgumentParser) -> None:
    parser.description = "Teach small exact models what a language model knows."
    parser.add_argument("data", nargs="?", help="sequences of tokens: a folder, .npz or .csv")
    parser.add_argument("-o", "--output", required=True, help="folder of runs; resumed if there")
    parser.add_argument("--teacher", help="llama2.c .bin, .gguf or folder of transformers")
    parser.add_argument("--samples", type=int, default=100_000, help="drawn from it (100000)")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sample (32)")
    parser.add_argument("--tokens", type=int, help="size of the teacher's vocabulary")
    parser.add_argument("--rows", type=int, help="train on this many sequences only")
    parser.add_argument("--min-count", type=int, default=2, help="rarer tokens are unknown (2)")
    parser.add_argument("--units", type=int, nargs="+", default=[16, 32], help="sizes K (16 32)")
    parser.add_argument("--squares", type=int, nargs="+", default=[1], help="squares summed (1)")
    parser.add_argument("--runs", type=int, default=1, help="of every size and kind (1)")
    parser.add_argument(
        "--starts",
        choices=["root", "paper"],
        default="root",
        help="square root of the additive model, or the paper's random starts (root)",
    )
    parser.add_argument("--rate", type=float, default=0.05, help="additive models (0.05)")
    parser.add_argument("--squared-rate", type=float, default=0.003, help="squares (0.003)")
    parser.add_argument("--batch-size", type=int, default=1024, help="sequences a step (1024)")
    parser.add_argument("--epochs", type=int, default=200, help="at most (200)")
    parser.add_argument("--patience", type=int, default=3, help="epochs without better (3)")
    parser.add_argument("--shared", action="store_true", help="one table for all positions")
    _add_executor(parser)
    _add_seed(parser)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write texts that contain required words."
    parser.add_argument("model", help="folder of distill, or one of its .model files")
    parser.add_argument("--tokenizer", required=True, help="tok*.bin, .gguf or a folder")
    parser.add_argument("--must-contain", action="append", default=[], metavar="WORD")
    parser.add_argument("--teacher", help="the teacher writes, guided by the model")
    parser.add_argument("--concepts", help="file with one set of words per line, all compared")
    parser.add_argument("--sets", type=int, default=50, help="lines of that file (50)")
    parser.add_argument(
        "--compare", type=int, default=0, help="also try this many texts by chance"
    )
    parser.add_argument("-n", "--number", type=int, default=10, help="how many (10)")
    _add_seed(parser)


def _add_pages(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write tables, numbers and figures of the pages from studies/records."
    parser.add_argument("--check", action="store_true", help="only say what would change")


def _add_executor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask cluster to do the runs")


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="of everything random (0)")


def _fail(message: str, code: int) -> int:
    print(f"studies: {message}", file=sys.stderr)
    return code


PARSERS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "experiment": _add_experiment,
    "distill": _add_distill,
    "generate": _add_generate,
    "pages": _add_pages,
}

if __name__ == "__main__":
    sys.exit(main())
