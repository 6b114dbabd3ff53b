"""What notebooks and prompts show of models: short, in users' words, and escaped."""

import datetime
import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

import subtractive as sub
from subtractive.io.html import html_table

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            HOSTILE: random.choice([HOSTILE, "b", "c"], 100),
            "height": random.normal(170, 10, 100),
            "age": random.integers(18, 90, 100),
            **{f"extra{i}": random.normal(size=100) for i in range(8)},
        }
    )
    return sub.SubtractiveMixture(2, structure="binary", max_epochs=2, random_state=0).fit(frame)


def test_a_conditional_density_prints_in_one_line_of_users_words(model):
    density = model.condition({"height": 170.0, "age": (30, 40), HOSTILE: ["b", "c"]})
    text = repr(density)
    assert "\n" not in text
    assert len(text) < 400
    assert text.startswith("TableDensity of 10 columns (")
    assert "and 4 more" in text
    assert "height = 170.0" in text
    assert "age 30 to 40" in text
    assert f"{HOSTILE} in b, c" in text
    assert "given" not in repr(model.marginal(["height"]))
    assert "height <= 170" in repr(model.condition({"height": (None, 170)}))
    assert "height >= 170" in repr(model.condition({"height": (170, None)}))


def test_notebooks_show_small_escaped_tables(model):
    density = model.condition({HOSTILE: ["b"], "height": 170.0})
    for shown in (density, model.schema_, model.history_):
        page = shown._repr_html_()
        assert "<script" not in page
        assert "<table" in page
        assert len(page) < 6000
    assert "<td>= 170.0</td>" in density._repr_html_()
    assert "&lt;script&gt;" in density._repr_html_()


def test_fitted_estimators_show_their_columns_and_others_scikit_learns_diagram(model):
    page = model._html_repr()
    assert "<script" not in page
    assert "SubtractiveMixture, fitted: 11 columns" in page
    assert "<td>height</td>" in page
    assert "best epoch" in page
    assert "fitted: " not in sub.SubtractiveMixture()._html_repr()
    if parse_version(sklearn.__version__) >= parse_version("1.7"):  # which asks for our view
        assert model._repr_mimebundle_()["text/html"].count("<table") >= 1


def test_long_tables_are_cut():
    page = html_table("t", ["a"], [[i] for i in range(100)], most=10)
    assert page.count("<tr>") == 1 + 9 + 1
    assert "and 91 more" in page


def test_values_are_written_in_one_way_wherever_they_appear():
    """A time of day was a time in the schema and a duration in questions and the explorer."""
    times = [datetime.time(hour, minute) for hour in range(8, 18) for minute in (0, 15, 30, 45)]
    frame = pd.DataFrame({"at": times * 5, "cost": np.random.default_rng(0).normal(size=200)})
    model = sub.SubtractiveMixture(4, max_epochs=1, random_state=0).fit(frame)
    questions = " ".join(model.check(frame, n_questions=30).to_frame()["question"])
    assert re.search(r"at (<=|>=) \d\d:\d\d:00", questions)
    assert "days" not in questions
