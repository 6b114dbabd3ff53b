"""Several processes share a study, and none of them is needed."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from subtractive.experiments.claims import Claims
from subtractive.experiments.worker import main as worker
from subtractive.experiments.worker import read_study

from studies.grid.experiment import Staged
from studies.grid.progress import look
from studies.grid.records import Records, identify
from studies.grid.running import Workers, begin, execute
from studies.paper.splines import Splines
from subtractive.cli import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
NOBODY = 2**22 + 1  # more than processes are numbered to


def start_worker(folder):
    command = [sys.executable, "-m", "subtractive.experiments.worker", str(folder)]
    return subprocess.Popen(command, env=ENVIRONMENT)


def records(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}


def claim_of(folder, process):
    for path in (folder / "runs").glob("*.claim"):
        try:
            owner = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if owner["process"] == process:
            return path
    return None


def test_a_grid_over_two_workers_survives_a_killed_one(tmp_path):
    # 24 runs, each long enough for a worker to be caught at it.
    grid = Splines(orders=(0, 1, 2, 3), bases=(20, 21, 22, 23, 24, 25), pairs=8)
    assert len(grid.runs()) == 24
    begin(grid, tmp_path, command="", resume=False)
    victim, survivor = start_worker(tmp_path), start_worker(tmp_path)
    try:
        while len(records(tmp_path)) < 2 or claim_of(tmp_path, victim.pid) is None:
            assert victim.poll() is None, "the worker ended before it could be killed"
            time.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        before = records(tmp_path)
        assert survivor.wait(timeout=300) == 0
    finally:
        survivor.kill()
        victim.kill()
    after = records(tmp_path)
    assert len(after) == 24
    assert all(after[path] == when for path, when in before.items())
    outputs = execute(grid, tmp_path, resume=True, progress=False)
    assert records(tmp_path) == after
    lines = (outputs.folder / "product_integrals.csv").read_text().splitlines()
    assert len(list(csv.DictReader(lines))) == 24
    assert list((tmp_path / "runs").glob("*.claim")) == []


def test_the_command_line_starts_workers_and_shows_how_far_they_are(tmp_path, capsys):
    small = ["experiment", "splines", "--out", str(tmp_path / "a"), "--set", "bases=[5]"]
    small += ["--set", "pairs=1", "--set", "orders=[1,2]"]
    assert main([*small, "--status"]) == 0
    assert "0 of 2 done, 2 waiting" in capsys.readouterr().out
    assert main([*small, "--workers", "2", "--quiet"]) == 0
    assert (tmp_path / "a" / "results.md").is_file()
    capsys.readouterr()
    assert main([*small, "--status"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 done" in shown
    assert "| order | bases | state | seconds or owner | float64 | float32 |" in shown
    rows = list(csv.DictReader((tmp_path / "a" / "progress.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == ["done", "done"]
    assert main([*small, "--workers", "0", "--resume"]) == 2
    assert "--workers must be at least 1, got 0" in capsys.readouterr().err


def test_runs_that_fail_are_told_and_tried_again(tmp_path):
    study = Splines(orders=(2,), bases=(1, 5), pairs=1)  # a quadratic spline needs three bases
    with pytest.raises(ChildProcessError, match=r"1 of the runs failed, one of them with .*3"):
        execute(study, tmp_path, progress=False, workers=Workers(1))
    store = Records(tmp_path / "runs")
    assert [store.has(run) for run in study.runs()] == [False, True]
    seen = look(study.runs(), store)
    assert seen.counts == {"done": 1, "running": 0, "failed": 1, "waiting": 0}
    assert seen.summary() == "1 of 2 done, 1 failed"
    store.forget_failures()
    assert look(study.runs(), store).counts["waiting"] == 1


def test_a_claim_belongs_to_one(tmp_path):
    claims = Claims(tmp_path)
    with claims.hold("a") as mine:
        assert mine
        assert claims.owner("a") == f"{socket.gethostname()}:{os.getpid()}"
        with claims.hold("a") as other, claims.hold("b") as another:
            assert (other, another) == (False, True)
        assert claims.owner("a") is not None
    assert claims.owner("a") is None
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_that_claim_at_once_wins(tmp_path):
    claims, winners, gate = Claims(tmp_path), [], threading.Barrier(8)
    leave = threading.Event()

    def race(number):
        gate.wait()
        with claims.hold("a") as mine:
            if mine:
                winners.append(number)
                leave.wait()
            elif not leave.is_set():
                losers.release()

    losers = threading.Semaphore(0)
    threads = [threading.Thread(target=race, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(7):
        assert losers.acquire(timeout=30)
    leave.set()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_claims_of_dead_processes_and_silent_machines_are_given_up(tmp_path):
    claims = Claims(tmp_path, silence=60.0)
    path = tmp_path / "a.claim"
    for owner, age, is_free in (
        ({"machine": socket.gethostname(), "process": NOBODY}, 0, True),
        ({"machine": "elsewhere", "process": NOBODY}, 0, False),
        ({"machine": "elsewhere", "process": 1}, 50, False),
        ({"machine": "elsewhere", "process": 1}, 70, True),
        (None, 0, False),  # being written
        (None, 70, True),
    ):
        path.write_text("" if owner is None else json.dumps({**owner, "token": "x"}))
        when = time.time() - age
        os.utime(path, (when, when))
        with claims.hold("a") as mine:
            assert mine == is_free
        path.unlink(missing_ok=True)


def test_a_held_claim_shows_signs_of_life_until_it_is_lost(tmp_path):
    claims = Claims(tmp_path, heartbeat=0.01)
    path = tmp_path / "a.claim"
    with claims.hold("a"):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 30
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0
        path.write_text(json.dumps({"machine": "elsewhere", "process": 1, "token": "other"}))
    assert path.exists()  # another's claim is left alone


@dataclass(frozen=True)
class Contest(Staged):
    """The largest of some numbers is then squared several times."""

    name: ClassVar[str] = "contest"
    title: ClassVar[str] = "Contest"

    numbers: tuple[int, ...] = (3, 9, 4)

    def runs(self):
        return [{"number": number, "repeat": 0} for number in self.numbers]

    def following(self, records):
        best = max(records, key=lambda record: record.result["score"])
        return [{"number": best.run["number"], "repeat": k} for k in (1, 2)]

    def perform(self, run, place):
        return {"score": run["number"] ** 2}

    def present(self, records, outputs):
        rows = [[r.run["number"], r.run["repeat"], r.result["score"]] for r in records]
        outputs.table("all", "All.", ["number", "repeat", "score"], rows)


def test_later_runs_follow_from_earlier_ones(tmp_path):
    outputs = execute(Contest(), tmp_path, progress=False)
    lines = (outputs.folder / "all.csv").read_text().splitlines()
    assert lines[1:] == ["3,0,9", "9,0,81", "4,0,16", "9,1,81", "9,2,81"]
    store = Records(tmp_path / "runs")
    store.file({"number": 3, "repeat": 0}, "json").unlink()
    assert len(store.known(Contest())) == 3


def test_a_worker_learns_from_the_folder_what_to_do(tmp_path):
    study = Splines(orders=(1,), bases=(7,), domain=(0.0, 2.0))
    begin(study, tmp_path, command="", resume=False)
    assert read_study(tmp_path) == study
    assert [identify(run) for run in read_study(tmp_path).runs()] == [
        identify(run) for run in study.runs()
    ]


def test_one_run_can_be_done_by_name_and_only_the_first_process_keeps_its_record(
    tmp_path, monkeypatch
):
    study = Splines(orders=(1,), bases=(5, 6), pairs=1)
    begin(study, tmp_path, command="", resume=False)
    store, (first, second) = Records(tmp_path / "runs"), study.runs()
    monkeypatch.setenv("RANK", "1")
    assert worker([str(tmp_path), "--only", identify(second)]) == 0
    assert not store.has(second)
    monkeypatch.setenv("RANK", "0")
    assert worker([str(tmp_path), "--only", identify(second)]) == 0
    assert [store.has(first), store.has(second)] == [False, True]


def test_a_run_that_is_being_done_is_seen(tmp_path):
    seen = []

    @dataclass(frozen=True)
    class Watched(Contest):
        def perform(self, run, place):
            rows = list(csv.DictReader((tmp_path / "progress.csv").read_text().splitlines()))
            seen.append([row["state"] for row in rows])
            return {"score": run["number"]}

    execute(Watched(), tmp_path, progress=False)
    assert seen[:2] == [["running", "waiting", "waiting"], ["done", "running", "waiting"]]
    rows = list(csv.DictReader((tmp_path / "progress.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == ["done"] * 5
