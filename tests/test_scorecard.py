"""The scorecard has all of its checks, and the quick form of each passes."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

import subtractive as sub
from scorecard import page
from scorecard.__main__ import main, run
from scorecard.all_checks import CHECKS
from scorecard.check import Check, Outcome, Size, worst
from scorecard.sampling import LEVEL, MISS, rows_to_see

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


def test_the_rows_of_the_sampler_check_are_enough_to_see_a_planted_shift():
    """Of 1,000 moved samples of the calculated size few pass, and many of a quarter of it."""
    p = sub.SquaredCircuit(sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=1, seed=0))
    p = p.to(torch.float64)
    shift = 0.2 * float(p.variance().detach().sqrt())
    rows = rows_to_see(p, 0, shift, 1)
    distance = 2 * stats.norm.cdf(0.1) - 1  # of a normal density moved by 0.2 standard deviations
    quantile = (stats.kstwobign.isf(LEVEL) - stats.norm.ppf(MISS) / 2) / distance
    assert rows == pytest.approx(quantile**2, rel=1e-3, abs=1)
    generator = np.random.default_rng(0)

    def missed(n):
        uniform = np.sort(stats.norm.cdf(generator.normal(size=(1_000, n)) + 0.2))
        steps = np.arange(n)
        distances = np.maximum((steps + 1) / n - uniform, uniform - steps / n).max(1)
        return int((distances < stats.kstwo.isf(LEVEL, n)).sum())

    # At most 0.1 are expected: five or more happen less than once in ten million times.
    assert missed(rows) < 5
    assert missed(rows // 4) > 100


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
