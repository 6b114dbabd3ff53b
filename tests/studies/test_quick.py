"""The quick forms of the paper's experiments, by the command that users give."""

import json

import pytest

from studies.registry import EXPERIMENTS
from subtractive.cli import main

NEED_DATA = {"uci", "debd", "real-data", "ingredients"}


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - NEED_DATA))
def test_the_quick_form_runs_from_the_command_to_its_page(tmp_path, name, capsys):
    folder = tmp_path / name
    assert main(["experiment", name, "--quick", "--quiet", "--out", str(folder)]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert str(folder / "results.md") in written
    for ending in (".csv", ".png", ".pdf"):
        assert any(path.endswith(ending) for path in written)
    assert json.loads((folder / "config.json").read_text())["experiment"] == name
