"""Check 27: test scores of defaults against those of the last release.

``python -m scorecard.drift`` writes the record that later versions are compared with. Run it when
a version is released, and when scores were changed on purpose; the record says of which commit
it is. A commit that changes no score finds exactly the numbers of the record, and p near 1/2.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.page import commit, today

RECORD = Path(__file__).with_name("scores_of_release.json")
NUM_SEEDS, TRAIN, TEST = 10, 300, 500


def _ring(random: np.random.Generator, n: int) -> pd.DataFrame:
    angle, radius = random.uniform(0, 2 * np.pi, n), random.normal(2, 0.2, n)
    return pd.DataFrame({"x": radius * np.cos(angle), "y": radius * np.sin(angle)})


def _curve(random: np.random.Generator, n: int) -> pd.DataFrame:
    x = random.normal(size=n)
    return pd.DataFrame(
        {"x": x, "y": x**2 + 0.3 * random.normal(size=n), "z": random.normal(size=n)}
    )


def _shop(random: np.random.Generator, n: int) -> pd.DataFrame:
    kind = random.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    price = np.exp(random.normal(1.0 * (kind == "a") + 2.0 * (kind == "b"), 0.4)).round(2)
    return pd.DataFrame({"kind": kind, "price": price, "sold": random.random(n) < 1 / price})


def _correlated(random: np.random.Generator, n: int) -> pd.DataFrame:
    mixing = np.random.default_rng(0).normal(size=(5, 5))
    return pd.DataFrame(random.normal(size=(n, 5)) @ mixing, columns=list("abcde"))


def _penguins(random: np.random.Generator, n: int) -> pd.DataFrame:
    table = sub.data.penguins()
    order = random.permutation(len(table))
    # The same shuffle for both parts, which the caller asks for one after the other.
    return table.iloc[order].reset_index(drop=True)


SETS: dict[str, Callable[[np.random.Generator, int], pd.DataFrame]] = {
    "ring": _ring,
    "curve": _curve,
    "shop": _shop,
    "correlated": _correlated,
    "penguins": _penguins,
}


def test_score(name: str, seed: int) -> float:
    """The mean log-density of new rows, with the defaults of the estimator."""
    random = np.random.default_rng([seed, 27])
    rows = SETS[name](random, TRAIN + TEST)
    train = rows[: min(TRAIN, 2 * len(rows) // 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sub.SubtractiveMixture(max_epochs=15, random_state=seed).fit(train)
        return model.score(rows[len(train) :])


@check(
    27,
    "drift: test scores on 5 sets, 10 seeds, Mann–Whitney against the last release",
    "no worse at 0.01",
)
def drift(size: Size) -> Outcome:
    """Fit again what was fitted for the last release, and compare the scores."""
    record = json.loads(RECORD.read_text())
    values, shifts = [], []
    for name in list(SETS)[: size.of(5, 1)]:
        seeds = size.of(NUM_SEEDS, 2)
        now = [test_score(name, seed) for seed in range(seeds)]
        before = record["scores"][name]
        values.append(stats.mannwhitneyu(now, before, alternative="less").pvalue)
        shifts.append(f"{name} {np.median(now) - np.median(before):+.3f}")
    figure = (
        f"p {min(values):.3g} at least; medians {', '.join(shifts)} nats against "
        f"{record['version']} ({record['commit']})"
    )
    return Outcome(figure, bool(min(values) > 0.01))


if __name__ == "__main__":
    found = {name: [test_score(name, seed) for seed in range(NUM_SEEDS)] for name in SETS}
    what = "Mean test log-densities (nats) of SubtractiveMixture(max_epochs=15), one per seed"
    heading = {"what": what, "version": sub.__version__, "commit": commit(), "date": today()}
    RECORD.write_text(json.dumps({**heading, "scores": found}, indent=1) + "\n")
