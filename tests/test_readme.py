"""The README's blocks run as they are pasted: Python in one session each, commands in a shell."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch
from quick_fits import train_briefly

from subtractive.cli.main import main
from subtractive.report import blocks

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
DOCS = Path(__file__).parents[1] / "docs"
SITE, REPOSITORY = (
    "https://subtractive.readthedocs.io/en/latest/",
    "https://github.com/subtractive-models/subtractive/blob/main/",
)
PICTURES = "https://raw.githubusercontent.com/subtractive-models/subtractive/main/"
TABLE, CIRCUIT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
(SAID,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^subtractive (.+)$", README, re.MULTILINE)


def pasted():
    """What the example of a table defines, and what it prints."""
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(TABLE, names)
    return names, said.getvalue()


@pytest.fixture(scope="module")
def session():
    """The example, but trained for two epochs: it runs, and what it says has the same form."""
    with pytest.MonkeyPatch.context() as patch:
        train_briefly(patch, 2)
        return pasted()


@pytest.fixture(scope="module")
def penguins(session):
    return session[0]


def test_the_example_of_a_table_runs_and_says_as_much_as_the_readme(session):
    expected, got = SAID.splitlines(), session[1].splitlines()
    assert 0 < float(got[0]) < 1
    assert [line.split()[0] for line in got[1:]] == [line.split()[0] for line in expected[1:]]


@pytest.mark.slow
def test_the_example_of_a_table_says_what_the_readme_says():
    # Another machine may train another model in the last digits, and then draw other rows.
    expected, got = SAID.splitlines(), pasted()[1].splitlines()
    assert float(got[0]) == pytest.approx(float(expected[0]), abs=0.03)
    for line in (1, 2):
        (name, value), (said, number) = got[line].split(), expected[line].split()
        assert name == said
        assert float(value) == pytest.approx(float(number), abs=150)
    assert [line.split()[0] for line in got[4:]] == [line.split()[0] for line in expected[4:]]


def test_gaps_of_the_example_can_be_filled(penguins):
    model, table = penguins["model"], penguins["penguins"]
    filled = model.impute(table)
    assert not filled.isna().any().any()
    assert list(filled.dtypes) == list(table.dtypes)


def test_links_are_absolute_and_lead_to_pages_that_exist():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://"), link
        page = link.removeprefix(SITE).split("#")[0]
        if link.startswith(SITE) and page.startswith("gallery/"):
            assert (
                page == "gallery/index.html"
                or (DOCS / "examples" / Path(page).with_suffix(".py").name).exists()
            ), link
        elif link.startswith(SITE):
            assert (DOCS / (page or "index.html")).with_suffix(".md").exists(), link
        for base in (REPOSITORY, PICTURES):
            if link.startswith(base):
                assert (DOCS.parent / link.removeprefix(base)).exists(), link


def test_the_example_of_a_circuit_runs():
    torch.manual_seed(0)
    names = {}
    exec(CIRCUIT, names)
    filled = names["p"].impute(names["x"])
    assert not filled.isnan().any()
    torch.testing.assert_close(filled[1], names["x"][1].double(), rtol=0, atol=0)


def test_the_commands_run(penguins, tmp_path, monkeypatch, capsys):
    penguins["penguins"].to_csv(tmp_path / "penguins.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(blocks, "svg", lambda figure: b"<svg/>")  # most of the time of a report
    assert len(COMMANDS) >= 3
    for command in COMMANDS:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        faster = ["--epochs", "1", "--quiet"] if words[0] == "fit" else []
        assert main([*words, *faster]) == 0, capsys.readouterr().err
