"""Intervals hold what they say, and no more than whole cells make them hold."""

import numpy as np
import pandas as pd
import pytest
from frames import quick

COUNT = 400
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=COUNT)
FRAME = pd.DataFrame(
    {
        "x": X,
        "half": (2 * (X + RANDOM.normal(size=COUNT))).round() / 2,
        "rain": np.where(RANDOM.random(COUNT) < 0.6, 0.0, RANDOM.gamma(2.0, 3.0, COUNT)),
        "capped": np.minimum(RANDOM.normal(size=COUNT), 0.5),
        "rooms": RANDOM.integers(1, 6, COUNT),
        "flag": X > 0,
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RANDOM.integers(0, 90, COUNT), "D"),
    }
)
LEVELS = [0.3, 0.9]


@pytest.fixture(scope="module", params=["squared", "monotonic"])
def model(request):
    return quick(kind=request.param, max_epochs=5, structure="chow-liu").fit(FRAME)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("given", [None, {"flag": True, "x": (None, 2.0)}])
def test_a_density_is_cut_alike_on_both_sides(model, level, given):
    low, high = model.interval("x", level, given=given)
    ends = model.quantile("x", [(1 - level) / 2, (1 + level) / 2], given=given)
    np.testing.assert_allclose([low, high], ends, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("column", ["half", "rain", "capped", "rooms", "flag", "day"])
def test_whole_cells_hold_the_level_and_no_end_can_be_moved_inside(model, column, level):
    low, high = model.interval(column, level)
    held = model.probability({column: (low, high)})
    assert held >= level - 1e-9
    # What the cells at the ends hold more is less than either of them.
    for end in (low, high):
        assert held - level <= model.probability({column: [end]}) + 1e-8


def test_the_tail_that_an_atom_leaves_unused_is_not_lost(model):
    low, high = model.interval("rain", 0.9)
    assert low == 0
    assert model.probability({"rain": (low, high)}) == pytest.approx(0.9, abs=1e-9)
    low, high = model.interval("capped", 0.9)
    assert high == 0.5
    assert model.probability({"capped": (low, high)}) == pytest.approx(0.9, abs=1e-9)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, "most"])
def test_levels_are_between_zero_and_one(model, level):
    with pytest.raises(ValueError, match="level"):
        model.interval("x", level)


def test_categories_have_no_intervals():
    frame = FRAME[["x"]].assign(city=np.where(X > 0, "Oslo", "Rome"))
    with pytest.raises(ValueError, match="categories, which have no quantiles"):
        quick().fit(frame).interval("city")
