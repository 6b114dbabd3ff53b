"""Whatever pandas, polars, pyarrow and torch can put into a table: it fits, or says why not."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
import torch
from frames import quick

import subtractive as sub

COUNT = 80
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=COUNT)
START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
MOMENTS = [START + datetime.timedelta(hours=int(h)) for h in RANDOM.integers(0, 9999, COUNT)]
COLUMNS = {
    "x": X.tolist(),
    "decimal": [decimal.Decimal(int(v)) / 100 for v in RANDOM.integers(0, 9999, COUNT)],
    "list": [[1, 2]] * COUNT,
    "struct": [{"a": 1, "b": "x"}] * COUNT,
    "null": [None] * COUNT,
    "bytes": [b"a", b"b"] * (COUNT // 2),
    "moment": MOMENTS,
    "day": [moment.date() for moment in MOMENTS],
    "time": [moment.time() for moment in MOMENTS],
    "gap": [datetime.timedelta(seconds=int(v)) for v in RANDOM.integers(0, 9999, COUNT)],
    "nullable": [None if i % 7 == 0 else i % 5 for i in range(COUNT)],
    "bool": [None if i % 9 == 0 else bool(i % 2) for i in range(COUNT)],
    "text": ["a" if i % 3 else None for i in range(COUNT)],
    "float": [None if i % 4 == 0 else float(v) for i, v in enumerate(X)],
    "big": [2**60 + i for i in range(COUNT)],
}
ASIDE = {"list", "struct", "null", "bytes", "big"}
pytestmark = pytest.mark.filterwarnings("ignore::subtractive.DataWarning")


def of_pandas():
    return pd.DataFrame(
        {
            **COLUMNS,
            "period": pd.period_range("2020", periods=COUNT, freq="M"),
            "sparse": pd.arrays.SparseArray(np.where(X > 0, X, 0)),
            "complex": X + 1j,
            "mixed": [1, "a"] * (COUNT // 2),
            "set": [{1}] * COUNT,
            "zone": pd.to_datetime(MOMENTS).tz_convert("Europe/Oslo"),
            "Int64": pd.array(COLUMNS["nullable"], dtype="Int64"),
            "boolean": pd.array(COLUMNS["bool"], dtype="boolean"),
            "string": pd.array(COLUMNS["text"], dtype="string"),
            "nothing": [pd.NaT] * COUNT,
            "category": pd.Categorical(RANDOM.integers(0, 3, COUNT)),
        }
    )


def of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(COLUMNS, strict=False)
    return frame.with_columns(
        polars.Series("category", ["u", "v"] * (COUNT // 2), dtype=polars.Categorical),
        polars.Series("enum", ["u", "v"] * (COUNT // 2), dtype=polars.Enum(["u", "v", "w"])),
        polars.Series("small", [1, 2] * (COUNT // 2), dtype=polars.UInt8),
        polars.Series("zone", MOMENTS).dt.convert_time_zone("Europe/Oslo"),
    )


def of_pyarrow():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({name: arrow.array(values) for name, values in COLUMNS.items()})
    words = arrow.array(["u", "v"] * (COUNT // 2))
    table = table.append_column("dictionary", words.dictionary_encode())
    zoned = arrow.array(MOMENTS, type=arrow.timestamp("us", tz="Europe/Oslo"))
    return table.append_column("zone", zoned)


def of_arrow_in_pandas():
    return of_pyarrow().to_pandas(types_mapper=pd.ArrowDtype)


@pytest.mark.parametrize("make", [of_pandas, of_polars, of_pyarrow, of_arrow_in_pandas])
def test_a_table_of_everything_fits_and_comes_back(make):
    table = make()
    model = quick(n_components=2, structure="binary").fit(table)
    assert set(model.schema_.aside) >= ASIDE
    assert {"moment", "day", "time", "gap", "nullable", "decimal"} <= set(model.schema_.place)
    assert np.isfinite(model.score_samples(table)).all()
    drawn = model.sample(5, random_state=0)
    assert type(drawn) is type(table)
    assert list(model.schema_.names) == list(getattr(drawn, "column_names", drawn.columns))
    filled = model.impute(table)
    assert type(filled) is type(table)


@pytest.mark.parametrize("make", [of_polars, of_pyarrow])
def test_tables_of_other_libraries_are_completed_by_a_model_that_was_loaded(make, tmp_path):
    table = make()
    model = quick(n_components=2, structure="binary").fit(table)
    model.save(tmp_path / "model")
    filled, expected = sub.load(tmp_path / "model").impute(table), model.impute(table)
    assert type(filled) is type(table)
    assert filled.schema == expected.schema
    assert filled.equals(expected)


def test_whole_numbers_of_128_bits_are_saved(tmp_path):
    polars = pytest.importorskip("polars")
    whole = polars.Series(RANDOM.integers(0, 500, COUNT)).cast(polars.Int128)
    table = polars.DataFrame({"x": X, "whole": whole})
    model = quick(n_components=2, structure="binary").fit(table)
    model.save(tmp_path / "model")
    assert sub.load(tmp_path / "model").score(table) == model.score(table)
    assert model.sample(3, random_state=0).schema == {"x": polars.Float64, "whole": polars.Int64}


def test_tensors_and_masked_arrays_are_arrays():
    array = np.column_stack([X, X**2])
    expected = quick().fit(array).score_samples(array)
    tensor = torch.tensor(array, requires_grad=True)
    np.testing.assert_array_equal(quick().fit(tensor).score_samples(tensor), expected)
    masked = np.ma.masked_array(array, mask=np.zeros_like(array, dtype=bool))
    masked[0, 0] = np.ma.masked
    model = quick().fit(masked)
    assert not np.isnan(model.impute(masked)).any()


FRAME = pd.DataFrame({"a": X, "b": X**2, "c": np.where(X > 0, "u", "v")})
CALLS = {
    "score_samples": lambda m, t: m.score_samples(t),
    "score": lambda m, t: m.score(t),
    "impute": lambda m, t: m.impute(t),
    "predict": lambda m, t: m.predict(t, "a"),
    "predict_proba": lambda m, t: m.predict_proba(t, "c"),
    "sample": lambda m, t: m.sample(given=t, random_state=0),
    "ask": lambda m, t: m.ask("P(c = u)", t),
    "check": lambda m, t: m.check(t, n_questions=1),
}


@pytest.fixture(scope="module")
def asked():
    model = quick().fit(FRAME)
    return {"the model": model, "a marginal": model.marginal(["a", "b", "c"])}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("what", ["the model", "a marginal"])
def test_columns_are_those_of_the_fit_in_their_order(call, what, asked):
    call(asked[what], FRAME)
    for table in (FRAME.assign(more=1.0), FRAME[["b", "a", "c"]], FRAME[["a", "b"]]):
        with pytest.raises(ValueError, match="feature names should match|needs the columns"):
            call(asked[what], table)


DAY = datetime.date(2020, 1, 1)
LATER = datetime.date(2021, 1, 1)
TYPED = {
    "booleans with gaps": ([True, None, False, True], object, bool),
    "decimals": ([decimal.Decimal(v) for v in ("1.25", "0.10", "7.00", "3.5")], object, None),
    "decimals with gaps": (
        [decimal.Decimal("1.25"), None, decimal.Decimal("7")] * 2,
        object,
        None,
    ),
    "categories of dates": (pd.Categorical(pd.to_datetime([DAY, LATER] * 2)), None, pd.Timestamp),
    "sparse numbers": (pd.arrays.SparseArray([0.0, 1.5, 0.0, 2.5]), None, float),
    "a constant date": ([DAY] * 4, object, datetime.date),
    "a constant time": ([datetime.time(3)] * 4, object, datetime.time),
    "a constant boolean": ([True, None] * 2, object, bool),
    "a constant decimal": ([decimal.Decimal("1.5")] * 4, object, decimal.Decimal),
}


@pytest.mark.parametrize("what", TYPED)
def test_values_come_back_as_what_they_were(what, tmp_path):
    values, dtype, kind = TYPED[what]
    column = pd.Series(np.resize(np.asarray(values, dtype=object), COUNT))
    column = column.astype(dtype or getattr(values, "dtype", None))
    frame = pd.DataFrame({"x": X, "y": column})
    model = quick(n_components=2, structure="binary").fit(frame)
    assert "y" not in model.schema_.aside
    drawn, filled = model.sample(20, random_state=0), model.impute(frame)
    known = column.notna()
    assert filled.y[known].tolist() == column[known].tolist()
    for table in (drawn, filled):
        assert table.y.dtype == column.dtype
        assert not table.y.isna().any()
        assert all(isinstance(value, kind or decimal.Decimal) for value in table.y)
    path = tmp_path / "model.safetensors"
    model.save(path)
    pd.testing.assert_frame_equal(sub.load(path).sample(20, random_state=0), drawn)


def test_a_constant_date_is_known_by_its_date():
    frame = pd.DataFrame({"x": X, "day": [DAY] * COUNT})
    with pytest.warns(sub.DataWarning, match="point mass at 2020-01-01"):
        model = quick(n_components=2).fit(frame)
    assert model.schema_.to_frame().loc["day", "support"] == "2020-01-01"
    assert model.probability({"day": [DAY]}) == 1
    assert model.probability({"day": (DAY, None)}) == 1
    assert model.probability({"day": "2021-01-01"}) == 0
    assert model.ask("P(x > 0 | day = 2020-01-01)").probability == model.probability(
        {"x": (0.0, None)}
    )


def test_means_of_dates_are_dates():
    frame = pd.DataFrame({"x": X, "at": pd.to_datetime(MOMENTS), "took": COLUMNS["gap"]})
    model = quick(n_components=2, structure="chow-liu").fit(frame)
    mean, std = model.mean(), model.std()
    assert abs(mean["at"] - frame["at"].mean()) < frame["at"].std()
    assert mean["at"].tzinfo is not None
    assert isinstance(mean["took"], pd.Timedelta)
    assert abs(std["at"] / frame["at"].std() - 1) < 0.5
    told = model.marginals()
    assert isinstance(told.value[told.column == "at"].iloc[0], pd.Timestamp)


def test_names_of_columns_may_be_tuples():
    frame = pd.DataFrame({("a", 1): X, ("a", 2): X + RANDOM.normal(size=COUNT)})
    model = quick(n_components=2).fit(frame)
    assert model.dependence(n_samples=20).shape == (2, 2)
    covariance = model.cov()
    assert covariance.loc[("a", 1), ("a", 2)] == covariance.loc[("a", 2), ("a", 1)]


def test_texts_most_of_which_occur_once_are_set_aside():
    frame = pd.DataFrame({"x": X, "name": [f"car {min(i, 59)}" for i in range(COUNT)]})
    with pytest.warns(sub.DataWarning, match="60 different texts: free text"):
        assert quick(n_components=2).fit(frame).schema_.aside == ("name",)


DATED = pd.DataFrame(
    {
        "x": X,
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RANDOM.integers(0, 365, COUNT), "D"),
        "took": pd.to_timedelta(RANDOM.integers(0, 10**5, COUNT), "s"),
        "at": [datetime.time(int(hour)) for hour in RANDOM.integers(0, 24, COUNT)],
    }
)


@pytest.fixture(scope="module")
def dated():
    return quick(n_components=2, structure="binary").fit(DATED)


@pytest.mark.parametrize(
    ("name", "words", "value"),
    [
        ("day", "2020-05-01", pd.Timestamp("2020-05-01")),
        ("took", "1h", pd.Timedelta("1h")),
        ("at", "03:00", datetime.time(3)),
    ],
)
def test_dates_that_are_given_in_words_are_dates(name, words, value, dated):
    drawn = dated.sample(2, given={name: words}, random_state=0)
    assert drawn.equals(dated.sample(2, given={name: value}, random_state=0))
    assert drawn[name].tolist() == [value] * 2
    assert dated.mean({name: words}).equals(dated.mean({name: value}))


def test_the_mean_given_one_day_is_that_day(dated):
    assert dated.mean({"day": ["2020-05-01"]})["day"] == pd.Timestamp("2020-05-01")
    assert dated.std({"day": ["2020-05-01"]})["day"] == pd.Timedelta(0)


@pytest.fixture(scope="module")
def typed():
    days = pd.date_range("2020-01-01", periods=3)
    frame = pd.DataFrame(
        {
            "x": X,
            "flag": X > 0,
            "rooms": RANDOM.integers(1, 4, COUNT),
            "day": pd.Categorical(RANDOM.choice(days, COUNT)),
        }
    )
    return frame, quick(n_components=2, structure="binary").fit(frame)


def test_predictions_have_the_types_of_their_columns(typed):
    frame, model = typed
    found = model.predict(frame)
    assert found["flag"].dtype == bool
    assert found["rooms"].dtype.kind == "i"
    assert found["x"].dtype == float
    assert set(found["day"]) <= set(frame["day"])
    assert model.predict_proba(frame, "flag").columns.tolist() == [False, True]
    assert [repr(v) for v in model.predict_proba(frame, "rooms").columns] == ["1", "2", "3"]
    assert model.predict_proba(frame, "day").columns.tolist() == sorted(set(frame["day"]))


def test_means_of_categories_that_are_dates_are_dates(typed):
    frame, model = typed
    mean = model.mean()["day"]
    assert abs(mean - frame["day"].astype("datetime64[us]").mean()) < pd.Timedelta("12h")


def test_messages_name_booleans_as_such(typed):
    _, model = typed
    with pytest.raises(ValueError, match=r"2 categories \(false, true\)"):
        model.probability({"flag": ["x"]})
    with pytest.raises(ValueError, match="has no value 'maybe'; it has false, true"):
        model.ask("P(flag = maybe)")


@pytest.mark.parametrize("rows", [list, tuple])
def test_lists_of_rows_are_tables(rows):
    array = np.column_stack([X, X**2])
    model = quick(n_components=2, structure="binary").fit(array)
    listed = rows(map(tuple, array[:3]))
    np.testing.assert_array_equal(model.predict(listed, 1), model.predict(array[:3], 1))
    assert len(model.predict(listed)) == 3
