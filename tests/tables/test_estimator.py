"""SubtractiveMixture: fitting, asking, and working with the rest of scikit-learn."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from frames import BOUNDS, mixed_frame, quick
from processes import call
from registry import every_kind
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import subtractive as sub
from subtractive.tables.table_density import TableDensity
from subtractive.tables.view import View

FRAME = mixed_frame()
ARRAY = np.random.default_rng(0).normal(size=(200, 3)) @ np.random.default_rng(1).normal(
    size=(3, 3)
)


@pytest.fixture(scope="module")
def fitted():
    return quick(schema=BOUNDS).fit(FRAME)


def test_samples_have_the_columns_and_types_of_the_table(fitted):
    draws = fitted.sample(50, random_state=0)
    assert list(draws.columns) == list(FRAME.columns)
    assert (draws.dtypes == FRAME.dtypes).all()
    assert np.isfinite(fitted.score_samples(draws)).all()


def test_samples_keep_what_is_given(fitted):
    given = {"age": 33.3, "city": "Rome", "owner": True, "visits": 3, "income": 1234.5}
    draws = fitted.sample(20, given=given, random_state=0)
    assert (draws[list(given)] == pd.Series(given)).all(axis=None)
    assert (draws.dtypes == FRAME.dtypes).all()


def test_a_table_of_given_values_yields_a_sample_per_row(fitted):
    draws = fitted.sample(given=FRAME.head(30), random_state=0)
    known = FRAME.head(30).notna()
    assert draws.notna().all(axis=None)
    pd.testing.assert_frame_equal(draws.where(known), FRAME.head(30).where(known))


def test_imputations_change_only_what_is_missing_and_keep_types_and_index(fitted):
    gaps = FRAME.set_index(np.arange(len(FRAME)) * 2 + 5)
    filled = fitted.impute(gaps)
    assert (filled.dtypes == gaps.dtypes).all()
    assert filled.index.equals(gaps.index)
    assert filled.notna().all(axis=None)
    pd.testing.assert_frame_equal(filled.where(gaps.notna()), gaps.where(gaps.notna()))


def test_a_gap_is_filled_with_the_conditional_mean_and_the_most_probable_category(fitted):
    # Of a column on a grid a row has the middle of a cell, and evidence the cell: left out here.
    known = ["owner", "share", "income", "grade", "depth", "agreed", "label"]
    row = FRAME.iloc[[1]].copy()
    for name in FRAME.columns.difference(known):
        row[name] = None if name == "city" else np.nan
    filled = fitted.impute(row).iloc[0]
    rest = {name: FRAME.iloc[1][name] for name in known if pd.notna(FRAME.iloc[1][name])}
    view = fitted.condition(rest)
    np.testing.assert_allclose(filled.age, view.mean()["age"], rtol=1e-9, atol=0)
    shares = {c: view.probability({"city": [c]}) for c in ("Oslo", "Bergen", "Rome")}
    assert filled.city == max(shares, key=shares.get)


def test_arrays_come_back_as_arrays_of_their_type():
    array = ARRAY.astype(np.float32)
    array[::4, 1] = np.nan
    model = quick().fit(array)
    assert model.sample(4, random_state=0).dtype == np.float32
    filled = model.impute(array)
    assert filled.dtype == np.float32
    np.testing.assert_array_equal(filled[~np.isnan(array)], array[~np.isnan(array)])
    whole = quick().fit((100 * ARRAY).astype(int)).sample(4, random_state=0)
    assert whole.dtype == int


def test_constant_columns_and_copies_come_back_in_samples():
    frame = pd.DataFrame({"a": ARRAY[:, 0], "b": ARRAY[:, 0], "c": 7, "d": ARRAY[:, 1]})
    with pytest.warns(sub.DataWarning):
        model = quick().fit(frame)
    draws = model.sample(20, random_state=0)
    assert (draws.a == draws.b).all()
    assert (draws.c == 7).all()
    assert (draws.dtypes == frame.dtypes).all()
    odd = frame.head(4).copy()
    odd.loc[1, "c"], odd.loc[2, "b"], odd.loc[3, "a"] = 8, 0.123, np.nan
    scores = model.score_samples(odd)
    assert np.isfinite(scores[[0, 3]]).all()
    assert (scores[[1, 2]] == -np.inf).all()
    np.testing.assert_allclose(
        scores[3], model.score_samples(frame.iloc[[3]])[0], rtol=1e-12, atol=1e-12
    )
    assert (model.condition({"a": 0.1}).sample(3, random_state=0).b == 0.1).all()
    assert model.probability({"c": (0, 10)}) == 1.0
    assert model.probability({"c": [8]}) == 0.0
    assert model.probability({"a": (0, 1), "b": (2, 3)}) == 0.0
    np.testing.assert_allclose(
        model.probability({"a": (-1, 1), "b": (0, 3)}),
        model.probability({"a": (0, 1)}),
        rtol=1e-12,
        atol=0,
    )
    assert model.mean()["c"] == 7
    covariance = model.marginal(["a", "b"]).cov()
    np.testing.assert_allclose(
        covariance.loc["a", "b"], covariance.loc["a", "a"], rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("structure", ["auto", "binary", "flat"])
def test_a_weight_of_two_is_a_row_that_occurs_twice_to_the_last_bit(structure):
    frame = FRAME[["age", "city", "visits"]] if structure == "binary" else pd.DataFrame(ARRAY)
    weights = np.random.default_rng(0).integers(0, 3, len(frame))
    repeated = frame.loc[np.repeat(frame.index, weights)].sample(frac=1, random_state=0)
    one = quick(structure=structure, max_epochs=2).fit(frame, sample_weight=weights)
    two = quick(structure=structure, max_epochs=2).fit(repeated)
    np.testing.assert_array_equal(one.score_samples(frame), two.score_samples(frame))


def test_the_score_is_the_weighted_mean_of_the_scores(fitted):
    weights = np.random.default_rng(0).random(len(FRAME))
    scores = fitted.score_samples(FRAME)
    np.testing.assert_allclose(fitted.score(FRAME), scores.mean(), rtol=1e-12, atol=0)
    np.testing.assert_allclose(
        fitted.score(FRAME, sample_weight=weights),
        np.average(scores, weights=weights),
        rtol=1e-12,
        atol=0,
    )


def scores_and_samples():
    """The bits of both, of a model of whatever kind the estimator chooses."""
    x = np.random.default_rng(0).normal(size=(80, 3))
    model = sub.SubtractiveMixture(4, max_epochs=1, random_state=7).fit(x)
    return model.score_samples(x).tobytes(), model.sample(9, random_state=1).tobytes()


def test_the_same_random_state_gives_the_same_bits_in_another_process():
    assert call(scores_and_samples) == scores_and_samples()


def test_a_random_state_object_is_advanced():
    random = np.random.RandomState(0)
    first = quick(random_state=random).fit(ARRAY)
    second = quick(random_state=random).fit(ARRAY)
    assert (first.score_samples(ARRAY) != second.score_samples(ARRAY)).any()
    assert (first.sample(3, random_state=random) != first.sample(3, random_state=random)).all()


def test_partial_fit_goes_on_from_where_it_stands():
    model = quick(structure="binary")
    for part in np.array_split(np.tile(ARRAY, (4, 1)), 4):
        model.partial_fit(part)
    start = quick(structure="binary").partial_fit(ARRAY)
    assert model.score(ARRAY) > start.score(ARRAY)
    assert len(model.history_.epochs) == 1


def test_partial_fit_leaves_an_earlier_density_alone():
    model = quick().fit(ARRAY)
    before, density = model.score(ARRAY), model.density_
    model.partial_fit(ARRAY + 1)
    view = View(model.schema_, density, model.schema_.names)
    assert TableDensity(view).score(ARRAY) == before


def test_a_failed_fit_leaves_the_estimator_as_it_was(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    before = dict(vars(model))
    with pytest.raises(ValueError, match="infinity"):
        model.fit(FRAME[["share", "income"]].assign(other=np.inf))
    with pytest.raises(ValueError, match="schema excludes"):
        model.partial_fit(FRAME.assign(share=2.0))
    assert vars(model) == before


def test_a_pickled_model_answers_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(FRAME), fitted.score_samples(FRAME))
    pd.testing.assert_frame_equal(
        again.sample(5, random_state=0), fitted.sample(5, random_state=0)
    )


def test_a_clone_has_the_settings_and_nothing_else(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "density_")


def test_it_is_the_last_step_of_a_pipeline():
    scaler = StandardScaler().set_output(transform="pandas")
    model = make_pipeline(scaler, quick()).fit(pd.DataFrame(ARRAY, columns=["a", "b", "c"]))
    assert np.isfinite(model.score(pd.DataFrame(ARRAY, columns=["a", "b", "c"])))
    assert model[-1].feature_names_in_.tolist() == ["a", "b", "c"]


def test_a_grid_search_chooses_by_held_out_likelihood():
    model = quick(structure="binary")
    search = GridSearchCV(model, {"n_components": [1, 3]}, cv=2).fit(ARRAY)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert np.isfinite(cross_val_score(model, FRAME[["age", "city"]], cv=2)).all()


@every_kind(
    ("kind", "structure", "covariance"),
    list(
        itertools.product(
            ("squared", "monotonic", "squared-monotonic"),
            ("auto", "binary", "linear", "flat", "chow-liu"),
            ("full", "diagonal"),
        )
    ),
)
def test_every_combination_of_settings_fits_every_kind_of_column(kind, structure, covariance):
    model = quick(kind=kind, structure=structure, covariance=covariance, schema=BOUNDS)
    rows = FRAME[["age", "rooms", "city", "share", "income", "visits"]].head(60)
    model.fit(rows)
    assert np.isfinite(model.score(rows))
    assert model.sample(3, random_state=0).shape == (3, 6)


def test_a_mixture_over_random_trees_has_as_many_members():
    model = quick(n_structures=3, structure="linear").fit(ARRAY)
    assert isinstance(model.density_, sub.Mixture)
    assert len(model.density_.members) == 3


def test_auto_keeps_what_held_out_rows_find_more_likely():
    scores = {
        structure: quick(structure=structure, max_epochs=5).fit(ARRAY).history_.best_score
        for structure in ("auto", "binary")
    }
    assert scores["auto"] >= scores["binary"]


def test_a_schema_can_be_made_once_and_used_again():
    schema = sub.tables.Schema.infer(FRAME, schema=BOUNDS)
    model = quick(schema=schema).fit(FRAME.head(60))
    assert model.schema_ is schema
    assert np.isfinite(model.score(FRAME))


def test_polars_frames_come_back_as_polars_frames():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "age": ARRAY[:, 0].tolist(),
            "city": ["Oslo", "Rome"] * 100,
            "visits": list(range(100)) * 2,
            "owner": [True, False, None, True] * 50,
        }
    )
    model = quick().fit(frame)
    assert model.sample(5, random_state=0).schema == frame.schema
    filled = model.impute(frame)
    assert filled.schema == frame.schema
    assert filled["owner"].null_count() == 0
    assert np.isfinite(model.score(frame))
