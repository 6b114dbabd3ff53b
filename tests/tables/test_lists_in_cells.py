"""Cells of which a list of values is known, and sets of dates and of pandas' intervals."""

import numpy as np
import pandas as pd
import pytest
from frames import quick

import subtractive as sub

COUNT = 300
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=COUNT)
START = pd.Timestamp("2020-01-01")
FRAME = pd.DataFrame(
    {
        "x": X,
        "tenth": (X + RANDOM.normal(size=COUNT)).round(1),
        "rooms": RANDOM.integers(1, 6, COUNT),
        "city": np.where(X > 0, RANDOM.choice(["Oslo", "Rome"], COUNT), "Bern"),
        "day": START + pd.to_timedelta(RANDOM.integers(0, 300, COUNT), "D"),
    }
)
pytestmark = pytest.mark.filterwarnings("ignore::subtractive.DataWarning")


@pytest.fixture(scope="module", params=["squared", "monotonic"])
def model(request):
    return quick(kind=request.param, max_epochs=3).fit(FRAME)


def with_cell(name, cell):
    rows = FRAME.head(2).astype(object)
    rows.at[0, name] = cell
    return rows


@pytest.mark.parametrize(
    ("name", "values"),
    [("city", ["Oslo", "Bern"]), ("rooms", [1, 5]), ("city", ["Oslo", "Paris"])],
)
def test_the_score_of_a_list_of_states_is_the_sum_of_theirs(model, name, values):
    known = [value for value in values if value != "Paris"]
    each = pd.concat([FRAME.head(1)] * len(known)).assign(**{name: known})
    scores = model.score_samples(with_cell(name, values))
    assert scores[0] == pytest.approx(np.logaddexp.reduce(model.score_samples(each)), abs=1e-9)
    assert scores[1] == model.score_samples(FRAME.head(2))[1]
    assert model.score_samples(with_cell(name, set(values)))[0] == scores[0]


def test_the_score_of_a_list_on_a_grid_is_the_mass_of_its_cells(model):
    rows = with_cell("tenth", [0.0, 0.1, 0.4])
    rows.loc[0, ["x", "rooms", "city", "day"]] = None
    expected = model.probability({"tenth": [0.0, 0.1, 0.4]})
    assert np.exp(model.score_samples(rows)[0]) == pytest.approx(expected, rel=1e-9)


def test_a_cell_is_filled_from_its_list(model):
    rows = with_cell("city", ["Oslo", "Bern"])
    assert model.impute(rows).city[0] in ("Oslo", "Bern")
    drawn = model.impute(rows, n_draws=5, random_state=0)
    assert {table.city[0] for table in drawn} <= {"Oslo", "Bern"}
    given = {**FRAME.loc[0].drop(["city", "rooms", "tenth", "day"]), "city": ["Oslo", "Bern"]}
    rows.loc[0, ["rooms", "tenth", "day"]] = None
    shares = model.predict_proba(rows, "rooms")
    assert shares[1.0].iloc[0] == pytest.approx(
        model.probability({"rooms": [1]}, given=given), rel=1e-9
    )


def test_a_list_of_unknown_values_is_impossible(model):
    assert model.score_samples(with_cell("city", ["Paris"]))[0] == -np.inf


def test_columns_of_lists_are_set_aside():
    frame = FRAME[["x"]].assign(tags=[["a"], ["b", "c"]] * (COUNT // 2))
    with pytest.warns(sub.DataWarning, match="'tags' .it holds lists"):
        model = quick().fit(frame)
    assert model.schema_.aside == ("tags",)
    assert model.impute(frame).tags.tolist() == frame.tags.tolist()


def test_dates_may_be_censored(model):
    march = pd.Timestamp("2020-03-01")
    rows = with_cell("day", (march, None))
    rows.loc[0, ["x", "rooms", "city", "tenth"]] = None
    expected = model.probability({"day": (march, None)})
    assert np.exp(model.score_samples(rows)[0]) == pytest.approx(expected, rel=1e-9)
    assert pd.Timestamp(model.impute(rows).day[0]) >= march


def test_models_learn_from_censored_dates():
    """The limit is seen, too, and must not stand for all days behind it."""
    limit = START + pd.Timedelta(days=200)
    days = [(limit, None) if day > limit else day for day in FRAME.day]
    model = quick(max_epochs=10, structure="chow-liu").fit(FRAME[["x"]].assign(day=days))
    assert model.schema_.column("day").kind == "date"
    # Three standard errors.
    assert model.probability({"day": (limit, None)}) == pytest.approx(
        (FRAME.day >= limit).mean(), abs=3 * (0.25 / COUNT) ** 0.5
    )
    assert model.probability({"day": [limit]}) < 0.05


@pytest.mark.parametrize("closed", ["left", "right", "both", "neither"])
def test_intervals_of_pandas_are_evidence(model, closed):
    interval = pd.Interval(1, 3, closed=closed)
    values = [v for v in (1, 2, 3) if v in interval]
    assert model.probability({"rooms": interval}) == pytest.approx(
        model.probability({"rooms": values}), rel=1e-12
    )
    tenths = [v / 10 for v in range(10, 31) if v / 10 in interval]
    assert model.mean(given={"tenth": interval})["x"] == pytest.approx(
        model.mean(given={"tenth": tenths})["x"], rel=1e-6
    )
