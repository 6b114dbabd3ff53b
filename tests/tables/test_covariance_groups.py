"""Full covariances of a table's numbers, beside its categories, atoms and gaps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from frames import MIX
from frames import correlated_frame as frame_of
from scipy.stats import multivariate_normal

import subtractive as sub
from subtractive.tables.covariance_groups import best_group, group_of
from subtractive.tables.effort import Budget
from subtractive.tables.schema import Schema
from subtractive.tables.training_data import Data, encode_rows
from subtractive.tables.validation import read_table

# So few epochs end long before the time does: on a busy machine the model is the same.
BRIEF = {"effort": 120, "max_epochs": 3, "random_state": 0}


def true_score(frame):
    at_atom = frame["d"] == -9.0
    numbers, kind = frame[list("abcd")].to_numpy(), (frame["kind"] == "y").to_numpy()
    total = np.zeros(len(frame))
    for some, size, share in ((at_atom, 3, 0.05), (~at_atom, 4, 0.95)):
        covariance = (MIX.T @ MIX)[:size, :size]
        shifted = numbers[some, :size] - 2 * kind[some, None]
        total[some] = multivariate_normal(np.zeros(size), covariance).logpdf(shifted)
        total[some] += np.log(share / 2)
    return total.mean()


@pytest.fixture(scope="module")
def fitted():
    return sub.SubtractiveMixture(**BRIEF).fit(frame_of(1500, 0))


def test_columns_that_nearly_determine_each_other_share_covariances(fitted):
    fresh = frame_of(2000, 1)
    assert fitted.score(fresh) > true_score(fresh) - 0.15
    shapes = {
        len(scope)
        for member in fitted.density_.members
        for layer in member.circuit.input_layers
        for scope in layer.scopes
    }
    assert shapes == {1, 4}


def test_one_row_far_away_changes_little(fitted):
    frame, fresh = frame_of(1500, 0), frame_of(500, 1)
    frame.loc[0, "b"] = 2000.0
    model = sub.SubtractiveMixture(**BRIEF).fit(frame)
    assert abs(model.score(fresh) - fitted.score(fresh)) < 0.02 * 5  # columns
    assert model.score_samples(frame.head(1))[0] > -60


def test_boxes_with_atoms_are_what_samples_say(fitted):
    drawn = fitted.sample(40_000, random_state=0)
    for event in (
        {"d": (-10, 0.5)},
        {"d": (-10, 0.5), "a": (0, 2)},
        {"a": (0, 2), "d": (-9, -9)},
        {"d": (-10, 0.5), "a": (0, 2), "kind": ["y"]},
    ):
        counts = np.ones(len(drawn), dtype=bool)
        for name, given in event.items():
            inside = drawn[name].between(*given) if isinstance(given, tuple) else None
            counts &= drawn[name].isin(given) if inside is None else inside
        share = counts.mean()
        # Four standard errors: one false alarm in 16,000 events.
        error = 4 * np.sqrt(share * (1 - share) / len(drawn))
        assert fitted.probability(event) == pytest.approx(share, abs=error)


def test_answers_given_an_atom_come_from_the_rows_that_have_it(fitted):
    frame = frame_of(1500, 0)
    assert fitted.probability({"d": [-9.0]}) == pytest.approx((frame["d"] == -9).mean(), abs=0.005)
    drawn = fitted.sample(200, given={"d": -9.0}, random_state=0)
    assert (drawn["d"] == -9).all()
    gaps = frame[frame["d"] == -9].head(3).assign(a=np.nan)
    assert np.isfinite(fitted.impute(gaps)["a"]).all()
    assert np.isfinite(fitted.score_samples(gaps)).all()


def test_columns_with_gaps_and_many_atoms_stay_out_of_the_group():
    frame = frame_of(400, 0)
    frame.loc[:3, "a"], frame.loc[:99, "b"] = np.nan, 7.0
    table, weights = read_table(frame), np.ones(len(frame))
    schema = Schema.of(table, weights, None, "missing")
    data = Data.of(schema.variables, encode_rows(schema, table, weights), None, 0)
    families = [column.family(signed=False) for column in schema.variables]
    assert group_of(data, families) == [2, 3]
    assert group_of(data._replace(columns=data.columns[:3]), families[:3]) == []
    assert torch.isfinite(data.train.x[:, 2:4]).all()


def test_it_stops_when_the_time_is_over():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(600, 4)) @ random.normal(size=(4, 4))).add_prefix("x")
    table, weights = read_table(frame), np.ones(len(frame))
    schema = Schema.of(table, weights, None, "missing")
    data = Data.of(schema.variables, encode_rows(schema, table, weights), None, 0)
    found = best_group(data, max_epochs=20, budget=Budget(0.0), seed=0)
    assert len(found.history.epochs) == 1


# Given an interval, one with an atom in it, one that is open, one far away, and a category.
GIVEN = {
    "an interval": {"a": (0.2, 0.9)},
    "an interval with an atom": {"d": (None, 0.5)},
    "an open one": {"a": (1.0, None)},
    "a far one": {"a": (5.0, None)},
    "a category as well": {"a": (0.2, 0.9), "kind": "x"},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_distribution_functions_given_an_interval_are_quotients_of_probabilities(given, fitted):
    """Boxes of two columns are integrals of another kind."""
    whole, points = fitted.probability(given), [-0.5, 0.8, 2.5]
    found = fitted.cdf("b", points, given=given)
    expected = [fitted.probability({**given, "b": (None, point)}) / whole for point in points]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    levels = [0.1, 0.5, 0.9]
    places = fitted.quantile("b", levels, given=given)
    np.testing.assert_allclose(fitted.cdf("b", places, given=given), levels, rtol=0, atol=1e-6)


# Their densities are asked here; all distribution functions are asked above.
FEW = ("an interval with an atom", "a category as well")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(given, marks=[] if name in FEW else pytest.mark.slow, id=name)
        for name, given in GIVEN.items()
    ],
)
def test_marginals_given_an_interval_are_those_of_distribution_functions(given, fitted):
    found = fitted.marginals(given=given)
    some = found[found["column"] == "b"]
    points, heights = some["value"].to_numpy(dtype=float), some["density"].to_numpy()
    steps = np.diff(fitted.cdf("b", points, given=given))
    trapezoids = np.diff(points) * (heights[1:] + heights[:-1]) / 2
    np.testing.assert_allclose(trapezoids, steps, rtol=0, atol=1e-3)
    levels = (np.arange(200) + 0.5) / 200
    mean = fitted.quantile("b", levels, given=given).mean()
    assert fitted.mean(given=given)["b"] == pytest.approx(mean, abs=0.02)
    if "kind" not in given:
        shares = found[found["column"] == "kind"].set_index("value")["probability"]
        expected = fitted.probability({"kind": "x"}, given=given)
        assert shares["x"] == pytest.approx(expected, abs=1e-5)


def test_two_intervals_are_answered(fitted):
    given = {"a": (0.0, 2.0), "b": (None, 1.5)}
    expected = fitted.probability({**given, "kind": "x"}) / fitted.probability(given)
    found = fitted.marginals(given=given)
    share = found[(found["column"] == "kind") & (found["value"] == "x")]["probability"].iloc[0]
    assert share == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("count", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_three_intervals_are_answered(count, fitted):
    more = {"a": (0.0, 2.0), "b": (None, 1.5), "c": (-0.5, 2.0)}
    drawn = fitted.sample(count, given=more, random_state=0)
    # Four standard errors of the difference of the means of so many and of 500 samples.
    error = 4 * drawn["d"].std() * np.sqrt(1 / count + 1 / 500)
    assert fitted.mean(given=more)["d"] == pytest.approx(drawn["d"].mean(), abs=error)
    assert 0 < fitted.quantiles([0.5], given=more)["a"].iloc[0] < 2


def rounded_frame(count):
    """Three numbers on a grid of tenths, of which two nearly determine the third."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, count)).cumsum(0)
    return pd.DataFrame({"a": a, "b": b, "c": 0.5 * a + 0.5 * b}).round(1)


