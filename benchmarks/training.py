"""What a training step costs: against libcirkit, signed logarithms and bare matrix products.

    make bench-training                            # the whole grid, with libcirkit
    python -m benchmarks.training --quick          # a few points, about a minute

A step is zero_grad, the loss log Z - mean log c², backward and a fused Adam, for Gaussian inputs
and 512 rows. Times are CPU times of one thread; the wall-clock time on all cores stands beside
them. At every point all competitors are measured twice, in turns, in the same run. The bare
products are the least that a step must multiply: one product forward and two back for values
(float32), two forward and three back for grams (float64), all on tensors made before.

torch.compile is no part of the grid: it takes a minute for each shape. ``--compile`` tries it at
one point and prints how many times faster a step became.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import torch
from torch import Tensor

import subtractive as sub
from benchmarks.peers.cirkit_client import Peer, check_same_circuit
from studies.models.profiling import cpu_seconds, peak_megabytes, wall_seconds
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import reference
from subtractive.inference.partition import square_integrals
from subtractive.learning.batches import as_batches
from subtractive.learning.distributed import Group
from subtractive.learning.objective import negative_log_likelihood
from subtractive.numerics.messages import LeafMessage, log_sum_of_squares, to_scaled

TREES: dict[str, Callable[[int], sub.RegionGraph]] = {
    "binary": sub.random_binary_tree,
    "linear": sub.linear_tree,
}
# Which half of the variables is integrated out.
PATTERNS: dict[str, Callable[[int], Tensor]] = {
    "first half": lambda count: torch.arange(count) >= count // 2,
    "every second": lambda count: torch.arange(count) % 2 == 1,
}
NUM_ROWS = 512
PEER = Path(__file__).parent / ".cirkit" / "bin" / "python"


@dataclass(frozen=True)
class Point:
    tree: str
    num_variables: int
    num_units: int

    def graph(self) -> sub.RegionGraph:
        return TREES[self.tree](self.num_variables)


@dataclass(frozen=True)
class Plan:
    points: tuple[Point, ...]
    marginals: tuple[Point, ...]
    budget: float  # seconds for each measurement


FULL = Plan(
    tuple(Point(t, d, k) for t in TREES for d in (8, 21, 43) for k in (32, 64, 128, 256)),
    tuple(Point(t, d, k) for t in TREES for d in (8, 21) for k in (32, 64)),
    budget=0.5,
)
QUICK = Plan(
    tuple(Point(t, 8, k) for t in TREES for k in (32, 64, 128)) + (Point("binary", 21, 64),),
    tuple(Point(t, 8, k) for t in TREES for k in (32, 64)),
    budget=0.2,
)


class Training:
    """Our model, its data and its optimiser."""

    def __init__(self, point: Point) -> None:
        circuit = Circuit(point.graph(), sub.Gaussian(), num_units=point.num_units, seed=0)
        self.density = sub.SquaredCircuit(circuit)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(NUM_ROWS, point.num_variables, generator=generator)
        (self.batch,) = as_batches(x, None, self.density, Group()).in_order(NUM_ROWS)
        self.optimiser = torch.optim.Adam(self.density.parameters(), lr=1e-3, fused=True)

    def loss(self) -> Tensor:
        return negative_log_likelihood(self.density, self.batch)

    def signed_loss(self) -> Tensor:
        """The same loss by the paper's signed logarithms."""
        circuit = self.density.circuit
        value, gram = (
            to_scaled(LeafMessage(*reference(circuit.schedule, circuit.sum_layers, leaves)))
            for leaves in (circuit.values_at(self.batch.evidence.x), square_integrals(circuit))
        )
        return log_sum_of_squares(gram)[0, 0] - log_sum_of_squares(value).mean()

    def step(self, loss: Callable[[], Tensor]) -> None:
        self.optimiser.zero_grad()
        loss().backward()
        self.optimiser.step()

    @torch.no_grad()
    def marginal(self, pattern: str) -> Tensor:
        observed = PATTERNS[pattern](self.density.num_variables)
        return self.density.log_marginal(self.batch.evidence.x, observed)


