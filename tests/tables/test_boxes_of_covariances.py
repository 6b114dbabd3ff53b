"""Boxes on columns that share a full covariance: answers by exact samples, in bounded time."""

import time

import numpy as np
import pandas as pd
import pytest
from frames import correlated_frame as frame_of

import subtractive as sub

GIVEN = {"a": (0.0, 2.0)}
TWO = {"a": (0.0, 2.0), "b": (None, 1.5)}


@pytest.fixture(scope="module")
def fitted():
    return sub.SubtractiveMixture(effort=120, max_epochs=3, random_state=0).fit(frame_of(1500, 0))


@pytest.mark.parametrize("given", [GIVEN, TWO])
def test_covariances_given_intervals_are_those_of_samples(given, fitted):
    found = fitted.cov(given)
    drawn = fitted.sample(40_000, given=given, random_state=1)[list("abcd")].cov()
    scale = np.sqrt(np.outer(np.diag(drawn), np.diag(drawn)))
    numbers = found.loc[list("abcd"), list("abcd")]
    assert (abs(numbers - drawn) / scale).to_numpy().max() < 0.04
    np.testing.assert_allclose(
        np.sqrt(np.diag(numbers)), fitted.std(given)[list("abcd")], rtol=1e-9, atol=0
    )
    assert found.loc["kind"].isna().all()
    assert np.linalg.eigvalsh(numbers).min() > 0


def test_covariances_of_a_marginal_given_an_interval_are_those_of_its_columns(fitted):
    part = fitted.condition(GIVEN).marginal(["b", "kind", "d"]).cov()
    assert list(part) == ["b", "kind", "d"]
    assert part.loc["b", "d"] == pytest.approx(fitted.cov(GIVEN).loc["b", "d"], rel=1e-9)


def test_dependence_given_intervals_takes_seconds(fitted):
    start = time.process_time()
    found = fitted.dependence(TWO)
    assert time.process_time() - start < 20
    drawn = fitted.sample(40_000, given=TWO, random_state=1)
    scores = drawn[["b", "c"]].rank().corr().iloc[0, 1]
    assert found.loc["b", "c"] >= -0.5 * np.log(1 - scores**2) - 0.02
    assert (found.to_numpy() == found.to_numpy().T).all()


def test_dependence_by_cells_is_that_of_a_normal_distribution():
    random = np.random.default_rng(0)
    first = random.normal(size=3000)
    frame = pd.DataFrame({"x": first, "y": 0.8 * first + 0.6 * random.normal(size=3000)})
    frame["z"] = random.normal(size=3000)
    model = sub.SubtractiveMixture(structure="flat", covariance="full", n_components=1)
    model.set_params(random_state=0, max_epochs=2).fit(frame)
    found = model.dependence({"z": (-9.0, 9.0)})
    assert found.loc["x", "y"] == pytest.approx(-0.5 * np.log(1 - 0.64), abs=0.05)
    assert found.loc["x", "z"] < 0.02


def test_a_check_given_intervals_takes_seconds(fitted):
    start = time.process_time()
    rows = frame_of(1000, 3)
    found = fitted.condition(GIVEN).check(rows[rows["a"].between(0, 2)], n_questions=100)
    assert time.process_time() - start < 20
    assert found.share > 0.6


def test_rows_inside_of_an_interval_are_predicted_from_all_of_their_numbers(fitted):
    rows = frame_of(200, 4)
    rows = rows[rows["a"].between(0, 2) & (rows["d"] != -9)].reset_index(drop=True)
    inside = fitted.condition(GIVEN).predict(rows, "c")
    assert inside.equals(fitted.predict(rows, "c"))
    gaps = rows.assign(a=rows["a"].where(rows.index > 2))
    some = fitted.condition(GIVEN).predict(gaps, "c")
    np.testing.assert_array_equal(some[3:], inside[3:])
    assert np.isfinite(some[:3]).all()


def test_rows_outside_of_an_interval_are_refused_at_once(fitted):
    rows = frame_of(200, 4)
    rows = rows[rows["a"] > 2.5]
    part = fitted.condition(GIVEN)
    for call in (lambda: part.predict(rows, "c"), lambda: part.impute(rows, n_draws=1)):
        start = time.process_time()
        with pytest.raises(ValueError, match="row 0 contradicts what is given"):
            call()
        assert time.process_time() - start < 5


def test_intervals_that_contradict_other_cells_are_refused_in_seconds(fitted):
    row = frame_of(5, 5).head(1).astype({"a": object, "b": object})
    row["a"], row["b"] = [pd.Interval(60, 61)], [pd.Interval(-70, -60)]
    start = time.process_time()
    with pytest.raises(ValueError, match="contradict"):
        fitted.impute(row.assign(kind=None), n_draws=2, random_state=0)
    assert time.process_time() - start < 20
