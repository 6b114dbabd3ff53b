"""The command line: what it prints, what it writes, and how it fails."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import termios
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from subtractive.cli.main import main, make_parser

ROOT = Path(__file__).parents[2]


def people(n=240, seed=0):
    """Numbers, text and truth values, with gaps."""
    random = np.random.default_rng(seed)
    age = random.normal(45, 12, n).round(1)
    city = random.choice(["Oslo", "Bergen", "Molde"], n, p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame(
        {
            "age": age,
            "city": city,
            "income": np.exp(random.normal(3 + 0.01 * age, 0.4)).round(2),
            "owner": random.random(n) < 0.3 + 0.3 * (age > 45),
        }
    )
    frame.loc[::10, "income"] = np.nan
    frame.loc[5::13, "city"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model of it that was made by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    people().to_csv(folder / "people.csv", index=False)
    fitted = ["--components", "4", "--epochs", "3", "--column", "income=0:", "--quiet"]
    arguments = ["fit", folder / "people.csv", "-o", folder / "people.model", *fitted]
    assert main([str(argument) for argument in arguments]) == 0
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a command in the folder: its exit code, output and errors."""
    monkeypatch.chdir(folder)

    def call(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def table(text):
    return pd.read_csv(io.StringIO(text))


def test_fit_says_what_it_did(run, tmp_path):
    code, out, err = run("fit", "people.csv", "-o", tmp_path / "m", "--epochs", 1, "--quiet")
    assert code == 0
    assert json.loads(out)["rows"] == 240
    assert err == ""


def test_progress_is_for_terminals_only(run, tmp_path, monkeypatch):
    words = ["fit", "people.csv", "-o", tmp_path / "m", "--epochs", 2, "--structure", "binary"]
    assert run(*words)[2] == ""
    terminal, other_end = pty.openpty()
    termios.tcsetwinsize(terminal, (25, 120))
    shown = []

    def watch():
        with contextlib.suppress(OSError):  # the end of what a terminal says
            while more := os.read(terminal, 2**16):
                shown.append(more)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with open(other_end, "w") as screen, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        out = run(*words)[1]
    watcher.join()
    os.close(terminal)
    assert b"valid=" in b"".join(shown)
    assert json.loads(out)["epochs"] == 2


def test_the_same_seed_makes_the_same_file_and_samples(run, tmp_path):
    options = ["--epochs", 1, "--quiet", "--components", 3, "--structure", "linear"]
    outputs = []
    for name in ("a", "b"):
        run("fit", "people.csv", "-o", tmp_path / name, "--seed", 3, *options)
        outputs.append(run("sample", tmp_path / name, "-n", 4, "--seed", 5)[1])
    assert outputs[0] == outputs[1]
    assert run("sample", tmp_path / "a", "-n", 4, "--seed", 6)[1] != outputs[0]


def test_scores_are_those_of_the_estimator(run, folder):
    code, out, _ = run("score", "people.model", "people.csv")
    assert code == 0
    expected = sub.load(folder / "people.model").score_samples(people())
    np.testing.assert_allclose(table(out)["log_density"], expected, rtol=1e-12, atol=1e-12)
    mean = json.loads(run("score", "people.model", "people.csv", "--mean")[1])
    assert mean["mean_log_density"] == pytest.approx(expected.mean(), rel=1e-12)
    assert mean["rows"] == 240


def test_tables_come_through_pipes(run):
    text = people().head(3).to_csv(index=False)
    code, out, _ = run("score", "people.model", "-", stdin=text)
    assert code == 0
    assert len(table(out)) == 3


def test_parquet_is_read_and_written(run, tmp_path):
    people().to_parquet(tmp_path / "people.parquet")
    target = tmp_path / "filled.parquet"
    assert run("impute", "people.model", tmp_path / "people.parquet", "-o", target)[0] == 0
    filled = pd.read_parquet(target)
    assert not filled.isna().any().any()
    assert list(filled.columns) == list(people().columns)


def test_samples_keep_names_types_and_evidence(run):
    _, out, _ = run("sample", "people.model", "-n", 7, "--given", "city=Oslo", "--given", "age=40")
    drawn = table(out)
    assert list(drawn.columns) == ["age", "city", "income", "owner"]
    assert set(drawn["city"]) == {"Oslo"}
    assert set(drawn["age"]) == {40}
    assert drawn["owner"].dtype == bool
    assert (drawn["income"] > 0).all()


def test_imputation_keeps_what_is_there(run):
    gaps = people()
    _, out, _ = run("impute", "people.model", "people.csv")
    filled = table(out)
    assert not filled.isna().any().any()
    known = gaps["income"].notna()
    np.testing.assert_allclose(filled["income"][known], gaps["income"][known], rtol=1e-12, atol=0)
    drawn = [
        run("impute", "people.model", "people.csv", "--sample", "--seed", s)[1] for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


EVENTS = {
    # Ages are on a grid: whether an end belongs to an interval makes a difference.
    "age>40": {"age": (40.05, None)},
    "age>=40": {"age": (40, None)},
    "age <= 40": {"age": (None, 40)},
    "30<age<=40": {"age": (30.05, 40)},
    "city=Oslo": {"city": ["Oslo"]},
    "city=Oslo,Molde": {"city": ["Oslo", "Molde"]},
    "owner=true": {"owner": [True]},
}


@pytest.mark.parametrize(("phrase", "event"), EVENTS.items(), ids=EVENTS)
def test_probabilities_are_those_of_the_estimator(phrase, event, run, folder):
    model = sub.load(folder / "people.model")
    answer = json.loads(run("query", "people.model", "--probability", phrase)[1])
    assert answer["probability"] == pytest.approx(model.probability(event), rel=1e-9)
    if "city" not in event:
        out = run("query", "people.model", "--probability", phrase, "--given", "city=Bergen")[1]
        expected = model.probability(event, given={"city": "Bergen"})
        assert json.loads(out)["probability"] == pytest.approx(expected, rel=1e-9)


def test_several_events_are_joined(run, folder):
    model = sub.load(folder / "people.model")
    phrases = ["age>30", "age<50", "city=Oslo"]
    flags = [word for phrase in phrases for word in ("--probability", phrase)]
    answer = json.loads(run("query", "people.model", *flags)[1])
    inside = 30.05, 49.95
    expected = model.probability({"age": inside, "city": ["Oslo"]})
    assert answer["probability"] == pytest.approx(expected, rel=1e-9)


EVIDENCE = {
    "an interval": (["age=30..50"], {"age": (30, 50)}),
    "an open end": (["age=30.."], {"age": (30, None)}),
    "compared": (["age>30"], {"age": (30.05, None)}),
    "twice compared": (["age>30", "age<=50"], {"age": (30.05, 50)}),
    "a list": (["city=Oslo,Molde"], {"city": ["Oslo", "Molde"]}),
    "words": (["city=Oslo or Molde"], {"city": ["Oslo", "Molde"]}),
    "a list and another": (["city=Oslo,Molde", "city=Molde,Bergen"], {"city": "Molde"}),
    "both": (["age=30..50", "city=Oslo,Molde"], {"age": (30, 50), "city": ["Oslo", "Molde"]}),
}


@pytest.mark.parametrize(("phrases", "given"), EVIDENCE.values(), ids=EVIDENCE)
def test_evidence_is_a_value_an_interval_or_a_list(phrases, given, run, folder):
    model = sub.load(folder / "people.model")
    flags = [word for phrase in phrases for word in ("--given", phrase)]
    answer = json.loads(
        run("query", "people.model", "--probability", "owner=true", "--mean", "age", *flags)[1]
    )
    expected = model.probability({"owner": [True]}, given=given)
    assert answer["probability"] == pytest.approx(expected, rel=1e-9)
    assert answer["mean"]["age"] == pytest.approx(model.mean(given)["age"], rel=1e-9)
    drawn = table(run("sample", "people.model", "-n", 20, *flags)[1])
    for name, side in given.items():
        if isinstance(side, tuple):
            assert drawn[name].between(side[0], side[1] or np.inf).all()
        else:
            assert drawn[name].isin(side if isinstance(side, list) else [side]).all()


def test_an_event_that_contradicts_the_evidence_has_probability_zero(run):
    words = ["--probability", "age<20", "--given", "age=30..50"]
    assert json.loads(run("query", "people.model", *words)[1]) == {"probability": 0.0}


CONTRADICTIONS = {
    "numbers": ["age>5000", "age<4000"],
    "one phrase": ["50<age<40"],
    "open ends": ["age>40", "age<=40"],
    "categories": ["city=Oslo", "city=Bergen,Molde"],
    "truth values": ["owner=true", "owner<0.5"],
}


@pytest.mark.parametrize("phrases", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_events_that_contradict_each_other_have_probability_zero(phrases, run):
    flags = [word for phrase in phrases for word in ("--probability", phrase)]
    assert json.loads(run("query", "people.model", *flags)[1]) == {"probability": 0.0}


def test_events_of_one_column_are_all_of_them(run, folder):
    model = sub.load(folder / "people.model")
    words = ["--probability", "city=Oslo,Molde", "--probability", "city=Molde,Bergen"]
    answer = json.loads(run("query", "people.model", *words)[1])
    assert answer["probability"] == pytest.approx(model.probability({"city": ["Molde"]}), rel=1e-9)
    words = ["--probability", "owner=true,false", "--probability", "owner>0.5"]
    answer = json.loads(run("query", "people.model", *words)[1])
    assert answer["probability"] == pytest.approx(model.probability({"owner": [True]}), rel=1e-9)


def test_names_may_hold_signs(run, tmp_path):
    """The longest name that fits is meant: here a=b, not a."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a=b": random.normal(size=80), "x>y": random.normal(size=80)})
    frame["a"] = random.choice(["b=1", "c"], 80)
    frame["size"] = random.choice([">50", "<=50"], 80)
    frame.to_csv(tmp_path / "signs.csv", index=False)
    options = ["--epochs", 1, "--components", 2, "--structure", "binary", "--quiet"]
    run("fit", tmp_path / "signs.csv", "-o", tmp_path / "m", *options)
    model = sub.load(tmp_path / "m")
    drawn = table(run("sample", tmp_path / "m", "--given", "a=b=0.5", "--given", "x>y=1")[1])
    assert set(drawn["a=b"]) == {0.5}
    assert set(drawn["x>y"]) == {1}
    events = {"a=b>0.5": {"a=b": (0.5, None)}, "a=c": {"a": ["c"]}, "a=b=1": {"a=b": [1]}}
    events |= {"size=>50": {"size": [">50"]}, "size=<=50": {"size": ["<=50"]}}
    for phrase, event in events.items():
        answer = json.loads(run("query", tmp_path / "m", "--probability", phrase)[1])
        assert answer["probability"] == pytest.approx(model.probability(event), rel=1e-9)


@pytest.mark.filterwarnings("always:in the text column", "always::subtractive.DataWarning")
def test_words_for_missing_values_are_told(run, tmp_path):
    frame = people().assign(city=people()["city"].fillna("NA"))
    frame.to_csv(tmp_path / "words.csv", index=False)
    code, _, err = run("score", "people.model", tmp_path / "words.csv")
    assert code == 0
    count = int(people()["city"].isna().sum())
    assert f"in the text column 'city', cells with 'NA' ({count}) are taken as missing" in err
    code, _, err = run("score", "people.model", tmp_path / "words.csv", "--missing", "")
    assert code == 0
    assert f"integrated out: column 'city' in {count} rows, such as 'NA'" in err


def test_a_full_disk_is_a_mistake_of_no_program(run, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        words = ["fit", "people.csv", "-o", tmp_path / "m", "--epochs", 1, "--quiet"]
        code, _, err = run(*words)
        assert (code, os.listdir(tmp_path)) == (2, [])
        assert f"cannot write {tmp_path}/m: no space left on device. Free some space" in err
        code, _, err = run("sample", "people.model", "-n", 999, "-o", tmp_path / "rows.csv")
        assert (code, os.listdir(tmp_path)) == (2, [])
        assert f"cannot write {tmp_path}/rows.csv: no space left on device" in err
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_query_imports_nothing_that_it_does_not_need(folder):
    code = (
        "import sys\n"
        "from subtractive.cli.main import main\n"
        "main(['query', 'people.model', '--probability', 'age>40'])\n"
        "heavy = {'sklearn', 'matplotlib', 'scipy.special', 'scipy.linalg', 'torch._dynamo'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "set()\n"


def test_means_are_conditional(run, folder):
    model = sub.load(folder / "people.model")
    answer = json.loads(run("query", "people.model", "--mean", "age", "--given", "city=Oslo")[1])
    expected = model.mean(given={"city": "Oslo"})["age"]
    assert answer["mean"]["age"] == pytest.approx(expected, rel=1e-12)


def test_info_names_every_column(run):
    answer = json.loads(run("info", "people.model")[1])
    assert answer["columns"] == {
        "age": "continuous",
        "city": "3 states",
        "income": "continuous",
        "owner": "2 states",
    }
    assert answer["settings"]["n_components"] == 4


def test_weights_come_from_a_column(run, tmp_path):
    frame = people().assign(count=1)
    frame.loc[:9, "count"] = 3
    frame.to_csv(tmp_path / "weighted.csv", index=False)
    repeated = pd.concat([people(), *[people().loc[:9]] * 2])
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    options = ["--epochs", 2, "--quiet", "--components", 3, "--structure", "binary"]
    run("fit", tmp_path / "weighted.csv", "-o", tmp_path / "a", "--weights", "count", *options)
    run("fit", tmp_path / "repeated.csv", "-o", tmp_path / "b", *options)
    scores = [table(run("score", tmp_path / name, "people.csv")[1]) for name in ("a", "b")]
    pd.testing.assert_frame_equal(*scores, rtol=1e-6)


BAD = {
    "no model": (["score", "nothing.model", "people.csv"], "no model file at nothing.model"),
    "no table": (["score", "people.model", "nothing.csv"], "no table at nothing.csv"),
    "not a model": (["info", "people.csv"], "not a readable model file"),
    "not a table": (["score", "people.model", "people.model"], "not a readable table"),
    "not Parquet": (["score", "people.model", "broken.parquet"], "not a readable table"),
    "no rows": (["fit", "empty.csv", "-o", "m"], "empty.csv"),
    "a folder": (["fit", "no data either", "-o", "."], "it is a folder. Name a file in it"),
    "a folder for scores": (["score", "people.model", "people.csv", "-o", "."], "it is a folder"),
    "a folder for a page": (["report", "people.model", "people.csv", "-o", "."], "is a folder"),
    "no folder": (["fit", "people.csv", "-o", "no/where"], "does not exist. Create it first"),
    "kind of column": (["fit", "people.csv", "-o", "m", "--column", "age"], "cannot read 'age'"),
    "unknown column": (["fit", "people.csv", "-o", "m", "--column", "x=count"], "x"),
    "weights": (["fit", "people.csv", "-o", "m", "--weights", "x"], "no column 'x'"),
    "components": (["fit", "people.csv", "-o", "m", "--components", "0"], "n_components"),
    "given what": (["sample", "people.model", "--given", "city"], "expected NAME=VALUE"),
    "given nothing": (["sample", "people.model", "--given", "x=1"], "no column 'x'"),
    "given a word": (["sample", "people.model", "--given", "age=old"], "'old' is not a number"),
    "given elsewhere": (["sample", "people.model", "--given", "city=Rome"], "no value 'Rome'"),
    "given both": (
        ["sample", "people.model", "--given", "age=1", "--given", "age=2"],
        "contradicts itself",
    ),
    "negative number": (["sample", "people.model", "-n", "-1"], "at least 0"),
    "no question": (["query", "people.model"], "nothing is asked"),
    "event": (["query", "people.model", "--probability", "age"], "expected NAME=VALUE"),
    "event of words": (["query", "people.model", "--probability", "age>x"], "not a number"),
    "order of words": (["query", "people.model", "--probability", "city>3"], "no order"),
    "given and asked": (
        ["query", "people.model", "--probability", "age>3", "--given", "age=4"],
        "both in the event and given",
    ),
    "mean of evidence": (
        ["query", "people.model", "--mean", "age", "--given", "age=4"],
        "is given",
    ),
    "a repeated name": (["fit", "repeated.csv", "-o", "m"], "the column 'age' occurs twice"),
    "a repeated name, scored": (["score", "people.model", "repeated.csv"], "'age' occurs twice"),
    "large numbers": (["fit", "large.csv", "-o", "m"], "every column is constant or set aside"),
    "a part": (["score", "people.model", "people.csv", "--part", "3/2"], "a part is i/n"),
    "a part of a pipe": (["score", "people.model", "-", "--part", "1/2"], "only parts of"),
    "order of categories": (
        ["query", "people.model", "--probability", "city=Oslo", "--probability", "city<3"],
        "have no order",
    ),
    "other columns": (["score", "people.model", "other.csv"], "age"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_errors_are_one_line_without_a_traceback(arguments, message, run, folder):
    (folder / "empty.csv").write_text("age,city\n")
    (folder / "other.csv").write_text("height\n1.0\n")
    (folder / "broken.parquet").write_text("not parquet")
    (folder / "repeated.csv").write_text("age,city,age\n1,Oslo,2\n")
    (folder / "large.csv").write_text(f"a\n{2**60 + 1}\n{2**60 + 2}\n")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("subtractive: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [[], ["fit"], ["paint"], ["sample", "m", "-n", "many"]])
def test_wrong_words_are_explained(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: subtractive" in capsys.readouterr().err


def test_debug_shows_the_traceback(run):
    with pytest.raises(FileNotFoundError):
        run("--debug", "info", "nothing.model")


def test_unexpected_failures_are_told_from_mistakes(run, monkeypatch):
    def broken(options):
        raise RuntimeError("broken")

    monkeypatch.setitem(sys.modules, "subtractive.cli.commands", type("M", (), {"run": broken}))
    code, _, err = run("info", "people.model")
    assert code == 1
    assert "unexpected RuntimeError: broken" in err


def test_an_interrupt_exits_as_shells_expect(run, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(
        sys.modules, "subtractive.cli.commands", type("M", (), {"run": interrupted})
    )
    assert run("info", "people.model")[0] == 130


def test_help_teaches_and_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from subtractive.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    help_ = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "subtractive fit people.csv -o people.model" in help_.stdout


def test_every_command_has_help(capsys):
    actions = make_parser()._subparsers._group_actions[0].choices
    assert {"fit", "score", "sample", "impute", "query", "info", "demo"} <= set(actions)
    for name in actions:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert f"usage: subtractive {name}" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["subtractive", "subtractive.cli"])
def test_the_package_and_its_folder_run_as_programs(module):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"subtractive {sub.__version__}\n"


def test_questions_in_words_are_answered_with_a_receipt(run, folder):
    code, out, _ = run("query", "people.model", "--ask", "P(owner | age > 45)")
    (told,) = json.loads(out)["ask"]
    model = sub.load(folder / "people.model")
    assert code == 0
    assert told["probability"] == pytest.approx(model.ask("P(owner | age > 45)").probability)
    assert told["receipt"].startswith("P(owner | age > 45) = 0.")
    _, out, _ = run(
        "query", "people.model", "--ask", "P(owner | age > 45)", "--reference", "people.csv"
    )
    (told,) = json.loads(out)["ask"]
    some = people()[people()["age"] > 45]
    assert (told["rows"], told["share"]) == (len(some), pytest.approx(some["owner"].mean()))
    assert told["agrees"] in (True, False)


def test_quantiles_and_intervals_are_told(run, folder):
    code, out, _ = run(
        *("query", "people.model", "--quantile", "age=0.1,0.5", "--interval", "income=0.9"),
        *("--given", "city=Oslo"),
    )
    told, model = json.loads(out), sub.load(folder / "people.model")
    assert code == 0
    expected = model.quantile("age", [0.1, 0.5], {"city": "Oslo"})
    assert told["quantile"]["age"] == {"0.1": expected.iloc[0], "0.5": expected.iloc[1]}
    low, high = model.interval("income", 0.9, {"city": "Oslo"})
    assert told["interval"]["income"] == {"low": low, "high": high}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--quantile", "age"], "expected NAME=LEVEL"),
        (["--interval", "age=0.1,0.9"], "an interval has one level"),
        (["--interval", "height=0.9"], "there is no column 'height'"),
        (["--ask", "P(age)"], "A question that works is"),
        (["--ask", "P(age > 3)", "--given", "city=Oslo"], "after the bar"),
        (["--reference", "people.csv", "--mean", "age"], "to compare answers of --ask with"),
        (["people.csv", "--ask", "P(age > 3)"], "The table to compare answers of --ask"),
    ],
)
def test_questions_that_cannot_be_read_are_refused(arguments, reason, run):
    code, _, err = run("query", "people.model", *arguments)
    assert code == 2
    assert reason in err
