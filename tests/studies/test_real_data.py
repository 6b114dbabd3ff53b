"""The experiments on real data, on little of it: from files to tables with the paper's numbers."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import subtractive as sub
from studies.__main__ import main
from studies.data.real import load_real
from studies.data.splits import Splits
from studies.grid.experiment import Record
from studies.grid.records import Records
from studies.grid.running import execute
from studies.models import baselines
from studies.models.evaluation import mean_and_deviation, score
from studies.models.kinds import COMPLEX, MPC, MPC2, NPC2, SQUARES
from studies.models.training import Schedule
from studies.models.tree_mixtures import (
    BINARY,
    CHOW_LIU,
    LINEAR,
    TreeMixture,
    correlated_groups,
    spline_families,
)
from studies.paper.uci import Uci
from studies.paper.uci_paper import BEST, OTHERS, SETS, grid_of
from studies.real_data import real_data
from studies.real_data.debd import Debd
from studies.real_data.em import ExpectationMaximisation
from studies.real_data.ingredients import BASE, CHANGES, Ingredients
from studies.real_data.real_data import RECIPES, RealData, Recipe
from studies.registry import full, quick


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tiny files of the names that the readers look for."""
    random, path = np.random.default_rng(3), tmp_path_factory.mktemp("data")
    mixing = random.normal(size=(6, 6))
    parts = {name: random.normal(size=(150, 6)) @ mixing for name in ("train", "valid", "test")}
    np.savez(path / "power_subset.npz", **parts)
    rows = random.normal(size=(300, 4))
    np.savez(path / "protein.npz", x=rows, test_mask_0=np.arange(300) % 10 == 0)
    bits = {name: random.integers(0, 256, (60, 1)).astype(np.uint8) for name in parts}
    np.savez(path / "nltcs.npz", n_vars=5, **bits)
    return str(path)


@pytest.fixture
def splits():
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(3, 3, generator=random)
    train, valid, test = (torch.randn(n, 3, generator=random) @ mixing for n in (400, 100, 100))
    return Splits(train, valid, test, "normal rows")


def table(outputs, name):
    lines = (outputs.folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))


