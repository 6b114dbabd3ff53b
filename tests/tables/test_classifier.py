"""SubtractiveClassifier: Bayes' rule over densities of the classes."""

import pickle

import numpy as np
import pandas as pd
import pytest
from frames import quick
from sklearn.model_selection import GridSearchCV

import subtractive as sub
from subtractive.tables.class_densities import LabelledTable, best_power


def two_classes(num_rows=300):
    """Numbers and texts whose distribution depends on the class, with gaps."""
    random = np.random.default_rng(0)
    label = random.choice(["no", "yes", "maybe"], num_rows, p=[0.5, 0.3, 0.2])
    shift = pd.Series(label).map({"no": 0.0, "yes": 3.0, "maybe": -3.0}).to_numpy()
    frame = pd.DataFrame({"x": random.normal(shift, 1), "y": random.normal(-shift, 2)})
    frame["city"] = np.where(random.random(num_rows) < 0.3 + 0.1 * shift, "Oslo", "Rome")
    frame.loc[::9, "x"] = np.nan
    return frame, label


FRAME, LABELS = two_classes()


@pytest.fixture(scope="module")
def fitted():
    model = sub.SubtractiveClassifier(quick(max_epochs=3), random_state=0)
    return model.fit(FRAME, LABELS)


def test_probabilities_are_densities_times_priors_normalised(fitted):
    shares = [np.mean(label == LABELS) for label in fitted.classes_]
    joint = np.stack(
        [
            share * np.exp(density.score_samples(FRAME))
            for share, (density,) in zip(shares, fitted.densities_, strict=True)
        ],
        axis=1,
    )
    expected = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(FRAME), expected, rtol=1e-10, atol=1e-12)
    assert (fitted.predict(FRAME) == fitted.classes_[expected.argmax(1)]).all()


def test_a_class_density_is_that_of_a_mixture_fitted_to_its_rows(fitted):
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=3)
    for label, seed, (density,) in zip(fitted.classes_, seeds, fitted.densities_, strict=True):
        rows = FRAME[label == LABELS]
        alone = quick(max_epochs=3, schema=fitted.schema_)
        # The classifier hands out seeds; an estimator draws its own from its random state.
        alone.random_state = type("Fixed", (np.random.RandomState,), {"randint": _always(seed)})(0)
        np.testing.assert_array_equal(
            alone.fit(rows).score_samples(FRAME), density.score_samples(FRAME)
        )


def _always(seed):
    return lambda self, *args, **kwargs: seed


def test_it_learns(fitted):
    assert fitted.score(FRAME, LABELS) > 0.85


def test_a_row_of_gaps_gets_the_priors(fitted):
    gaps = FRAME.head(1).assign(x=np.nan, y=np.nan, city=None).astype(FRAME.dtypes)
    shares = [np.mean(label == LABELS) for label in fitted.classes_]
    np.testing.assert_allclose(fitted.predict_proba(gaps)[0], shares, rtol=1e-9, atol=0)


def test_given_priors_replace_the_shares_of_the_rows(fitted):
    model = sub.SubtractiveClassifier(quick(), priors=[0.2, 0.2, 0.6], random_state=0)
    gaps = FRAME.head(1).assign(x=np.nan, y=np.nan, city=None).astype(FRAME.dtypes)
    found = model.fit(FRAME, LABELS).predict_proba(gaps)[0]
    np.testing.assert_allclose(found, [0.2, 0.2, 0.6], rtol=1e-9, atol=0)


def test_a_weight_of_two_is_a_row_that_occurs_twice():
    weights = np.random.default_rng(0).integers(0, 3, len(FRAME))
    rows = np.repeat(np.arange(len(FRAME)), weights)
    models = [sub.SubtractiveClassifier(quick(), random_state=0) for _ in range(2)]
    models[0].fit(FRAME, LABELS, sample_weight=weights)
    models[1].fit(FRAME.iloc[rows], LABELS[rows])
    one, two = (model.predict_proba(FRAME) for model in models)
    np.testing.assert_array_equal(one, two)


def test_a_column_that_is_constant_in_one_class_stays_comparable():
    frame = pd.DataFrame({"x": np.r_[np.zeros(50), np.linspace(-5, 5, 50)]})
    labels = np.repeat([0, 1], 50)
    model = sub.SubtractiveClassifier(
        quick(schema={"x": "continuous"}, max_epochs=20), random_state=0
    )
    shares = model.fit(frame, labels).predict_proba(pd.DataFrame({"x": [0.0, 4.0]}))
    assert shares[0, 0] > 0.5
    assert shares[1, 1] > 0.9


