"""The README's blocks run as they are pasted: Python in one session each, commands in a shell."""

import re
from pathlib import Path

import pytest
import torch

from subtractive.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
TABLE, CIRCUIT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^subtractive (.+)$", README, re.MULTILINE)


@pytest.fixture(scope="module")
def penguins():
    names = {}
    exec(TABLE, names)
    return names


def test_the_example_of_a_table_runs(penguins):
    model, table = penguins["model"], penguins["penguins"]
    filled = model.impute(table)
    assert not filled.isna().any().any()
    assert list(filled.dtypes) == list(table.dtypes)
    given = {"species": "Gentoo", "body_mass_g": 5500}
    said = float(re.search(r"# (0\.\d+)$", TABLE, re.MULTILINE)[1])
    assert model.probability({"sex": ["male"]}, given=given) == pytest.approx(said, abs=0.03)


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
    assert len(COMMANDS) >= 3
    for command in COMMANDS:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        faster = ["--epochs", "2", "--quiet"] if words[0] == "fit" else []
        assert main([*words, *faster]) == 0, capsys.readouterr().err
