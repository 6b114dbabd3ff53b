"""Ends of columns towards which the density does not fall, and rows that are beyond them."""

import numpy as np
import pandas as pd
import pytest
from frames import quick, table_nodes

import subtractive as sub
from subtractive.tables.schema_description import describe_schema, schema_from

COUNT = 1500
DAYS = np.random.default_rng(0).integers(1, 366, COUNT)


def schema_of(values):
    return sub.tables.Schema.infer(pd.DataFrame({"x": values}))


def seconds(values):
    return pd.to_timedelta(np.round(1e3 * np.asarray(values)), unit="ms")


EVEN = {
    "days of the year": (lambda random: random.integers(1, 366, COUNT), (1, 365)),
    "both signs": (lambda random: random.uniform(-1, 1, COUNT), (-1, 1)),
    "angles": (lambda random: random.uniform(-180, 180, COUNT), (-180, 180)),
    "latitudes": (lambda random: random.uniform(37.5, 44.5, COUNT).round(2), (37.5, 44.5)),
    "hours": (lambda random: random.integers(0, 24, COUNT), (0, 23)),
    "halves": (lambda random: random.integers(0, 100, COUNT) + 0.5, (0.5, 99.5)),
    "steep at one end": (lambda random: 5 + random.exponential(3, COUNT), (5, np.inf)),
}


@pytest.mark.parametrize(("draw", "ends"), EVEN.values(), ids=EVEN)
def test_a_density_that_does_not_fall_towards_an_end_has_a_bound_there(draw, ends):
    # Seldom, an even column is taken for one whose density falls: not with these seeds.
    for seed in range(3):
        column = schema_of(draw(np.random.default_rng(seed))).column("x")
        spread = column.grid.step / 2 if column.grid else 0.0
        low, high = column.low + spread, column.high - spread
        assert (low, high) == pytest.approx(ends, rel=1e-6)


FALLING = {
    "normal": lambda random, n: random.normal(50, 10, n),
    "whole numbers of a normal": lambda random, n: random.normal(500, 100, n).round(),
    "few whole numbers": lambda random, n: random.normal(50, 9, n).round(),
    "heavy tails": lambda random, n: 5 + random.standard_t(3, n),
    "a bell between two numbers": lambda random, n: 7 + 3 * random.beta(3, 3, n),
    "two groups": lambda random, n: random.normal(0, 3, n) + 100 * (random.random(n) < 0.1),
    "counts": lambda random, n: random.poisson(2000, n),
}


@pytest.mark.parametrize("draw", FALLING.values(), ids=FALLING)
@pytest.mark.parametrize("count", [700, 6000])
def test_a_density_that_falls_towards_its_ends_has_no_bounds(draw, count):
    for seed in range(5):
        column = schema_of(draw(np.random.default_rng(seed), count)).column("x")
        assert (column.low, column.high, column.passable) == (-np.inf, np.inf, (False, False))


def test_durations_have_the_bounds_of_their_numbers():
    values = np.random.default_rng(0).exponential(30, 800)
    schema = schema_of(seconds(values))
    assert "nothing below 0:00:00" in schema.reasons["x"]
    assert "nothing below 0" in schema_of(values.round(3)).reasons["x"]
    frame = pd.DataFrame({"x": seconds(values), "y": values + 1})
    assert (
        quick(structure="binary").fit(frame).sample(2000, random_state=0)["x"] >= pd.Timedelta(0)
    ).all()
    both = schema_of(seconds(np.random.default_rng(0).normal(0, 30, 800)))
    assert both.to_frame().loc["x", "support"] == "the line"


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(1)
    season = np.cos(2 * np.pi * DAYS / 365) + 0.3 * random.normal(size=COUNT)
    share = random.uniform(-2, 2, COUNT)
    frame = pd.DataFrame({"day": DAYS, "share": share, "cold": season})
    return quick(max_epochs=5, structure="binary").fit(frame)


