"""What columns are taken for, and that atoms, grids, bounds and dates come back as they were."""

import datetime

import numpy as np
import pandas as pd
import pytest
from frames import quick
from hypothesis import given
from hypothesis import strategies as st

import subtractive as sub
from subtractive.tables.normal_scores import Ends, normal_scores
from subtractive.tables.transforms import Affine

RANDOM = np.random.default_rng(0)
COUNT = 600


def schema_of(values, **declared):
    return sub.tables.Schema.infer(pd.DataFrame({"x": values}), schema=declared or None)


def column_of(values, **declared):
    return schema_of(values, **declared).column("x")


ZEROS = np.where(RANDOM.random(COUNT) < 0.6, 0.0, RANDOM.gamma(1.5, 4.0, COUNT))
CAPPED = np.minimum(RANDOM.normal(0, 1, COUNT), 1.0)
DEFAULTS = np.where(RANDOM.random(COUNT) < 0.05, -999.0, RANDOM.normal(50, 5, COUNT))


@pytest.mark.parametrize(
    ("values", "atoms"),
    {
        "zeros": (ZEROS, (0.0,)),
        "zeros on a grid": (ZEROS.round(1), (0.0,)),
        "a cap": (CAPPED, (1.0,)),
        "a default": (DEFAULTS, (-999.0,)),
        "a default on a grid": (DEFAULTS.round(), (-999.0,)),
        "no atom": (RANDOM.normal(size=COUNT), ()),
        "no atom on a grid": (RANDOM.normal(size=COUNT).round(1), ()),
        "no atom at the end of a grid": (RANDOM.exponential(2.0, COUNT).round(1), ()),
    }.values(),
)
def test_values_that_are_too_many_for_a_density_are_atoms(values, atoms):
    assert column_of(values).atoms == atoms


@pytest.mark.parametrize(
    ("values", "step"),
    {
        "tenths": (RANDOM.normal(0, 9, COUNT).round(1), 0.1),
        "whole numbers": (RANDOM.normal(0, 900, COUNT).round(), 1.0),
        "multiples of five": (5 * RANDOM.normal(0, 90, COUNT).round(), 5.0),
        "quarters": (RANDOM.normal(0, 90, COUNT).round() / 4, 0.25),
        "real numbers": (RANDOM.normal(size=COUNT), None),
    }.values(),
)
def test_the_grid_of_a_column_is_found(values, step):
    grid = column_of(values).grid
    assert (grid and grid.step) == (step and pytest.approx(step, rel=1e-12))


def test_values_that_repeat_irregularly_are_a_list():
    fahrenheit = RANDOM.normal(60, 12, COUNT).round()
    values = ((fahrenheit - 32) / 1.8).round(1)
    grid = column_of(values).grid
    assert grid.levels == tuple(np.unique(values))
    np.testing.assert_array_equal(grid.round(values), values)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    {
        "positive": (RANDOM.gamma(1.0, 2.0, COUNT), 0.0, np.inf),
        "far from zero": (RANDOM.normal(50, 1, COUNT), -np.inf, np.inf),
        "shares": (RANDOM.beta(1.5, 1.5, COUNT), 0.0, 1.0),
        "both signs": (RANDOM.normal(size=COUNT), -np.inf, np.inf),
        "sizes, one of them zero": (np.append(np.linspace(3.0, 9.0, 400), 0.0), 0.0, np.inf),
        "degrees, the least by chance zero": (
            np.r_[0.0, 1.0, RANDOM.normal(16, 5, 300).round().clip(2, 30)],
            -np.inf,
            np.inf,
        ),
        "a pulse of at most 100": (
            np.r_[RANDOM.normal(74, 8, 200).round(), 100.0],
            -np.inf,
            np.inf,
        ),
        "sizes, none of them zero": (np.linspace(3.0, 9.0, 400), -np.inf, np.inf),
    }.values(),
)
def test_bounds_are_found_where_a_normal_distribution_would_cross_them(values, low, high):
    column = column_of(values)
    assert (column.low, column.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high))


def test_the_user_declares_bounds_resolution_and_atoms():
    column = column_of(ZEROS.round(1), x=sub.tables.Continuous(lower=0, atoms=[0], resolution=0.1))
    assert (column.atoms, column.grid.step) == ((0.0,), 0.1)
    plain = column_of(ZEROS, x=sub.tables.Continuous(atoms=[], resolution=0))
    assert (plain.atoms, plain.grid) == ((), None)


