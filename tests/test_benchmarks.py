"""Benchmarks keep their runs, and the page on quality says what the records say."""

import json

from benchmarks import summary
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
