"""A run that is interrupted and resumed ends where an uninterrupted one ends, bit by bit."""

import copy
import functools
import itertools
import os
import random
import signal
import time

import pytest
import torch
from processes import PROCESSES
from registry import every_kind

import subtractive as sub
from subtractive.io.files import write_tensors
from subtractive.learning import run
from subtractive.learning.checkpoint import load_state, save_state

ROWS = torch.randn(130, 3, generator=torch.Generator().manual_seed(0))
HELD = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))


def model():
    graph = sub.random_binary_tree(3, seed=0)
    return sub.SquaredCircuit(sub.Circuit(graph, sub.Gaussian(), num_units=4, seed=0))


def train(density, **options):
    defaults = {"batch_size": 16, "max_epochs": 8, "progress": False}
    return sub.fit(density, ROWS, HELD, **{**defaults, **options})


class Stop(Exception):
    pass


def stop_after(steps, monkeypatch):
    """Raise in the middle of an epoch, as a machine that breaks down would."""
    calls = iter(range(10**6))
    real = run.try_step

    def counted(*arguments, **options):
        if next(calls) == steps:
            raise Stop
        return real(*arguments, **options)

    monkeypatch.setattr(run, "try_step", counted)


def assert_same_run(first, second):
    (one, history), (other, again) = first, second
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    assert [row[:-1] for row in history.epochs] == [row[:-1] for row in again.epochs]
    assert history.best_epoch == again.best_epoch
    assert history.best_score == again.best_score
    assert history.stopped == again.stopped


OPTIONS = {
    "adam": {},
    "sgd": {"optimizer": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)},
    "lbfgs": {"optimizer": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)},
    "cosine": {"scheduler": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8)},
    "sequence": {
        "scheduler": lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
                torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
            ],
            [3],
        )
    },
    "constant": {"decay": 1.0},
    "impatient": {"patience": 2, "learning_rate": 0.3},
}


@functools.cache
def uninterrupted(name):
    """A run of four epochs, nine steps each, which others are compared with."""
    whole = model()
    return whole, train(whole, max_epochs=4, **OPTIONS[name])


@every_kind(("steps", "name"), list(itertools.product([9, 1, 20], OPTIONS)), together=1)
def test_a_resumed_run_ends_as_an_uninterrupted_one(steps, name, tmp_path, monkeypatch):
    file, options = tmp_path / "run", {"max_epochs": 4, **OPTIONS[name]}
    with monkeypatch.context() as broken:
        stop_after(steps, broken)
        with pytest.raises(Stop):
            train(model(), checkpoint=file, checkpoint_seconds=0, **options)
    resumed = model()
    history = train(resumed, resume=file, **options)
    assert_same_run(uninterrupted(name), (resumed, history))


def test_a_run_may_be_resumed_again_and_again(tmp_path, monkeypatch):
    file = tmp_path / "run"
    whole = model()
    expected = train(whole)
    for _ in range(6):
        with monkeypatch.context() as broken:
            stop_after(7, broken)
            with pytest.raises(Stop):
                train(model(), checkpoint=file, checkpoint_seconds=0, resume=True)
    resumed = model()
    history = train(resumed, checkpoint=file, resume=True)
    assert_same_run((whole, expected), (resumed, history))


def test_streams_resume_in_the_middle_too(tmp_path, monkeypatch):
    file, stream = tmp_path / "run", ROWS.split(16)
    whole, resumed = model(), model()
    expected = sub.fit(whole, stream, HELD, max_epochs=4, progress=False)
    with monkeypatch.context() as broken:
        stop_after(13, broken)
        with pytest.raises(Stop):
            sub.fit(
                model(),
                stream,
                HELD,
                max_epochs=4,
                checkpoint=file,
                checkpoint_seconds=0,
                progress=False,
            )
    history = sub.fit(resumed, stream, HELD, max_epochs=4, resume=file, progress=False)
    assert_same_run((whole, expected), (resumed, history))


def test_a_finished_run_resumes_to_its_result_and_may_be_prolonged(tmp_path):
    file = tmp_path / "run"
    first = model()
    train(first, checkpoint=file, max_epochs=3)
    again = model()
    history = train(again, checkpoint=file, resume=True, max_epochs=3)
    assert len(history.epochs) == 3
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    whole, longer = model(), model()
    assert_same_run(
        (whole, train(whole, max_epochs=6)),
        (longer, train(longer, resume=file, max_epochs=6)),
    )


def test_time_spent_before_an_interruption_counts(tmp_path):
    file = tmp_path / "run"
    first = train(model(), checkpoint=file, max_epochs=3)
    second = train(model(), resume=file, max_epochs=4)
    assert second.seconds > first.seconds


def test_resume_starts_anew_where_there_is_no_file_yet(tmp_path):
    history = train(model(), checkpoint=tmp_path / "run", resume=True, max_epochs=2)
    assert len(history.epochs) == 2
    with pytest.raises(FileNotFoundError, match="no checkpoint file at"):
        train(model(), resume=tmp_path / "other")