def test_frames_are_read_as_frames_whatever_their_columns_are_called():
    named = pd.DataFrame({"rain": ZEROS.round(1), "grade": RANDOM.integers(0, 5, COUNT)})
    numbered = named.set_axis([0, 1], axis=1)
    ours = sub.tables.Schema.infer(numbered).to_frame().reset_index(drop=True)
    theirs = sub.tables.Schema.infer(named).to_frame().reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, theirs)
    assert ours["atoms"][0] == "0"
    array = sub.tables.Schema.infer(numbered.to_numpy())
    assert [(column.atoms, column.grid) for column in array.variables] == [((), None)] * 2
    declared = sub.tables.Schema.infer(numbered.to_numpy(), schema={0: "continuous"})
    assert (declared.column(0).atoms, declared.column(0).grid.step) == ((0.0,), 0.1)


def test_a_schema_prints_as_a_table_with_reasons():
    frame = pd.DataFrame({"rain": ZEROS.round(1), "city": ["a", "b"] * 300, "id": range(COUNT)})
    with pytest.warns(sub.DataWarning, match="'id' \\(it numbers the rows\\)"):
        schema = sub.tables.Schema.infer(frame)
    table = schema.to_frame()
    assert table["kind"].tolist() == ["continuous", "categorical", "set aside"]
    assert table.loc["rain", "atoms"] == "0"
    assert "% are 0" in table.loc["rain", "reason"]
    assert "categorical" in repr(schema)
    assert "<table" in schema._repr_html_()


@given(st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=60, unique=True), st.data())
def test_the_curve_through_normal_scores_has_an_inverse_and_the_derivative_it_says(values, data):
    column = np.array(sorted(values))
    if np.diff(column).min() < 1e-3:
        return
    curve = normal_scores(column, np.ones(len(column)), (column, column), Ends())
    x = np.array(data.draw(st.lists(st.sampled_from(values), min_size=1)))
    np.testing.assert_allclose(curve.inverse(curve.forward(x)), x, rtol=1e-9, atol=1e-6)
    step = 1e-5 * np.diff(column).min()
    slope = (curve.forward(x + step) - curve.forward(x - step)) / (2 * step)
    knots = np.abs(x[:, None] - np.array(curve.knots)).min(1) > 2 * step
    expected = np.exp(curve.log_abs_det_jacobian(x))
    rounding = 1e-9 + 4 * np.finfo(float).eps / step  # of differences of codes
    np.testing.assert_allclose(slope[knots], expected[knots], rtol=1e-3, atol=rounding)


def test_a_line_with_logarithmic_tails_has_an_inverse_and_the_derivative_it_says():
    line, x = Affine(3.0, 2.0, 8.0), np.array([-1e4, -30.0, 3.0, 15.0, 25.0, 1e6])
    np.testing.assert_allclose(line.inverse(line.forward(x)), x, rtol=1e-12, atol=0)
    step = 1e-6 * np.abs(x)
    slope = (line.forward(x + step) - line.forward(x - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(line.log_abs_det_jacobian(x)), slope, rtol=1e-6, atol=0)


def test_the_probability_of_an_atom_is_its_share_and_samples_hit_it():
    frame = pd.DataFrame({"rain": ZEROS, "wind": RANDOM.normal(size=COUNT)})
    model = sub.SubtractiveMixture(8, max_epochs=10, random_state=0).fit(frame)
    share = (ZEROS == 0).mean()
    assert model.probability({"rain": [0]}) == pytest.approx(share, abs=0.03)
    draws = model.sample(4000, random_state=0)["rain"]
    assert (draws >= 0).all()
    error = 3.3 * np.sqrt(share * (1 - share) / 4000)  # false alarm: 1 in 1000
    assert (draws == 0).mean() == pytest.approx(model.probability({"rain": [0]}), abs=error)
    above = model.probability({"rain": (1e-9, None)})
    assert above == pytest.approx(1 - model.probability({"rain": [0]}), abs=1e-9)


def test_what_validation_saw_is_what_scores_say():
    frame = pd.DataFrame({"rain": ZEROS.round(1), "wind": RANDOM.normal(size=COUNT).round(2)})
    model = quick(validation_fraction=0.0, max_epochs=2).fit(frame)
    # Without a held-out part the rows of training are scored.
    assert model.score(frame) == pytest.approx(model.history_.best_score, abs=1e-6)


DATES = pd.Timestamp("2020-03-01") + pd.to_timedelta(RANDOM.integers(0, 700, COUNT), unit="D")
TIMES = {
    "days": DATES,
    "minutes": pd.Series(DATES) + pd.to_timedelta(RANDOM.integers(0, 288, COUNT) * 5, unit="min"),
    "a time zone": pd.Series(DATES).dt.tz_localize("Europe/Oslo"),
    "durations": pd.to_timedelta(RANDOM.integers(0, 5000, COUNT), unit="s"),
    "with gaps": pd.Series(DATES).where(RANDOM.random(COUNT) < 0.9),
}


@pytest.mark.parametrize("column", TIMES.values(), ids=TIMES)
def test_dates_and_durations_are_modelled_and_come_back(column):
    frame = pd.DataFrame({"when": column, "x": RANDOM.normal(size=COUNT)})
    model = quick().fit(frame)
    draws = model.sample(50, random_state=0)
    assert (draws.dtypes == frame.dtypes).all()
    filled = model.impute(frame)
    assert filled["when"].notna().all()
    known = frame["when"].notna()
    pd.testing.assert_series_equal(filled["when"][known], frame["when"][known])
    middle = frame["when"].dropna().sort_values().iloc[COUNT // 3]
    share = (frame["when"].dropna() <= middle).mean()
    assert model.probability({"when": (None, middle)}) == pytest.approx(share, abs=0.15)


def test_polars_dates_come_back_as_polars_dates():
    polars = pytest.importorskip("polars")
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(k)) for k in range(COUNT)]
    frame = polars.DataFrame({"day": days, "x": RANDOM.normal(size=COUNT)})
    model = quick().fit(frame)
    assert model.sample(5, random_state=0).schema == frame.schema


