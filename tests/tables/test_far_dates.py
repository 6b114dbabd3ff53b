"""Dates that stand for no end, and those of years that few programs have."""

import datetime

import numpy as np
import pandas as pd
import pytest
from frames import quick

import subtractive as sub

COUNT = 600
DAY = datetime.timedelta(days=1)
NO_END = datetime.date(9999, 12, 31)
RANDOM = np.random.default_rng(0)
LATELY = [datetime.date(2020, 1, 1) + int(k) * DAY for k in RANDOM.integers(0, 700, COUNT)]
OPEN = RANDOM.random(COUNT) < 0.4
ENDS = [NO_END if is_open else day for is_open, day in zip(OPEN, LATELY, strict=True)]
KINDS = {
    "dates of Python": (ENDS, NO_END, datetime.date),
    "dates of pandas": (np.array(ENDS, dtype="datetime64[s]"), pd.Timestamp(NO_END), pd.Timestamp),
    "texts": ([day.isoformat() for day in ENDS], "9999-12-31", str),
}


@pytest.mark.parametrize(("values", "no_end", "kind"), KINDS.values(), ids=KINDS)
def test_a_date_that_stands_for_no_end_is_an_atom_beside_a_grid_of_days(values, no_end, kind):
    frame = pd.DataFrame({"until": values, "x": RANDOM.normal(size=COUNT)})
    model = quick(structure="binary").fit(frame)
    told = model.schema_.to_frame().loc["until"]
    assert (told["resolution"], told["atoms"]) == ("1 day", "9999-12-31")
    assert f"{100 * OPEN.mean():.2g} % are 9999-12-31" in told["reason"]
    draws = model.sample(2000, random_state=0)["until"]
    assert all(isinstance(value, kind) for value in draws)
    share = model.probability({"until": [no_end]})
    error = 3.3 * (share * (1 - share) / 2000) ** 0.5  # false alarm: 1 in 1000
    assert (draws == no_end).mean() == pytest.approx(share, abs=error)
    a_day = next(value for value in values if value != no_end)
    assert model.probability({"until": [a_day]}) > 1e-4


def test_the_first_three_atoms_of_dates_are_written_as_dates():
    before = [datetime.date(1900, 1, 1) if o else d for o, d in zip(OPEN, LATELY, strict=True)]
    schema = sub.tables.Schema.infer(pd.DataFrame({"since": before}))
    assert "% are 1900-01-01; multiples of 1 day" in schema.reasons["since"]
    gaps = pd.to_timedelta(np.where(OPEN, 90, RANDOM.integers(1, 10**6, COUNT)), "s")
    schema = sub.tables.Schema.infer(pd.DataFrame({"gap": gaps}))
    assert "% are 0:01:30" in schema.reasons["gap"]


FIRST = datetime.date(1, 1, 1)
ANCIENT = {
    "since the year 1": [FIRST + int(k) * DAY for k in RANDOM.integers(0, 900_000, COUNT)],
    "until the year 9999": [NO_END - int(k) * DAY for k in RANDOM.integers(0, 9000, COUNT)],
}


@pytest.mark.parametrize("values", ANCIENT.values(), ids=ANCIENT)
def test_samples_and_answers_stay_in_the_calendar(values):
    frame = pd.DataFrame({"day": values, "x": RANDOM.normal(size=COUNT)})
    model = quick(structure="binary").fit(frame)
    draws = model.sample(5000, random_state=0)["day"]
    assert {type(day) for day in draws} == {datetime.date}
    assert np.isfinite(model.score_samples(frame)).all()
    assert len(model.marginals()) > 0
    assert model.quantile("day", [1e-6, 0.5]).tolist()[0] >= FIRST


def test_texts_of_ancient_dates_are_dates():
    texts = [day.isoformat() for day in ANCIENT["since the year 1"]]
    frame = pd.DataFrame({"day": texts, "x": RANDOM.normal(size=COUNT)})
    model = quick(structure="binary").fit(frame)
    assert model.schema_.column("day").text_format == "%Y-%m-%d"
    assert model.sample(50, random_state=0)["day"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()
