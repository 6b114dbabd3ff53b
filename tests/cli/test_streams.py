"""Rows go through the command line in pieces: the same answers, in constant memory."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import subtractive as sub
from subtractive.cli import streams
from subtractive.cli.main import main
from subtractive.io import table_reading

ROOT = Path(__file__).parents[2]
COLUMNS = [f"c{number}" for number in range(10)]
SIZES = (200_000, 500_000)  # rows of ten numbers: 24 megabytes more


def people(n=500):
    """A table with gaps, and two columns that no model knows."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "note": random.choice(["=SUM(A1)", "NA", "x, y"], n),
            "city": random.choice(["Oslo", "+Bergen", "12"], n),
            "age": random.normal(45, 12, n).round(1),
            "id": [f"{number:05d}" for number in range(n)],
            "owner": random.random(n) < 0.4,
        }
    )
    frame.loc[::5, "age"] = np.nan
    frame.loc[1::7, "city"] = None
    return frame


KNOWN = ["age", "city", "owner"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    people().to_csv(folder / "people.csv", index=False)
    people().to_parquet(folder / "people.parquet", index=False, row_group_size=100)
    model = sub.SubtractiveMixture(3, max_epochs=1, random_state=0, structure="binary")
    model.fit(people()[KNOWN]).save(folder / "model")
    array = people()[["age"]].assign(more=1.0 * people()["owner"]).to_numpy()
    clone(model).fit(array).save(folder / "array")
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a command in the folder on small pieces; what it prints."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(table_reading, "ROWS_AT_ONCE", 64)
    monkeypatch.setattr(streams, "BLOCK", 64)

    def call(*arguments):
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return call


def table(text):
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


LEFT = pytest.mark.filterwarnings(
    r"ignore:columns that the model does not have are left as they are. \['id', 'note'\]"
)


@LEFT
@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_scores_of_pieces_and_parts_are_those_of_the_whole(name, run, folder):
    expected = sub.load(folder / "model").score_samples(people()[KNOWN])
    found = table(run("score", "model", name))["log_density"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    parts = [table(run("score", "model", name, "--part", f"{i}/3")) for i in (1, 2, 3)]
    np.testing.assert_allclose(pd.concat(parts)["log_density"], expected, rtol=1e-12, atol=1e-12)
    mean = json.loads(run("score", "model", name, "--mean"))
    assert mean == {"mean_log_density": pytest.approx(expected.mean(), rel=1e-12), "rows": 500}
    shares = [
        json.loads(run("score", "model", name, "--mean", "--part", f"{i}/2")) for i in (1, 2)
    ]
    total = sum(share["mean_log_density"] * share["rows"] for share in shares)
    assert total / 500 == pytest.approx(expected.mean(), rel=1e-12)


@LEFT
@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_imputation_fills_known_columns_and_leaves_the_others(name, run, folder):
    expected = sub.load(folder / "model").impute(people()[KNOWN])
    filled = table(run("impute", "model", name))
    assert list(filled.columns) == list(people().columns)
    np.testing.assert_allclose(filled["age"], expected["age"], rtol=1e-12, atol=0)
    assert filled["city"].tolist() == expected["city"].tolist()
    assert filled["note"].tolist() == people()["note"].tolist()
    ids = pd.read_csv(io.StringIO(run("impute", "model", name)), dtype=str)["id"]
    assert ids.tolist() == people()["id"].tolist()
    parts = [table(run("impute", "model", name, "--part", f"{i}/3")) for i in (1, 2, 3)]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), filled)


@pytest.mark.parametrize(
    "name", ["people.csv", pytest.param("people.parquet", marks=pytest.mark.slow)]
)
@LEFT
def test_every_row_of_a_table_is_asked(name, run, folder):
    """The oracle asks one row at a time, with what it holds as evidence."""
    model = sub.load(folder / "model")
    words = ["query", "model", name, "--probability", "age>50", "--mean", "age"]
    answers = table(run(*words, "--part", "1/20"))
    assert list(answers) == ["probability", "mean_age"]
    rows = people().head(len(answers))
    for number, row in enumerate(rows[["city", "owner"]].to_dict("records")):
        given = {k: v for k, v in row.items() if not pd.isna(v)}
        expected = model.probability({"age": (50.05, None)}, given=given)
        assert float(answers["probability"][number]) == pytest.approx(expected, rel=1e-9)
        mean = model.mean(given=given)["age"]
        assert float(answers["mean_age"][number]) == pytest.approx(mean, rel=1e-9)
    whole = table(run(*words))
    pd.testing.assert_frame_equal(whole.head(len(answers)), answers)
    assert len(whole) == 500


