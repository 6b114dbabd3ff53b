"""Errors of imputation beside scikit-learn's imputers, and coverage of 90 % intervals.

A fifth of the cells of numeric columns of held-out rows are hidden. The error is the root mean
square over them, in standard deviations of the column, the mean over columns. For coverage, 1,000
random cells of held-out rows, or all if there are fewer, are asked given the rest of their rows.
An interval of whole cells holds 90 % at least, and mostly more: beside the share of cells inside
stands what the model promises, the mean probability of the intervals, and the share inside
randomised ones, for which a value at an end counts by the part of its probability that is inside.

    python -m benchmarks.imputation --data ../shared/data/mixed weather diamonds --seeds 0 1 2

Every run is kept in benchmarks/records/imputation.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - switches it on
from sklearn.impute import IterativeImputer, KNNImputer

import subtractive as sub
from benchmarks.recording import keep

RECORDS = Path(__file__).parent / "records" / "imputation.json"
HIDDEN, TEST_ROWS, COVERED_CELLS = 0.2, 1000, 1000


def read(folder: Path, name: str, most: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Numeric columns of rows to fit and of rows to test."""
    paths = [folder / f"{name}.csv.gz"]
    if not paths[0].is_file():
        paths = [folder / f"{name}_{part}.csv.gz" for part in ("train", "test")]
    frame = pd.concat([pd.read_csv(path) for path in paths]).sample(frac=1, random_state=seed)
    numbers = frame.select_dtypes("number").astype(float).dropna()
    numbers = numbers.loc[:, numbers.nunique() > 2].head(most + TEST_ROWS)
    cut = min(most, int(0.8 * len(numbers)))
    return numbers[:cut], numbers[cut : cut + TEST_ROWS].reset_index(drop=True)


def error(filled: np.ndarray, test: pd.DataFrame, hidden: np.ndarray, scale: pd.Series) -> float:
    """The root mean square over hidden cells in standard deviations, the mean over columns."""
    deviations = np.where(hidden, (filled - test.to_numpy()) / scale.to_numpy(), np.nan)
    return float(np.sqrt(np.nanmean(deviations**2, axis=0)).mean())


def coverage(model: sub.SubtractiveMixture, test: pd.DataFrame) -> dict[str, float]:
    """The share of cells inside 90 % intervals given the rest of the row; what it should be."""
    random, inside, promised, randomised = np.random.default_rng(1), [], [], []
    names = [name for name in test.columns if name in model.schema_.place]
    for cell in random.permutation(len(test) * len(names))[:COVERED_CELLS]:
        row, column = test.iloc[cell // len(names)], names[cell % len(names)]
        rest = {n: row[n] for n in names if n != column}
        try:
            conditional = model.condition(rest)
            low, high = conditional.interval(column, 0.9)
        except ValueError:  # the copy of a given column
            continue
        value, modelled = row[column], model.schema_.column(column)
        before = [modelled.beside(number, -1) for number in (low, value)]
        heights = conditional.cdf(column, [before[0], high, before[1], value]).to_numpy()
        inside.append(low <= value <= high)
        promised.append(heights[1] - heights[0])
        level = heights[3] - (heights[3] - heights[2]) * random.random()
        randomised.append(0.05 <= level <= 0.95)
    found = {"inside": inside, "promised": promised, "randomised": randomised}
    shares = {word: float(np.mean(numbers)) for word, numbers in found.items()}
    return {"cells": len(inside), **shares}


def run(folder: Path, name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fit one table, fill gaps of other rows, and compare."""
    train, test = read(folder, name, options.rows, seed)
    hidden = np.random.default_rng(seed).random(test.shape) < HIDDEN
    holes, scale = test.mask(hidden), train.std()
    effort = float(options.effort) if options.effort[0].isdigit() else options.effort
    start = time.process_time()
    model = sub.SubtractiveMixture(effort=effort, random_state=seed).fit(train)
    seconds = time.process_time() - start
    errors = {"ours": error(model.impute(holes).to_numpy(dtype=float), test, hidden, scale)}
    for word, imputer in (("knn", KNNImputer()), ("iterative", IterativeImputer(random_state=0))):
        filled = imputer.fit(train / scale).transform(holes / scale) * scale.to_numpy()
        errors[word] = error(filled, test, hidden, scale)
    facts = {"table": name, "seed": seed, "effort": effort, "training rows": len(train)}
    found = {**errors, **coverage(model, test), "fit seconds": seconds}
    return facts | {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    """Print one line per table and seed, and keep it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.tables:
        for seed in options.seeds:
            record = run(options.data, name, seed, options)
            print(json.dumps(record), flush=True)
            keep(RECORDS, [record], ("table", "seed", "effort"))


if __name__ == "__main__":
    main()
