"""Every experiment runs from its settings to tables and figures that say what they should."""

import csv
import json
import warnings

import numpy as np
import pytest
from PIL import Image

from studies.__main__ import main
from studies.digits.digits import DigitsExperiment
from studies.digits.orthonormal import Orthonormal
from studies.evidence.store import Store, keep
from studies.grid.records import Records
from studies.grid.running import execute
from studies.paper.cost import Cost
from studies.paper.drawings import Drawings
from studies.paper.overflow import Overflow
from studies.paper.ring import Ring
from studies.paper.separation import Separation
from studies.paper.splines import Splines
from studies.paper.synthetic_continuous import SyntheticContinuous
from studies.paper.synthetic_discrete import SyntheticDiscrete
from studies.paper.training_cost import TrainingCost
from studies.paper.weights import Weights
from studies.registry import EXPERIMENTS

SYNTHETIC = {
    "sets": ("rings", "banana"),
    "shown_units": (3, 2),
    "units": (2,),
    "seeds": (0, 1),
    "rows": (300, 100, 100),
    "epochs": 1,
    "root_epochs": 1,
    "bandwidths": (0.5,),
    "smoothings": (0.1, 1.0),
}
# The same code as --quick and the full form, in a few seconds.
TINY = {
    "ring": Ring(additive=(2,), rows=(300, 100, 100), epochs=3, seeds=(0, 1), frames=2),
    "synthetic-continuous": SyntheticContinuous(**SYNTHETIC, num_bases=8),
    "synthetic-discrete": SyntheticDiscrete(**SYNTHETIC, bins=8, binomial_units=(2, 4)),
    "drawings": Drawings(num_units=2),
    "overflow": Overflow(variables=(2, 512), seeds=(0,)),
    "splines": Splines(orders=(0, 2), bases=(5,), pairs=2),
    "separation": Separation(edges=(1, 3, 20), vertices=(8, 30), degree=3, enumerated=8),
    "cost": Cost(
        num_variables=4,
        trees=2,
        batches=(4, 8),
        units=(2, 4),
        fixed_units=2,
        fixed_batch=4,
        budget=0.0,
    ),
    "training-cost": TrainingCost(
        sets=("gas", "bsds300"),
        trees=2,
        num_bases=6,
        units=2,
        batch=4,
        most_units=3,
        most_rows=8,
        budget=0.0,
    ),
    "orthonormal": Orthonormal(units=2, seeds=(0, 1), epochs=1, batch_size=1078),
    "digits": DigitsExperiment(
        structures=("quad-2",),
        kinds=("squared",),
        roots=("squared, early root",),
        units=2,
        seeds=(0,),
        epochs=1,
        batch_size=512,
    ),
    "weights": Weights(rows=300, num_variables=3, units=(3,), num_bases=6, epochs=1),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The folder of a tiny experiment, run once."""
    done = {}

    def run(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            done[name] = execute(TINY[name], folder, command=f"run {name}", progress=False)
        return done[name]

    return run


def table(outputs, name):
    lines = (outputs.folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))


def test_every_experiment_is_tried():
    elsewhere = {
        "uci",
        "debd",
        "em",
        "real-data",
        "ingredients",
        "clones",
        "guided",
    }  # they have tests of their own
    assert elsewhere | set(TINY) == set(EXPERIMENTS)


# Each has a cheaper relative: another synthetic set, other digits, other drawings of circuits.
LONG = {"synthetic-discrete", "digits", "drawings"}


def marked(names):
    return [pytest.param(n, marks=pytest.mark.slow if n in LONG else []) for n in names]


@pytest.mark.parametrize("name", marked(TINY))
def test_tables_and_figures_are_there_and_on_the_page(results, name):
    outputs = results(name)
    names = {path.name for path in outputs.written}
    page = (outputs.folder / "results.md").read_text(encoding="utf-8")
    assert f"run {name}" in page
    figures = [path for path in outputs.written if path.suffix == ".png"]
    assert figures
    for path in figures:
        assert path.with_suffix(".pdf").name in names
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert f"({path.name})" in page
        with Image.open(path) as image:
            assert min(image.size) > 300
            assert np.asarray(image.convert("L")).std() > 5  # not a blank page
    tables = [path for path in outputs.written if path.suffix == ".csv"]
    assert tables
    for path in tables:
        assert path.with_suffix(".md").read_text(encoding="utf-8").strip() in page
    assert json.loads((outputs.folder / "config.json").read_text())["experiment"] == name


@pytest.mark.parametrize("name", [pytest.param("ring", marks=pytest.mark.slow), "splines"])
def test_presenting_again_needs_no_run(results, name, monkeypatch):
    outputs = results(name)
    before = {path.name: path.read_bytes() for path in outputs.folder.glob("*.csv")}
    monkeypatch.setattr(type(TINY[name]), "perform", None)
    execute(TINY[name], outputs.folder, resume=True, progress=False)
    assert before == {path.name: path.read_bytes() for path in outputs.folder.glob("*.csv")}


def test_the_ring_has_a_film(results):
    with Image.open(results("ring").folder / "training.gif") as film:
        assert film.n_frames >= 3
    rows = table(results("ring"), "ring")
    assert [row["model"] for row in rows] == ["ground truth", "squared", "additive"]
    assert [row["parameters"] for row in rows[1:]] == ["10", "10"]
    assert float(rows[1]["least"]) <= float(rows[1]["chosen"]) <= float(rows[1]["most"])


@pytest.mark.parametrize("name", marked(["synthetic-continuous", "synthetic-discrete"]))
def test_models_of_one_size_are_compared_with_the_truth(results, name):
    rows = table(results(name), "scores")
    assert [row["set"] for row in rows if row["model"] == "truth"] == ["rings", "banana"]
    for inputs in {row["inputs"] for row in rows} - {""}:
        for units in {row["K"] for row in rows if row["inputs"] == inputs}:
            some = [row for row in rows if (row["inputs"], row["K"]) == (inputs, units)]
            assert {"MPC", "MPC²", "NPC²"} <= {row["model"] for row in some}
            assert len({row["parameters"] for row in some}) == 1
            assert all(-20 < float(row["median"]) < 0 for row in some)


def test_only_stable_arithmetic_reaches_many_variables(results):
    rows = {
        (row["weights"], row["variables"]): row for row in table(results("overflow"), "partition")
    }
    small = rows["uniform", "2"]
    for name in ("signed log", "plain 32 bit", "plain 64 bit"):
        np.testing.assert_allclose(
            float(small[name]), float(small["scaled"]), rtol=1e-6, atol=1e-6
        )
    assert rows["uniform", "512"]["plain 32 bit"] == "infinite"
    assert rows["dirichlet", "512"]["plain 32 bit"] == "zero"
    for row in rows.values():
        np.testing.assert_allclose(
            float(row["scaled"]), float(row["signed log"]), rtol=1e-12, atol=1e-12
        )


def test_product_integrals_agree_with_quadrature(results):
    for row in table(results("splines"), "product_integrals"):
        assert float(row["float64"]) < 1e-13
        assert float(row["float32"]) < 1e-5


def test_the_square_is_exact_and_small_where_sums_must_be_large(results):
    rows = table(results("separation"), "matchings")
    assert [row["rank found"] for row in rows] == ["2", "7", ""]
    assert [row["rank"] for row in rows] == ["2", "7", "211"]
    graphs = table(results("separation"), "expanders")
    for row in (*rows[:2], graphs[0]):
        assert float(row["error"]) < 1e-12
    assert float(rows[2]["non-negative rank ≥"]) > float(rows[2]["|c|"])


def test_costs_are_positive_and_z_does_not_depend_on_the_batch(results):
    rows = table(results("cost"), "cost")
    assert all(float(row[name]) > 0 for row in rows for name in ("c s", "Z s", "c MiB", "Z MiB"))
    memory = {row["Z MiB"] for row in rows if row["model"] == "NPC²" and row["K"] == "2"}
    assert len(memory) == 1


def test_training_steps_of_all_sets_are_measured_by_both_settings(results):
    rows = table(results("training-cost"), "training-cost")
    assert len(rows) == 8
    assert {row["variables"] for row in rows} == {"8", "63"}
    assert all(float(row[name]) > 0 for row in rows for name in ("c s", "Z s", "c MiB", "Z MiB"))
    best = {(row["set"], row["model"]): row for row in rows if row["settings"] == "best"}
    assert best["gas", "MPC"]["inputs"] == "Gaussian"
    assert (best["gas", "MPC"]["batch"], best["gas", "NPC²"]["batch"]) == ("8", "8")
    assert best["bsds300", "NPC²"]["inputs"] == "spline"
    assert float(best["bsds300", "NPC²"]["paper's log-likelihood"]) == 128.38
    assert all(row["K"] == "2" for row in rows if row["settings"] == "same")


def test_weights_of_chains_over_tokens_are_shown_too(tmp_path):
    random = np.random.default_rng(0)
    (tmp_path / "stories260k").mkdir()
    for part, count in (("train", 40), ("valid", 10), ("test", 10)):
        tokens = random.integers(5, size=(count, 4))
        np.savez(tmp_path / "stories260k" / f"{part}.npz", x=tokens)
    chosen = TINY["weights"].changed({"sets": "text", "units": 2, "data": str(tmp_path)})
    squared, monotonic = table(execute(chosen, tmp_path / "out", progress=False), "weights")
    # Two sums of 2 x 2 weights, and one of 1 x 2.
    assert (monotonic["weights"], squared["weights"]) == ("10", "36")
    assert float(monotonic["negative share"]) == 0


def test_only_squared_circuits_have_negative_weights(results):
    squared, monotonic = table(results("weights"), "weights")
    assert (squared["model"], monotonic["model"]) == ("NPC²", "MPC")
    assert float(monotonic["negative share"]) == 0
    assert 0 <= float(squared["negative share"]) < 1


def test_the_command_line_runs_lists_and_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed and entry.summary in listed for name, entry in EXPERIMENTS.items())
    small = ["--set", "bases=[5]", "--set", "orders=2", "--set", "pairs=1"]
    assert main(["splines", "--quick", *small]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["experiment"] == "splines"
    assert "splines" in captured.err  # progress
    page = (tmp_path / "out" / "splines-quick" / "results.md").read_text(encoding="utf-8")
    assert "python -m studies splines --quick --set 'bases=[5]'" in page
    for arguments, message in {
        ("spline",): "there is no experiment 'spline'. Did you mean 'splines'?",
        ("nothing-like-it",): "Choose from ring",
        ("splines", "--quick", *small): "Add --resume",
        ("splines", "--quick", "--set", "bases=[6]", "--resume"): "another configuration",
        ("splines", "--set", "colour=red"): "has no setting 'colour'",
        ("splines", "--set", "colour"): "a setting is NAME=VALUE, got 'colour'",
        ("splines", "--data", "here"): "has no setting 'data'",
        ("synthetic-continuous", "--data", "nowhere", "--out", "a"): "there is no file nowhere",
        ("synthetic-continuous", "--set", "sets=moons", "--set", "shown_units=2", "--out", "b"): (
            "there is no synthetic set 'moons': choose from rings"
        ),
        ("synthetic-discrete", "--set", "shown_units=2", "--out", "c"): "one K for each of 4 sets",
        ("weights", "--set", "sets=gas", "--out", "d"): "which folder holds the data?",
        ("weights", "--set", "units=[2, 3]", "--out", "e"): "one K for each of 1 sets",
    }.items():
        assert main([*arguments, "--quiet"]) == 2
        assert message in capsys.readouterr().err


def test_all_experiments_go_to_folders_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("studies.commands.EXPERIMENTS", {"splines": EXPERIMENTS["splines"]})
    arguments = ["all", "--quick", "--out", str(tmp_path), "--quiet", "--data", "x"]
    assert main([*arguments, "--set", "bases=[5]", "--set", "pairs=1"]) == 0
    assert (tmp_path / "splines-quick" / "results.md").is_file()
    assert "splines-quick" in capsys.readouterr().out


def test_all_experiments_are_those_that_need_no_data_unless_there_are_some(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("studies.commands.EXPERIMENTS", {"uci": EXPERIMENTS["uci"]})
    arguments = ["all", "--quick", "--out", str(tmp_path), "--quiet"]
    assert main(arguments) == 0
    assert "uci is left out: it needs --data" in capsys.readouterr().err
    assert main([*arguments, "--data", "nowhere"]) == 2
    assert "there is no file nowhere" in capsys.readouterr().err


def test_arrays_can_be_used_instead_of_draws(tmp_path):
    random = np.random.default_rng(0)
    parts = {part: random.normal(size=(60, 2)) for part in ("train", "valid", "test")}
    np.savez(tmp_path / "banana_continuous.npz", **parts)
    chosen = TINY["synthetic-continuous"].changed(
        {"data": str(tmp_path), "sets": "banana", "shown_units": 2, "models": ["MPC"], "seeds": 0}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = execute(chosen, tmp_path / "out", progress=False)
    truth, score = table(outputs, "scores")
    assert (truth["model"], score["model"]) == ("truth", "MPC")
    # Records know the truth of the arrays, which are not in git, and neither are the models.
    keep(chosen, Records(tmp_path / "out" / "runs"), tmp_path / "kept/synthetic-continuous/ours")
    shown = Store(tmp_path / "kept").presented("synthetic-continuous/ours")
    assert set(shown.figures) == {"scores"}
    assert f"| truth |  |  | {float(truth['median']):.4f} |" in shown.tables["scores"]
