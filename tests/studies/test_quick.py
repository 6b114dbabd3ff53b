"""The quick forms of the experiments, by the command that users give."""

import json

import pytest

from studies.__main__ import main
from studies.registry import EXPERIMENTS

NEED_DATA = {"uci", "debd", "em", "real-data", "ingredients", "clones", "guided"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - NEED_DATA))
def test_the_quick_form_runs_from_the_command_to_its_page(tmp_path, name, capsys):
    folder = tmp_path / name
    assert main([name, "--quick", "--quiet", "--out", str(folder)]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert str(folder / "results.md") in written
    for ending in (".csv", ".png", ".pdf"):
        assert any(path.endswith(ending) for path in written)
    assert json.loads((folder / "config.json").read_text())["experiment"] == name


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path):
    for workers in ("1", "2"):
        options = ["--quick", "--quiet", "--workers", workers, "--out", str(tmp_path / workers)]
        assert main(["splines", *options]) == 0
    one, two = ((tmp_path / n / "product_integrals.csv").read_bytes() for n in ("1", "2"))
    assert one == two