def test_samples_and_answers_stay_inside_and_rows_beyond_have_finite_scores(model, tmp_path):
    model.save(tmp_path / "model")
    rows = pd.DataFrame(
        {"day": [200, 366, 0, 400, -5, 200], "share": [0.0] * 5 + [2.5], "cold": 0}
    )
    for one in (model, sub.load(tmp_path / "model")):
        assert one.schema_.to_frame()["support"].tolist()[:2] == ["1 to 365", "-2 to 2"]
        assert "hardly anything above 365" in one.schema_.reasons["day"]
        draws = one.sample(20_000, random_state=0)
        assert draws["day"].between(1, 365).all()
        assert draws["share"].between(-2, 2).all()
        scores = one.score_samples(rows.astype({"cold": float}))
        assert np.isfinite(scores).all()
        assert (scores[1:] < scores[0] - 2).all()
        assert one.probability({"day": (366, None)}) == 0
        assert one.probability({"day": (None, 365)}) == pytest.approx(1, abs=1e-12)


def test_the_density_with_what_is_beyond_the_ends_integrates_to_one(model):
    marginal = model.marginal(["share"])
    numbers, weights = table_nodes(model.schema_.column("share"))
    scores = marginal.score_samples(pd.DataFrame({"share": numbers}))
    assert np.exp(scores) @ weights == pytest.approx(1, abs=1e-3)
    beyond = np.abs(numbers) > 2
    assert np.exp(scores[beyond]) @ weights[beyond] < 5 / COUNT


def test_declared_bounds_are_kept_and_excluded():
    frame = pd.DataFrame({"x": DAYS})
    declared = {"x": sub.tables.Continuous(lower=0, upper=400)}
    column = sub.tables.Schema.infer(frame, schema=declared).column("x")
    assert column.passable == (False, False)
    assert not column.possible(np.array([401.0]))[0]


def test_a_schema_with_ends_is_described_and_made_again():
    schema = schema_of(DAYS)
    data = describe_schema(schema)
    assert schema_from(data).variables == schema.variables
    del data["variables"][0]["passable"]
    assert schema_from(data).variables[0].passable == (False, False)


SKEWED = {  # positive, with a spread that a curve without an end would carry below zero
    "cholesterol": lambda random, n: 120 + 1650 * random.beta(2.0, 10, n),
    "whole prices": lambda random, n: (20 + random.gamma(2, 15, n)).round(),
}


@pytest.mark.parametrize("draw", SKEWED.values(), ids=SKEWED)
def test_skewed_positive_numbers_stay_positive(draw):
    values = draw(np.random.default_rng(0), 300)
    schema = schema_of(values)
    column = schema.column("x")
    assert "hardly anything below 0" in schema.reasons["x"]
    assert column.passable == (True, False)
    frame = pd.DataFrame({"x": values, "y": values + 1 + np.random.default_rng(1).random(300)})
    model = quick(structure="binary").fit(frame)
    assert (model.sample(5000, random_state=0)["x"] >= 0).all()
    below = model.score_samples(frame.head(1).assign(x=-5.0))
    assert np.isfinite(below).all()
    assert below < model.score_samples(frame.head(1))


def test_whole_numbers_that_are_spread_evenly_end_where_they_do():
    days = pd.date_range("2021-01-01", periods=151).day.to_numpy().astype(float)
    column = schema_of(days).column("x")
    assert (column.grid.ceil(column.low), column.grid.floor(column.high)) == (1.0, 31.0)
    bell = np.random.default_rng(0).normal(16, 5, 151).round().clip(1, 31)
    assert schema_of(bell).column("x").high == np.inf
    few = np.random.default_rng(0).integers(0, 200, 151).astype(float)
    assert schema_of(few).column("x").passable[1] is False


def test_a_number_on_a_bound_that_no_row_had_is_scored_and_filled_beside():
    random = np.random.default_rng(0)
    share = random.gamma(0.7, 1.0, 400)
    frame = pd.DataFrame({"share": share, "other": share + random.normal(0, 0.3, 400)})
    model = quick(structure="binary").fit(frame)
    assert model.schema_.column("share").passable == (False, False)
    on_bound = pd.DataFrame({"share": [0.0], "other": [0.1]})
    least = pd.DataFrame({"share": [share.min()], "other": [0.1]})
    scores = [float(model.score_samples(rows)[0]) for rows in (on_bound, least)]
    assert np.isfinite(scores).all()
    assert scores[0] > scores[1] - 30
    filled = model.impute(on_bound.assign(other=np.nan))
    assert filled["share"].tolist() == [0.0]
    assert np.isfinite(filled["other"]).all()
    assert np.isneginf(model.score_samples(on_bound.assign(share=-1e-3))).all()