def test_every_tree_of_a_mixture_of_eight_learns(splits):
    """In the paper's own code only one of eight linear trees received gradients."""
    random = torch.Generator().manual_seed(1)
    rows = torch.randn(200, 7, generator=random)
    density = TreeMixture(NPC2, LINEAR, num_units=3, num_trees=8).build(
        rows, sub.Gaussian(), seed=0
    )
    assert isinstance(density, sub.Mixture)
    assert len(density.members) == 8
    graphs = {str(member.circuit.graph.to_nested()) for member in density.members}
    assert len(graphs) == 8
    (-density.log_prob(rows)).mean().backward()
    for member in density.members:
        for name, parameter in member.named_parameters():
            per_region = parameter.grad.flatten(1).abs().amax(1)
            assert bool((per_region > 0).all()), f"{name} has a region without a gradient"
    before = [parameter.detach().clone() for parameter in density.parameters()]
    sub.fit(density, rows, max_epochs=1, progress=False)
    for old, new in zip(before, density.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_the_mixture_is_the_mean_of_its_trees(splits):
    density = TreeMixture(MPC2, BINARY, num_units=2, num_trees=3).build(
        splits.train, sub.Gaussian(), seed=5
    )
    members = torch.stack([member.log_prob(splits.test).exp() for member in density.members])
    torch.testing.assert_close(
        density.log_prob(splits.test).exp(), members.mean(0), rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("model", [MPC, MPC2, NPC2, SQUARES, COMPLEX])
@pytest.mark.parametrize("tree", [LINEAR, BINARY, CHOW_LIU])
def test_every_model_lives_on_every_tree(splits, model, tree):
    density = TreeMixture(model, tree, num_units=2, outputs=2).build(
        splits.train, sub.Gaussian(), seed=0
    )
    assert isinstance(density, sub.MonotonicCircuit if model == MPC else sub.SquaredCircuit)
    assert density.circuit.num_outputs == (1 if model == MPC else 2)
    signed = not density.circuit.sum_layers[0].weights.is_non_negative
    assert signed == (model in (NPC2, SQUARES, COMPLEX))
    assert bool(density.log_prob(splits.test).isfinite().all())


def test_unknown_models_and_trees_are_refused():
    with pytest.raises(ValueError, match=r"a model is one of MPC, MPC², .*, got 'PC'"):
        TreeMixture("PC", BINARY, 2)
    with pytest.raises(ValueError, match=r"a tree is one of LT, BT, CL, got 'oak'"):
        TreeMixture(MPC, "oak", 2)


def test_splines_cover_all_rows(splits):
    families = spline_families(splits.rows, NPC2, 8)
    for number, family in enumerate(families):
        column = torch.cat([part[:, number] for part in splits.rows]).double()
        assert family.domain[0] < float(column.min()) < float(column.max()) < family.domain[1]
        assert not family.is_non_negative
    assert all(family.is_non_negative for family in spline_families(splits.rows, MPC, 8))


def test_groups_hold_every_variable_once_and_are_not_too_large():
    random = torch.Generator().manual_seed(2)
    base = torch.randn(300, 3, generator=random)
    noise = 0.1 * torch.randn(300, 9, generator=random)
    rows = base.repeat(1, 3) + noise
    assert correlated_groups(rows, 3) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    for size in (1, 2, 4, 9):
        groups = correlated_groups(rows, size)
        assert sorted(variable for group in groups for variable in group) == list(range(9))
        assert max(map(len, groups)) <= size


def test_a_gaussian_is_scored_as_scipy_does(splits):
    train = splits.train.double().numpy()
    truth = multivariate_normal(train.mean(0), np.cov(train.T, bias=True))
    scores = truth.logpdf(splits.test.double().numpy())
    found = baselines.fit_gaussian(splits)
    np.testing.assert_allclose(found["test"], scores.mean(), rtol=1e-10, atol=1e-10)
    errors = 2 * scores.std(ddof=1) / 10
    np.testing.assert_allclose(found["two_errors"], errors, rtol=1e-10, atol=0)
    mixture = baselines.fit_mixture(splits, (1,), seed=0)
    np.testing.assert_allclose(mixture["test"], scores.mean(), rtol=1e-3, atol=1e-3)
    assert mixture["parameters"] == found["parameters"] == 9


@pytest.mark.parametrize(
    ("kind", "epochs"),
    [
        ("MAF", 3),
        pytest.param("NSF", 3, marks=pytest.mark.slow),
        pytest.param("RealNVP", 15, marks=pytest.mark.slow),
    ],
)
def test_flows_learn_and_keep_the_units_of_the_data(splits, kind, epochs):
    pytest.importorskip("zuko", reason="flows are those of zuko")
    schedule = Schedule(epochs, 5e-3, 50)
    found = baselines.fit_flow(kind, splits, schedule, hidden=(16,), seed=0)
    again = baselines.fit_flow(kind, splits, schedule, hidden=(16,), seed=0)
    assert found == again
    truth = baselines.fit_gaussian(splits)["test"]
    assert truth - 1.5 < found["test"] < truth + 0.5
    wide = splits._replace(train=8 * splits.train, valid=8 * splits.valid, test=8 * splits.test)
    moved = baselines.fit_flow(kind, wide, schedule, hidden=(16,), seed=0)
    np.testing.assert_allclose(moved["test"], found["test"] - 3 * np.log(8), rtol=1e-3, atol=1e-3)


def test_a_model_that_failed_scores_minus_infinity():
    def record(value):
        return Record({}, {"test": value}, 0.0, Path)

    assert [score(record(value)) for value in (1.5, 2, None)] == [1.5, 2.0, -np.inf]
    assert mean_and_deviation([1.0, -np.inf]) == (-np.inf, None)


def test_unknown_flows_are_refused(splits):
    pytest.importorskip("zuko", reason="flows are those of zuko")
    with pytest.raises(ValueError, match=r"flows are MAF, NSF, RealNVP, got 'glow'"):
        baselines.make_flow("glow", 3, (8,))


def tiny_uci(folder):
    return Uci(
        data=folder,
        sets=("power-subset",),
        rates=(0.03,),
        units=(2, 3),
        batches=(64,),
        competitors=("Gaussian", "GMM"),
        seeds=(0, 1),
        num_trees=2,
        num_bases=6,
        max_epochs=1,
        mixture_sizes=(1, 2),
    )


@pytest.mark.slow
def test_the_grid_is_searched_repeated_and_drawn(tmp_path, folder):
    study = tiny_uci(folder)
    assert len(study.runs()) == 2 + 2 * 2 * 2 * 3
    outputs = execute(study, tmp_path, progress=False)
    best = table(outputs, "best")
    assert [row["model"] for row in best[:2]] == ["Gaussian", "GMM"]
    assert len(best) == 2 + 2 * 2 * 3  # of each model, tree and kind of inputs the best
    assert all(float(row["± 2 se"]) > 0 for row in best)
    repeated = table(outputs, "repetitions")
    assert len(repeated) == 6
    assert all(float(row["std"]) > 0 for row in repeated)
    assert {row["pairs"] for row in table(outputs, "pairs")} >= {"4"}
    assert {"against_mpc.png", "against_mpc2.pdf"} <= {path.name for path in outputs.written}
    # Equal structure: as many parameters whatever the model is.
    counts = {
        (row.run["tree"], row.run["units"], row.run["inputs"]): set()
        for row in kept(study, tmp_path)
    }
    for row in kept(study, tmp_path):
        point = (row.run["tree"], row.run["units"], row.run["inputs"])
        counts[point].add(row.result["parameters"])
    assert all(len(sizes) == 1 for sizes in counts.values())


def kept(study, folder):
    store = Records(folder / "runs")
    return [store.read(run) for run in study.runs() if "tree" in run]


def test_the_grids_are_those_of_the_paper():
    points = Uci(data="x").runs()
    assert len(points) == 5 * 5 + 3 * 2 * (5 * 2 * 5 * 3 + 3 * 2 * 5 * 3 + 2 * 6 * 4 + 2 * 4 * 3)
    assert {p["rate"] for p in points if p.get("tree") == LINEAR} == {0.005, 0.001}
    assert grid_of("bsds300", BINARY).units[-1] == 256
    assert grid_of("power", BINARY).units[-1] == 512
    assert BEST[NPC2, BINARY, "spline"]["bsds300"] == (128.38, 0.29)
    assert BEST[NPC2, LINEAR, "Gaussian"]["miniboone"] == (-26.68, 0.42)
    assert "bsds300" not in BEST[MPC2, LINEAR, "spline"]
    assert OTHERS["TTDE"]["bsds300"] == (143.30, None)
    assert Uci().num_trees == 8
    assert len(Uci().seeds) == 5
    assert Uci().sets == SETS


def test_settings_that_nobody_knows_are_refused(tmp_path, folder):
    for change, message in (
        ({"inputs": ["wavelet"]}, "inputs are 'Gaussian' and 'spline', got 'wavelet'"),
        ({"competitors": ["oracle"]}, r"competitors are Gaussian, GMM, .*, got 'oracle'"),
        ({"sets": ["moons"]}, "there is no set 'moons'"),
    ):
        with pytest.raises(ValueError, match=message):
            execute(tiny_uci(folder).changed(change), tmp_path / str(change), progress=False)


def test_binary_sets_are_learned_by_all_models_on_all_trees(tmp_path, folder):
    study = Debd(
        data=folder, sets=("nltcs",), units=(2,), seeds=(0, 1), epochs=1, batch_sizes=(30, 30)
    )
    outputs = execute(study, tmp_path, progress=False)
    rows = table(outputs, "scores")
    assert len(rows) == 4 * 3
    for row in rows:
        scores = [float(row[name]) for name in ("least", "median", "largest")]
        assert scores == sorted(scores)
        assert -20 < scores[0]  # hardly trained, but densities
        assert scores[-1] < -2.5
    assert "scores.png" in {path.name for path in outputs.written}


def test_the_settings_of_em_and_adam_are_chosen_once_and_compared_seed_by_seed(tmp_path, folder):
    study = ExpectationMaximisation(
        data=folder, sets=("nltcs",), units=2, seeds=(0, 1), epochs=2, batch_sizes=(30, 30)
    )
    records = Records(tmp_path / "runs")
    outputs = execute(study, tmp_path, progress=False)
    first = [records.read(run) for run in study.runs()]
    best = {
        method: max(
            (r for r in first if r.run["method"] == method), key=lambda r: r.result["valid"]
        )
        for method in study.methods
    }
    assert [(run["method"], run["setting"], run["seed"]) for run in study.following(first)] == [
        (method, best[method].run["setting"], 1) for method in study.methods
    ]
    scores = {row["method"]: row for row in table(outputs, "scores")}
    assert scores.keys() == set(study.methods)
    assert {row["seeds"] for row in scores.values()} == {"2"}
    differences = table(outputs, "differences")
    assert [row["against"] for row in differences] == ["Adam", "EM", "squared"]
    gap = float(scores["EM"]["test"]) - float(scores["Adam"]["test"])
    assert float(differences[0]["difference"]) == pytest.approx(gap, abs=2e-3)


@pytest.mark.slow
def test_recipes_improve_on_their_start_or_keep_it(tmp_path, folder, monkeypatch):
    small = {
        "power-subset": tuple(
            replace(
                recipe,
                units=min(recipe.units, 3),
                epochs=min(recipe.epochs, 2),
                frames=min(recipe.frames, 2),
            )
            for recipe in RECIPES["power-subset"]
            if recipe.model != "NSF"
        ),
        "protein": (
            Recipe(real_data.FROM_EM, 2, epochs=2, batch=50),
            Recipe(real_data.MPC_FROM_EM, 2, epochs=2, batch=50),
            Recipe(real_data.GROUPED, 2, epochs=2, group=2),
            Recipe(real_data.FRAMES, 3, epochs=2, batch=50, frames=2, members=2),
            Recipe(real_data.TREES, 2, epochs=2, members=2),
        ),
    }
    monkeypatch.setattr(real_data, "RECIPES", small)
    study = RealData(data=folder, sets=("power-subset", "protein"), seeds=(0, 1))
    outputs = execute(study, tmp_path, progress=False)
    rows = {(row["set"], row["model"]): row for row in table(outputs, "scores")}
    assert len(rows) == 12
    assert float(rows["protein", "squares from EM"]["median"]) > -8
    assert "scores.png" in {path.name for path in outputs.written}
    with pytest.raises(ValueError, match="there is no recipe for 'gas'"):
        RealData(data=folder, sets=("gas",)).runs()
    with pytest.raises(ValueError, match="no set has a recipe for 'squared trees': choose from"):
        RealData(data=folder, sets=("protein",), models=("squared trees",)).runs()


def test_the_number_of_members_can_be_set():
    runs = [RealData(data="x", sets=("kin40k",), members=count).runs() for count in (0, 1)]
    numbers = [{run["members"] for run in some if run["model"] == "trees"} for some in runs]
    assert numbers == [{6}, {1}]


def test_ingredients_are_compared_seed_by_seed(tmp_path, folder):
    study = Ingredients(data=folder, sets=("power-subset",), seeds=(0, 1), num_units=3, epochs=1)
    outputs = execute(study, tmp_path, progress=False)
    rows = {row["change"]: row for row in table(outputs, "gains")}
    assert list(rows) == list(CHANGES)
    tests = {
        (record["run"]["change"], record["run"]["seed"]): record["result"]["test"]
        for record in (json.loads(path.read_text()) for path in tmp_path.glob("runs/*.json"))
    }
    for change in set(CHANGES) - {BASE}:
        gains = [tests[change, seed] - tests[BASE, seed] for seed in (0, 1)]
        assert float(rows[change]["gain"]) == pytest.approx(sum(gains) / 2, rel=1e-3, abs=1e-4)
        assert rows[change]["better"] == f"{sum(gain > 0 for gain in gains)} of 2"
    assert "gains.png" in {path.name for path in outputs.written}
    with pytest.raises(ValueError, match="there is no change 'more': choose from"):
        Ingredients(data=folder, changes=("more",)).runs()


def test_spline_knots_stand_at_the_quantiles_of_the_first_part():
    train, test = torch.rand(200, 2) ** 4, torch.full((1, 2), 3.0)
    (spline, _) = spline_families([train, test], NPC2, 8, at_quantiles=True)
    expected = np.quantile(train[:, 0].numpy(), np.arange(1, 6) / 6)
    np.testing.assert_allclose(spline.knots, expected, rtol=1e-5)
    assert spline.domain[1] > 3


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("power-subset", 6),
        ("protein", 10),
        ("miniboone-valid", 43),
        ("parkinsons", 15),
        ("sml", 8),
    ],
)
def test_larger_additive_frames_have_as_many_parameters_as_squares(name, columns):
    rows = torch.randn(500, columns)
    counts = {}
    for recipe in RECIPES[name]:
        if recipe.model in (real_data.FRAMES, real_data.LARGER):
            start = real_data.from_frames(replace(recipe, frames=1), Splits(*[rows] * 3, ""), 0)
            counts[recipe.model] = sum(p.numel() for p in start.parameters())
    assert 1 <= counts[real_data.LARGER] / counts[real_data.FRAMES] < 1.03


