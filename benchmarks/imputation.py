"""Errors of imputation beside scikit-learn's imputers, and coverage of 90 % intervals.

A fifth of the cells of numeric columns of held-out rows are hidden. The error is the root mean
square over them, in standard deviations of the column, the mean over columns.

    python -m benchmarks.imputation --data ../shared/data/mixed weather diamonds
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - switches it on
from sklearn.impute import IterativeImputer, KNNImputer

import subtractive as sub

HIDDEN, TEST_ROWS, COVERED_ROWS = 0.2, 500, 100


def read(folder: Path, name: str, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Numeric columns of rows to fit and of rows to test."""
    paths = [folder / f"{name}.csv.gz"]
    if not paths[0].is_file():
        paths = [folder / f"{name}_{part}.csv.gz" for part in ("train", "test")]
    frame = pd.concat([pd.read_csv(path) for path in paths]).sample(frac=1, random_state=0)
    numbers = frame.select_dtypes("number").astype(float).dropna()
    numbers = numbers.loc[:, numbers.nunique() > 2].head(most + TEST_ROWS)
    cut = min(most, int(0.8 * len(numbers)))
    return numbers[:cut], numbers[cut : cut + TEST_ROWS].reset_index(drop=True)


def error(filled: np.ndarray, test: pd.DataFrame, hidden: np.ndarray, scale: pd.Series) -> float:
    """The root mean square over hidden cells in standard deviations, the mean over columns."""
    deviations = np.where(hidden, (filled - test.to_numpy()) / scale.to_numpy(), np.nan)
    return float(np.sqrt(np.nanmean(deviations**2, axis=0)).mean())


def coverage(model: sub.SubtractiveMixture, test: pd.DataFrame) -> float:
    """The share of cells inside their 90 % interval given the rest of the row."""
    random, inside = np.random.default_rng(1), []
    for _, row in test.head(COVERED_ROWS).iterrows():
        column = test.columns[random.integers(len(test.columns))]
        if column not in model.schema_.place:
            continue
        given = {n: v for n, v in row.items() if n != column and n in model.schema_.place}
        try:
            low, high = model.interval(column, 0.9, given=given)
        except ValueError:  # the copy of a given column
            continue
        inside.append(low <= row[column] <= high)
    return float(np.mean(inside))


def main() -> None:
    """Print one line per table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'table':12s} {'ours':>7s} {'knn':>7s} {'iterative':>10s} {'coverage':>9s} seconds")
    for name in options.tables:
        train, test = read(options.data, name, options.rows)
        hidden = np.random.default_rng(0).random(test.shape) < HIDDEN
        holes, scale = test.mask(hidden), train.std()
        start = time.process_time()
        model = sub.SubtractiveMixture(max_epochs=options.epochs, random_state=0).fit(train)
        ours = error(model.impute(holes).to_numpy(), test, hidden, scale)
        others = [
            error(
                imputer.fit(train / scale).transform(holes / scale) * scale.to_numpy(),
                test,
                hidden,
                scale,
            )
            for imputer in (KNNImputer(), IterativeImputer(random_state=0))
        ]
        covered = coverage(model, test)
        spent = time.process_time() - start
        print(
            f"{name:12s} {ours:7.4f} {others[0]:7.4f} {others[1]:10.4f} {covered:9.3f} "
            f"{spent:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
