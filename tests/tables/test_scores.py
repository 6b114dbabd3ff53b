"""Scores are log-densities in users' units: they integrate to one, whatever the columns."""

import itertools

import numpy as np
import pandas as pd
import pytest
from frames import quick, table_nodes
from scipy.integrate import quad
from scipy.stats import chisquare, kstest

import subtractive as sub

STRUCTURES = ["binary", "linear", "flat", "chow-liu"]
KINDS = ["squared", "monotonic", "squared-monotonic"]
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(1e5, 3e4, 200)


# Every structure and every kind once; all pairs where slow tests run.
EACH = set(zip(STRUCTURES, itertools.cycle(KINDS), strict=False))


@pytest.mark.parametrize(
    ("structure", "kind"),
    [
        pytest.param(*pair, marks=[] if pair in EACH else pytest.mark.slow)
        for pair in itertools.product(STRUCTURES, KINDS)
    ],
)
def test_a_density_of_two_columns_in_large_units_integrates_to_one(kind, structure):
    array = np.column_stack([NUMBERS, 1e-3 * RANDOM.normal(size=200) + 1e-8 * NUMBERS])
    model = quick(kind=kind, structure=structure, max_epochs=3).fit(array)
    first, weight = table_nodes(model.schema_.variables[0], fine=1, tails=30)
    second, other = table_nodes(model.schema_.variables[1], fine=1, tails=30)
    grid = np.array(list(itertools.product(first, second)))
    total = np.exp(model.score_samples(grid)) @ np.outer(weight, other).ravel()
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0, 3e5), (0, None), (None, 3e5)])
def test_a_bounded_column_has_all_of_its_mass_inside(bounds, kind):
    frame = pd.DataFrame({"x": np.abs(NUMBERS)})
    model = quick(schema={"x": sub.tables.Continuous(*bounds)}, kind=kind, max_epochs=3).fit(frame)
    x, weights = table_nodes(model.schema_.variables[0])
    total = np.exp(model.score_samples(pd.DataFrame({"x": x}))) @ weights
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-8)
    outside = [value for value in (-1.0, 3e5 + 1) if not _is_inside(value, bounds)]
    scores = model.score_samples(pd.DataFrame({"x": outside}))
    assert (scores == -np.inf).all()
    draws = model.sample(2000, random_state=0)["x"]
    assert all(_is_inside(draw, bounds) for draw in draws)


def _is_inside(value, bounds):
    return (bounds[0] is None or value >= bounds[0]) and (bounds[1] is None or value <= bounds[1])


def small_frame():
    """Two kinds of states, a count and a number, all dependent."""
    random = np.random.default_rng(1)
    city = random.choice(["Oslo", "Bergen", "Rome"], 400)
    owner = random.random(400) < np.where(city == "Oslo", 0.8, 0.3)
    visits = random.binomial(4, np.where(owner, 0.7, 0.2))
    age = random.normal(40 + 5 * visits, 8)
    return pd.DataFrame({"city": city, "owner": owner, "visits": visits, "age": age})


COUNTED = {"visits": sub.tables.Categories(range(7))}


def all_rows(ages):
    states = itertools.product(["Oslo", "Bergen", "Rome"], [True, False], range(7))
    rows = [(*state, age) for state in states for age in ages]
    return pd.DataFrame(rows, columns=["city", "owner", "visits", "age"])


@pytest.fixture(scope="module", params=KINDS)
def mixed(request):
    return quick(kind=request.param, schema=COUNTED, max_epochs=3).fit(small_frame())


@pytest.fixture(scope="module")
def joint(mixed):
    """The rows of a grid over all states, with their exact masses by quadrature."""
    ages, weights = table_nodes(mixed.schema_.column("age"), fine=3, tails=30)
    rows = all_rows(ages)
    mass = np.exp(mixed.score_samples(rows)) * np.tile(weights, 42)
    return rows, mass


def test_states_counts_and_numbers_together_have_mass_one(joint):
    np.testing.assert_allclose(joint[1].sum(), 1.0, rtol=0, atol=1e-8)


def test_missing_values_are_integrated_out(mixed, joint):
    rows, mass = joint
    row = pd.DataFrame({"city": ["Oslo"], "owner": [None], "visits": [None], "age": [np.nan]})
    score = mixed.score_samples(row.astype({"owner": object, "visits": float}))
    expected = mass[rows.city == "Oslo"].sum()
    np.testing.assert_allclose(np.exp(score[0]), expected, rtol=1e-8, atol=0)


def test_probabilities_are_sums_over_the_joint(mixed, joint):
    rows, mass = joint
    knot = mixed.schema_.column("age").transform.knots[5]
    event = {"city": ["Oslo", "Rome"], "visits": (2, None), "age": (None, knot)}
    # The panels of the quadrature have an edge at a knot.
    inside = rows.city.isin(["Oslo", "Rome"]) & (rows.visits >= 2) & (rows.age <= knot)
    given = rows.owner
    expected = mass[inside & given].sum() / mass[given].sum()
    np.testing.assert_allclose(
        mixed.probability(event, given={"owner": True}), expected, rtol=0, atol=1e-8
    )


