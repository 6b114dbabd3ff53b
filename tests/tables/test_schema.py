"""Schemas: what columns are taken for, and the way to the model and back."""

import warnings

import numpy as np
import pandas as pd
import pytest
from frames import BOUNDS, mixed_frame
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import subtractive as sub
from subtractive.tables.columns import Numeric
from subtractive.tables.states import States
from subtractive.tables.validation import read_table

FRAME = mixed_frame()
KINDS = {
    "age": "continuous",
    "rooms": "whole",
    "visits": "whole",
    "city": "categorical",
    "owner": "boolean",
    "share": "continuous",
    "income": "continuous",
    "grade": "categorical",
    "year": "whole",
    "depth": "continuous",
    "change": "whole",
    "agreed": "boolean",
    "label": "categorical",
}


def round_trip(schema, table):
    encoded = schema.encode_table(read_table(table))
    assert not encoded.impossible
    return schema.build(schema.decode(encoded.x.nan_to_num(0.0)))


def test_each_column_is_taken_for_what_it_is():
    schema = sub.tables.Schema.infer(FRAME, schema=BOUNDS)
    assert {column.name: column.kind for column in schema.variables} == KINDS


def test_all_kinds_of_values_come_back_with_their_names_and_types():
    schema = sub.tables.Schema.infer(FRAME, schema=BOUNDS)
    back = round_trip(schema, FRAME)
    assert list(back.columns) == list(FRAME.columns)
    assert (back.dtypes == FRAME.dtypes).all()
    complete = FRAME.notna().all(axis=1)
    for name in FRAME.columns:
        there = FRAME.loc[complete, name]
        if isinstance(there.dtype, np.dtype) and there.dtype.kind == "f":
            np.testing.assert_allclose(back.loc[complete, name], there, rtol=1e-6, atol=0)
        else:
            pd.testing.assert_series_equal(back.loc[complete, name], there)


def test_declared_categories_are_states_even_if_none_is_there():
    schema = sub.tables.Schema.infer(FRAME[["grade", "age"]])
    assert schema.variables[0].values == ("low", "middle", "high")


def test_a_level_that_is_declared_is_possible_where_all_rows_have_another_one():
    dtype = pd.CategoricalDtype(["x", "y"])
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5, 3.0] * 5, "b": pd.Series(["x"] * 20, dtype=dtype)})
    model = sub.SubtractiveMixture(max_epochs=1, random_state=0).fit(frame)
    assert model.schema_.column("b").values == ("x", "y")
    assert 0 < model.probability({"b": "y"}) < 0.05
    other = pd.DataFrame({"a": [1.5], "b": pd.Series(["y"], dtype=dtype)})
    assert np.isfinite(model.score_samples(other)).all()


@pytest.mark.parametrize(
    ("values", "kind"),
    {
        "many real numbers": (np.linspace(0, 1, 100), Numeric),
        "few real numbers": (np.repeat([0.1, 0.2, 0.7], 20), States),
        "few values, each rare": (np.arange(10) / 7, Numeric),
        "whole numbers as floats": (np.repeat([1.0, 2.0, np.nan], 20), States),
        "counts": (np.arange(100), Numeric),
        "many values, each often": (np.repeat(np.arange(100), 100), States),
        "negative whole numbers": (np.arange(-50, 50), Numeric),
        "booleans": ([True, False] * 5, States),
        "texts": (["a", "b"] * 5, States),
        "booleans with gaps": ([True, False, None] * 5, States),
    }.values(),
)
def test_the_values_of_a_column_suggest_its_kind(values, kind):
    schema = sub.tables.Schema.infer(pd.DataFrame({"x": values}))
    assert type(schema.variables[0]) is kind


def test_the_user_has_the_last_word_on_a_column():
    columns = {
        "rooms": "continuous",
        "visits": "categorical",
        "year": sub.tables.Continuous(lower=0, upper=3000),
        "city": sub.tables.Categories(["Oslo", "Bergen", "Rome", "Paris"]),
    }
    schema = sub.tables.Schema.infer(FRAME, schema=columns)
    found = {column.name: column for column in schema.variables}
    assert [type(found[name]) for name in columns] == [Numeric, States, Numeric, States]
    assert (found["year"].high, len(found["city"].values)) == (pytest.approx(3000.5), 4)


def test_the_columns_of_an_array_are_continuous():
    array = np.random.default_rng(0).integers(0, 3, (100, 2))
    schema = sub.tables.Schema.infer(array)
    assert all(type(column) is Numeric for column in schema.variables)
    back = round_trip(schema, array)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_two_whole_numbers_of_an_array_are_states():
    array = np.random.default_rng(0).integers(0, 2, (100, 2)).astype(np.uint8)
    schema = sub.tables.Schema.infer(array)
    assert all(isinstance(column, States) for column in schema.variables)
    np.testing.assert_array_equal(round_trip(schema, array), array, strict=True)
    floats = sub.tables.Schema.infer(array.astype(float))
    assert not any(isinstance(column, States) for column in floats.variables)


