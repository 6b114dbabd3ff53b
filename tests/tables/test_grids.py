"""Grids with an offset, or whose step is a fraction: found, stated, drawn from, and kept."""

import numpy as np
import pandas as pd
import pytest
from frames import quick

import subtractive as sub
from subtractive.tables.grids import Grid, find_grid
from subtractive.tables.schema_description import describe_schema, schema_from

RANDOM = np.random.default_rng(0)
COUNT = 600


def schema_of(values):
    return sub.tables.Schema.infer(pd.DataFrame({"x": values}))


def grid_of(values):
    return schema_of(values).column("x").grid


OFFSETS = {
    "halves": (np.floor(RANDOM.normal(100, 40, COUNT)) + 0.5, 1.0, "multiples of 1 plus 0.5"),
    "prices": (np.floor(RANDOM.gamma(9, 9, COUNT)) + 0.99, 1.0, "multiples of 1 plus 0.99"),
    "negative": (0.2 * RANDOM.normal(0, 99, COUNT).round() - 0.05, 0.2, "plus 0.15"),
    "noon": (
        pd.Timestamp("2020-01-01 12:00") + pd.to_timedelta(RANDOM.integers(0, 700, COUNT), "D"),
        86_400e6,
        "multiples of 1 day plus 12 hours",
    ),
}


@pytest.mark.parametrize(("values", "step", "words"), OFFSETS.values(), ids=OFFSETS)
def test_a_grid_with_an_offset_is_found_and_stated(values, step, words):
    schema = schema_of(values)
    assert schema.column("x").grid.step == pytest.approx(step, rel=1e-12)
    assert words in schema.reasons["x"]


@pytest.mark.parametrize("name", ["halves", "prices", "negative"])
def test_values_of_a_grid_with_an_offset_are_rounded_to_themselves(name):
    values = OFFSETS[name][0].round(2)
    grid = grid_of(values)
    np.testing.assert_array_equal(grid.round(values), values)
    lower, upper = grid.cells(values)
    np.testing.assert_allclose((lower + upper) / 2, values, rtol=1e-12, atol=1e-12)
    for value in values[:20].tolist():
        assert grid.floor(value) == grid.ceil(value) == value
        assert grid.floor(value - 0.01) == pytest.approx(value - grid.step, rel=1e-12)
        assert grid.ceil(value - 0.01) == value


def test_samples_events_and_imputations_keep_the_offset(tmp_path):
    values = OFFSETS["halves"][0]
    frame = pd.DataFrame({"x": values, "y": values + RANDOM.normal(size=COUNT)})
    model = quick(max_epochs=3).fit(frame)
    model.save(tmp_path / "model")
    for one in (model, sub.load(tmp_path / "model")):
        draws = one.sample(2000, random_state=0)["x"]
        assert (draws % 1 == 0.5).all()
        assert (draws % 2 == 0.5).mean() == pytest.approx(0.5, abs=0.04)  # 3.5 standard errors
        share = one.probability({"x": (None, 99.5)})
        assert one.probability({"x": (None, 100.4)}) == share
        # The cell of a value is that of no other one.
        cells = [one.probability({"x": [value]}) for value in (99.5, 100.5, 101.5)]
        assert share + sum(cells[1:]) == pytest.approx(one.probability({"x": (None, 101.5)}))
        assert (one.impute(frame.assign(x=np.nan).head())["x"] % 1 == 0.5).all()
        given = one.sample(20, given={"x": 100.5}, random_state=0)["x"]
        assert (given == 100.5).all()


def test_an_origin_with_rounding_errors_as_in_older_files_is_a_decimal_number():
    grid = Grid(1.0, float(np.fmod(83.99, 1.0)))
    np.testing.assert_array_equal(grid.round(np.array([9.9, 84.1])), [9.99, 83.99])