def test_conditions_and_marginals_are_the_joint_divided(mixed):
    rows = small_frame().head(20)
    view = mixed.condition({"city": "Oslo"})
    rest = rows.assign(city="Oslo")
    evidence = rest.assign(owner=None, visits=np.nan, age=np.nan).astype({"owner": object})
    expected = mixed.score_samples(rest) - mixed.score_samples(evidence)
    scores = view.score_samples(rows[["owner", "visits", "age"]])
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    pair = mixed.marginal(["age", "city"])
    hidden = rows.assign(owner=None, visits=np.nan).astype({"owner": object})
    np.testing.assert_allclose(
        pair.score_samples(rows[["age", "city"]]),
        mixed.score_samples(hidden),
        rtol=1e-9,
        atol=1e-9,
    )


def test_means_and_covariances_are_integrals(mixed, joint):
    rows, mass = joint
    numbers = rows[["owner", "visits", "age"]].astype(float)
    mean = (numbers * mass[:, None]).sum()
    covariance = (numbers - mean).T @ ((numbers - mean) * mass[:, None])
    np.testing.assert_allclose(mixed.mean()[1:], mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(mixed.std()[1:] ** 2, np.diag(covariance), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(mixed.cov().iloc[1:, 1:], covariance, rtol=1e-6, atol=1e-7)
    assert np.isnan(mixed.mean()["city"])
    assert mixed.cov()["city"].isna().all()


@pytest.mark.parametrize("structure", ["binary", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_column_with_a_single_bound_has_a_mean(structure):
    frame = pd.DataFrame({"x": np.abs(NUMBERS), "y": NUMBERS**2})
    model = quick(schema={"x": sub.tables.Continuous(0)}, structure=structure).fit(frame)
    x, weights = table_nodes(model.schema_.column("x"), fine=3)
    mass = np.exp(model.marginal(["x"]).score_samples(pd.DataFrame({"x": x}))) * weights
    np.testing.assert_allclose(model.mean()["x"], mass @ x, rtol=1e-7, atol=0)
    assert np.isfinite(model.cov()).all(axis=None)


def test_moments_of_categories_that_are_unequally_spaced_numbers_are_sums():
    random = np.random.default_rng(2)
    first = random.choice([1.0, 2.0, 10.0], 300)
    second = random.choice([0.5, 0.6, 7.0], 300) + (first == 10)
    frame = pd.DataFrame({"a": first, "b": second, "c": random.normal(first, 1)})
    model = quick(max_epochs=3).fit(frame)
    points, weights = table_nodes(model.schema_.column("c"))
    cells = list(itertools.product(sorted(set(first)), sorted(set(second))))
    rows = pd.DataFrame([(*cell, c) for cell in cells for c in points], columns=["a", "b", "c"])
    mass = np.exp(model.score_samples(rows)) * np.tile(weights, len(cells))
    mean = (rows * mass[:, None]).sum()
    covariance = (rows - mean).T @ ((rows - mean) * mass[:, None])
    np.testing.assert_allclose(model.mean(), mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.cov(), covariance, rtol=1e-6, atol=1e-6)


def test_a_probability_of_whole_numbers_is_that_of_their_rounded_values():
    array = np.random.default_rng(0).normal(0, 300, (400, 1)).round().astype(int)
    model = quick(structure="binary").fit(array)
    parts = [model.probability({0: (v, v + 99)}) for v in range(-4000, 4000, 100)]
    tails = [model.probability({0: side}) for side in ((None, -4001), (4000, None))]
    np.testing.assert_allclose(sum(parts + tails), 1.0, rtol=0, atol=1e-9)
    single = [model.probability({0: (v, v)}) for v in range(100)]
    np.testing.assert_allclose(sum(single), parts[40], rtol=1e-8, atol=0)


def test_one_column_of_a_model_with_full_covariances_has_probabilities():
    array = np.random.default_rng(0).normal(size=(300, 2)) @ np.array([[2.0, 1.0], [0.0, 1.0]])
    model = quick(structure="flat").fit(array)

    def density(x):
        return np.exp(model.marginal([0]).score_samples([[x]])[0])

    expected = quad(density, -1, 2, epsabs=1e-10, epsrel=1e-10)[0]
    np.testing.assert_allclose(model.probability({0: (-1, 2)}), expected, rtol=0, atol=1e-9)


def test_samples_follow_the_scores(mixed, joint):
    """Two tests at a level of 1e-3 for three models: a false alarm in 170 seeds."""
    rows, mass = joint
    draws = mixed.sample(4000, random_state=3)
    cells = pd.Series(mass).groupby([rows.city, rows.owner, rows.visits]).sum()
    seen = draws.groupby(["city", "owner", "visits"]).size().reindex(cells.index, fill_value=0)
    enough = cells * 4000 > 5
    observed = [*seen[enough], seen[~enough].sum()]
    expected = np.array([*cells[enough], cells[~enough].sum()]) * 4000
    assert chisquare(observed, expected * 4000 / expected.sum()).pvalue > 1e-3
    share = mixed.marginal(["age"])
    uniforms = [share.probability({"age": (None, age)}) for age in draws.age[:100]]
    assert kstest(uniforms, "uniform").pvalue > 1e-3