def test_intervals_of_columns_that_determine_each_other_up_to_rounding_are_not_too_wide():
    train, test = rounded_frame(2500)[:2000], rounded_frame(2500)[2000:]
    schema = Schema.infer(
        train, schema=dict.fromkeys("abc", sub.tables.Continuous(resolution=0.1))
    )
    rows = encode_rows(schema, read_table(train), np.ones(len(train)))
    held_out = encode_rows(schema, read_table(test), np.ones(len(test)))
    data = Data.of(schema.variables, rows, held_out, 0).standardised(0)
    group = best_group(data, max_epochs=25, budget=Budget(60), seed=0)
    assert group is not None
    density, x = group.members[1], data.valid.x[:300]
    means, deviations = [], []
    for row in x:
        rest = density.condition({0: float(row[0]), 1: float(row[1])})
        means.append(rest.mean().detach())
        deviations.append(rest.variance().detach().sqrt())
    errors = (x[:, 2] - torch.cat(means)).abs() / torch.cat(deviations)
    # The root mean square of errors in the model's own deviations is one if they are right; of
    # values spread over whole cells it was 0.74, as rounding counted twice.
    assert 0.85 < float(errors.square().mean().sqrt()) < 1.15


def test_rows_with_all_of_their_numbers_are_sampled_and_completed(fitted):
    frame = frame_of(20, 2)
    gaps = frame.assign(kind=frame["kind"].where(frame.index > 0))
    (drawn,) = fitted.impute(gaps, n_draws=1, random_state=0)
    assert drawn[list("abcd")].equals(frame[list("abcd")])
    assert drawn["kind"].isin(["x", "y"]).all()
    assert fitted.sample(given=gaps, random_state=0)["kind"].isin(["x", "y"]).all()
    best = fitted.mode(given=frame.loc[1, list("abcd")].to_dict())
    assert best["kind"] in ("x", "y")


def test_shares_are_those_of_all_rows_where_components_are_found_with_part_of_them():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(9000, 2)) @ [[1, 0.9], [0, 0.1]], columns=list("ab"))
    frame["kind"] = np.array(["x", "y", "z"])[random.integers(0, 3, 9000)]
    table, weights = read_table(frame), np.ones(len(frame))
    schema = Schema.of(table, weights, None, "missing")
    data = Data.of(schema.variables, encode_rows(schema, table, weights), None, 0)
    group = best_group(data, max_epochs=2, budget=Budget(1000), share=1e-9, seed=0)
    assert group is not None
    assert group.num_components * 256 < len(frame)  # components of part of the rows
    place, shares = schema.place["kind"], np.array(group.weights)
    for state, kind in enumerate(schema.column("kind").values):
        row = torch.full((1, 3), torch.nan, dtype=torch.float64)
        row[0, place] = state
        found = [member.log_prob(row).exp().item() for member in group.members]
        # A part of 4,096 rows would be off by .007 in the root mean square.
        assert shares @ found == pytest.approx((frame["kind"] == kind).mean(), abs=5e-4)