def test_dates_and_times_as_objects_come_back_as_objects():
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(k) // 2) for k in range(COUNT)]
    times = [datetime.time(int(k) % 24, 5 * (int(k) % 12)) for k in RANDOM.integers(0, 999, COUNT)]
    frame = pd.DataFrame({"day": days, "time": times, "x": RANDOM.normal(size=COUNT)})
    model = quick().fit(frame)
    draws = model.sample(20, random_state=0)
    assert {type(day) for day in draws["day"]} == {datetime.date}
    assert {type(time) for time in draws["time"]} == {datetime.time}
    share = model.probability({"day": (None, datetime.date(2020, 6, 1))})
    assert share == pytest.approx(np.mean([d <= datetime.date(2020, 6, 1) for d in days]), abs=0.1)


def test_evidence_far_outside_is_answered_with_a_warning():
    frame = pd.DataFrame({"x": RANDOM.normal(size=COUNT), "y": RANDOM.normal(size=COUNT)})
    model = quick().fit(frame)
    with pytest.warns(sub.tables.DataWarning, match="the given value 500 of column 'x' is far"):
        assert np.isfinite(model.mean(given={"x": 500})["y"])


def test_what_is_masked_is_missing():
    array = RANDOM.normal(size=(100, 2))
    masked = np.ma.masked_array(array, mask=RANDOM.random((100, 2)) < 0.1)
    one = quick().fit(masked)
    two = quick().fit(masked.filled(np.nan))
    np.testing.assert_array_equal(one.score_samples(masked), two.score_samples(masked))


@pytest.mark.parametrize("is_spiky", [False, True])
def test_smooth_columns_have_few_knots_and_rugged_ones_many(is_spiky):
    random = np.random.default_rng(0)
    column = random.normal(size=3000)
    if is_spiky:  # half of the numbers are close to multiples of a fifth
        near = np.rint(5 * column) / 5 + 1e-4 * random.normal(size=3000)
        column = np.where(random.random(3000) < 0.5, column, near)
    curve = normal_scores(column, np.ones(3000), (column, column), Ends())
    assert (len(curve.knots) > 60) == is_spiky


def test_held_out_numbers_are_as_likely_as_the_normal_law_makes_them():
    """The price of learning the curve is small, also beside the law itself."""
    random = np.random.default_rng(1)
    column, fresh = random.normal(size=(2, 20_000))
    curve = normal_scores(column, np.ones(20_000), (column, column), Ends())
    excess = -0.5 * curve.forward(fresh) ** 2 + curve.log_abs_det_jacobian(fresh) + 0.5 * fresh**2
    assert -0.003 < excess.mean() < 0.001  # 620 knots, one for 32 rows, cost 0.016 nats
