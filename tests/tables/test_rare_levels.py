"""Categories of few rows, or of none: what the default learner makes of them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import subtractive as sub

COUNTS = {"common": 500, "other": 494, "three": 3, "two": 2, "one": 1}


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    level = random.permutation(np.repeat(list(COUNTS), list(COUNTS.values())))
    mean = np.where(level == "common", 0.0, 3.0)
    frame = pd.DataFrame(
        {
            "level": level,
            "x": random.normal(mean, 1.0),
            "flag": random.random(len(level)) < np.where(level == "common", 0.2, 0.8),
        }
    )
    levels = sub.tables.Categories([*COUNTS, "never"])
    return sub.SubtractiveMixture(schema={"level": levels}, effort=2, random_state=0).fit(frame)


@pytest.mark.parametrize("level", COUNTS)
def test_a_level_is_about_as_probable_as_its_rows_say(model, level):
    count, rows = COUNTS[level], sum(COUNTS.values())
    low = beta.ppf(0.001, count, rows - count + 1)
    high = beta.ppf(0.999, count + 1, rows - count)
    assert low < model.probability({"level": [level]}) < high


def test_a_level_without_rows_is_rare_and_possible(model):
    unseen = model.probability({"level": ["never"]})
    # A tenth to twice the share of one row more, spread over six levels.
    assert 0.1 / (6 * 1001) < unseen < 2 / (6 * 1001)
    row = pd.DataFrame({"level": ["never"], "x": [0.5], "flag": [True]})
    assert np.isfinite(model.score_samples(row)).all()


@pytest.mark.parametrize("level", ["one", "never"])
def test_what_is_given_of_a_rare_level_is_no_extreme(model, level):
    given = {"level": level}
    assert 0.02 < model.probability({"flag": [True]}, given=given) < 0.98
    low, high = model.interval("x", 0.5, given=given)
    assert -5.0 < low < high < 8.0
