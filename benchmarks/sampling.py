"""What exact samples cost: as variables and units double, and against the naive algorithm.

    python benchmarks/sampling.py            # some minutes
    python benchmarks/sampling.py --quick    # under a minute: fewer samples and sizes

Times are CPU times of one thread. The naive algorithm draws one variable after the other and
evaluates a marginal of the whole circuit for every state it might take, or for every step of the
search for a quantile, of which it is given as many as our sampler needs on average.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import subtractive as sub
from subtractive.circuits.evaluation import evaluate
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import labels, square_leaf
from subtractive.inputs import signed_mixture
from subtractive.inputs.base import InputFamily, Window
from subtractive.numerics.inversion import invert
from subtractive.numerics.messages import LeafMessage, log_sum_of_squares
from subtractive.regions.folding import LeafCall

TREES: dict[str, Callable[[int], sub.RegionGraph]] = {
    "linear": sub.linear_tree,
    "binary": sub.random_binary_tree,
}
NUM_STATES = 8
FAMILIES: dict[str, InputFamily] = {
    "Gaussian": sub.Gaussian(),
    "Categorical": sub.Categorical(NUM_STATES),
}
TARGETS = {("linear", "D"): 1.2, ("linear", "K"): 2.2, ("binary", "D"): 1.2, ("binary", "K"): 3.2}
LEAST_RATIO = 20.0


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    num_samples: int
    num_naive: int  # rows that the naive algorithm evaluates together
    num_repeats: int


FULL = Plan((8, 16, 32, 64), num_samples=2048, num_naive=256, num_repeats=3)
QUICK = Plan((8, 16, 32), num_samples=1024, num_naive=128, num_repeats=2)


def build(tree: str, family: str, num_variables: int, num_units: int) -> sub.SquaredCircuit:
    return sub.SquaredCircuit(
        sub.Circuit(
            TREES[tree](num_variables),
            FAMILIES[family],
            num_units=num_units,
            initialise=sub.init.normal(),
            seed=0,
            dtype=torch.float64,
        )
    )


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def times(models: list[sub.SquaredCircuit], plan: Plan) -> list[float]:
    """CPU seconds per sample of each model: the best of a few rounds over all of them."""
    best = [math.inf] * len(models)
    for _ in range(plan.num_repeats):
        for k, model in enumerate(models):
            taken = seconds(partial(model.sample, plan.num_samples))
            best[k] = min(best[k], taken / plan.num_samples)
    return best


def print_growth(plan: Plan) -> None:
    shown = "".join(f"{size:>9}" for size in plan.sizes)
    print(f"{'tree':8}{'inputs':13}{'':4}{shown}  exponent  target")
    for (tree, axis), target in TARGETS.items():
        for family in FAMILIES:
            models = [
                build(tree, family, size, 16) if axis == "D" else build(tree, family, 16, size)
                for size in plan.sizes
            ]
            taken = times(models, plan)
            exponent = float(np.polyfit(np.log(plan.sizes), np.log(taken), 1)[0])
            cells = "".join(f"{1e6 * t:>9.1f}" for t in taken)
            verdict = "ok" if exponent <= target else "over"
            print(
                f"{tree:8}{family:13}{axis:4}{cells}{exponent:>10.2f}{target:>8.1f}  {verdict}",
                flush=True,
            )


def print_ratios(plan: Plan) -> None:
    print(f"{'tree':8}{'inputs':13}{'ours':>9}{'naive':>12}{'steps':>7}{'ratio':>8}  target")
    for tree in TREES:
        for family in FAMILIES:
            model = build(tree, family, 32, 32)
            with counted_steps() as count:
                ours = times([model], plan)[0]
            draw: Callable[[sub.SquaredCircuit, int, int], Tensor]
            if family == "Gaussian":
                steps, draw, num_naive = count.per_value, naive_gaussian, plan.num_naive
            else:
                steps, draw, num_naive = NUM_STATES, naive_states, plan.num_naive // NUM_STATES
            naive = seconds(partial(draw, model, num_naive, round(steps))) / num_naive
            ratio = naive / ours
            verdict = "ok" if ratio >= LEAST_RATIO else "under"
            print(
                f"{tree:8}{family:13}{1e6 * ours:>9.1f}{1e6 * naive:>12.1f}{steps:>7.1f}"
                f"{ratio:>8.1f}{LEAST_RATIO:>8.0f}  {verdict}",
                flush=True,
            )


@torch.no_grad()
def naive_states(model: sub.SquaredCircuit, num_samples: int, num_states: int) -> Tensor:
    """Each variable in turn: log-marginals of all of its states, then a draw from them."""
    d = model.num_variables
    x = torch.zeros(num_samples, d, dtype=torch.float64)
    states = torch.arange(num_states, dtype=torch.float64)
    for variable in range(d):
        rows = x.repeat_interleave(num_states, 0)
        rows[:, variable] = states.repeat(num_samples)
        known = (torch.arange(d) <= variable).expand_as(rows)
        scores = model.log_weight(Evidence(rows, known))
        chances = scores.reshape(num_samples, num_states).softmax(1)
        x[:, variable] = torch.multinomial(chances, 1)[:, 0]
    return x


@torch.no_grad()
def naive_gaussian(model: sub.SquaredCircuit, num_samples: int, num_steps: int) -> Tensor:
    """Each variable in turn: bisection on its distribution function given those before it."""
    d = model.num_variables
    x = torch.zeros(num_samples, d, dtype=torch.float64)
    for variable in range(d):
        uniform = torch.rand(num_samples, dtype=torch.float64).log()
        lower, upper = torch.full_like(uniform, -8.0), torch.full_like(uniform, 8.0)
        total = log_below(model, x, variable, upper)
        for _ in range(num_steps - 1):
            middle = 0.5 * (lower + upper)
            below = log_below(model, x, variable, middle) - total < uniform
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        x[:, variable] = 0.5 * (lower + upper)
    return x


def log_below(model: sub.SquaredCircuit, x: Tensor, variable: int, bound: Tensor) -> Tensor:
    """log p(x_1, ..., x_{k-1}, x_k <= bound), (n,), later variables integrated out once."""
    circuit = model.circuit
    observed = torch.arange(model.num_variables) < variable
    evidence = Evidence(x, observed.expand_as(x))
    marks = labels(circuit, evidence)
    here = next(
        r for r in circuit.graph.input_regions if variable in circuit.graph.regions[r].scope
    )
    marks[here] = "cut"

    def leaf(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        layer = circuit.input_layers[call.layer]
        if call.label == "cut":
            return layer.gram(call.folds, Window(upper=bound[None]))
        return square_leaf(layer, call, evidence)

    return log_sum_of_squares(evaluate(circuit.refold(marks), circuit.sum_layers, leaf))[0]


Function = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass
class Count:
    values: int = 0
    evaluations: int = 0

    @property
    def per_value(self) -> float:
        return self.evaluations / max(1, self.values)


@contextmanager
def counted_steps() -> Iterator[Count]:
    """Count how often our sampler evaluates a distribution function for each value it draws."""
    count = Count()

    def counting(function: Function, target: Tensor, *bracket: Tensor) -> Tensor:
        def counted(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            count.evaluations += len(rows)
            return function(points, rows)

        count.values += len(target)
        return invert(counted, target, *bracket)

    with mock.patch.object(signed_mixture, "invert", counting):
        yield count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples and smaller sizes")
    plan = QUICK if parser.parse_args().quick else FULL
    torch.set_num_threads(1)
    print(
        f"microseconds per sample, {plan.num_samples} at a time; K = 16 beside D, D = 16 beside K"
    )
    print_growth(plan)
    print("\nmicroseconds per sample at D = 32, K = 32")
    print_ratios(plan)


if __name__ == "__main__":
    main()