def test_columns_may_be_absent_or_given_to_a_question(run, folder):
    model = sub.load(folder / "model")
    Path("some.csv").write_text("owner\nTrue\nFalse\n")
    found = table(run("query", "model", "some.csv", "--probability", "city=Oslo"))["probability"]
    for number, owner in enumerate((True, False)):
        expected = model.probability({"city": ["Oslo"]}, given={"owner": owner})
        assert float(found[number]) == pytest.approx(expected, rel=1e-9)
    words = ["query", "model", "some.csv", "--probability", "city=Oslo", "--given", "age=40"]
    expected = model.probability({"city": ["Oslo"]}, given={"owner": True, "age": 40})
    # Evidence is the cell of 40, a row of a file the middle of it.
    assert float(table(run(*words))["probability"][0]) == pytest.approx(expected, rel=1e-6)
    words = ["query", "model", "some.csv", "--probability", "age>50", "--probability", "age<40"]
    assert table(run(*words))["probability"].tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("run")
def test_a_mean_of_texts_or_evidence_is_refused(capsys):
    assert main(["query", "model", "people.csv", "--mean", "city"]) == 2
    assert "column 'city' has no mean" in capsys.readouterr().err
    assert main(["query", "model", "people.csv", "--mean", "age", "--given", "age=4"]) == 2
    assert "its mean is not asked" in capsys.readouterr().err


def test_more_rows_than_memory_holds_are_streamed(folder):
    """A reader who has seen enough ends the command; nothing was allocated for all rows."""
    command = f'"{sys.executable}" -m subtractive.cli sample model -n 99999999999 | head -n 3'
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


@LEFT
def test_imputation_writes_parquet_in_pieces(run, folder, tmp_path):
    run("impute", "model", "people.parquet", "-o", tmp_path / "filled.parquet")
    filled = pd.read_parquet(tmp_path / "filled.parquet")
    expected = sub.load(folder / "model").impute(people()[KNOWN])
    pd.testing.assert_frame_equal(filled[KNOWN], expected, check_dtype=False)
    assert filled["id"].tolist() == people()["id"].tolist()


@LEFT
def test_drawn_gaps_differ_between_pieces_and_parts(run):
    """Every piece has random numbers of its own."""
    rows = "\n".join(["age,city,owner", *[",Oslo,True"] * 256])
    Path("gaps.csv").write_text(rows)
    ages = table(run("impute", "model", "gaps.csv", "--sample"))["age"]
    parts = [
        table(run("impute", "model", "gaps.csv", "--sample", "--part", f"{i}/2"))["age"]
        for i in (1, 2)
    ]
    # Ages are on a grid, where draws may agree by chance; whole pieces do not.
    for drawn in (ages, pd.concat(parts)):
        pieces = [tuple(drawn[start : start + 32]) for start in range(0, 256, 32)]
        assert len(set(pieces)) == len(pieces)
    again = table(run("impute", "model", "gaps.csv", "--sample"))["age"]
    pd.testing.assert_series_equal(ages, again)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_samples_of_parts_are_those_of_the_whole(count, run, folder):
    whole = table(run("sample", "model", "-n", 200, "--seed", 3))
    assert len(whole.drop_duplicates()) > 180  # ages are on a grid
    parts = [
        table(run("sample", "model", "-n", 200, "--seed", 3, "--part", f"{i}/{count}"))
        for i in range(1, count + 1)
    ]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    first = sub.load(folder / "model").sample(64, random_state=3)
    np.testing.assert_allclose(whole["age"][:64], first["age"], rtol=1e-12, atol=0)