def test_a_checkpoint_of_another_run_is_refused_and_nothing_changes(tmp_path):
    file = tmp_path / "run"
    train(model(), checkpoint=file, max_epochs=2)
    density = model()
    before = copy.deepcopy(density.state_dict())
    for options in ({"batch_size": 8}, {"seed": 1}):
        with pytest.raises(ValueError, match="another run: its (batch_size|seed) was"):
            train(density, resume=file, **options)
    with pytest.raises(ValueError, match="another run: its data was"):
        sub.fit(density, ROWS + 1, HELD, batch_size=16, resume=file)
    assert all(torch.equal(before[name], value) for name, value in density.state_dict().items())
    wider = sub.SquaredCircuit(sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=5))
    with pytest.raises(ValueError, match="another model: its tensors have other names or shapes"):
        sub.fit(wider, ROWS, HELD, batch_size=16, resume=file)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    file = tmp_path / "run"
    train(model(), checkpoint=file, max_epochs=2)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(sub.FileFormatError, match="not a readable checkpoint file"):
        train(model(), resume=file)


@pytest.mark.parametrize(
    "part",
    ["identity", "density", "optimizer", "scheduler", "history", "best", "order", "progress"],
)
def test_a_checkpoint_without_one_of_its_parts_is_refused_and_nothing_changes(part, tmp_path):
    file = tmp_path / "run"
    train(model(), checkpoint=file, max_epochs=2)
    state = load_state(file)
    density = model()
    before = copy.deepcopy(density.state_dict())
    for forged in (None, 7, "x", [], {"a": 1}):
        save_state(file, {**state, part: forged})
        with pytest.raises(ValueError, match="does not hold a training run|another (run|model)"):
            train(density, resume=file)
    save_state(file, {name: entry for name, entry in state.items() if name != part})
    with pytest.raises(sub.FileFormatError, match=f"does not hold a training run .*'{part}'"):
        train(density, resume=file)
    assert all(torch.equal(before[name], value) for name, value in density.state_dict().items())


STATES = {
    "none": {},
    "a number": {"state": 7},
    "an unknown kind": {"state": {"set": []}},
    "two kinds": {"state": {"dict": [], "list": []}},
    "no tensor": {"state": {"dict": [["a", {"tensor": "9"}]]}},
    "no pairs": {"state": {"dict": [["a"]]}},
}


@pytest.mark.parametrize("description", STATES.values(), ids=STATES)
def test_a_forged_state_is_refused(description, tmp_path):
    write_tensors(tmp_path / "run", "checkpoint", {}, description)
    with pytest.raises(sub.FileFormatError, match="does not hold a training run"):
        train(model(), resume=tmp_path / "run")


def test_leftovers_of_killed_processes_are_swept_away(tmp_path):
    (tmp_path / ".run.abc.partial").touch()
    (tmp_path / ".run2.abc.partial").touch()
    train(model(), checkpoint=tmp_path / "run", max_epochs=1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".run2.abc.partial", "run"]


def test_a_state_is_saved_with_all_its_kinds_and_keys(tmp_path):
    state = {
        "a": {0: torch.ones(2), 1: [torch.zeros(1), (1, None, True)]},
        "b": {"inf": float("inf"), "text": "x"},
    }
    save_state(tmp_path / "state", state)
    loaded = load_state(tmp_path / "state")
    assert loaded["a"][1][1] == (1, None, True)
    assert torch.equal(loaded["a"][0], torch.ones(2))
    assert loaded["b"] == state["b"]
    with pytest.raises(ValueError, match="has a set in its state"):
        save_state(tmp_path / "state", {"a": {1, 2}})
    assert load_state(tmp_path / "state")["b"] == state["b"]


def long_run(file, result, epochs):
    """A process that trains, saving itself after every step, and leaves its result in a file."""
    torch.set_num_threads(1)
    density = model()
    history = train(
        density,
        max_epochs=epochs,
        patience=epochs,
        checkpoint=file,
        checkpoint_seconds=0,
        resume=True,
    )
    save_state(result, {"weights": density.state_dict(), "scores": history.valid})


# As many epochs as leave time to be killed.
@pytest.mark.parametrize(
    ("times", "epochs"), [(1, 12), pytest.param(3, 60, marks=pytest.mark.slow)]
)
def test_a_process_that_is_killed_ends_as_an_uninterrupted_one(times, epochs, tmp_path):
    file, result = tmp_path / "run", tmp_path / "result"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = model()
        expected = train(whole, max_epochs=epochs, patience=epochs)
    finally:
        torch.set_num_threads(threads)
    generator = random.Random(0)
    kills, before = 0, None
    while kills < times:  # a hundred in the scorecard
        process = PROCESSES.Process(target=long_run, args=(file, result, epochs))
        process.start()
        wait_for_a_new_file(file, before, process)
        time.sleep(generator.uniform(0, 0.03))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the run was over too soon"
        kills += 1
        before = load_state(file)["progress"], file.stat().st_mtime_ns
    process = PROCESSES.Process(target=long_run, args=(file, result, epochs))
    process.start()
    process.join()
    assert process.exitcode == 0
    final = load_state(result)
    assert final["scores"] == expected.valid
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, final["weights"][name])


def wait_for_a_new_file(file, before, process):
    deadline = time.monotonic() + 60
    while not file.exists() or (before and file.stat().st_mtime_ns == before[1]):
        assert process.is_alive(), "the process ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.001)
