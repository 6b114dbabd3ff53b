"""Random tables for the checks of estimators: columns of every kind, and faults of real ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

import subtractive as sub

COLUMNS = {
    "normal": lambda r, n: r.normal(r.normal() * 10, 10 ** r.uniform(-2, 2), n),
    "skewed": lambda r, n: np.exp(r.normal(0, 1, n)),
    "rounded": lambda r, n: r.normal(50, 10, n).round(1),
    "zeros": lambda r, n: np.where(r.random(n) < 0.4, 0.0, r.exponential(3, n)),
    "whole": lambda r, n: r.integers(0, 500, n),
    "few": lambda r, n: r.integers(0, 4, n),
    "flag": lambda r, n: r.random(n) < 0.3,
    "text": lambda r, n: r.choice(["a", "b", "c c", "ü"], n),
    "date": lambda r, n: pd.Timestamp("2020-01-01") + pd.to_timedelta(r.integers(0, 900, n), "D"),
}


def random_table(seed: int, num_rows: int = 120) -> pd.DataFrame:
    """Two to five columns of random kinds, some with gaps."""
    random = np.random.default_rng(seed)
    names = random.choice(list(COLUMNS), random.integers(2, 6), replace=False)
    frame = pd.DataFrame({name: COLUMNS[name](random, num_rows) for name in names})
    if random.random() < 0.5:
        gaps = random.choice(names)
        frame[gaps] = frame[gaps].astype(object).where(random.random(num_rows) > 0.15, None)
        frame[gaps] = frame[gaps].infer_objects()
    return frame


def nasty_table(number: int) -> pd.DataFrame:
    """A small table with the faults of real ones."""
    random = np.random.default_rng(number)
    n, d = [30, 60, 150][number % 3], 2 + number % 4
    x = random.normal(size=(n, d)) @ random.normal(size=(d, d))
    if number % 2:  # outliers, in both directions
        x = np.where(random.random((n, d)) < 0.03, 1e6 * random.normal(size=(n, d)), x)
    if number % 5 == 0:
        x = (3 * x).round()
    if number % 7 == 0:  # far from zero, and hardly any spread
        x[:, 1] = 1e5 + 1e-3 * x[:, 1]
    if number % 13 == 0:  # very different units
        x = x * 10.0 ** np.arange(-6, 2 * d - 6, 2)
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(d)])
    if number % 3 == 0:
        frame["constant"] = 7.5
    if number % 3 == 1:
        frame["copy"] = frame["c0"]
    if number % 4 == 0:
        frame = frame.mask(random.random(frame.shape) < 0.2)
    if number % 11 == 0:  # all rows but one alike
        frame.iloc[1:] = frame.iloc[[1] * (n - 1)].to_numpy()
    if number % 6 == 0:
        frame["text"] = random.choice(["x", "y", "=1+1"], n)
    return frame


def small(**settings: object) -> sub.SubtractiveMixture:
    """An estimator that trains in no time."""
    return sub.SubtractiveMixture(
        **{
            "n_components": 3,
            "max_epochs": 1,
            "random_state": 0,
            "structure": "binary",
            **settings,
        }
    )
