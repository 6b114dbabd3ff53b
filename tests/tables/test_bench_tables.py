"""Tables with known answers, one for each rule of the schema, against the analytic truth."""

import numpy as np
import pandas as pd
import pytest
from frames import validation_rows
from scipy.stats import beta, binom, norm

import subtractive as sub

ROWS = 800
# Three standard errors of a share of one half among so many rows, and what training leaves.
NEAR = 3 * np.sqrt(0.25 / ROWS) + 0.01


def pair(random, num_rows=ROWS):
    x = random.normal(size=num_rows)
    return pd.DataFrame({"x": x, "y": 0.8 * x + 0.6 * random.normal(size=num_rows)})


def with_outlier(random):
    frame = pair(random)
    frame.loc[7, "x"] = 165.0
    return frame


def cauchy(random):
    return pd.DataFrame({"x": random.standard_cauchy(ROWS), "y": random.normal(size=ROWS)})


def log_normal(random):
    return pd.DataFrame({"x": np.exp(random.normal(size=ROWS)), "y": random.normal(size=ROWS)})


def repeated(random):
    frame = pair(random, 300)
    return pd.concat([frame.assign(copy=frame.x)] * 3, ignore_index=True)


def capped(random):
    frame = pair(random)
    return frame.assign(x=frame.x.clip(upper=1.0))


def coded(random):
    code = random.random(ROWS) < 0.2
    return pd.DataFrame({"x": np.where(code, -999.0, random.normal(50, 10, ROWS)), "y": code})


def zeros(random):
    dry = random.random(ROWS) < 0.6
    sky = np.where(random.random(ROWS) < np.where(dry, 0.9, 0.2), "sun", "rain")
    return pd.DataFrame({"x": np.where(dry, 0.0, random.exponential(size=ROWS)), "sky": sky})


def bounded(random):
    return pd.DataFrame({"x": random.beta(2, 3, ROWS), "y": random.normal(size=ROWS)})


def ordinal(random):
    rating = 1 + random.binomial(4, 0.3, ROWS)
    return pd.DataFrame({"rating": rating, "y": random.normal(rating, 1.0)})


def rounded(random):
    return pair(random).round(1)


def atoms_on_a_grid(random):
    atom = random.random(ROWS) < 0.3
    return pd.DataFrame(
        {"x": np.where(atom, 0.0, random.normal(5, 2, ROWS).round(1)), "y": random.random(ROWS)}
    )


def dates(random):
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 366, ROWS), "D")
    return pd.DataFrame({"day": day, "y": random.normal(size=ROWS)})


JULY = pd.Timestamp("2020-07-01")
TABLES = {
    with_outlier: [({"x": (None, 0)}, None, 0.5), ({"y": (0, None)}, {"x": (0.0, None)}, 0.795)],
    cauchy: [({"x": (None, 0)}, None, 0.5), ({"x": (1, None)}, None, 0.25)],
    log_normal: [({"x": (None, 1)}, None, 0.5), ({"x": (np.e, None)}, None, norm.sf(1))],
    repeated: [({"x": (None, 0)}, None, 0.5)],
    capped: [({"x": [1.0]}, None, norm.sf(1)), ({"x": (None, 0)}, None, 0.5)],
    coded: [({"x": [-999]}, None, 0.2), ({"x": (50, None)}, {"x": (-900, None)}, 0.5)],
    zeros: [
        ({"x": [0]}, None, 0.6),
        ({"x": (1, None)}, None, 0.4 * np.exp(-1)),
        ({"sky": "sun"}, {"x": [0.0]}, 0.9),
    ],
    bounded: [({"x": (None, 0.5)}, None, beta(2, 3).cdf(0.5))],
    ordinal: [({"rating": r + 1}, None, binom(4, 0.3).pmf(r)) for r in range(5)],
    rounded: [
        ({"x": [0.0]}, None, norm.cdf(0.05) - norm.cdf(-0.05)),
        ({"x": (None, 0)}, None, norm.cdf(0.05)),
    ],
    atoms_on_a_grid: [({"x": [0]}, None, 0.3), ({"x": (5.1, None)}, None, 0.7 * norm.sf(0.025))],
    dates: [({"day": (None, JULY)}, None, 183 / 366)],
}
BOUNDS = {log_normal: (0, np.inf), capped: (-np.inf, 1), zeros: (0, np.inf), bounded: (0, 1)}


