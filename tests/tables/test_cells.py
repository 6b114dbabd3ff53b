"""A value given of a column on a grid is its cell, wherever it is given or asked."""

import datetime

import numpy as np
import pandas as pd
import pytest
from frames import quick

import subtractive as sub
from subtractive.tables.grids import find_grid

COUNT = 400
RANDOM = np.random.default_rng(0)
LEVEL = RANDOM.normal(size=COUNT)
FRAME = pd.DataFrame(
    {
        "tenth": (LEVEL + 0.3 * RANDOM.normal(size=COUNT)).round(1),
        "rain": np.where(RANDOM.random(COUNT) < 0.5, 0.0, RANDOM.gamma(2.0, 3.0, COUNT)).round(1),
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RANDOM.integers(0, 300, COUNT), "D"),
        "x": LEVEL,
        "city": np.where(LEVEL > 0, "Oslo", "Rome"),
    }
)
VALUES = [("tenth", 0.3), ("tenth", -1.0), ("rain", 0.0), ("rain", 2.5)]
VALUES += [("day", pd.Timestamp("2020-03-01"))]


@pytest.fixture(scope="module", params=["squared", "monotonic"])
def model(request):
    return quick(kind=request.param, max_epochs=3).fit(FRAME)


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_conditional_is_a_joint_over_a_marginal(model, name, value):
    event = {"x": (0.0, None), "city": ["Oslo"]}
    joint = model.probability({**event, name: [value]})
    assert model.probability(event, given={name: value}) == pytest.approx(
        joint / model.probability({name: [value]}), rel=1e-9
    )
    assert model.condition({name: value}).probability(event) == pytest.approx(
        model.probability(event, given={name: [value]}), rel=1e-9
    )
    assert model.mean(given={name: value})["x"] == pytest.approx(
        model.mean(given={name: [value]})["x"], rel=1e-6
    )


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_samples_have_the_value_that_was_given(model, name, value):
    drawn = model.sample(300, given={name: value}, random_state=0)
    assert (drawn[name] == value).all()
    share = model.probability({"city": ["Oslo"]}, given={name: value})
    # Four standard errors.
    assert (drawn["city"] == "Oslo").mean() == pytest.approx(
        share, abs=4 * (share * (1 - share) / 300) ** 0.5
    )


def test_a_value_beside_the_grid_is_rounded_to_it(model):
    assert model.mean(given={"tenth": 0.32})["x"] == model.mean(given={"tenth": 0.3})["x"]


def test_nothing_given_is_nothing_known(model):
    event = {"x": (0.0, None)}
    assert model.probability(event, given={}) == model.probability(event)
    assert model.condition({}).probability(event) == model.probability(event)
    drawn = model.sample(5, given={}, random_state=0)
    pd.testing.assert_frame_equal(drawn, model.sample(5, random_state=0))
    assert (model.mean(given={})["x"], len(model.quantiles([0.5], given={}))) == (
        model.mean()["x"],
        1,
    )


def test_the_schema_speaks_as_a_person_does():
    table = sub.tables.Schema.infer(FRAME).to_frame()
    assert table.loc["day", "resolution"] == "1 day"
    assert table.loc["rain", ["support", "resolution", "atoms"]].tolist() == [
        "0 to inf",
        "0.1",
        "0",
    ]
    hours = pd.DataFrame({"at": [datetime.timedelta(hours=3 * h) for h in range(50)]})
    assert sub.tables.Schema.infer(hours).to_frame().loc["at", "resolution"] == "3 hours"


def test_a_question_to_rows_takes_intervals_in_their_cells(model):
    rows = FRAME.head(2).astype(object)
    rows.at[0, "x"] = (0.0, None)
    rows.loc[0, ["tenth", "rain", "day"]] = None
    from subtractive.tables.row_queries import row_probabilities

    shares = row_probabilities(model._view(), model._read(rows), {"city": ["Oslo"]})
    assert shares[0] == pytest.approx(
        model.probability({"city": ["Oslo"]}, given={"x": (0.0, None)}), rel=1e-9
    )
    whole = row_probabilities(model._view(), model._read(FRAME.head(2)), {"city": ["Oslo"]})
    assert shares[1] == pytest.approx(whole[1], rel=1e-12)


def test_a_gap_among_few_numbers_is_the_one_next_to_the_mean():
    random = np.random.default_rng(0)
    rooms = random.choice([1, 2, 3, 9], 300, p=[0.3, 0.2, 0.2, 0.3])
    frame = pd.DataFrame({"rooms": rooms, "x": random.normal(rooms, 3.0)})
    model = quick(max_epochs=3).fit(frame)
    gaps = pd.DataFrame({"rooms": [np.nan] * 20, "x": np.linspace(-3.0, 12.0, 20)})
    shares = model.predict_proba(gaps, "rooms")
    means = shares.to_numpy() @ shares.columns.to_numpy(dtype=float)
    nearest = shares.columns.to_numpy()[np.abs(means[:, None] - [1, 2, 3, 9]).argmin(1)]
    assert model.impute(gaps)["rooms"].tolist() == nearest.tolist()
    assert set(model.predict(gaps, "rooms")) <= {1, 2, 3, 9}


def mistyped(num_rows):
    """Tenths, but for one number."""
    values = np.random.default_rng(0).normal(20.0, 3.0, num_rows).round(1)
    values[7] = 21.437
    return pd.DataFrame({"a": values, "b": values.round() + np.arange(num_rows) % 3})


def test_one_mistyped_number_in_ten_thousand_leaves_the_resolution():
    table = mistyped(10_000)
    model = sub.SubtractiveMixture(structure="flat", max_epochs=1, random_state=0).fit(table)
    column = model.schema_.column("a")
    assert column.grid.step == 0.1
    assert "multiples of 0.1 but for 1 row" in str(model.schema_)
    drawn = model.sample(500, random_state=0)["a"].to_numpy()
    np.testing.assert_allclose(drawn, drawn.round(1), rtol=0, atol=1e-9)
    # Where it is given it is the cell of 21.4, and its score is beside that of 21.4.
    events = [{"a": value} for value in (21.4, 21.437)]
    first, second = (model.probability({"b": (None, 21.5)}, given=one) for one in events)
    assert first == pytest.approx(second, rel=1e-9)
    scores = model.score_samples(pd.DataFrame({"a": [21.4, 21.437, 21.5], "b": [21.0] * 3}))
    assert np.ptp(scores) < 1
    holes = table.head(20).assign(b=np.nan)
    filled = model.impute(holes)
    assert filled["a"][7] == 21.437
    assert np.isfinite(filled["b"]).all()


def test_a_mistyped_number_among_few_rows_is_a_number_like_others():
    distinct, counts = np.unique(mistyped(5_000)["a"], return_counts=True)
    assert find_grid(distinct, counts.astype(float), 1e-15).step == pytest.approx(0.001)
    distinct, counts = np.unique(mistyped(10_000)["a"], return_counts=True)
    assert find_grid(distinct, counts.astype(float), 1e-15).step == 0.1
