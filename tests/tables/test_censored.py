"""Cells of which only an interval is known: their mass counts, in scores and in training."""

import numpy as np
import pandas as pd
import pytest
from frames import quick
from scipy.stats import norm

import subtractive as sub

COUNT = 400
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "x": RANDOM.normal(size=COUNT),
        "tenth": RANDOM.normal(size=COUNT).round(1),
        "rooms": RANDOM.integers(1, 6, COUNT),
        "rain": np.where(RANDOM.random(COUNT) < 0.5, 0.0, RANDOM.gamma(2.0, 3.0, COUNT)),
        "city": RANDOM.choice(["Oslo", "Rome"], COUNT),
    }
)
INTERVALS = {"x": (-0.5, 0.5), "tenth": (0.2, None), "rooms": (2, 4), "rain": (None, 2.0)}


@pytest.fixture(scope="module", params=["squared", "monotonic", "flat"])
def model(request):
    if request.param == "flat":
        return quick(structure="flat").fit(FRAME)
    return quick(kind=request.param, max_epochs=3).fit(FRAME)


def cells(names):
    """Three rows with gaps, in the first two of which some cells are intervals."""
    rows = FRAME.head(3).astype(object)
    for name in names:
        rows.at[0, name] = INTERVALS[name]
        rows.at[1, name] = INTERVALS[name]
    if "tenth" not in names:  # a value on a grid is its cell where it is given, not in a row
        rows.loc[:1, "tenth"] = None
    rows.at[1, "city"] = None
    return rows


@pytest.mark.parametrize("names", [["x"], ["tenth"], ["rooms"], ["rain"], ["tenth", "rooms"]])
def test_the_score_of_a_censored_cell_is_its_mass(model, names):
    rows = cells(names)
    scores = model.score_samples(rows)
    for row in (0, 1):
        seen = rows.iloc[[row]].copy()
        seen[names] = None
        point = {n: v for n, v in rows.loc[row].items() if n not in names and v is not None}
        mass = model.probability({name: INTERVALS[name] for name in names}, given=point)
        expected = model.score_samples(seen)[0] + np.log(mass)
        assert scores[row] == pytest.approx(expected, abs=1e-9)
    assert scores[2] == model.score_samples(FRAME.iloc[[2]])[0]


def test_gaps_are_filled_inside_their_intervals(model):
    # Boxes of two columns of full covariances are counted among 2,000 samples here.
    near = 0.05 if model.structure == "flat" else 1e-6
    rows = cells(["x", "tenth", "rooms"])
    mean = model.impute(rows)
    for name in ("x", "tenth", "rooms"):
        low, high = INTERVALS[name]
        assert (mean[name].astype(float)[:2].between(low, np.inf if high is None else high)).all()
    rest = {"tenth": (0.2, None), "rooms": (2, 4), "rain": FRAME.rain[0], "city": FRAME.city[0]}
    expected = model.mean(given={**rest, "x": (-0.5, 0.5)})["x"]
    assert float(mean["x"][0]) == pytest.approx(expected, abs=near)
    drawn = model.impute(rows, n_draws=5, random_state=0)
    assert all(-0.5 <= float(table["x"][1]) <= 0.5 for table in drawn)
    shares = model.predict_proba(rows, "city")
    given = {**rest, "x": (-0.5, 0.5)}
    del given["city"]
    expected = model.probability({"city": "Rome"}, given=given)
    assert shares["Rome"].iloc[0] == pytest.approx(expected, abs=near)


def test_intervals_of_pandas_have_open_and_closed_ends():
    model = quick().fit(FRAME[["tenth", "city"]])
    rows = pd.DataFrame({"tenth": [pd.Interval(0.1, 0.3), 0.5], "city": [None, None]})
    expected = model.probability({"tenth": [0.2, 0.3]})
    assert np.exp(model.score_samples(rows)[0]) == pytest.approx(expected, rel=1e-9)


def test_pairs_of_numbers_alone_are_set_aside():
    frame = FRAME[["x"]].assign(place=[(0.0, 1.0)] * COUNT)
    with pytest.warns(sub.DataWarning, match="set aside"):
        assert quick().fit(frame).schema_.aside == ("place",)


def test_censored_cells_are_trained_on():
    """Half of a normal column is known only to be above or below a limit, or in a bracket.

    Without them the mean is that of a truncated normal: 0.4 too low.
    """
    random = np.random.default_rng(1)
    truth = random.normal(10.0, 2.0, 1500)
    known: list[object] = [float(v) for v in truth]
    for row, value in enumerate(truth):
        if value > 11:
            known[row] = (11.0, None)
        elif row % 4 == 0:
            known[row] = (float(np.floor(value)), float(np.floor(value)) + 1)
    frame = pd.DataFrame(
        {"x": pd.Series(known, dtype=object), "y": truth + random.normal(size=1500)}
    )
    model = sub.SubtractiveMixture(4, max_epochs=6, random_state=0).fit(frame)
    assert model.mean()["x"] == pytest.approx(10.0, abs=0.25)
    share = model.probability({"x": (11, None)})
    assert share == pytest.approx(norm.sf(0.5), abs=0.03)
    assert np.isfinite(model.score_samples(frame)).all()
