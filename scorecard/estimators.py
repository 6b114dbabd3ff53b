"""Checks 12 to 14: scikit-learn's contract, bad inputs, and laws for random tables."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.processes import ROOT, environment
from scorecard.tables import random_table, small

BAD_INPUTS = ["tests/tables/test_bad_tables.py", "tests/densities/test_bad_input.py"]


@check(12, "scikit-learn's checks, all estimators", "0 failures")
def contract(size: Size) -> Outcome:
    """Run scikit-learn's own checks."""
    from sklearn.utils.estimator_checks import check_estimator

    quick = sub.SubtractiveMixture(3, max_epochs=1, structure="binary")
    estimators = [
        quick,
        sub.SubtractiveMixture(3, max_epochs=2, kind="monotonic", structure="flat"),
        sub.SubtractiveClassifier(quick),
        sub.SubtractiveImputer(quick),
        sub.SubtractiveOutlierDetector(quick),
    ]
    found: Counter[str] = Counter()
    for estimator in estimators[: size.of(5, 1)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(estimator, on_skip=None, on_fail=None)
        found.update(str(result["status"]) for result in results)
    figure = f"{found['passed']} passed, {found['skipped']} skipped, {found['failed']} failed"
    return Outcome(figure, found["failed"] == 0 and found["xfail"] == 0)


@check(
    13,
    "bad inputs: extremes, wrong types and shapes, violations of the schema; at least 60 cases",
    "all right or refused by name",
)
def bad_inputs(size: Size) -> Outcome:
    """Run the tests of bad inputs, each of which expects a result or a message."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *BAD_INPUTS[: size.of(2, 1)],
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    passed, wrong = counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
    return Outcome(f"{passed} cases right, {wrong} wrong", passed >= 60 and wrong == 0)


@check(14, "property tests: random tables and questions, 1,000 examples per query", "0 failures")
def properties(size: Size) -> Outcome:
    """Fit random tables, and ask each ten random questions of every kind."""
    failures: list[str] = []
    examples: Counter[str] = Counter()

    @settings(
        max_examples=size.of(170, 3),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**31))
    def ask(seed: int) -> None:
        table = random_table(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = small(random_state=seed % 1000).fit(table)
            for question in range(10):
                random = np.random.default_rng([seed, question])
                for name, law in LAWS.items():
                    holds = law(model, table, random)
                    examples[name] += holds is not None
                    if holds is False:
                        failures.append(f"{name} of table {seed}, question {question}")

    ask()
    least = min(examples.values())
    figure = f"{len(failures)} of {sum(examples.values())}, {least} per query"
    passed = not failures and least >= size.of(1000, 1)
    return Outcome(figure + (f": {failures[0]}" if failures else ""), passed)


def _asked(model: sub.SubtractiveMixture, random: np.random.Generator) -> Hashable:
    names = list(model.schema_.place)
    return names[random.integers(len(names))]


def _asked_number(model: sub.SubtractiveMixture, random: np.random.Generator) -> Hashable | None:
    """A column of numbers with a density, if there is one."""
    names = [name for name in model.schema_.place if _is_number(model, name)]
    return names[random.integers(len(names))] if names else None


def _is_number(model: sub.SubtractiveMixture, name: Hashable) -> bool:
    return model.schema_.column(name).family(signed=True).num_states is None


def _value(table: pd.DataFrame, name: Hashable, random: np.random.Generator) -> Any:  # noqa: ANN401
    values = table[name].dropna()
    return values.iloc[random.integers(len(values))]


def complement(model: sub.SubtractiveMixture, table: pd.DataFrame, random: Any) -> bool:  # noqa: ANN401
    """P(event) + P(not event) = 1."""
    name = _asked(model, random)
    value = _value(table, name, random)
    if _is_number(model, name):
        step = pd.Timedelta(hours=1) if isinstance(value, pd.Timestamp) else 0.0
        grid = getattr(model.schema_.column(name), "grid", None)
        if grid is not None and not isinstance(value, pd.Timestamp):
            step = grid.step / 2
        total = model.probability({name: (None, value)})
        total += model.probability({name: (value + step, None)})
        has_atom = value in getattr(model.schema_.column(name), "atoms", ())
        if has_atom and grid is None:  # both intervals hold the atom
            total -= model.probability({name: [value]})
    else:
        states = list(model.schema_.column(name).values)
        total = sum(model.probability({name: [state]}) for state in states)
    return bool(abs(total - 1) < 1e-8)


def chain(model: sub.SubtractiveMixture, table: pd.DataFrame, random: Any) -> bool | None:  # noqa: ANN401
    """log p(row) = log p(one column) + log p(the others | that column); cells have P for p."""
    name = _asked(model, random)
    row = table.dropna().sample(1, random_state=int(random.integers(2**31)))
    others = [n for n in model.schema_.place if n != name]
    if not others:
        return None
    if getattr(model.schema_.column(name), "grid", None) is not None:
        return _chain_of_cells(model, name, others[0], row.iloc[0])
    first = model.marginal([name]).score_samples(row[[name]])[0]
    rest = model.condition({name: row[name].iloc[0]}).marginal(others)
    joint = model.marginal([name, *others]).score_samples(row[[name, *others]])[0]
    return bool(abs(first + rest.score_samples(row[others])[0] - joint) < 1e-6)


def _chain_of_cells(
    model: sub.SubtractiveMixture, name: Hashable, other: Hashable, row: pd.Series
) -> bool:
    """P(A and B) = P(A) P(B | A), A being the cell that a value on a grid stands for."""
    cell = {name: [row[name]]}
    event = {other: (None, row[other]) if _is_number(model, other) else [row[other]]}
    given = {name: row[name]}
    joint, first = model.probability({**cell, **event}), model.probability(cell)
    answers = [model.probability(event, given=given), model.condition(given).probability(event)]
    return all(abs(first * answer - joint) <= 1e-8 * first for answer in answers)


def quantile(
    model: sub.SubtractiveMixture, table: pd.DataFrame, random: np.random.Generator
) -> bool | None:
    """The distribution function reaches a level at its quantile."""
    name = _asked_number(model, random)
    if name is None:
        return None
    level = float(random.uniform(0.05, 0.95))
    found = model.quantile(name, [level]).iloc[0]
    return bool(model.cdf(name, [found]).iloc[0] >= level - 1e-6)


def samples(model: sub.SubtractiveMixture, table: pd.DataFrame, random: Any) -> bool:  # noqa: ANN401
    """Samples keep what is given and are possible."""
    name = _asked(model, random)
    value = _value(table, name, random)
    drawn = model.sample(3, given={name: value}, random_state=int(random.integers(2**31)))
    return bool((drawn[name] == value).all() and np.isfinite(model.score_samples(drawn)).all())


def imputation(model: sub.SubtractiveMixture, table: pd.DataFrame, random: Any) -> bool:  # noqa: ANN401
    """Gaps are filled, and nothing else changes."""
    rows = table.sample(4, random_state=int(random.integers(2**31)))
    name = _asked(model, random)
    gaps = rows.astype({name: object})
    gaps.iloc[::2, gaps.columns.get_loc(name)] = None
    filled = model.impute(gaps)
    kept = filled.where(gaps.notna().to_numpy(), None).astype(object)
    same = kept.where(gaps.notna(), None).equals(gaps.astype(object).where(gaps.notna(), None))
    modelled = [n for n in table if n not in model.schema_.aside]
    return bool(not filled[modelled].isna().any().any() and (same or _close(filled, gaps)))


def _close(filled: pd.DataFrame, gaps: pd.DataFrame) -> bool:
    there = gaps.notna()
    pairs = zip(filled.to_numpy()[there], gaps.to_numpy()[there], strict=True)
    return all(
        a == b or (not isinstance(a, str) and abs(a - b) <= 1e-9 * abs(b)) for a, b in pairs
    )


def total_expectation(
    model: sub.SubtractiveMixture, table: pd.DataFrame, random: np.random.Generator
) -> bool | None:
    """E[x] = P(A) E[x | A] + P(not A) E[x | not A], A being an interval of x."""
    name = _asked_number(model, random)
    if name is None or isinstance(_value(table, name, random), pd.Timestamp):
        return None
    column = model.schema_.column(name)
    if column.atoms:
        return None
    low, high = np.quantile(table[name].dropna().astype(float), [0.3, 0.7])
    cut = float(low + (high - low) * random.random())
    if column.grid is not None:  # between two values
        cut = (np.floor(cut / column.grid.step) + 0.5) * column.grid.step
    sides: list[dict[Hashable, object]] = [{name: (None, cut)}, {name: (cut, None)}]
    parts = [model.probability(side) * model.mean(given=side)[name] for side in sides]
    mean = float(model.mean()[name])
    return bool(abs(sum(parts) - mean) <= 1e-5 * max(1.0, abs(mean), float(model.std()[name])))


LAWS: dict[str, Callable[[Any, pd.DataFrame, Any], bool | None]] = {
    "probability": complement,
    "condition and marginal": chain,
    "quantile and cdf": quantile,
    "sample": samples,
    "impute": imputation,
    "mean": total_expectation,
}
