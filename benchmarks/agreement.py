"""Whether two checkouts give the same answers: random circuits of every kind, in float64.

    git worktree add /tmp/before COMMIT
    OMP_NUM_THREADS=1 python -m benchmarks.agreement /tmp/before

Each checkout answers in a process of its own: log_prob, Z, marginals, gradients, means,
covariances, probabilities of boxes, and samples drawn from the same seed. The largest relative
difference of each kind of answer is printed; beyond 1e-10 the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TOLERANCE = 1e-10
NUM_VARIABLES, NUM_ROWS = 6, 7
TREES = ("binary", "linear", "flat")
FAMILIES = ("gaussian", "categorical", "embedding", "binomial", "spline", "multivariate")
PRODUCTS = ("hadamard", "kronecker")
WEIGHTS = ("real", "complex", "positive")
OUTPUTS = (1, 2)


def make(tree: str, family: str, layer: str, weights: str, num_outputs: int) -> Any:  # noqa: ANN401
    """A density by names that both checkouts have, its weights of both signs."""
    import subtractive as sub

    variables: Any = NUM_VARIABLES
    if family == "multivariate":
        variables = [[0, 1], [2], [3, 4, 5]]
    trees = {"binary": sub.random_binary_tree, "linear": sub.linear_tree, "flat": sub.flat}
    families = {
        "gaussian": sub.Gaussian,
        "categorical": lambda: sub.Categorical(3),
        "embedding": lambda: sub.Embedding(3),
        "binomial": lambda: sub.Binomial(2),
        "spline": lambda: sub.Spline(6, domain=(-3.0, 3.0)),
        "multivariate": sub.MultivariateGaussian,
    }
    circuit = sub.Circuit(
        trees[tree](variables),
        families[family](),
        num_units=8 if layer == "hadamard" else 2,
        num_outputs=num_outputs,
        weights=getattr(sub, f"{weights}_weights"),
        product=sub.KroneckerLayer if layer == "kronecker" else sub.HadamardLayer,
        seed=0,
        dtype=torch.float64,
    )
    if weights != "positive":
        with torch.no_grad():
            for parameter in circuit.layers.parameters():
                parameter.sub_(0.3)
    if weights == "positive" and circuit.is_non_negative and num_outputs == 1:
        return sub.MonotonicCircuit(circuit)
    return sub.SquaredCircuit(circuit)


def answers(kind: tuple[str, str, str, str, int]) -> dict[str, Tensor]:
    """All answers about one kind of density."""
    density = make(*kind)
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_ROWS, NUM_VARIABLES, generator=numbers, dtype=torch.float64)
    x = (
        x.clamp(-2.9, 2.9)
        if kind[1] in ("gaussian", "spline", "multivariate")
        else x.abs().floor()
    )
    x = x if kind[1] in ("gaussian", "spline", "multivariate") else x.clamp(max=2)
    gaps = torch.rand(x.shape, generator=numbers) < 0.4
    half = torch.arange(NUM_VARIABLES) % 3 == 0  # no region of several variables as a whole
    log_prob = density.log_prob(x)
    log_prob.sum().backward()
    gradients = [p.grad.flatten() for p in density.parameters() if p.grad is not None]
    with torch.no_grad():
        found = {
            "log_prob": log_prob.detach(),
            "log_partition": density.log_partition()[None],
            "marginals of each row": density.log_marginal(torch.where(gaps, torch.nan, x)),
            "marginals of all rows": density.log_marginal(x, half),
            "conditionals": density.log_conditional(x, ~half, half),
            "gradients": torch.cat(gradients),
            "samples": density.sample(20, generator=torch.Generator().manual_seed(2)),
            "samples given": density.sample(
                given=torch.where(half, x, torch.nan), generator=torch.Generator().manual_seed(2)
            ),
        }
    found["mean"], found["covariance"] = density.mean().detach(), density.covariance()
    if kind[1] in ("gaussian", "spline"):
        found["boxes"] = density.probability({0: (-1.0, 1.0), 3: (None, 0.5)}).detach()[None]
    return found


def serve(path: str) -> None:
    """Answer everything and write it to a file."""
    kinds = product(TREES, FAMILIES, PRODUCTS, WEIGHTS, OUTPUTS)
    torch.save({kind: answers(kind) for kind in kinds}, path)


def compare(before: str) -> int:
    """Print the largest difference of each kind of answer."""
    files = []
    here = str(Path(__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory() as folder:
        for number, checkout in enumerate((before, here)):
            path = f"{folder}/{number}.pt"
            subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), "--serve", path],
                cwd=checkout,
                env={**os.environ, "PYTHONPATH": checkout},
                check=True,
            )
            files.append(torch.load(path))
    worst: dict[str, float] = {}
    for kind, old in files[0].items():
        for name, numbers in old.items():
            now = files[1][kind][name]
            size = numbers.abs().max().clamp(min=1.0)
            worst[name] = max(worst.get(name, 0.0), float((now - numbers).abs().max() / size))
    print(f"{len(files[0])} densities")
    for name, difference in worst.items():
        print(f"{name:24}{difference:.1e}")
    return int(max(worst.values()) > TOLERANCE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a checkout of the version to compare with")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.before)
    else:
        sys.exit(compare(options.before))