def test_no_rows_are_a_table_without_rows(run):
    assert run("sample", "model", "-n", 0).splitlines() == ["age,city,owner"]
    assert run("sample", "model", "-n", 1, "--part", "1/2").splitlines() == ["age,city,owner"]


def test_formulas_are_escaped_where_that_is_wanted(run):
    plain = table(run("sample", "model", "-n", 50))
    harmless = table(run("sample", "model", "-n", 50, "--escape-formulas"))
    assert "+Bergen" in set(plain["city"])
    assert {"'+Bergen"} < set(harmless["city"]) <= {"'+Bergen", "Oslo", "12"}
    np.testing.assert_array_equal(plain["age"], harmless["age"])


@pytest.mark.filterwarnings("always:columns that the model does not have")
@pytest.mark.usefixtures("run")
def test_columns_that_no_model_knows_are_told_once(capsys):
    assert main(["score", "model", "people.csv"]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "does not have are left as they are: ['id', 'note']." in err


@pytest.mark.parametrize("header", ["0,1", "age,more"])
def test_models_of_arrays_take_columns_by_number_or_place(header, run, folder):
    rows = people()[["age"]].assign(more=1.0 * people()["owner"])
    rows.to_csv(folder / "array.csv", index=False, header=header.split(","))
    found = table(run("score", "array", "array.csv"))["log_density"]
    expected = sub.load(folder / "array").score_samples(rows.to_numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    filled = table(run("impute", "array", "array.csv"))
    assert list(filled.columns) == header.split(",")
    assert len(filled) == 500


@LEFT
def test_a_reader_of_a_pipe_gets_rows(run, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    contents = []
    thread = threading.Thread(target=lambda: contents.append(fifo.read_text()))
    thread.start()
    run("score", "model", "people.csv", "-o", fifo)
    thread.join(10)
    assert len(table(contents[0])) == 500


def write_large(path, rows):
    random = np.random.default_rng(0)
    with open(path, "w") as file:
        for start in range(0, rows, 50_000):
            values = random.normal(size=(min(50_000, rows - start), 10)).round(6)
            pd.DataFrame(values, columns=COLUMNS).to_csv(file, index=False, header=start == 0)


RUN = "from subtractive.cli.main import main; assert main(sys.argv[1:]) == 0"
READ = "from subtractive.io.table_reading import read_frame; read_frame(sys.argv[1])"


def peak_memory(program, arguments, folder):
    """The most memory that a program has had, in megabytes, as the system counts it."""
    told = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)"
    python = [sys.executable, "-c", f"import sys; {program}; {told}", *arguments]
    # Started by a small process: the system counts the memory of whoever starts it, too.
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *python],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for rows in SIZES:
        write_large(folder / f"{rows}.csv", rows)
    rows = pd.DataFrame(np.random.default_rng(1).normal(size=(300, 10)), columns=COLUMNS)
    model = sub.SubtractiveMixture(4, max_epochs=1, random_state=0, structure="binary")
    model.fit(rows).save(folder / "model")
    return folder


COMMANDS = {
    "score": [],
    "impute": [],
    "query": ["--probability", "c1>0"],
}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "more"), COMMANDS.items(), ids=COMMANDS)
def test_memory_does_not_grow_with_the_rows(command, more, large):
    small, more = (
        peak_memory(RUN, [command, "model", f"{rows}.csv", "-o", "out.csv", *more], large)
        for rows in SIZES
    )
    assert more - small < 24


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_that_are_drawn(large):
    small, more = (
        peak_memory(RUN, ["sample", "model", "-n", str(rows), "-o", "out.csv"], large)
        for rows in (20_000, 320_000)
    )
    assert more - small < 16  # rows that were kept would take 24 at least


@pytest.mark.slow
def test_the_test_of_memory_can_fail(large):
    small, more = (peak_memory(READ, [f"{rows}.csv"], large) for rows in SIZES)
    assert more - small > 24


@pytest.mark.slow
def test_five_million_rows_are_scored_in_a_bounded_memory(large):
    write_large(large / "huge.csv", 5_000_000)
    assert peak_memory(RUN, ["score", "model", "huge.csv", "-o", "out.csv"], large) < 1500
    with open(large / "out.csv") as file:
        assert sum(1 for _ in file) == 5_000_001
