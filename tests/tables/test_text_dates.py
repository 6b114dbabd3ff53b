"""Dates held as text are dates, and come back as text of the same form."""

import numpy as np
import pandas as pd
import pytest
from frames import quick
from hypothesis import given
from hypothesis import strategies as st

import subtractive as sub
from subtractive.tables.text_dates import FORMATS, find_format, format_dates, parse_dates

COUNT = 300
RANDOM = np.random.default_rng(0)
DAYS = pd.Series(pd.Timestamp("2019-11-20") + pd.to_timedelta(RANDOM.integers(0, 500, COUNT), "D"))
WARM = RANDOM.normal(10 * np.cos(2 * np.pi * DAYS.dt.day_of_year / 365), 1.0)


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_is_recognised_and_written_back(fmt):
    moments = DAYS + pd.to_timedelta(RANDOM.integers(0, 86_400 * 10**6, COUNT), "us")
    texts = moments.dt.strftime(fmt).tolist()
    assert find_format(texts) == fmt
    numbers = parse_dates(np.array([*texts, None, "soon"], dtype=object), fmt)
    assert np.isnan(numbers[-2:]).all()
    assert format_dates(numbers, fmt).tolist() == [*texts, None, None]


@given(st.lists(st.text(max_size=12), min_size=2))
def test_no_text_breaks_the_search(texts):
    fmt = find_format(texts)
    if fmt is not None:
        assert format_dates(parse_dates(np.array(texts, dtype=object), fmt), fmt).tolist() == texts


@pytest.mark.parametrize(
    "fmt",
    [
        pytest.param("%Y-%m-%d", marks=pytest.mark.slow),
        "%d.%m.%Y",
        pytest.param("%Y-%m-%dT00:00:00+02:00", marks=pytest.mark.slow),
    ],
)
def test_a_column_of_dates_as_text_is_modelled_as_dates(fmt, tmp_path):
    frame = pd.DataFrame({"day": DAYS.dt.strftime(fmt), "warm": WARM})
    frame.loc[::10, "day"] = None
    fitted = quick().fit(frame)
    fitted.save(tmp_path / "m")
    for model in (fitted, sub.load(tmp_path / "m")):
        assert model.schema_.column("day").kind == "date"
        drawn = model.sample(50, random_state=0)["day"]
        assert drawn.dtype == frame["day"].dtype
        assert pd.to_datetime(drawn, format=fmt).notna().all()
        filled = model.impute(frame)["day"]
        pd.testing.assert_series_equal(filled[frame.day.notna()], frame.day.dropna())
        assert pd.to_datetime(filled, format=fmt).notna().all()
        middle = model.quantile("day", 0.5).iloc[0]
        below = model.probability({"day": (None, middle)})
        assert below == pytest.approx(0.5, abs=0.02)
        # Days of midsummer, written in the form of the table, and as dates.
        ends = pd.Timestamp("2020-06-01"), pd.Timestamp("2020-07-31")
        texts = tuple(end.strftime(fmt) for end in ends)
        mean = model.mean(given={"day": texts})["warm"]
        assert mean == pytest.approx(model.mean(given={"day": ends})["warm"], rel=1e-12)
        assert mean < model.mean()["warm"]
        assert model.sample(3, given={"day": texts[0]}, random_state=0)["day"].eq(texts[0]).all()
        answer = model.ask(f"P(warm > 0 | day > {texts[0]})").probability
        expected = model.probability(
            {"warm": (0, None)}, given={"day": (ends[0] + pd.Timedelta("1D"), None)}
        )
        assert answer == pytest.approx(expected, rel=1e-9)
        assert isinstance(model.predict(frame.head(3), "day").iloc[0], str)


def test_text_that_is_no_date_is_integrated_out_with_a_warning():
    frame = pd.DataFrame({"day": DAYS.dt.strftime("%Y-%m-%d"), "warm": WARM})
    model = quick().fit(frame)
    strange = frame.head(2).assign(day=["soon", frame.day[1]])
    with pytest.warns(sub.DataWarning, match="integrated out: column 'day' in 1 rows"):
        scores = model.score_samples(strange)
    expected = model.score_samples(strange.assign(day=[None, frame.day[1]]))
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=0)


def test_dates_may_be_declared_categories():
    frame = pd.DataFrame({"day": np.tile(["2020-01-01", "2020-02-01"], 60), "x": np.arange(120.0)})
    model = quick(schema={"day": "categorical"}).fit(frame)
    assert model.schema_.column("day").values == ("2020-01-01", "2020-02-01")


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.slow), "Europe/Oslo"])
def test_times_with_zones_come_back_with_their_zone(zone):
    moments = DAYS.dt.tz_localize("UTC").dt.tz_convert(zone) + pd.Timedelta("90min")
    frame = pd.DataFrame({"at": moments, "warm": WARM})
    frame.loc[::9, "at"] = pd.NaT
    model = quick().fit(frame)
    drawn = model.sample(20, random_state=0)["at"]
    assert drawn.dtype == frame["at"].dtype
    assert drawn.between(moments.min(), moments.max()).mean() > 0.9
    filled = model.impute(frame)["at"]
    assert filled.dtype == frame["at"].dtype
    pd.testing.assert_series_equal(filled[frame["at"].notna()], frame["at"].dropna())
    middle = model.quantile("at", 0.5).iloc[0]
    assert middle.tzinfo is not None
    assert model.probability({"at": (None, middle)}) == pytest.approx(0.5, abs=0.02)