@pytest.fixture(scope="module", params=TABLES, ids=lambda make: make.__name__)
def fitted(request):
    frame = request.param(np.random.default_rng(0))
    model = sub.SubtractiveMixture(4, max_epochs=10, structure="chow-liu", random_state=0)
    return request.param, frame, model.fit(frame)


pytestmark = pytest.mark.filterwarnings("ignore::subtractive.DataWarning")


def test_answers_are_those_of_the_truth(fitted):
    make, _, model = fitted
    # Repeated rows say no more than one of each does, and a third of the rows answers less.
    near = NEAR * (np.sqrt(3) if make is repeated else 1)
    for event, given, truth in TABLES[make]:
        assert model.probability(event, given) == pytest.approx(truth, abs=near)


def test_samples_are_of_the_table(fitted):
    make, frame, model = fitted
    drawn = model.sample(300, random_state=0)
    pd.testing.assert_series_equal(drawn.dtypes, frame.dtypes)
    if make in BOUNDS:
        assert drawn.x.between(*BOUNDS[make]).all()
    if make is repeated:
        assert (drawn.x == drawn["copy"]).all()
    for event, given, truth in TABLES[make]:
        (name, side), *_ = event.items()
        if given is None and isinstance(side, list):
            near = 3 * np.sqrt(0.25 / 300) + NEAR
            assert (drawn[name] == side[0]).mean() == pytest.approx(truth, abs=near)


def test_means_and_spreads_are_finite(fitted):
    _, frame, model = fitted
    numbers = frame.select_dtypes("number").columns
    assert np.isfinite(model.mean()[numbers].astype(float)).all()
    assert np.isfinite(model.std()[numbers].astype(float)).all()


def test_scores_are_what_validation_saw(fitted):
    _, frame, model = fitted
    rows, weights = validation_rows(model, frame)
    score = np.average(model.score_samples(rows), weights=weights)
    assert score == pytest.approx(model.history_.best_score, abs=1e-6)


@pytest.fixture(scope="module")
def ordinary():
    """A model of rows without any that is far away, these rows, and others."""
    random = np.random.default_rng(3)
    frame, test = pair(random, 400), pair(random, 400)
    model = sub.SubtractiveMixture(4, max_epochs=10, structure="chow-liu", random_state=0)
    return model.fit(frame), frame, test


@pytest.mark.parametrize("part", ["training", "validation", "test"])
def test_a_row_at_165_standard_deviations_decides_nothing(part, ordinary):
    model, frame, test = ordinary
    frame, plain = frame.copy(), model.score(test)
    if part == "test":
        far = test.copy()
        far.loc[0, "x"] = 165.0
        assert model.score(far) > plain - 0.2
        return
    rows, _ = validation_rows(model, frame)
    held_out = frame.x.isin(rows.x)
    chosen = frame.index[held_out if part == "validation" else ~held_out][0]
    frame.loc[chosen, "x"] = 165.0
    assert (
        sub.SubtractiveMixture(4, max_epochs=10, structure="chow-liu", random_state=0)
        .fit(frame)
        .score(test)
        > plain - 0.2
    )


def test_a_declared_level_that_no_row_has_is_possible():
    random = np.random.default_rng(0)
    levels = pd.Categorical(random.choice(["low", "high"], 400), ["low", "middle", "high"])
    frame = pd.DataFrame({"level": levels, "y": random.normal(size=400)})
    for kind in ("squared", "monotonic"):
        model = sub.SubtractiveMixture(4, kind=kind, max_epochs=5, random_state=0).fit(frame)
        assert 0 < model.probability({"level": "middle"}) < 0.05
        assert np.isfinite(model.score_samples(frame.head(1).assign(level="middle"))).all()
