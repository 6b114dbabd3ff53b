"""How well squared circuits fit real data: next to additive ones of their size, and to GMMs.

    python -m benchmarks.quality                          # all sets, five seeds: half an hour
    python -m benchmarks.quality --quick                  # one seed, fewer epochs: minutes
    python -m benchmarks.quality --sets power --seeds 9

Mean test log-likelihoods in nats; columns are standardised by the training rows. NPC² and MPC have
the same region graph, number of units and start from data, and are trained alike; over trees they
have as many parameters, after EM the root of NPC² has more weights. Validation chooses the epoch,
and after EM for each of the two its learning rate, by the first seed. GMMs are
scikit-learn's, with 4, 16 or 64 components by validation. Times are seconds of one thread: for
circuits those of one seed, for GMMs those of all three sizes.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

import subtractive as sub
from studies.data.real import load_real
from studies.data.splits import Array, Splits, as_splits, standardised
from studies.models.training import Schedule, train

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES = (4, 16, 64)


@dataclass(frozen=True)
class Plan:
    """What is trained on a set, and how long."""

    build: Callable[[str, Splits, Plan, int], sub.Density]
    num_units: int
    num_epochs: int
    num_outputs: int = 4
    batch_size: int = 256
    rates: tuple[float, ...] = (0.03,)


@dataclass(frozen=True)
class Result:
    valid: float
    test: float
    seconds: float
    note: str = ""


def deep(kind: str, rows: Splits, plan: Plan, seed: int) -> sub.Density:
    """A circuit over a random binary tree, started from the columns."""
    circuit = sub.Circuit(
        sub.random_binary_tree(rows.train.shape[1], seed=seed),
        sub.Gaussian(),
        num_units=plan.num_units,
        num_outputs=plan.num_outputs,
        weights=sub.real_weights if kind == "NPC²" else sub.positive_weights,
        seed=seed,
    )
    density = sub.SquaredCircuit(circuit) if kind == "NPC²" else sub.MonotonicCircuit(circuit)
    sub.initialise(density, rows.train, seed=seed)
    return density


def from_em(kind: str, rows: Splits, plan: Plan, seed: int) -> sub.Density:
    """A flat circuit of full covariances, started from EM."""
    components = sub.learning.fit_gaussian_mixture(
        rows.train, plan.num_units, num_restarts=3, seed=seed
    )
    if kind == "NPC²":
        return sub.reductions.squared_gaussian_mixture(*components)
    return sub.reductions.monotonic_gaussian_mixture(*components)


PLANS = {
    "rings": Plan(deep, num_units=16, num_epochs=30),
    "cosine": Plan(deep, num_units=16, num_epochs=30),
    "funnel": Plan(deep, num_units=16, num_epochs=30),
    "banana": Plan(deep, num_units=16, num_epochs=30),
    "power": Plan(deep, num_units=32, num_epochs=25, batch_size=512),
    "miniboone": Plan(from_em, num_units=4, num_epochs=40, rates=(0.01, 0.03)),
    "protein": Plan(from_em, num_units=16, num_epochs=10, batch_size=512, rates=(0.01, 0.03)),
}
# Sets that come in the scale of rows which are not here.
SCALED_ELSEWHERE = {"power": "power-subset", "miniboone": "miniboone-valid"}
# Sets of the estimator, next to those above: patches of natural images are many and wide.
IMAGES = "bsds300"
OTHERS = {
    "kin40k": Plan(deep, num_units=32, num_epochs=25, batch_size=512),
    "pumadyn32nm": Plan(deep, num_units=32, num_epochs=40),
}


def load(name: str, folder: Path, num_patches: int) -> Splits:
    synthetic = folder / "synthetic2d" / f"{name}_continuous.npz"
    if synthetic.exists():
        with np.load(synthetic) as file:
            return scaled((file["train"], file["valid"], file["test"]), name)
    if name == IMAGES:
        return patches(folder / "bsds300" / "bsds300_quarter_u8.npz", num_patches)
    if name in SCALED_ELSEWHERE:
        found = load_real(SCALED_ELSEWHERE[name], str(folder))
        first, second, third = (part.numpy() for part in found.rows)
        return scaled((first, second, third), found.note)
    return load_real(name, str(folder))


def scaled(parts: tuple[Array, Array, Array], note: str) -> Splits:
    """Rows in units of the training rows."""
    return as_splits(standardised(parts, by=parts[0]), note)


def patches(path: Path, num_train: int) -> Splits:
    """Image patches with noise of one grey level, less their mean and their last pixel.

    Not standardised: all pixels have the same unit, and published numbers are in it.
    """
    noise = np.random.default_rng(0)
    parts = []
    with np.load(path) as file:
        # Validation is a tenth of what there is for learning, as in the other sets.
        for name, most in (("train", num_train), ("valid", num_train // 9), ("test", 50_000)):
            pixels = file[name][:most]
            grey = (pixels + noise.random(pixels.shape)) / 256
            parts.append((grey - grey.mean(1, keepdims=True))[:, :-1])
    return as_splits((parts[0], parts[1], parts[2]), IMAGES)


def tell(what: str, seed: int, result: Result) -> None:
    """Say on stderr how a long run goes."""
    said = f"{result.test:.3f} on test, {result.seconds:.0f} s, {result.note}"
    print(f"{what}, seed {seed}: {said}", file=sys.stderr, flush=True)


def score(density: sub.Density, rows: Tensor) -> float:
    with torch.no_grad():
        return float(density.log_prob(rows).mean())


def trained(kind: str, rows: Splits, plan: Plan, rate: float, seed: int) -> Result:
    begin = time.process_time()
    density = plan.build(kind, rows, plan, seed)
    schedule = Schedule(plan.num_epochs, rate, plan.batch_size)
    train(density, (rows.train, rows.valid), schedule, seed=seed)
    seconds = time.process_time() - begin
    return Result(score(density, rows.valid), score(density, rows.test), seconds)


def several_seeds(kind: str, rows: Splits, plan: Plan, num_seeds: int) -> list[Result]:
    """One result per seed, all at the rate that is best on validation for the first seed."""
    first = {rate: trained(kind, rows, plan, rate, 0) for rate in plan.rates}
    rate = max(first, key=lambda rate: first[rate].valid)
    others = [trained(kind, rows, plan, rate, seed) for seed in range(1, num_seeds)]
    results = [first[rate], *others]
    return [Result(r.valid, r.test, r.seconds, f"rate {rate:g}") for r in results]


def gmm(rows: Splits, covariance: str, num_seeds: int) -> list[Result]:
    """The best size by validation, for each of several seeds."""
    parts = [part.double().numpy() for part in (rows.train, rows.valid, rows.test)]
    results = []
    for seed in range(num_seeds):
        begin = time.process_time()
        fitted = [
            GaussianMixture(size, covariance_type=covariance, random_state=seed).fit(parts[0])
            for size in SIZES
        ]
        best = max(fitted, key=lambda mixture: mixture.score(parts[1]))
        seconds = time.process_time() - begin
        scores = [best.score(part) for part in parts[1:]]
        results.append(Result(*scores, seconds, f"{best.n_components} comp."))
        tell(f"{covariance} mixture", seed, results[-1])
    return results


def cell(results: list[Result]) -> str:
    tests = [result.test for result in results]
    spread = f" ({min(tests):.3f} .. {max(tests):.3f})" if len(tests) > 1 else ""
    seconds = median(result.seconds for result in results)
    note = f", {results[0].note}" if results[0].note else ""
    return f"{median(tests):.3f}{spread}, {seconds:.1f} s{note}"


def line(name: str, plan: Plan, rows: Splits, num_seeds: int) -> str:
    squared = several_seeds("NPC²", rows, plan, num_seeds)
    additive = several_seeds("MPC", rows, plan, num_seeds)
    full, diagonal = gmm(rows, "full", 1), gmm(rows, "diag", 1)
    gain = median(r.test for r in squared) - median(r.test for r in additive)
    shape = f"{plan.build.__name__.replace('_', ' ')}, K = {plan.num_units}"
    if plan.build is deep:
        shape += f", S = {plan.num_outputs}"
    cells = [name, shape, *map(cell, (squared, additive)), f"{gain:+.3f}"]
    return f"| {' | '.join([*cells, *map(cell, (full, diagonal))])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets")
    every = [*PLANS, *OTHERS, IMAGES]
    parser.add_argument("--sets", nargs="*", default=list(PLANS), choices=every)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--patches", type=int, default=50_000, help="of bsds300 to train on (50000)"
    )
    parser.add_argument("--quick", action="store_true", help="one seed and a fifth of the epochs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| set | circuit | NPC² | MPC | gain | GMM full | GMM diagonal |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.sets:
        plan = (PLANS | OTHERS)[name]
        if options.quick:
            plan = replace(plan, num_epochs=plan.num_epochs // 5, rates=plan.rates[-1:])
        num_seeds = 1 if options.quick else options.seeds
        print(line(name, plan, load(name, options.data, options.patches), num_seeds), flush=True)


if __name__ == "__main__":
    main()
