"""Tables that are too large for memory are learned by the command line, in bounded memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from subtractive.cli.main import main
from subtractive.io.table_passes import TablePasses

pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parents[2]
OPTIONS = ["--components", "4", "--structure", "binary", "--epochs", "1", "--quiet"]


def rows(n, seed):
    """Eight columns: numbers that depend on each other, a count, a flag and a text."""
    random = np.random.default_rng(seed)
    a = random.normal(size=n)
    return pd.DataFrame(
        {
            "a": a,
            "b": a**2 + 0.3 * random.normal(size=n),
            "c": random.exponential(2.0, n),
            "d": random.normal(100.0, 15.0, n),
            "e": a - 0.5 * random.normal(size=n),
            "k": random.integers(0, 6, n),
            "flag": random.random(n) < 1 / (1 + np.exp(-a)),
            "text": np.where(random.random(n) < 0.2, "rare", np.where(a > 0, "high", "low")),
        }
    )


def write_folder(folder, num_files, rows_of_file):
    folder.mkdir()
    for number in range(num_files):
        with parquet.ParquetWriter(folder / f"{number:03d}.parquet", SCHEMA) as writer:
            for start in range(0, rows_of_file, 250_000):
                frame = rows(min(250_000, rows_of_file - start), [number, start])
                writer.write_table(pa.Table.from_pandas(frame, SCHEMA, preserve_index=False))


SCHEMA = pa.Schema.from_pandas(rows(10, 0), preserve_index=False)
PROGRAM = """
import resource, sys
from subtractive.cli.main import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, file=sys.stderr)
"""


def fit_in_a_process(folder, *arguments):
    """What the command prints, and the most memory that it has had, in megabytes."""
    python = [sys.executable, "-c", PROGRAM, "fit", *arguments]
    # Started by a small process: the system counts the memory of whoever starts it, too.
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *python],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), float(done.stderr.split()[-1])


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_short_table_gives_the_same_model_in_core_and_out_of_core(run, tmp_path):
    frame = rows(400, 0)
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    (tmp_path / "folder").mkdir()
    frame[:150].to_parquet(tmp_path / "folder" / "1.parquet")
    frame[150:].to_parquet(tmp_path / "folder" / "2.parquet")
    assert run("fit", "table.csv", "-o", "whole", *OPTIONS)[0] == 0
    expected = sub.load("whole").score_samples(frame)
    for name in ("table.csv", "table.parquet", "folder"):
        code, out, _ = run("fit", name, "--out-of-core", "-o", "model", *OPTIONS)
        assert code == 0
        assert json.loads(out)["rows"] == 400
        # Rows come in another order, and sums are not exact to the last bit.
        np.testing.assert_allclose(
            sub.load("model").score_samples(frame), expected, rtol=1e-9, atol=1e-9
        )


def test_weights_come_from_a_column(run, tmp_path):
    frame = rows(300, 0).assign(count=1)
    frame.loc[:99, "count"] = 2
    frame.to_csv(tmp_path / "table.csv", index=False)
    assert run("fit", "table.csv", "-o", "whole", "--weights", "count", *OPTIONS)[0] == 0
    words = ["fit", "table.csv", "--out-of-core", "--weights", "count", *OPTIONS]
    assert run(*words, "-o", "model")[0] == 0
    scores = [
        sub.load(name).score_samples(frame.drop(columns="count")) for name in ("whole", "model")
    ]
    np.testing.assert_allclose(*scores, rtol=1e-9, atol=1e-9)
    code, _, err = run("fit", "table.csv", "--out-of-core", "-o", "m", "--weights", "none")
    assert code == 2
    assert "no column 'none'" in err


def test_a_folder_without_tables_is_refused(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = run("fit", "empty", "-o", "m")
    assert code == 2
    assert "neither Parquet nor CSV files in the folder empty" in err


def test_a_column_that_is_text_in_one_place_is_text_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr("subtractive.io.table_reading.ROWS_AT_ONCE", 64)
    frame = pd.DataFrame({"a": range(200), "b": ["7"] * 150 + ["x"] * 50})
    frame.to_csv(tmp_path / "table.csv", index=False)
    pieces = list(TablePasses(str(tmp_path / "table.csv"))())
    assert [piece["b"].iloc[0] for piece in pieces] == ["7", "7", "7", "x"]
    assert all(piece["a"].dtype == "int64" for piece in pieces)


def test_row_groups_come_in_one_random_order(tmp_path, monkeypatch):
    pd.DataFrame({"a": range(200)}).to_parquet(tmp_path / "t.parquet", row_group_size=20)
    passes = TablePasses(str(tmp_path / "t.parquet"))
    first, second = ([piece["a"].iloc[0] for piece in passes()] for _ in range(2))
    assert first == second != sorted(first)
    assert passes.num_rows == 200


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Three million rows more would take 200 megabytes as they are read."""
    write_folder(tmp_path / "small", 1, 1_000_000)  # below that, buffers are not yet full
    write_folder(tmp_path / "large", 4, 1_000_000)
    peaks = [
        fit_in_a_process(tmp_path, name, "-o", "model", *OPTIONS)[1] for name in ("small", "large")
    ]
    assert peaks[1] - peaks[0] < 60


@pytest.mark.slow
def test_twenty_million_rows_are_learned_in_two_gigabytes(tmp_path):
    write_folder(tmp_path / "huge", 20, 1_000_000)
    told, peak = fit_in_a_process(tmp_path, "huge", "-o", "model", *OPTIONS)
    assert told["rows"] == 20_000_000
    assert peak < 2000
    new = rows(20_000, 99)
    small = sub.SubtractiveMixture(4, structure="binary", max_epochs=1, random_state=0)
    assert sub.load(tmp_path / "model").score(new) > small.fit(rows(20_000, 98)).score(new)
    print(told, peak)