def test_a_run_says_all_of_its_recipe():
    for name, recipes in real_data.RECIPES.items():
        runs = RealData(data="x", sets=(name,), seeds=(0,)).runs()
        found = [{k: v for k, v in run.items() if k not in ("set", "seed")} for run in runs]
        assert [Recipe(**facts) for facts in found] == list(recipes)


def test_members_are_trained_apart_and_mixed(tmp_path, folder):
    splits = load_real("protein", folder)
    recipe = Recipe(real_data.TREES, 2, epochs=2, batch=50, members=3)
    result = real_data.learn(recipe, splits, 4, lambda name: tmp_path / name)
    mixture = sub.load(tmp_path / "model")
    assert len(mixture.members) == 3
    assert len({repr(member.circuit.graph.describe()) for member in mixture.members}) == 3
    scores = torch.stack([member.log_prob(splits.test).detach() for member in mixture.members])
    assert result["test"] == pytest.approx(float((scores.exp().mean(0)).log().mean()), abs=1e-6)
    alone = [
        real_data.learn(replace(recipe, members=1), splits, seed, lambda name: tmp_path / name)
        for seed in real_data.member_seeds(recipe, 4)
    ]
    found = sorted(float(score.mean()) for score in scores)
    assert found == pytest.approx(sorted(one["test"] for one in alone), abs=1e-6)


@pytest.mark.parametrize("name", ["uci", "debd", "em", "real-data"])
def test_experiments_on_data_ask_for_a_folder(tmp_path, name, capsys):
    assert main([name, "--quick", "--out", str(tmp_path), "--quiet"]) == 2
    assert "Name it with --data DIR" in capsys.readouterr().err
    assert len(quick(name).runs()) < len(full(name).runs())
