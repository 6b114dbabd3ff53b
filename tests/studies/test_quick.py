"""The quick forms of the experiments, by the command that users give."""

import json

import pytest

from studies.__main__ import main
from studies.registry import EXPERIMENTS

NEED_DATA = {"uci", "debd", "real-data", "ingredients"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - NEED_DATA))
def test_the_quick_form_runs_from_the_command_to_its_page(tmp_path, name, capsys):
    folder = tmp_path / name
    options = ["--quick", "--quiet", "--workers", "2", "--out", str(folder)]
    assert main([name, *options]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert str(folder / "results.md") in written
    for ending in (".csv", ".png", ".pdf"):
        assert any(path.endswith(ending) for path in written)
    assert json.loads((folder / "config.json").read_text())["experiment"] == name
