"""The many ways to write a question, and what is said of those that cannot be read."""

import numpy as np
import pandas as pd
import pytest
from frames import quick

import subtractive as sub
from subtractive.tables.asking import parse_question

COUNT = 400
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 80, COUNT),
        "col a": RANDOM.normal(20, 3, COUNT).round(1),
        "a=b": RANDOM.choice(["x", "p,q", "r|s", "u or v", "this and that"], COUNT),
        "and": RANDOM.choice(["yes", "no"], COUNT),
        "P(x)": RANDOM.integers(1, 4, COUNT),
        "flag": RANDOM.random(COUNT) < 0.4,
        "id": [f"row {number}" for number in range(COUNT)],
    }
)


@pytest.fixture(scope="module")
def model():
    with pytest.warns(sub.DataWarning, match="id"):
        return quick(n_components=2, structure="binary").fit(FRAME)


@pytest.mark.parametrize(
    ("question", "plain"),
    [
        ("P('col a' > 20)", "P(col a > 20)"),
        ("P(`col a` > 20 | 'and' == \"yes\")", "P(col a > 20 | and = yes)"),
        ("P(age ≥ 30)", "P(age >= 30)"),
        ("P(age ≤ 30 | col a > −5)", "P(age <= 30 | col a > -5)"),
        ("P(40 > age >= 30)", "P(30 <= age < 40)"),
        ("P(age > 30 and age < 40)", "P(age > 30, age < 40)"),
        ("P(and = yes and age > 30)", "P(and = yes, age > 30)"),
        ("P(age > 30 & and = yes)", "P(and = yes, age > 30)"),
        ("P(age between 30 and 40)", "P(30 <= age <= 40)"),
        ("P(flag)", "P(flag = true)"),
        ("P(not flag | and = yes)", "P(flag = false | and = yes)"),
        ("P(and != yes)", "P(and = no)"),
        ("P('P(x)' ≠ 3)", "P(P(x) = 1 or 2)"),
        ("P('P(x)' in {1, 3})", "P(P(x) = 1 or 3)"),
        ("P(and in (yes, no))", "P(and = yes or no)"),
        ("P(age in 30..40)", "P(age = 30..40)"),
        ("P(a=b = this and that)", "P('a=b' = 'this and that')"),
    ],
)
def test_questions_may_be_written_in_many_ways(question, plain, model):
    assert parse_question(question, model.schema_) == parse_question(plain, model.schema_)


@pytest.mark.parametrize("value", ["p,q", "r|s", "u or v", "x"])
def test_quoted_names_and_values_may_hold_signs(value, model):
    expected = model.probability({"a=b": [value]})
    assert model.ask(f'P("a=b" = "{value}")').probability == expected
    assert model.ask(f"P('a=b' = '{value}', flag = true or false)").rows is not None
    others = model.ask(f"P('a=b' != '{value}')").probability
    assert others == pytest.approx(1 - expected, abs=1e-9)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("P(id = row 1)", "the question names 'id', which was set aside"),
        ("P(age > 20 | 'id' = 'row 1')", "the question names 'id', which was set aside"),
        ("P(age in (30, 40))", "write 'age = 30 or 40' or '30 <= age <= 40'"),
        ("P(age != 30)", "'age != 30' leaves values out"),
        ("P(and != maybe)", "column 'and' has no value 'maybe'"),
        ("P(and != yes or no)", "leaves no value"),
        ("P(age)", "cannot read 'age': expected NAME=VALUE, NAME=VALUE or VALUE"),
        ("P(foo = 1)", "there is no column 'foo'"),
        ("P(and = maybe)", "it has no, yes"),
        ("P(age in [30)", "does not close"),
        ("Pr(age > 30)", "a question looks like"),
    ],
)
def test_other_questions_are_answered_by_one_that_works(question, reason, model):
    with pytest.raises(ValueError, match="(question that works is|looks like) 'P") as caught:
        model.ask(question)
    assert reason in str(caught.value)
    assert model.ask("P(age > 51)").probability > 0
    assert "'P(age > 51)'" in str(caught.value)
