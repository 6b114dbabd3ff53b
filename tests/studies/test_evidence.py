"""Pages say what the records in git say, and quote no number without one."""

import json

import pytest

from studies.__main__ import main
from studies.evidence.blocks import BLOCKS, PICTURES
from studies.evidence.formats import number, spread
from studies.evidence.pages import (
    find_pages,
    outdated_pages,
    outdated_pictures,
    regenerate,
    unrecorded_numbers,
    update_pages,
)
from studies.evidence.store import FIELDS, ROOT, Store, keep
from studies.grid.records import Records
from studies.grid.running import execute
from studies.paper.splines import Splines
from studies.registry import EXPERIMENTS

PAGES = find_pages()
RECORDS = sorted(ROOT.rglob("*.json"))


@pytest.fixture(scope="module")
def store():
    return Store()


def test_there_are_pages_and_records():
    assert {path.name for path in PAGES} >= {"reproduction.md", "distillation.md", "paper.md"}
    assert len(RECORDS) > 50


def test_writing_the_pages_anew_changes_nothing(store):
    assert outdated_pages(BLOCKS, store) == []


def test_drawing_the_pictures_anew_is_not_needed(store):
    assert outdated_pictures(PICTURES, store) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_quotes_a_number_without_a_record(page):
    assert unrecorded_numbers(page.read_text(encoding="utf-8")) == []


def test_records_are_compact_complete_and_name_no_machine():
    for path in RECORDS:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text)
        assert tuple(record) == FIELDS, path
        assert len(text.splitlines()) == 1
        assert len(text) < 20_000
        assert not any(place in text for place in ("/home", "/work", "/tmp")), path
        assert record["versions"]["torch"]
        assert record["commit"] not in ("", "unknown"), path
        assert path.relative_to(ROOT).parts[0] in EXPERIMENTS
        assert path.relative_to(ROOT).parts[1] in ("paper", "ours")


def test_a_number_that_is_not_that_of_the_records_is_found(store):
    page = "<!-- evidence splines/errors -->At most 1.0e-99.<!-- /evidence -->"
    found = regenerate(page, BLOCKS, store)
    assert found != page
    assert BLOCKS["splines/errors"](store) in found
    assert regenerate(found, BLOCKS, store) == found


def test_tables_of_experiments_are_evidence_by_their_names(store):
    page = "<!-- evidence separation/ours/matchings -->\n<!-- /evidence -->"
    assert "| n | \\|c\\| |" in regenerate(page, BLOCKS, store)
    page = "<!-- evidence uci/paper/best --><!-- /evidence -->"
    assert "No record yet" in regenerate(page, BLOCKS, store)
    for name in ("separation/ours/nothing", "nothing/ours/table"):
        with pytest.raises(ValueError, match="nobody generates"):
            regenerate(f"<!-- evidence {name} --><!-- /evidence -->", BLOCKS, store)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("We have −1.74 and 26 % of it.", ["−1.74", "26 %"]),
        ("In 2024, 100 runs with K = 8.", []),
        ("`rate=0.03` and Sec. 4.1, App. A.1.1, Table H.4.", []),
        ("```sh\nrun --rate 0.03\n```", []),
        ("<!-- evidence x -->1.5<!-- /evidence --> and 2.5", ["2.5"]),
        ("<!-- cited the paper -->1.5<!-- /cited -->", []),
        ("<!-- no record -->\n1.5\n<!-- /no record -->\n2.5", ["2.5"]),
        ("[1.5](a_2.5.png)", ["1.5"]),
    ],
)
def test_numbers_without_records_are_found(text, numbers):
    assert unrecorded_numbers(text) == numbers


def test_pages_are_updated_where_they_are(tmp_path, monkeypatch, store):
    monkeypatch.setattr("studies.evidence.pages.DOCS", tmp_path)
    monkeypatch.setattr("studies.evidence.pages.find_pages", lambda: [tmp_path / "paper.md"])
    page = tmp_path / "paper.md"
    page.write_text("<!-- evidence x --><!-- /evidence -->", encoding="utf-8")
    assert update_pages({"x": lambda _: "7"}, store) == [page]
    assert page.read_text(encoding="utf-8") == "<!-- evidence x -->7<!-- /evidence -->"
    assert update_pages({"x": lambda _: "7"}, store) == []


def test_records_are_kept_without_what_is_bulky(tmp_path, monkeypatch):
    experiment = Splines(orders=(1,), bases=(5,), pairs=1)
    monkeypatch.setattr(Splines, "bulky", ("float32",))
    execute(experiment, tmp_path / "out", progress=False)
    (path,) = keep(experiment, Records(tmp_path / "out" / "runs"), tmp_path / "kept/splines/ours")
    record = json.loads(path.read_text())
    assert set(record["result"]) == {"float64"}
    kept = Store(tmp_path / "kept")
    assert list(kept) == ["splines/ours"]
    assert kept.one("splines/ours", order=1).result["float64"] < 1e-12
    for settings in ({"order": 2}, {"bases": 7}):
        with pytest.raises(ValueError, match="expected one record"):
            kept.one("splines/ours", **settings)
    with pytest.raises(ValueError, match="no records of 'ring/ours'"):
        kept.group("ring/ours")
    path.write_text("{}")
    with pytest.raises(ValueError, match="no record of a run: it lacks run"):
        list(Store(tmp_path / "kept"))


def test_the_command_checks_and_refuses(tmp_path, capsys):
    assert main(["pages", "--check"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": []}
    small = ["--set", "bases=[5]", "--set", "orders=2", "--set", "pairs=1", "--quiet"]
    words = ["splines", *small, "--out", str(tmp_path / "out"), "--records", str(tmp_path)]
    assert main([*words, "--quick"]) == 2
    assert "--quick is no result" in capsys.readouterr().err


def test_quick_forms_say_that_they_are_no_result(tmp_path, capsys):
    small = ["--set", "bases=[5]", "--set", "orders=2", "--set", "pairs=1", "--quiet"]
    assert main(["splines", *small, "--quick", "--out", str(tmp_path / "quick")]) == 0
    assert "Not a result" in (tmp_path / "quick" / "product_integrals.md").read_text()
    assert main(["splines", *small, "--out", str(tmp_path / "full")]) == 0
    assert "Not a result" not in (tmp_path / "full" / "results.md").read_text()


def test_numbers_are_written_for_readers():
    assert number(-0.125, 2) == "−0.12"
    assert spread([-2.0]) == "−2.00"
    assert spread([-2.0, -1.0, -4.0], 1) == "−2.0 (−4.0 .. −1.0)"
