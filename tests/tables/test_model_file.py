"""Estimators are saved to a file and loaded again, schema and all."""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from scorecard.damage import forge
from subtractive.io.files import read_tensors, write_tensors


def frame(n=120):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "real": random.normal(size=n),
            "half": random.exponential(size=n).astype(np.float32) + 1e-3,
            "share": random.random(n),
            "whole": random.integers(-500, 500, n),
            "count": random.poisson(20, n),
            "text": random.choice(["a", "b", "ü"], n),
            "level": pd.Categorical(
                random.choice(["low", "high"], n), categories=["low", "mid", "high"], ordered=True
            ),
            "flag": random.random(n) < 0.5,
            "nullable": pd.array(random.integers(0, 4, n), dtype="Int64"),
        }
    )
    table["twin"] = table["real"]
    table["fixed"] = 7.5
    table.loc[::7, "real"] = np.nan
    table["twin"] = table["real"]
    table.loc[3, "nullable"] = pd.NA
    return table


KINDS = {
    "half": sub.tables.Continuous(0),
    "share": sub.tables.Continuous(0, 1),
}


@pytest.fixture(scope="module")
def fitted():
    with pytest.warns(sub.DataWarning):
        return sub.SubtractiveMixture(
            3, schema=KINDS, max_epochs=1, random_state=0, structure="binary"
        ).fit(frame())


def test_a_model_of_a_mixed_table_is_loaded_as_it_was(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = sub.load(tmp_path / "model")
    assert loaded.schema_.names == fitted.schema_.names
    assert loaded.schema_.variables == fitted.schema_.variables
    assert loaded.schema_.constants == fitted.schema_.constants
    assert loaded.history_ == fitted.history_
    assert list(loaded.feature_names_in_) == list(fitted.feature_names_in_)
    np.testing.assert_array_equal(
        loaded.score_samples(frame()), fitted.score_samples(frame()), strict=True
    )
    drawn = [model.sample(20, random_state=1) for model in (loaded, fitted)]
    pd.testing.assert_frame_equal(*drawn)
    assert list(drawn[0].dtypes) == list(frame().dtypes)
    pd.testing.assert_frame_equal(loaded.impute(frame()), fitted.impute(frame()))


def test_a_model_of_an_array_answers_with_arrays(tmp_path):
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    model = sub.SubtractiveMixture(3, max_epochs=1, random_state=np.random.RandomState(0)).fit(x)
    model.save(tmp_path / "model")
    loaded = sub.load(tmp_path / "model")
    assert not hasattr(loaded, "feature_names_in_")
    assert loaded.n_features_in_ == 3
    drawn = loaded.sample(4, random_state=2)
    assert drawn.dtype == np.float32
    np.testing.assert_array_equal(drawn, model.sample(4, random_state=2), strict=True)


def test_saving_needs_a_fitted_model(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        sub.SubtractiveMixture().save(tmp_path / "model")


def test_a_file_of_an_earlier_version_still_loads():
    path = Path(__file__).parents[1] / "golden" / "version-1-estimator.model"
    expected = json.loads(path.with_suffix(".json").read_text())
    model = sub.load(path)
    scores = model.score_samples(frame().head(len(expected)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)


def use(model, path):
    """Whatever one does with a model, on rows of its own: none of it may fail."""
    own = model.sample(6, random_state=0)
    scores = model.score_samples(own)
    assert not np.isnan(scores).any()
    gaps = own.astype(object)
    for number, name in enumerate(own.columns):
        gaps.loc[number % 6, name] = None
    modelled = [name for name in own.columns if name not in model.schema_.aside]
    assert not model.impute(gaps)[modelled].isna().any().any()
    assert len(model.mean()) == len(own.columns)
    str(model.history_)
    model.save(path)
    np.testing.assert_array_equal(sub.load(path).score_samples(own), scores)
    model.partial_fit(own)


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_forged_schemas_are_refused_or_those_of_other_models(fitted, tmp_path, count):
    """The checksum is right, as an attacker's would be."""
    path = tmp_path / "model"
    fitted.save(path)
    tensors, description = read_tensors(path, "model")
    generator = random.Random(0)
    refused = 0
    for _ in range(count):
        estimator = forge(description["estimator"], generator)
        write_tensors(path, "model", tensors, {**description, "estimator": estimator})
        try:
            loaded = sub.load(path)
        except sub.FileFormatError:
            refused += 1
        else:
            use(loaded, tmp_path / "again")
    assert 0.6 * count < refused < count  # most changes make no schema, some make another


FORGED = {
    "a setting": (("parameters", "kind"), "cubed"),
    "a seed": (("parameters", "random_state"), -1),
    "unknown": (("parameters", "unknown"), "guess"),
    "kinds of columns": (("parameters", "schema"), {"real": "continuous"}),
    "an epoch": (("history", "epochs", 0, 0), "first"),
    "a score": (("history", "best_score"), []),
    "a type of a fact": (("schema", "variables", 0, "low"), "1"),
    "bounds": (("schema", "variables", 2, "high"), -1.0),
    "a repeated state": (("schema", "variables", 5, "values", 0), "b"),
    "a repeated name": (("schema", "names", 0), "half"),
    "a number for a name": (("schema", "names", 0), 3),
    "a place": (("schema", "place", 0), 1),
    "a constant": (("schema", "constants", 0), ["fixed", None]),
    "a type of a column": (("schema", "container", "frame", 5), {"dtype": "float64"}),
}


@pytest.mark.parametrize(("place", "value"), FORGED.values(), ids=FORGED)
def test_facts_that_cannot_be_are_refused(place, value, fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    tensors, description = read_tensors(path, "model")
    *above, last = place
    node = description["estimator"]
    for key in above:
        node = node[key]
    node[last] = value
    write_tensors(path, "model", tensors, description)
    with pytest.raises(sub.FileFormatError, match="does not describe the model of a table"):
        sub.load(path)
