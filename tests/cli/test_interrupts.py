"""Ctrl-C ends a fit at once, and says what was kept: real signals to real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from subtractive.cli.main import main
from subtractive.learning.run import Run
from subtractive.tables import checks, estimator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def long_table(tmp_path_factory):
    """A table on which the estimator tries several models, each for many seconds."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2_000, 6))
    x[:, 1] += x[:, 0] ** 2
    path = tmp_path_factory.mktemp("long") / "table.csv"
    pd.DataFrame(x, columns=list("abcdef")).to_csv(path, index=False)
    return path


def start(arguments, program=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program or PROGRAM, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def quick():
    return sub.SubtractiveMixture(3, max_epochs=1, structure="binary", random_state=0)


# The command, which says when the second epoch of a model has begun.
PROGRAM = """
import sys
from subtractive.cli.main import main
from subtractive.learning import run
end_epoch = run.Run._end_epoch
def told(self, *arguments):
    end_epoch(self, *arguments)
    print("epoch", file=sys.stderr, flush=True)
run.Run._end_epoch = told
sys.exit(main(sys.argv[1:]))
"""


def interrupt(process, *, after):
    """Send what Ctrl-C sends after so many epochs; what the process then says."""
    for _ in range(after):
        assert process.stderr.readline() == "epoch\n", "the fit was over too soon"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return out, err.replace("epoch\n", "")


def test_an_interrupt_of_a_fit_is_said_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    rows = np.random.default_rng(0).normal(size=(100, 2))
    pd.DataFrame(rows, columns=["a", "b"]).to_csv(tmp_path / "table.csv", index=False)
    interrupt_in(monkeypatch, Run, "_end_epoch")
    words = ["fit", tmp_path / "table.csv", "-o", tmp_path / "model", "--quiet", "--epochs", 2]
    assert main([*map(str, words)]) == 130
    said = "subtractive: interrupted: nothing was written (see --keep-partial)\n"
    assert capsys.readouterr() == ("", said)
    assert os.listdir(tmp_path) == ["table.csv"]


@pytest.mark.slow
def test_an_interrupt_ends_the_whole_fit_and_writes_nothing(long_table, tmp_path):
    target = tmp_path / "model"
    process = start(["fit", long_table, "-o", target, "--quiet"])
    out, err = interrupt(process, after=2)
    assert process.returncode == 130
    assert out == ""
    assert err == "subtractive: interrupted: nothing was written (see --keep-partial)\n"
    assert os.listdir(tmp_path) == []


# An interrupt while that module is imported, which torch, being written in C, drops.
IMPORTING = """
import signal, sys
class Finder:
    def find_spec(name, *more):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
from subtractive.cli.main import main
sys.exit(main(["fit", "table.csv", "-o", "model"]))
"""


@pytest.mark.parametrize("module", ["numpy.linalg", "subtractive.tables.estimator"])
def test_an_interrupt_of_imports_is_not_lost(module, tmp_path):
    process = start([module], IMPORTING)
    _, err = process.communicate(timeout=60)
    assert err == "subtractive: interrupted: nothing was written\n"
    assert process.returncode == 130


def test_the_best_model_so_far_is_written_where_it_is_wanted(long_table, tmp_path):
    target = tmp_path / "model"
    process = start(["fit", long_table, "-o", target, "--quiet", "--keep-partial"])
    out, err = interrupt(process, after=2)
    assert process.returncode == 130
    assert err == f"subtractive: interrupted: {target} holds the best model so far\n"
    assert json.loads(out)["stopped"] == "interrupted"
    assert 2 <= json.loads(out)["epochs"] <= 4
    table = pd.read_csv(long_table)
    independent = -0.5 * (1 + np.log(2 * np.pi * table.var())).sum()
    assert sub.load(target).score(table) > independent


def interrupt_in(monkeypatch, module, name):
    """A function of a module gets what Ctrl-C sends when it is called."""
    monkeypatch.setattr(module, name, lambda *_: signal.raise_signal(signal.SIGINT))


def test_an_interrupt_after_training_keeps_the_model(monkeypatch):
    x = np.random.default_rng(0).normal(size=(200, 3))
    expected = quick().fit(x).score_samples(x)
    model = quick()
    interrupt_in(monkeypatch, checks, "remember")
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(x)
    assert not hasattr(model, "density_")
    np.testing.assert_array_equal(caught.value.partial.score_samples(x), expected)


def test_an_interrupt_before_training_has_no_model(monkeypatch):
    x = np.random.default_rng(0).normal(size=(200, 3))
    interrupt_in(monkeypatch, estimator, "encode_rows")
    with pytest.raises(KeyboardInterrupt) as caught:
        quick().fit(x)
    assert caught.value.partial is None


def test_an_interrupted_pass_over_new_rows_is_kept_apart(monkeypatch):
    x = np.random.default_rng(0).normal(size=(400, 3))
    model = quick().fit(x[:200])
    scores = model.score_samples(x)
    real = Run._end_epoch
    monkeypatch.setattr(
        Run, "_end_epoch", lambda *a: (real(*a), signal.raise_signal(signal.SIGINT))
    )
    with pytest.raises(KeyboardInterrupt) as caught:
        model.partial_fit(x[200:] + 0.1)
    np.testing.assert_array_equal(model.score_samples(x), scores)
    assert np.isfinite(caught.value.partial.score(x))


@pytest.mark.parametrize("again", [False, True])
def test_the_estimator_raises_and_stays_as_it_was(again, monkeypatch):
    x = np.random.default_rng(0).normal(size=(700, 3))
    model = sub.SubtractiveMixture(max_epochs=2, random_state=0)
    if again:
        model.fit(x[:60])
        scores = model.score_samples(x)

    real, calls = Run._end_epoch, []

    def stop(self, *arguments):
        real(self, *arguments)
        calls.append(self)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "_end_epoch", stop)
    before = dict(model.__dict__)
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(x)
    assert len(calls) == 1
    assert model.__dict__ == before
    partial = caught.value.partial
    assert np.isfinite(partial.score(x))
    assert partial.history_.stopped == "interrupted"
    if again:
        np.testing.assert_array_equal(model.score_samples(x), scores)