def test_no_grid_is_taken_from_which_most_rows_are_off():
    random = np.random.default_rng(1)
    for offset in random.random(50).round(3):
        values = np.unique(random.normal(0, 99, 100).round() + offset)
        grid = find_grid(values, np.ones(len(values)), 1e-15)
        np.testing.assert_allclose(grid.round(values), values, rtol=0, atol=1e-9)


def test_a_schema_with_an_offset_is_described_and_made_again():
    schema = schema_of(OFFSETS["prices"][0])
    assert schema_from(describe_schema(schema)).variables == schema.variables


def fractions(n, count=400, seed=0):
    """Numerators of fractions with denominator n, and the fractions."""
    numerators = np.random.default_rng(seed).normal(20 * n, 8 * n, count).round()
    return numerators / n


@pytest.mark.parametrize("n", [3, 7, 12, 17, 30, 60])
@pytest.mark.parametrize("count", [60, 20_000])
@pytest.mark.parametrize("digits", [None, 7, 4, 3])
def test_steps_that_are_fractions_are_found_however_they_are_written(n, count, digits):
    values = fractions(n, count)
    values = values if digits is None else values.round(digits)
    schema = schema_of(values)
    grid = schema.column("x").grid
    assert grid.step == pytest.approx(1 / n, rel=1e-12)
    assert schema.column("x").atoms == ()
    assert schema.reasons["x"].startswith(f"multiples of 1/{n}")
    assert schema.to_frame().loc["x", "resolution"] == f"1/{n}"
    np.testing.assert_array_equal(grid.round(values), values)
    for value in values[:20].tolist():
        assert grid.floor(value) == grid.ceil(value) == value


@pytest.mark.parametrize("digits", [2, 3, 4, 5, 6, 7, 9, None])
@pytest.mark.parametrize("count", [60, 5000])
def test_random_numbers_are_no_multiples_of_a_fraction(digits, count):
    for seed in range(20):
        random = np.random.default_rng(seed)
        for values in (random.normal(0, 3, count), random.random(count)):
            grid = grid_of(values if digits is None else values.round(digits))
            assert grid is None or 1e6 * grid.step == pytest.approx(round(1e6 * grid.step))


def test_fahrenheit_in_celsius_is_a_grid_and_single_precision_is_no_obstacle():
    celsius = ((RANDOM.normal(60, 15, COUNT).round() - 32) / 1.8).round(2)
    assert grid_of(celsius).step == pytest.approx(5 / 9)
    single = grid_of(fractions(12).astype(np.float32))
    assert single.step == pytest.approx(1 / 12)


def test_written_fractions_come_back_as_they_were_written(tmp_path):
    frame = pd.DataFrame({"age": fractions(12).round(4), "y": RANDOM.normal(size=400)})
    model = quick(max_epochs=3).fit(frame)
    model.save(tmp_path / "model")
    for one in (model, sub.load(tmp_path / "model")):
        draws = one.sample(500, random_state=0)["age"].to_numpy()
        np.testing.assert_array_equal(draws, ((12 * draws).round() / 12).round(4))
        value = frame["age"].median()
        assert one.probability({"age": [value]}) == pytest.approx(
            one.probability({"age": (value - 0.02, value + 0.02)}), rel=1e-9
        )
        assert (one.sample(9, given={"age": value}, random_state=0)["age"] == value).all()


def test_a_fraction_may_be_declared_as_the_resolution():
    frame = pd.DataFrame({"x": fractions(12).round(4)})
    declared = {"x": sub.tables.Continuous(resolution=1 / 12)}
    schema = sub.tables.Schema.infer(frame, schema=declared)
    grid = schema.column("x").grid
    np.testing.assert_array_equal(grid.round(frame["x"].to_numpy()), frame["x"])
    with pytest.raises(ValueError, match="no multiple of its resolution"):
        sub.tables.Schema.infer(frame + 0.04, schema=declared)


def test_a_schema_of_a_file_without_digits_is_read():
    schema = schema_of(OFFSETS["halves"][0])
    data = describe_schema(schema)
    del data["variables"][0]["grid"]["digits"]
    assert schema_from(data).variables == schema.variables
