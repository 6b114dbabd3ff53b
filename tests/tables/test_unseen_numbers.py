"""Numbers that no row of training had, in columns of few numbers."""

import numpy as np
import pandas as pd
import pytest

import subtractive as sub


def frame_of(count, seed):
    random = np.random.default_rng(seed)
    age = random.choice([17, 18, 20, 30, 40, 60], count, p=[0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
    word = np.where(random.random(count) < age / 80, "old", "young")
    return pd.DataFrame({"age": age, "word": word})


@pytest.fixture(scope="module")
def model():
    return sub.SubtractiveMixture(effort=2, random_state=0).fit(frame_of(600, 0))


@pytest.mark.parametrize(
    ("given", "nearest", "words"),
    [
        (19, 18, "is not among"),
        (55, 60, "is not among"),
        (500, 60, "is far from"),
        ((90, None), 60, "is far from"),
        ((21, 24), 20, "is not among"),
        ([500, 17], [60, 17], "is not among"),
    ],
)
def test_the_nearest_number_stands_for_one_that_is_given(model, given, nearest, words):
    asked = {"age": given}
    with pytest.warns(sub.DataWarning, match=f"{words} all values .* nearest of them answers"):
        found = model.probability({"word": ["old"]}, given=asked)
    known = model.probability({"word": ["old"]}, given={"age": nearest})
    assert found == pytest.approx(known, abs=1e-12)


def test_samples_keep_the_number_that_is_given(model):
    with pytest.warns(sub.DataWarning):
        assert (model.sample(3, given={"age": 19}, random_state=0)["age"] == 19).all()


def test_a_receipt_says_that_such_an_answer_is_a_guess(model):
    with pytest.warns(sub.DataWarning):
        receipt = model.ask("P(word = old | age = 500)")
    assert receipt.off_support == ("age",)
    assert receipt.rows == (frame_of(600, 0)["age"] == 60).sum()


def test_an_unseen_number_is_scored_as_rarer_than_all_that_were_seen(model):
    rows = pd.DataFrame({"age": [17, 18, 20, 30, 40, 60, 500, 19], "word": ["old"] * 8})
    with pytest.warns(sub.DataWarning, match="scored as rarer than all that were: column 'age'"):
        scores = model.score_samples(rows)
    shares = [model.probability({"age": [age]}) for age in (17, 18, 20, 30, 40, 60)]
    least = np.log(min(shares) / 6) + np.log(model.probability({"word": ["old"]}))
    assert scores[6:] == pytest.approx([least, least], abs=1e-9)
    assert scores[6] < scores[:6].min()


def test_rows_with_an_unseen_number_are_completed_from_the_nearest(model):
    rows = pd.DataFrame({"age": [19, 500], "word": ["old", None]})
    with pytest.warns(sub.DataWarning, match="taken for the nearest that were: column 'age'"):
        found = model.predict_proba(rows, "word")
    known = model.predict_proba(rows.assign(age=[18, 60]), "word")
    assert found.equals(known)
    with pytest.warns(sub.DataWarning):
        assert model.impute(rows)["age"].tolist() == [19, 500]


def test_unseen_numbers_are_refused_where_values_must_be_known():
    strict = sub.SubtractiveMixture(effort=1, random_state=0, unknown="error")
    strict.fit(frame_of(600, 0))
    with pytest.raises(ValueError, match="not among its 6"):
        strict.mean(given={"age": 19})


def test_numbers_that_differ_by_rounding_are_the_same_state():
    random = np.random.default_rng(0)
    rate = random.choice([1.8, 3.0999999046325684, 10.6], 300)
    frame = pd.DataFrame({"rate": rate, "y": random.normal(size=300) + rate})
    model = sub.SubtractiveMixture(effort=1, random_state=0).fit(frame)
    exact = model.probability({"rate": [3.0999999046325684]})
    assert model.probability({"rate": [3.1]}) == pytest.approx(exact, abs=1e-15)
    single = frame.assign(rate=frame["rate"].astype(np.float32).astype(float))
    assert model.score_samples(single) == pytest.approx(model.score_samples(frame), abs=1e-12)
    with pytest.raises(ValueError, match="not among its 3 categories"):
        model.probability({"rate": [3.11]})
