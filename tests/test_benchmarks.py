"""Benchmarks keep their runs, and the page on quality says what the records say."""

import json

import numpy as np
import pytest
import torch

from benchmarks import continuous_sets, defaults, summary
from benchmarks.recording import keep


def test_the_tables_on_quality_are_those_of_the_records():
    page = summary.PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in page for name in summary.MAKERS)
    assert summary.with_tables(page) == page
    changed = page.replace("| adult | ", "| adult | 0.999 ", 1)
    assert changed != page
    assert summary.with_tables(changed) == page


def test_a_run_takes_the_place_of_an_earlier_one_and_names_its_commit(tmp_path):
    path = tmp_path / "records.json"
    keep(path, [{"set": "a", "seed": 0, "score": 1.0}, {"set": "a", "seed": 1}], ("set", "seed"))
    keep(path, [{"set": "a", "seed": 0, "score": 2.0}], ("set", "seed"))
    first, second = json.loads(path.read_text())
    assert (first["seed"], second["seed"], second["score"]) == (1, 0, 2.0)
    assert first["commit"] == second["commit"] != ""


def test_chow_liu_trees_sum_to_one_and_copies_are_joined():
    x = (torch.rand(200, 5, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    x[:, 3] = x[:, 1]
    tree = defaults.ChowLiuTree.of(x, 0.1)
    every = torch.cartesian_prod(*[torch.arange(2)] * 5)
    torch.testing.assert_close(tree.log_prob(every).exp().sum(), torch.tensor(1.0).double())
    assert [1, 3] in tree.edges.sort(1).values.tolist()
    # The model of the tree has the shares of single columns and of joined pairs, smoothed.
    joint = tree.log_prob(every).exp()
    pair = joint[(every[:, 1] == 1) & (every[:, 3] == 1)].sum()
    assert pair == pytest.approx(((x[:, 1] == 1).sum() + 0.1) / 200.4)


def test_sets_are_in_units_of_their_training_rows_and_mixtures_are_chosen_by_validation(tmp_path):
    random = np.random.default_rng(0)
    parts = {name: 3 + 5 * random.normal(size=(200, 2)) for name in ("train", "valid", "test")}
    (tmp_path / "synthetic2d").mkdir()
    np.savez(tmp_path / "synthetic2d" / "round_continuous.npz", **parts)
    rows = continuous_sets.load("round", tmp_path, num_patches=0)
    np.testing.assert_allclose(rows.train.mean(0), 0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(rows.train.std(0, correction=0), 1, rtol=1e-6, atol=0)
    found = continuous_sets.gmm(rows, "full")
    assert found.note == "4 comp."  # more of them overfit 200 rows of one Gaussian
    assert found.test == pytest.approx(-1 - np.log(2 * np.pi), abs=0.3)
