"""Processes that train together take the steps that one process would have taken."""

import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist
from processes import PROCESSES

import subtractive as sub
from subtractive.learning.checkpoint import load_state, save_state
from subtractive.learning.distributed import Group

ROWS = torch.randn(45, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WEIGHTS = torch.rand(45, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GAPS = torch.rand(45, 3, generator=torch.Generator().manual_seed(2)) < 0.2


def squared(seed=0):
    graph = sub.random_binary_tree(3, seed=seed)
    return sub.SquaredCircuit(
        sub.Circuit(
            graph, sub.Gaussian(), num_units=4, num_outputs=2, seed=seed, dtype=torch.float64
        )
    )


def monotonic():
    circuit = sub.Circuit(
        sub.linear_tree(3),
        sub.Gaussian(),
        num_units=4,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    return sub.MonotonicCircuit(circuit)


MODELS = {
    "squared": squared,
    "monotonic": monotonic,
    "mixture": lambda: sub.Mixture([squared(0), squared(1)]),
}
CASES = {
    # The last batch has one row: most processes have none of it.
    "an uneven last batch": (ROWS, {"batch_size": 11}),
    "weights": (ROWS, {"batch_size": 16, "weights": WEIGHTS}),
    "missing entries": (ROWS.masked_fill(GAPS, math.nan), {"batch_size": 16}),
    "a stream": (list(ROWS.split(22)), {}),
}


def train(model, data, options):
    """One epoch of gradient descent: weights differ from the start by the sum of gradients."""
    density = MODELS[model]()
    history = sub.fit(
        density,
        data,
        ROWS,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.01),
        max_epochs=1,
        progress=False,
        **options,
    )
    return density.state_dict(), history.epochs[0][:3]


def all_cases():
    return {(m, c): train(m, *CASES[c]) for m in MODELS for c in CASES}


def member(rank, size, folder, task):
    """One process of a group that meets in a folder."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    task(rank, folder)
    dist.destroy_process_group()


def run_cases(rank, folder):
    results = {" ".join(key): value for key, value in all_cases().items()}
    save_state(f"{folder}/result{rank}", results)


def start(size, folder, task):
    processes = [
        PROCESSES.Process(target=member, args=(rank, size, folder, task)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_steps_of_several_processes_equal_those_of_one(size, tmp_path):
    expected = all_cases()
    for process in start(size, tmp_path, run_cases):
        process.join(120)
        assert process.exitcode == 0
    for rank in range(size):
        results = load_state(tmp_path / f"result{rank}")
        for key, (weights, (epoch, likelihood, score)) in expected.items():
            found, numbers = results[" ".join(key)]
            for name, tensor in weights.items():
                torch.testing.assert_close(found[name], tensor, rtol=1e-12, atol=1e-12)
            assert numbers == pytest.approx((epoch, likelihood, score), rel=1e-12)


def one_dies(rank, folder):
    def die(density, history):
        if len(history.epochs) == 2 and rank == 1:
            os.kill(os.getpid(), 9)

    try:
        sub.fit(squared(), ROWS, max_epochs=50, callbacks=[die], progress=False)
    except sub.learning.LostProcessError as error:
        save_state(f"{folder}/error{rank}", {"message": str(error)})
        raise SystemExit(3) from None


def test_a_dead_process_ends_the_others_with_a_reason(tmp_path):
    processes = start(2, tmp_path, one_dies)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [3, -9]
    message = load_state(tmp_path / "error0")["message"]
    assert "process 0 of 2 lost touch with the others" in message
    assert "resume=True goes on from the last checkpoint" in message


def wider():
    return sub.SquaredCircuit(sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=5))


# What the second process does otherwise: its rows, its model, its options.
DIFFERENT = {
    "the training data": (ROWS * 3 + 5, squared, {}),
    "the training data, fewer": (ROWS[:-1], squared, {}),
    "the training data, rounded": (ROWS.float(), squared, {}),
    "the training data, weighted": (ROWS, squared, {"weights": WEIGHTS}),
    "the validation data": (ROWS, squared, {"valid": ROWS[:9]}),
    "the model": (ROWS, wider, {}),
    "the settings": (ROWS, squared, {"batch_size": 8}),
    "the settings, seed": (ROWS, squared, {"seed": 1}),
    "the settings, rate": (ROWS, squared, {"learning_rate": 0.1}),
    "the version of subtractive": (ROWS, squared, {}),
}


def one_differs(rank, folder):
    messages = {}
    for name, (rows, make, options) in DIFFERENT.items():
        if rank == 0:
            rows, make, options = ROWS, squared, {}
        version = sub.__version__
        if rank == 1 and "version" in name:
            sub.__version__ = "0.0.0"
        try:
            sub.fit(make(), rows, max_epochs=1, progress=False, **options)
        except ValueError as error:
            messages[name] = str(error)
        sub.__version__ = version
    sub.fit(squared(), ROWS, max_epochs=1, progress=False)  # all is well again
    save_state(f"{folder}/messages{rank}", messages)


def test_processes_that_differ_refuse_to_train_together(tmp_path):
    for process in start(2, tmp_path, one_differs):
        process.join(120)
        assert process.exitcode == 0
    messages = load_state(tmp_path / "messages0")
    assert messages == load_state(tmp_path / "messages1")
    assert messages.keys() == DIFFERENT.keys()
    for name, message in messages.items():
        assert "must train the same model on the same data" in message
        assert f"{name.split(',')[0]} of process 0 is " in message


def only_one_resumes(rank, folder):
    file = f"{folder}/run{rank}"
    if rank == 0:
        save_state(file, {"identity": {}})
    try:
        sub.fit(squared(), ROWS, max_epochs=1, checkpoint=file, resume=True, progress=False)
    except ValueError as error:
        save_state(f"{folder}/messages{rank}", {"message": str(error)})


def test_processes_with_different_checkpoints_do_not_resume(tmp_path):
    for process in start(2, tmp_path, only_one_resumes):
        process.join(120)
        assert process.exitcode == 0
    for rank in range(2):
        message = load_state(tmp_path / f"messages{rank}")["message"]
        assert "the checkpoint of process 0 is " in message


SCRIPT = """
    import os, sys, torch, subtractive as sub
    from subtractive.learning.checkpoint import save_state
    torch.set_num_threads(1)
    folder, dies = sys.argv[1], sys.argv[2] == "dies"
    rows = torch.randn(45, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    circuit = sub.Circuit(
        sub.flat(3), sub.Gaussian(), num_units=4, seed=int(os.environ["RANK"]), dtype=rows.dtype
    )
    density = sub.SquaredCircuit(circuit)

    def die(density, history):
        first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if dies and first_life and len(history.epochs) == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), 9)

    history = sub.fit(
        density, rows, batch_size=8, max_epochs=6, callbacks=[die], progress=False,
        checkpoint=f"{folder}/run", checkpoint_seconds=0, resume=True,
    )
    if os.environ["RANK"] == "0":
        state = {"weights": density.state_dict(), "scores": history.valid}
        save_state(f"{folder}/result", state)
"""


def torchrun(folder, mode):
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    options = ["--standalone", "--max-restarts", "1"]
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [*launcher, *options, script, folder, mode],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return load_state(folder / "result")


# Every change runs steps of two processes, and runs that are resumed (test_checkpoint.py).
@pytest.mark.slow
def test_torchrun_trains_and_a_restart_resumes(tmp_path):
    """Two processes, one of which dies, end where one process ends; exactly, in the slow form."""
    restarted = torchrun(tmp_path / "again", "dies")
    rows = torch.randn(45, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    circuit = sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=4, seed=0, dtype=rows.dtype)
    density = sub.SquaredCircuit(circuit)
    history = sub.fit(density, rows, batch_size=8, max_epochs=6, progress=False)
    assert restarted["scores"] == pytest.approx(history.valid, rel=1e-10)
    for name, tensor in density.state_dict().items():
        torch.testing.assert_close(restarted["weights"][name], tensor, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_torchrun_with_a_restart_ends_as_without_one(tmp_path):
    whole, restarted = torchrun(tmp_path / "whole", "lives"), torchrun(tmp_path / "again", "dies")
    assert whole["scores"] == restarted["scores"]
    for name, tensor in whole["weights"].items():
        assert torch.equal(tensor, restarted["weights"][name])


def test_a_group_of_one_keeps_everything_to_itself():
    rows = torch.arange(5)
    group = Group()
    assert torch.equal(group.part(rows), rows)
    parts = [Group(rank, 4).part(rows) for rank in range(4)]
    assert sorted(torch.cat(parts).tolist()) == rows.tolist()
    tensor = torch.ones(2)
    group.add([tensor])
    assert tensor.tolist() == [1, 1]