def test_a_boolean_array_holds_states():
    array = np.random.default_rng(0).random((50, 2)) < 0.5
    schema = sub.tables.Schema.infer(array)
    assert all(type(column) is States for column in schema.variables)
    np.testing.assert_array_equal(round_trip(schema, array), array, strict=True)


def test_whole_weights_count_as_rows_when_values_are_few():
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    assert type(sub.tables.Schema.infer(frame).variables[0]) is Numeric
    weighted = sub.tables.Schema.infer(frame, sample_weight=[4, 4, 4])
    repeated = sub.tables.Schema.infer(pd.concat([frame] * 4))
    assert weighted.variables == repeated.variables
    assert type(weighted.variables[0]) is States


def test_constant_and_equal_columns_are_no_variables_of_their_own():
    frame = pd.DataFrame({"a": [1.5, 2.5, 4.0], "b": [1.5, 2.5, 4.0], "c": ["x"] * 3})
    with pytest.warns(sub.DataWarning) as caught:
        schema = sub.tables.Schema.infer(frame)
    messages = [str(warning.message) for warning in caught]
    assert messages[0].startswith("column 'c' is constant: it is modelled as a point mass at x,")
    assert messages[1].startswith("column 'b' equals column 'a' in every row")
    assert len(schema.variables) == 1
    pd.testing.assert_frame_equal(round_trip(schema, frame), frame)


@pytest.mark.parametrize(("num_rare", "are_copies"), [(1, False), (9, False), (10, True)])
def test_columns_that_agree_by_chance_in_rare_values_are_not_copies(num_rare, are_copies):
    values = [1] * num_rare + [0] * (1000 - num_rare)
    frame = pd.DataFrame({"a": values, "b": values, "c": np.arange(1000) % 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sub.DataWarning)
        model = sub.SubtractiveMixture(max_epochs=1, random_state=0).fit(frame)
    place = model.schema_.place
    assert (place["a"] == place["b"]) == are_copies
    score = model.score_samples(pd.DataFrame({"a": [1], "b": [0], "c": [0]}))[0]
    assert np.isfinite(score) == (not are_copies)


def test_columns_with_different_gaps_are_not_copies():
    frame = pd.DataFrame({"a": [1.5, 2.5, np.nan, 3.0], "b": [1.5, 2.5, 4.0, 3.0]})
    assert len(sub.tables.Schema.infer(frame).variables) == 2


def test_rows_without_weight_do_not_count():
    frame = pd.DataFrame({"a": [1.5, 2.5, np.inf], "b": ["x", "y", "z"]})
    schema = sub.tables.Schema.infer(frame, sample_weight=[1, 2, 0])
    assert schema.variables[1].values == ("x", "y")


def test_bounds_are_those_of_the_columns_precision():
    column = np.array([0.1, 0.05, 0.02], dtype=np.float32)
    bounds = {"x": sub.tables.Continuous(0, 0.1)}
    schema = sub.tables.Schema.infer(pd.DataFrame({"x": column}), schema=bounds)
    (column,) = schema.variables
    assert bool(column.possible(np.array([np.float32(0.1)], dtype=np.float64))[0])
    assert np.float32(column.decode(np.array([50.0]))[0]) <= np.float32(0.1)


FLOATS = st.floats(-1e12, 1e12, allow_subnormal=False)


@given(hnp.arrays(np.float64, st.integers(2, 30), elements=FLOATS, unique=True))
def test_numbers_of_any_size_come_back(values):
    frame = pd.DataFrame({"x": values})
    schema = sub.tables.Schema.infer(frame, schema={"x": "continuous"})
    back = round_trip(schema, frame)["x"]
    # Centring loses what is small beside the spread of the column.
    np.testing.assert_allclose(back, values, rtol=1e-9, atol=1e-9 * np.abs(values).max())


@given(hnp.arrays(np.float64, st.integers(2, 30), elements=st.floats(1e-9, 1e9), unique=True))
def test_positive_numbers_come_back_and_stay_positive(values):
    frame = pd.DataFrame({"x": values})
    schema = sub.tables.Schema.infer(frame, schema={"x": sub.tables.Continuous(0)})
    back = round_trip(schema, frame)["x"]
    np.testing.assert_allclose(back, values, rtol=1e-9, atol=1e-9 * values.max())
    assert (back > 0).all()


@given(st.lists(st.text(), min_size=2, unique=True), st.data())
def test_texts_come_back(categories, data):
    chosen = data.draw(st.lists(st.sampled_from(categories), min_size=2))
    frame = pd.DataFrame({"x": pd.Series(chosen, dtype=object)})
    schema = sub.tables.Schema.infer(frame, schema={"x": sub.tables.Categories(categories)})
    assert round_trip(schema, frame)["x"].tolist() == chosen


@given(hnp.arrays(np.int64, st.integers(2, 30), elements=st.integers(-(2**40), 2**40)))
def test_whole_numbers_come_back_exactly(values):
    if len(set(values)) < 2:
        return
    frame = pd.DataFrame({"x": values})
    schema = sub.tables.Schema.infer(frame, schema={"x": "continuous"})
    np.testing.assert_array_equal(round_trip(schema, frame)["x"], values, strict=True)
