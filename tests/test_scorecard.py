"""The scorecard has all of its checks, and the quick form of each passes."""

import json

import pytest

from scorecard import page
from scorecard.__main__ import main, run
from scorecard.all_checks import CHECKS
from scorecard.check import Check, Outcome, Size, worst

# Those whose quick form takes more than two seconds: many fits, processes, pytest within pytest.
LONG = {12, 13, 14, 15, 16, 17, 18, 19, 21, 23, 24, 27}


def test_there_are_twenty_seven_checks():
    assert sorted(CHECKS) == list(range(1, 28))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in range(1, 28)],
)
def test_the_quick_form_of_a_check_passes(number):
    if number == 9:
        pytest.importorskip("quimb", reason="quimb is an optional extra")
    outcome = run(CHECKS[number], Size(quick=True))
    if outcome.figure.startswith("not run"):
        pytest.skip(outcome.figure)
    assert outcome.passed, outcome.figure


def test_a_figure_that_is_no_number_fails():
    assert worst([1e-12, 2e-12], 1e-10, "values").passed
    assert not worst([1e-12, 1e-9], 1e-10, "values").passed
    assert not worst([1e-12, float("nan")], 1e-10, "values").passed


def test_an_error_is_a_failure():
    def broken(size):
        raise RuntimeError("broken")

    outcome = run(Check(99, "title", "target", broken), Size())
    assert outcome == Outcome("RuntimeError: broken", passed=False)


def test_the_exit_code_tells_of_failures(monkeypatch, capsys):
    monkeypatch.setitem(CHECKS, 1, Check(1, "a", "b", lambda size: Outcome("1", passed=True)))
    monkeypatch.setitem(CHECKS, 2, Check(2, "a", "b", lambda size: Outcome("2", passed=False)))
    assert main(["--quick", "--only", "1"]) == 0
    assert main(["--quick", "--only", "1,2"]) == 1
    assert capsys.readouterr().out.count("ok  ") == 2
    with pytest.raises(SystemExit):
        main(["--only", "77"])


def test_checks_that_run_beside_each_other_are_all_kept(monkeypatch):
    kept = {}

    def slow(size):
        kept[2] = "of another run, which ended first"
        return Outcome("1", passed=True)

    monkeypatch.setitem(CHECKS, 1, Check(1, "a", "b", slow))
    monkeypatch.setattr(page, "read_record", lambda: dict(kept))
    monkeypatch.setattr(page, "write", kept.update)
    assert main(["--only", "1"]) == 0
    assert kept[2] == "of another run, which ended first"
    assert kept[1]["figure"] == "1"


def test_the_page_and_the_record_hold_every_check(tmp_path):
    results = {
        1: page.record(Outcome("1e-15", passed=True), 2.0, "abc", 0),
        2: page.record(Outcome("a | b", passed=False), 3.0, "abc", 0),
    }
    page.write(results, tmp_path / "page.md", tmp_path / "record.json")
    text = (tmp_path / "page.md").read_text()
    assert "1e-15 | passed | 2 | abc |" in text
    assert "a \\| b | **failed** | 3 |" in text
    assert text.count("| not run |") == 25
    assert page.read_record(tmp_path / "record.json") == results
    assert json.loads((tmp_path / "record.json").read_text())["packages"]["torch"]
