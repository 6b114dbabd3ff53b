"""Training steps, evaluations and marginals of two checkouts, side by side in one run.

    git worktree add /tmp/before COMMIT
    OMP_NUM_THREADS=1 python -m benchmarks.checkouts /tmp/before

One process for each checkout; they take turns, and the least CPU time of each counts: the machine
may be busy. A ratio above one says that this checkout is slower. `python -m benchmarks.agreement`
compares the answers of both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean

NUM_ROWS = 512
POINTS = [(t, d, k) for t in ("binary", "linear") for d in (8, 21, 43) for k in (32, 64, 128)]
KINDS = ("step", "evaluation", "first half", "every second")


def task(kind: str, tree: str, num_variables: int, num_units: int) -> Callable[[], object]:
    """What is timed, by names that both checkouts have."""
    import torch

    import subtractive as sub
    from subtractive.learning.batches import as_batches
    from subtractive.learning.distributed import Group
    from subtractive.learning.objective import negative_log_likelihood

    make = sub.random_binary_tree if tree == "binary" else sub.linear_tree
    circuit = sub.Circuit(make(num_variables), sub.Gaussian(), num_units=num_units, seed=0)
    density = sub.SquaredCircuit(circuit)
    x = torch.randn(NUM_ROWS, num_variables, generator=torch.Generator().manual_seed(0))
    (batch,) = as_batches(x, None, density, Group()).in_order(NUM_ROWS)

    def step() -> None:
        density.zero_grad()
        negative_log_likelihood(density, batch).backward()

    @torch.no_grad()
    def evaluation() -> None:
        density.log_square(x)

    order = torch.arange(num_variables)
    observed = order >= num_variables // 2 if kind == "first half" else order % 2 == 1

    @torch.no_grad()
    def marginal() -> None:
        density.log_marginal(x, observed)

    return {"step": step, "evaluation": evaluation}.get(kind, marginal)


def serve() -> None:
    """Time what is asked for on standard input."""
    for line in sys.stdin:
        kind, tree, num_variables, num_units, repeats = line.split(",")
        run = task(kind, tree, int(num_variables), int(num_units))
        run()
        times = []
        for _ in range(int(repeats)):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        print(min(times), flush=True)


def start(checkout: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", checkout],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"},
    )


def ask(worker: subprocess.Popen[str], question: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(question + "\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def compare(
    before: str, rounds: int, points: list[tuple[str, int, int]], kinds: Sequence[str]
) -> None:
    workers = [start(before), start(str(Path(__file__).resolve().parents[1]))]
    print("| kind | tree | D | K | before, ms | now, ms | ratio |\n|---|---|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for kind in kinds:
        for tree, num_variables, num_units in points:
            if kind not in ("step", "evaluation") and num_units > 64:
                continue
            question = f"{kind},{tree},{num_variables},{num_units},3"
            times = [[ask(worker, question) for worker in workers] for _ in range(rounds)]
            old, new = (1e3 * min(column) for column in zip(*times, strict=True))
            ratios[kind].append(new / old)
            place = f"{kind} | {tree} | {num_variables} | {num_units}"
            print(f"| {place} | {old:.2f} | {new:.2f} | {new / old:.2f} |", flush=True)
    for kind, some in ratios.items():
        print(f"{kind}: geometric mean {geometric_mean(some):.3f}, worst {max(some):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a checkout of the version to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each process")
    parser.add_argument("--quick", action="store_true", help="one size of each tree")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what is timed")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    else:
        few = [("binary", 21, 32), ("linear", 21, 32)]
        compare(options.before, options.rounds, few if options.quick else POINTS, options.kinds)