def bare_products(circuit: Circuit) -> Callable[[], None]:
    """The matrix products of a step, on random numbers."""
    layers = []
    for layer in circuit.sum_layers:
        f, o, i = layer.weights().shape
        weight, values, slopes = (
            torch.randn(f, *shape) for shape in ((o, i), (NUM_ROWS, i), (NUM_ROWS, o))
        )
        wide, gram, slope = (
            torch.randn(f, *shape, dtype=torch.float64) for shape in ((o, i), (i, i), (o, o))
        )
        layers.append((weight, values, slopes, wide, gram, slope))

    def multiply() -> None:
        for weight, values, slopes, wide, gram, slope in layers:
            values @ weight.mT, slopes @ weight, slopes.mT @ values
            wide @ (gram @ wide.mT)
            mixed = slope @ wide
            wide.mT @ mixed, mixed @ gram

    return multiply


def measure(point: Point, budget: float) -> dict[str, float]:
    ours = Training(point)
    density, batch = ours.density, ours.batch.evidence
    functions: dict[str, Callable[[], object]] = {
        "forward": torch.no_grad()(lambda: density.log_weight(batch)),
        "Z": torch.no_grad()(density.log_normaliser),
        "step": lambda: ours.step(ours.loss),
        "signed": lambda: ours.step(ours.signed_loss),
        "bare": bare_products(density.circuit),
    }
    times = cpu_seconds(functions, budget) | wall_seconds({"wall": functions["step"]}, 0.0)
    return times | {"megabytes": peak_megabytes(functions["step"])}


def compiled_gain(point: Point, budget: float) -> float:
    """How many times faster a step is with a compiled objective."""
    ours = Training(point)
    compiled = torch.compile(ours.loss)
    ours.step(compiled)  # compiles, which takes long
    losses = {"plain": ours.loss, "compiled": compiled}
    times = cpu_seconds({k: partial(ours.step, loss) for k, loss in losses.items()}, budget)
    return times["plain"] / times["compiled"]


def measure_all(plan: Plan, peer: Peer | None) -> list[tuple[Point, dict[str, float]]]:
    peers = f"{'cirkit':>9}{'ratio':>7}{'wall':>9}{'MB':>8}{'ratio':>7}" if peer else ""
    print(
        f"{'tree':8}{'D':>3}{'K':>5}{'forward':>9}{'Z':>8}{'step':>8}{'wall':>9}{'MB':>7}"
        f"{'signed':>9}{'ratio':>7}{'bare':>8}{'ratio':>7}" + peers
    )
    rows = []
    for point in plan.points:
        row = measure(point, plan.budget)
        theirs = ask_peer(point, plan, peer) if peer else {}
        if peer:
            row = smaller(row, measure(point, plan.budget))
            theirs = smaller(theirs, ask_peer(point, plan, peer))
        text = (
            f"{point.tree:8}{point.num_variables:>3}{point.num_units:>5}"
            f"{1e3 * row['forward']:>9.2f}{1e3 * row['Z']:>8.2f}{1e3 * row['step']:>8.2f}"
            f"{1e3 * row['wall']:>9.2f}{row['megabytes']:>7.1f}"
            f"{1e3 * row['signed']:>9.1f}{row['signed'] / row['step']:>7.1f}"
            f"{1e3 * row['bare']:>8.2f}{row['step'] / row['bare']:>7.2f}"
        )
        if peer:
            row |= {f"cirkit {name}": value for name, value in theirs.items()}
            text += (
                f"{1e3 * theirs['step']:>9.1f}{theirs['step'] / row['step']:>7.1f}"
                f"{1e3 * theirs['wall']:>9.1f}{theirs['megabytes']:>8.1f}"
                f"{theirs['megabytes'] / row['megabytes']:>7.1f}"
            )
        print(text, flush=True)
        rows.append((point, row))
    return rows


def ask_peer(point: Point, plan: Plan, peer: Peer) -> dict[str, float]:
    nested, units = point.graph().to_nested(), point.num_units
    times = peer.ask("measure", nested, units, NUM_ROWS, plan.budget)
    return times | peer.ask("memory", nested, units, NUM_ROWS)


def smaller(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: min(one[name], other[name]) for name in one}


def measure_marginals(plan: Plan, peer: Peer) -> list[float]:
    """How many times faster a marginal over half of the variables is than libcirkit's."""
    ratios = []
    print("half of the variables integrated out; Z, which libcirkit leaves out, is remembered")
    for point in plan.marginals:
        ours = Training(point)
        ways = {pattern: partial(ours.marginal, pattern) for pattern in PATTERNS}
        missing = {
            name: (~pattern(point.num_variables)).nonzero()[:, 0].tolist()
            for name, pattern in PATTERNS.items()
        }
        question = (point.graph().to_nested(), point.num_units, NUM_ROWS, missing, plan.budget)
        times, theirs = cpu_seconds(ways, plan.budget), peer.ask("marginals", *question)
        times = smaller(times, cpu_seconds(ways, plan.budget))
        theirs = smaller(theirs, peer.ask("marginals", *question))
        for name, seconds in times.items():
            ratios.append(theirs[name] / seconds)
            print(
                f"{point.tree:8}{point.num_variables:>3}{point.num_units:>5}  {name:13}"
                f"{1e3 * seconds:>8.1f} ms, libcirkit {1e3 * theirs[name]:>6.0f} ms, "
                f"ratio {ratios[-1]:>5.0f}",
                flush=True,
            )
    return ratios


def print_targets(rows: list[tuple[Point, dict[str, float]]], marginals: list[float]) -> None:
    def verdict(name: str, value: float, target: float, *, at_least: bool) -> None:
        met = value >= target if at_least else value <= target
        sign = ">=" if at_least else "<="
        print(f"{name:58}{value:>8.2f}  {sign} {target:<5g} {'met' if met else 'NOT MET'}")

    if marginals:
        mean = geometric_mean(marginals)
        verdict("marginals, times faster, geometric mean", mean, 50, at_least=True)
        verdict("marginals, times faster, worst point", min(marginals), 50, at_least=True)
    if any("cirkit step" in row for _, row in rows):
        ratios = [row["cirkit step"] / row["step"] for _, row in rows]
        mean = geometric_mean(ratios)
        verdict("times faster than libcirkit, geometric mean", mean, 8, at_least=True)
        verdict("times faster than libcirkit, worst point", min(ratios), 5, at_least=True)
        memory = max(row["megabytes"] / row["cirkit megabytes"] for _, row in rows)
        verdict("peak memory as a share of libcirkit's, worst point", memory, 0.5, at_least=False)
    for units, target in ((256, 2.0), (128, 3.0), (64, 5.0)):
        bare = [row["step"] / row["bare"] for point, row in rows if point.num_units == units]
        if bare:
            name = f"times the bare products at K = {units}, worst point"
            verdict(name, max(bare), target, at_least=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few points, about a minute")
    parser.add_argument("--only", choices=("steps", "marginals"), help="leave the others out")
    parser.add_argument("--compile", action="store_true", help="try torch.compile, too")
    parser.add_argument("--cirkit-python", type=Path, default=PEER, metavar="PATH")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    start = time.perf_counter()
    torch.set_num_threads(1)
    peer = Peer(options.cirkit_python) if options.cirkit_python.exists() else None
    if peer is None:
        print(f"libcirkit is left out: there is no {options.cirkit_python} (make bench-training)")
    else:
        check_same_circuit(peer)
    print("milliseconds of CPU time on one thread; wall: milliseconds on all cores")
    rows = measure_all(plan, peer) if options.only != "marginals" else []
    marginals = measure_marginals(plan, peer) if peer and options.only != "steps" else []
    if options.compile:
        point = plan.points[1]
        print(f"torch.compile, {point}: {compiled_gain(point, plan.budget):.2f} times faster")
    print()
    print_targets(rows, marginals)
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)


if __name__ == "__main__":
    main()
