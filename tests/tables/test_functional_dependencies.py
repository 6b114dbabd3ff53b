"""Rules that hold in every row of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import subtractive as sub


def rules(table):
    return {str(rule) for rule in sub.tables.functional_dependencies(table)}


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    code = random.integers(0, 6, 400)
    a, b, c = random.normal(size=(3, 400)).round(2)
    return pd.DataFrame(
        {
            "level": code,
            "name": np.array(["x", "y", "y", "z", "u", "v"])[code],
            "a": a,
            "b": b,
            "c": c,
            "total": (a + b - c).round(2),
            "other": random.integers(0, 6, 400),
        }
    )


def test_codes_determine_names_and_not_the_reverse(table):
    found = rules(table)
    assert "level determines name" in found
    assert "name determines level" not in found  # two levels have the name y


def test_a_total_is_named_once_with_its_signs(table):
    sums = [rule for rule in rules(table) if "=" in rule]
    assert sums == ["total = a + b - c"]


def test_nothing_else_is_found(table):
    assert len(rules(table)) == 2
    assert rules(table.drop(columns=["level", "total"])) == set()


@pytest.mark.parametrize(("column", "wrong"), [("name", "u"), ("total", 99.0)])
def test_one_row_breaks_a_rule(table, column, wrong):
    """Also a row beyond those that are looked at first."""
    long = pd.concat([table] * 8, ignore_index=True)
    before = rules(long)
    long.loc[len(long) - 1, "level"] = 0
    long.loc[len(long) - 1, "name"] = "x"
    long.loc[len(long) - 1, column] = wrong
    assert len(before - rules(long)) == 1


def test_gaps_neither_confirm_nor_break_a_rule(table):
    table.loc[5:20, "name"] = None
    table.loc[40:60, "a"] = np.nan
    assert rules(table) == {"level determines name", "total = a + b - c"}


def test_values_that_hardly_repeat_determine_nothing():
    """Of 40 rows with 35 values of a key each follows from it, by chance or by nature."""
    table = pd.DataFrame({"key": [*range(35), *range(5)], "x": [*range(35), *range(5)]})
    table["y"] = table["x"] % 3
    assert rules(table) == set()