def test_an_impossible_row_gets_the_priors_and_a_warning():
    frame = pd.DataFrame({"x": np.random.default_rng(0).random(80)})
    mixture = quick(schema={"x": sub.tables.Continuous(0, 1)})
    model = sub.SubtractiveClassifier(mixture, random_state=0).fit(frame, np.arange(80) % 2)
    with pytest.warns(sub.DataWarning, match="1 rows, the first of them row 1, are impossible"):
        shares = model.predict_proba(pd.DataFrame({"x": [0.5, 2.0]}))
    np.testing.assert_allclose(shares[1], [0.5, 0.5], rtol=1e-12, atol=0)


def test_a_failed_fit_leaves_the_classifier_as_it_was(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    before = dict(vars(model))
    with pytest.raises(ValueError, match="column 'x' holds inf"):
        model.fit(FRAME[["x"]].assign(x=np.inf), LABELS)
    assert vars(model) == before


def test_a_class_of_one_row_can_be_fitted():
    model = sub.SubtractiveClassifier(quick(), random_state=0)
    model.fit(FRAME.head(20), ["rare"] + ["common"] * 19)
    assert np.isfinite(model.predict_proba(FRAME)).all()


def test_it_is_pickled_and_searched_as_others_are(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(FRAME), fitted.predict_proba(FRAME))
    base = sub.SubtractiveClassifier(quick(), random_state=0)
    search = GridSearchCV(base, {"estimator__n_components": [1, 3]}, cv=2)
    assert search.fit(FRAME, LABELS).best_score_ > 0.6


@pytest.fixture(scope="module", params=["mixed", "continuous"])
def left_open(request):
    """Classifiers that choose structure and size themselves."""
    frame = FRAME if request.param == "mixed" else FRAME[["x", "y"]].dropna()
    labels = LABELS[frame.index]
    model = sub.SubtractiveClassifier(sub.SubtractiveMixture(effort=0.3), random_state=0)
    return model.fit(frame, labels), frame, labels


def test_means_of_folds_to_a_power_are_the_densities(left_open):
    model, frame, labels = left_open
    assert [len(densities) for densities in model.densities_] == [3, 3, 3]
    shares = [np.mean(label == labels) for label in model.classes_]
    joint = [
        share * np.mean([np.exp(d.score_samples(frame)) for d in densities], 0) ** model.power_
        for share, densities in zip(shares, model.densities_, strict=True)
    ]
    expected = np.stack(joint, 1) / np.sum(joint, 0)[:, None]
    np.testing.assert_allclose(model.predict_proba(frame), expected, rtol=1e-8, atol=1e-12)
    assert model.score(frame, labels) > 0.85


def test_the_power_is_that_of_the_least_smoothed_log_loss():
    random = np.random.default_rng(0)
    codes = random.integers(0, 2, 4000)
    scores = random.normal(size=(4000, 2)) + np.eye(2)[codes]
    rows = LabelledTable(None, codes, np.ones(4000))
    power, loss = best_power(2 * scores, rows)
    # Normal scores whose means differ by one are log-densities up to a constant: twice as much
    # is too sure by a factor of two. The standard error is about 0.02.
    assert power == pytest.approx(1 / 2, abs=0.06)
    tried = [best_power(2 * scores * factor, rows) for factor in (0.9, 1.1)]
    assert all(other[1] == pytest.approx(loss, rel=1e-3) for other in tried)
    assert tried[0][0] == pytest.approx(power / 0.9, rel=1e-2)


def test_rows_that_are_all_told_apart_do_not_make_it_sure():
    codes = np.repeat([0, 1], 20)
    scores = 50.0 * np.eye(2)[codes]
    power, _ = best_power(scores, LabelledTable(None, codes, np.ones(40)))
    # Of a class of 20 rows and half a row more, a quarter might not be told apart.
    assert 1 / (1 + np.exp(-50 * power)) == pytest.approx(20.25 / 20.5, abs=1e-3)


BAD = {
    "no labels": ({"y": None}, "the target y is None"),
    "too few labels": ({"y": LABELS[:5]}, "expected 300, got 5"),
    "numbers as labels": ({"y": np.linspace(0, 1, 300)}, "Unknown label type"),
    "missing labels": ({"y": np.full(300, np.nan)}, "Input y contains NaN"),
    "negative weights": ({"y": LABELS, "sample_weight": -np.ones(300)}, "not negative"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_labels_and_weights_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sub.SubtractiveClassifier(quick()).fit(FRAME, **arguments)


@pytest.mark.parametrize("priors", [[0.5, 0.5], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0], "abc"])
def test_bad_priors_are_refused(priors):
    with pytest.raises(ValueError, match="priors must be 3 positive numbers"):
        sub.SubtractiveClassifier(quick(), priors=priors).fit(FRAME, LABELS)
