"""Checks 19 and 21: processes that are killed, alone and in a group."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.models import squared
from scorecard.processes import environment
from subtractive.learning.checkpoint import load_state, save_state

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["scorecard.interruption", "torch._dynamo"])
ROWS = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _model(seed: int = 0) -> sub.SquaredCircuit:
    return squared(sub.random_binary_tree(3, seed=0), sub.Gaussian(), units=4, seed=seed)


def train(file: str, result: str, epochs: int) -> None:
    """Train, saving the run after every step, and leave the weights in a file."""
    torch.set_num_threads(1)
    density = _model()
    history = sub.fit(
        density,
        ROWS,
        batch_size=16,
        max_epochs=epochs,
        patience=epochs,
        checkpoint=file,
        checkpoint_seconds=0,
        resume=True,
        progress=False,
    )
    save_state(result, {"weights": density.state_dict(), "scores": history.valid})


def save_often(path: str) -> None:
    """Save two models in turn, for ever."""
    models = [_model(0), _model(1)]
    while True:
        for model in models:
            model.save(path)


@check(
    19,
    "kill −9: 100 times in a fit with checkpoints, 100 times in a save",
    "all files readable, nothing lost, the resumed run bit-exact, leftovers removed",
)
def kills(size: Size) -> Outcome:
    """Kill processes at random moments, and compare what they leave with what it should be."""
    count = size.of(100, 4)
    with tempfile.TemporaryDirectory() as name:
        in_fit = _kill_fits(Path(name), count)
        in_save = _kill_saves(Path(name), count)
    figure = f"in fit: {in_fit}; in save: {in_save}"
    return Outcome(figure, in_fit.startswith(f"{count} of") and in_save.startswith(f"{count} of"))


def _kill_fits(folder: Path, count: int) -> str:
    epochs = count + 20
    train(str(folder / "whole.run"), str(folder / "whole"), epochs)
    run, result = folder / "run", folder / "result"
    generator, readable, stamp = random.Random(0), 0, 0
    seen = -1
    for _ in range(count):
        process = PROCESSES.Process(target=train, args=(str(run), str(result), epochs))
        process.start()
        stamp = _wait_for_change(run, stamp, process)
        time.sleep(generator.uniform(0, 0.05))
        _kill(process)
        reached = len(load_state(run)["history"]["epochs"])
        readable += reached >= seen
        seen = reached
        stamp = run.stat().st_mtime_ns
    last = PROCESSES.Process(target=train, args=(str(run), str(result), epochs))
    last.start()
    last.join()
    whole, resumed = load_state(folder / "whole"), load_state(result)
    exact = whole["scores"] == resumed["scores"] and all(
        torch.equal(tensor, resumed["weights"][name]) for name, tensor in whole["weights"].items()
    )
    return (
        f"{readable if exact else 0} of {count} readable, {'bit-exact' if exact else 'DIFFERENT'}"
    )


def _kill_saves(folder: Path, count: int) -> str:
    folder = folder / "saves"
    folder.mkdir()
    path = folder / "model"
    generator, sound, left, stamp = random.Random(1), 0, 0, 0
    scores = [float(_model(seed).log_prob(ROWS[:1])) for seed in (0, 1)]
    for _ in range(count):
        process = PROCESSES.Process(target=save_often, args=(str(path),))
        process.start()
        stamp = _wait_for_change(path, stamp, process)
        time.sleep(generator.uniform(0, 0.03))
        _kill(process)
        left += len(os.listdir(folder)) > 1
        sound += float(sub.load(path).log_prob(ROWS[:1])) in scores
        stamp = path.stat().st_mtime_ns
    _model().save(path)
    clean = os.listdir(folder) == ["model"]
    after = "none" if clean else "SOME"
    return (
        f"{sound if clean else 0} of {count} sound, {left} left pieces behind, {after} after the "
        "next save"
    )


def _wait_for_change(path: Path, stamp: int, process: BaseProcess) -> int:
    deadline = time.monotonic() + 120
    while not path.exists() or path.stat().st_mtime_ns == stamp:
        if not process.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("a process ended before it was killed.")
        time.sleep(0.001)
    return path.stat().st_mtime_ns


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


GROUP = """
import os, sys, torch, subtractive as sub
from subtractive.learning.checkpoint import save_state
torch.set_num_threads(1)
folder, dies = sys.argv[1], sys.argv[2] == "dies"
rows = torch.randn(45, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
circuit = sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=4, seed=0, dtype=rows.dtype)
density = sub.SquaredCircuit(circuit)
def die(density, history):
    if dies and len(history.epochs) == 3 and os.environ["RANK"] == "1":
        print("killed", flush=True)
        os.kill(os.getpid(), 9)
history = sub.fit(density, rows, batch_size=8, max_epochs=6, callbacks=[die], progress=False,
                  checkpoint=f"{folder}/run", checkpoint_seconds=0, resume=True)
if os.environ["RANK"] == "0":
    save_state(f"{folder}/result", {"weights": density.state_dict(), "scores": history.valid})
"""


@check(
    21,
    "a rank dies: 1 of 2 ranks killed",
    "the job ends in < 60 s with a reason, a restart resumes exactly",
)
def dead_rank(size: Size) -> Outcome:
    """Kill a rank in its third epoch, start the job again, and compare with an unbroken run."""
    with tempfile.TemporaryDirectory() as name:
        whole, broken = Path(name) / "whole", Path(name) / "broken"
        whole.mkdir()
        broken.mkdir()
        _torchrun(whole, "lives")
        start = time.monotonic()
        code, said = _torchrun(broken, "dies")
        seconds = time.monotonic() - start
        told = "lost touch with the others" in said or "Signal 9" in said or "SIGKILL" in said
        again, _ = _torchrun(broken, "lives")
        same = again == 0 and _same(load_state(whole / "result"), load_state(broken / "result"))
    figure = (
        f"ended in {seconds:.0f} s with code {code}, {'resumed exactly' if same else 'DIFFERENT'}"
    )
    return Outcome(figure, code != 0 and told and same and seconds < 60)


def _same(one: dict, other: dict) -> bool:
    weights = all(torch.equal(t, other["weights"][name]) for name, t in one["weights"].items())
    return bool(weights and one["scores"] == other["scores"])


def _torchrun(folder: Path, mode: str) -> tuple[int, str]:
    script = folder / "train.py"
    script.write_text(GROUP)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "2", script, folder, mode],
        env=environment(GLOO_SOCKET_IFNAME="lo"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr
