"""How long questions about a table of 30 columns take, beside products of plain matrices.

Each line has the milliseconds of processor time of one call, the least of several, the budget,
and the ratio to a yardstick of the same run: one product of two 512 x 512 matrices by torch.
"mixed" and "numeric" are what defaults choose for tables of all kinds of columns and of numbers.

    python -m benchmarks.tables_queries
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

import subtractive as sub

COLUMNS = 30
STRUCTURES: dict[str, dict[str, Any]] = {
    "mixed": {"structure": "auto", "effort": 30},
    "numeric": {"structure": "auto", "effort": "fast"},
    "chow-liu": {"max_epochs": 1},
    "binary": {"max_epochs": 1},
    "linear": {"max_epochs": 1},
    "flat": {"max_epochs": 1, "n_components": 8},
}
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
GIVEN = {"c0": 0.5, "c1": (0.0, None)}


def table(num_rows: int, *, with_kinds: bool) -> pd.DataFrame:
    """Numbers that depend on each other; with categories and atoms among them, or not."""
    random = np.random.default_rng(0)
    x = random.normal(size=(num_rows, 6)) @ random.normal(size=(6, COLUMNS))
    x += 0.5 * random.normal(size=x.shape)
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(COLUMNS)])
    if with_kinds:
        frame["c10"] = np.where(frame["c10"] > 0, frame["c10"], 0.0)
        frame["c11"] = frame["c11"].round(1)
        for i in range(20, COLUMNS):
            frame[f"c{i}"] = pd.cut(frame[f"c{i}"], 4, labels=list("abcd")).astype(str)
    return frame


def gaps(frame: pd.DataFrame, num_rows: int = 1000, num_patterns: int = 100) -> pd.DataFrame:
    """Rows with so many patterns of gaps, a fifth of the cells each."""
    random = np.random.default_rng(1)
    patterns = random.random((num_patterns, COLUMNS)) < 0.2
    return frame.head(num_rows).mask(patterns[random.integers(0, num_patterns, num_rows)])


def questions(
    model: sub.SubtractiveMixture, frame: pd.DataFrame
) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    holes = gaps(frame)
    return {
        "marginals": model.marginals,
        "five quantiles of all columns": lambda: model.quantiles(LEVELS),
        "10,000 conditional samples": lambda: model.sample(10_000, given=GIVEN, random_state=0),
        "impute 1,000 rows, 100 patterns": lambda: model.impute(holes),
    }


BUDGETS = {
    "marginals": 100,
    "five quantiles of all columns": 300,
    "10,000 conditional samples": 1000,
    "impute 1,000 rows, 100 patterns": 2000,
}


def milliseconds(call: Callable[[], object], times: int) -> float:
    """The least processor time of some calls, after one that warms up."""
    call()
    spent = []
    for _ in range(times):
        start = time.process_time()
        call()
        spent.append(1000 * (time.process_time() - start))
    return min(spent)


def main() -> None:
    """Print one line per structure and question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--structures", nargs="*", default=list(STRUCTURES), choices=STRUCTURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    square = torch.randn(512, 512, dtype=torch.float64)
    yardstick = milliseconds(lambda: square @ square, 21)
    print(f"yardstick: {yardstick:.2f} ms of processor time for a product of 512 x 512 matrices")
    for structure in options.structures:
        frame = table(max(options.rows, 1000), with_kinds=structure not in ("flat", "numeric"))
        settings = {"structure": structure, "random_state": 0, **STRUCTURES[structure]}
        model = sub.SubtractiveMixture(**settings).fit(frame)
        for name, call in questions(model, frame).items():
            spent = milliseconds(call, options.times)
            verdict = "" if spent <= BUDGETS[name] else "  over budget"
            print(
                f"{structure:10s} {name:32s} {spent:8.0f} ms of {BUDGETS[name]:5d}"
                f" {spent / yardstick:8.0f} x{verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
