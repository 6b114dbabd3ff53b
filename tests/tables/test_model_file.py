"""Estimators are saved to a file and loaded again, schema and all."""

import copy
import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
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
    "half": sub.Continuous(0),
    "share": sub.Continuous(0, 1),
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


def changed_somewhere(value, generator):
    """A copy of plain data with one entry removed or replaced."""
    value = copy.deepcopy(value)
    node = value
    while True:
        key = generator.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[key], dict | list) and node[key] and generator.random() < 0.8:
            node = node[key]
            continue
        if generator.random() < 0.3:
            del node[key]
        else:
            node[key] = generator.choice([None, -1, 10**30, 0.5, "x", "object", [], {}, [[1]]])
        return value


def test_a_tampered_schema_is_refused_or_harmless(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    tensors, description = read_tensors(path, "model")
    generator = random.Random(0)
    refused = 0
    for _ in range(300):
        estimator = changed_somewhere(description["estimator"], generator)
        write_tensors(path, "model", tensors, {**description, "estimator": estimator})
        try:
            loaded = sub.load(path)
        except sub.FileFormatError:
            refused += 1
        else:
            assert isinstance(loaded, sub.SubtractiveMixture)
    assert refused > 60
