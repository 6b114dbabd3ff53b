"""Runs are done by several processes or on a cluster, and none of these is needed."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from sleepers import Sleepers

from studies.__main__ import main
from studies.grid.executors import dask_cluster, process_pool
from studies.grid.experiment import Staged
from studies.grid.progress import list_runs
from studies.grid.records import Records
from studies.grid.running import execute

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
POOL = """
import sys
from pathlib import Path
from sleepers import Sleepers
from studies.grid.executors import process_pool
from studies.grid.running import execute
with process_pool(2) as pool:
    execute(Sleepers(), Path(sys.argv[1]), progress=False, executor=pool)
"""


def records(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}


def check_complete(folder, before):
    """All runs have a record, and those that were there before were not done again."""
    after = records(folder)
    assert len(after) == len(Sleepers().runs())
    assert all(after[path] == when for path, when in before.items())
    lines = (folder / "squares.csv").read_text().splitlines()
    assert lines[1:] == [f"{number},{number**2}" for number in Sleepers().numbers]


@pytest.mark.slow
def test_a_pool_that_was_killed_is_resumed(tmp_path):
    command = [sys.executable, "-c", POOL, str(tmp_path)]
    pool = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True)
    try:
        while len(records(tmp_path)) < 2:
            assert pool.poll() is None, "the pool ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(pool.pid, signal.SIGKILL)
        pool.wait()
    before = records(tmp_path)
    assert 2 <= len(before) < len(Sleepers().runs())
    execute(Sleepers(), tmp_path, resume=True, progress=False)
    check_complete(tmp_path, before)


def test_a_pool_that_loses_a_process_says_how_to_go_on(tmp_path):
    with process_pool(2) as pool:
        victim = pool.submit(os.getpid).result()
        pool.submit(time.sleep, 60)
        pool.submit(time.sleep, 60)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ChildProcessError, match=r"12 runs are left .* go on with --resume"):
            execute(Sleepers(), tmp_path, progress=False, executor=pool)
    before = records(tmp_path)
    execute(Sleepers(), tmp_path, resume=True, progress=False)
    check_complete(tmp_path, before)


@pytest.mark.slow
def test_dask_gives_the_runs_of_a_killed_worker_to_another(tmp_path):
    distributed = pytest.importorskip("distributed", reason="clusters are those of dask")
    with (
        distributed.LocalCluster(
            2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
        dask_cluster(cluster.scheduler_address) as executor,
    ):
        victim, _ = client.run(os.getpid).values()
        submit, before = executor.submit, {}

        def kill_one(_):
            if not before and len(records(tmp_path)) >= 2:
                before.update(records(tmp_path))
                os.kill(victim, signal.SIGKILL)

        def watched(*arguments):
            future = submit(*arguments)
            future.add_done_callback(kill_one)
            return future

        executor.submit = watched
        execute(Sleepers(), tmp_path, progress=False, executor=executor)
    assert 2 <= len(before) < len(Sleepers().runs())
    check_complete(tmp_path, before)


def test_a_scheduler_that_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    dask = pytest.importorskip("dask", reason="clusters are those of dask")
    arguments = ["splines", "--quick", "--out", str(tmp_path), "--scheduler", "tcp://127.0.0.1:9"]
    with dask.config.set({"distributed.comm.timeouts.connect": "100ms"}):
        assert main(arguments) == 2
    assert "there is no dask scheduler at tcp://127.0.0.1:9" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(arguments) == 2
    assert "--scheduler needs dask: pip install 'subtractive[cluster]'" in capsys.readouterr().err


def test_the_command_line_lists_runs_and_refuses_no_workers(tmp_path, capsys):
    small = ["splines", "--out", str(tmp_path / "a"), "--set", "bases=[5]"]
    small += ["--set", "pairs=1", "--set", "orders=[1,2]"]
    assert main([*small, "--status"]) == 0
    assert "0 of 2 done, 2 missing" in capsys.readouterr().out
    assert main([*small, "--quiet"]) == 0
    capsys.readouterr()
    assert main([*small, "--status"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 done" in shown
    assert "| order | bases | state | seconds or error | float64 | float32 |" in shown
    assert main([*small, "--workers", "0", "--resume"]) == 2
    assert "--workers must be at least 1, got 0" in capsys.readouterr().err


def test_runs_that_fail_elsewhere_are_told_and_tried_again(tmp_path):
    study = Sleepers(numbers=(13, 1), seconds=0.0)
    store, (bad, good) = Records(tmp_path / "runs"), study.runs()
    with ThreadPoolExecutor(2) as pool:
        for resume in (False, True):
            with pytest.raises(ChildProcessError, match=r"1 of the runs failed, .*unlucky"):
                execute(study, tmp_path, resume=resume, progress=False, executor=pool)
    assert [store.has(run) for run in (bad, good)] == [False, True]
    assert "1 of 2 done, 1 failed" in list_runs(study.runs(), store)
    store.write(bad, {"square": 169}, seconds=0.0)
    assert store.failure(bad) is None


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
