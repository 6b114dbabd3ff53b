"""Experiments keep what is finished, refuse what does not belong together, and write it all."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from matplotlib.figure import Figure

from studies.grid.experiment import Experiment
from studies.grid.outputs import Outputs
from studies.grid.records import Records, identify
from studies.grid.running import execute
from studies.registry import EXPERIMENTS, full, quick
from subtractive.io.files import FileFormatError, partial_files


@dataclass(frozen=True)
class Squares(Experiment):
    """Square numbers, the seed being where they begin."""

    name: ClassVar[str] = "squares"
    title: ClassVar[str] = "Squares"
    done: ClassVar[list[int]] = []

    count: int = 3
    factor: float = 1.0
    sets: tuple[str, ...] = ("a",)
    seed: int = 0

    def runs(self):
        return [{"number": self.seed + i} for i in range(self.count)]

    def perform(self, run, place):
        if run["number"] == 13:
            raise ValueError("unlucky")
        self.done.append(run["number"])
        place("txt").write_text("a file of the run")
        return {"square": self.factor * run["number"] ** 2, "missing": float("nan")}

    def present(self, records, outputs):
        rows = [[r.run["number"], r.result["square"], r.result["missing"]] for r in records]
        outputs.table("squares", "Numbers and squares.", ["number", "square", "missing"], rows)
        figure = Figure()
        figure.subplots().plot([row[1] for row in rows])
        outputs.figure("curve", "Squares.", figure)


@pytest.fixture(autouse=True)
def nothing_done():
    Squares.done.clear()


def test_an_experiment_leaves_tables_figures_and_its_configuration(tmp_path):
    outputs = execute(Squares(), tmp_path / "new", command="do it", progress=False)
    names = {path.name for path in outputs.written}
    assert names == {"squares.csv", "squares.md", "curve.png", "curve.pdf", "results.md"}
    assert all(path.stat().st_size > 0 for path in outputs.written)
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["settings"] == {"count": 3, "factor": 1.0, "sets": ["a"], "seed": 0}
    assert config["command"] == "do it"
    assert {"python", "subtractive", "torch", "numpy"} <= set(config["versions"])
    lines = (tmp_path / "new" / "squares.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["square"] for row in rows] == ["0.0", "1.0", "4.0"]
    assert rows[0]["missing"] == ""
    page = (tmp_path / "new" / "results.md").read_text()
    assert "| 2 | 4.0000 |  |" in page
    assert "![Squares.](curve.png)" in page
    assert "do it" in page


def test_finished_runs_are_not_done_again(tmp_path):
    store = Records(tmp_path / "runs")
    store.folder.mkdir()
    with pytest.raises(ValueError, match="unlucky"):
        execute(Squares(seed=11), tmp_path, progress=False)
    assert Squares.done == [11, 12]
    Squares.done.clear()
    with pytest.raises(ValueError, match="unlucky"):
        execute(Squares(seed=11), tmp_path, resume=True, progress=False)
    assert Squares.done == []
    store.write({"number": 13}, {"square": 1.0, "missing": None}, seconds=0)
    execute(Squares(seed=11), tmp_path, resume=True, progress=False)
    assert Squares.done == []
    assert "| 13 | 1.0000 |" in (tmp_path / "squares.md").read_text()


def test_a_folder_with_results_is_not_written_to_unasked(tmp_path):
    execute(Squares(), tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"already holds results .* Add --resume"):
        execute(Squares(), tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"another configuration: count is 3, not 4\. Choose"):
        execute(Squares(count=4), tmp_path, resume=True, progress=False)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"squares"', '"cubes"'))
    with pytest.raises(ValueError, match="the experiment is 'cubes', not 'squares'"):
        execute(Squares(), tmp_path, resume=True, progress=False)
    config.write_text("{")
    with pytest.raises(FileFormatError, match=r"config.json is damaged"):
        execute(Squares(), tmp_path, resume=True, progress=False)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((ValueError, OSError), match=r"file"):
        execute(Squares(), tmp_path / "file", progress=False)


def test_records_that_are_damaged_or_of_another_run_are_refused(tmp_path):
    runs = Records(tmp_path)
    runs.write({"seed": 1}, {"score": 2.0}, seconds=0.5)
    assert runs.read({"seed": 1}).result == {"score": 2.0}
    written = json.loads(runs.file({"seed": 1}, "json").read_text())
    assert {"run", "settings", "seconds", "versions", "commit", "result"} == set(written)
    assert written["versions"]["torch"] == torch.__version__
    path = runs.file({"seed": 1}, "json")
    path.rename(runs.file({"seed": 2}, "json"))
    with pytest.raises(FileFormatError, match="record of another run"):
        runs.read({"seed": 2})
    path.write_text('{"run": {"se')
    with pytest.raises(FileFormatError, match="damaged: remove it"):
        runs.read({"seed": 1})


def test_runs_are_known_by_their_settings():
    names = {identify(run) for run in ({"a": 1}, {"a": "1"}, {"a": 1.0}, {"b": 1}, {"a": "x/y"})}
    assert len(names) == 5
    assert not any("/" in name for name in names)
    assert identify({"a": (1, 2)}) != identify({"a": (1, 3)})


def test_settings_can_be_changed_one_by_one():
    changed = Squares().changed({"count": 5, "factor": 2, "sets": "b"})
    assert changed == Squares(count=5, factor=2.0, sets=("b",))
    assert Squares().changed({"sets": ["x", "y"]}).sets == ("x", "y")
    with pytest.raises(ValueError, match=r"no setting 'colour': it has count, factor, sets, seed"):
        Squares().changed({"colour": 1})
    with pytest.raises(ValueError, match=r"setting 'count' is like 3, got 'many'"):
        Squares().changed({"count": "many"})
    with pytest.raises(ValueError, match=r"setting 'count' is like 3, got True"):
        Squares().changed({"count": True})


def test_every_experiment_is_registered_under_its_name_with_two_forms():
    for name, entry in EXPERIMENTS.items():
        assert full(name).name == quick(name).name == name
        assert full(name).title
        assert type(full(name)) is type(quick(name))
        assert 0 < len(entry.summary) < 90


def test_outputs_are_written_at_once_or_not_at_all(tmp_path):
    outputs = Outputs(tmp_path, "Title", "command")

    class Broken(Figure):
        def savefig(self, *args, **kwargs):
            Path(args[0]).write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        outputs.figure("broken", "caption", Broken())
    assert list(tmp_path.iterdir()) == []
    assert partial_files(tmp_path / "broken.png") == []
