"""Checks 15 to 18: training that stays finite, counts rows rightly, and can be repeated."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.models import kind, squared
from scorecard.processes import environment, run_program
from scorecard.tables import nasty_table, random_table, small


@check(
    15,
    "finite training: 50 nasty tables × 5 seeds, outliers of 1e6",
    "0 models that are not finite",
)
def finite_training(size: Size) -> Outcome:
    """Fit tables with the faults of real ones; every number of a model must be finite."""
    wrong, fits = 0, 0
    for number in range(size.of(50, 4)):
        table = nasty_table(number)
        for seed in range(size.of(5, 1)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = small(max_epochs=3, random_state=seed).fit(table)
                finite = all(t.isfinite().all() for t in model.density_.state_dict().values())
                finite &= bool(np.isfinite(model.score_samples(table)).all())
                drawn = model.sample(5, random_state=seed)
                finite &= not drawn.drop(columns=list(model.schema_.aside)).isna().any().any()
            fits += 1
            wrong += not finite
    return Outcome(f"{wrong} of {fits} models", wrong == 0)


@check(
    16,
    "row weights: weight 2 = the row twice, 20 random tables; first-step gradients and whole fits",
    "≤ 1e-12",
)
def row_weights(size: Size) -> Outcome:
    """Compare gradients of the first step, and scores of fitted estimators."""
    errors = []
    for number in range(size.of(20, 2)):
        random = np.random.default_rng(number)
        weights = random.integers(1, 4, 60)
        x = torch.from_numpy(random.normal(size=(60, 3)))
        gradients = [
            _first_step(number, x, torch.from_numpy(weights)),
            _first_step(number, x.repeat_interleave(torch.from_numpy(weights), 0), None),
        ]
        scale = max(float(g.abs().max()) for g in gradients[0])
        pairs = zip(*gradients, strict=True)
        errors.append(max(float((a - b).abs().max()) / scale for a, b in pairs))
        table = random_table(number, 60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = small().fit(table, sample_weight=weights)
            other = small().fit(table.loc[table.index.repeat(weights)])
            errors.append(
                float(np.abs(one.score_samples(table) - other.score_samples(table)).max())
            )
    return Outcome(
        f"{max(errors):.1e} at worst of {len(errors)} comparisons", max(errors) <= 1e-12
    )


def _first_step(number: int, x: torch.Tensor, weights: torch.Tensor | None) -> list[torch.Tensor]:
    """What one step of gradient descent changes, which is the gradient."""
    graph, layer, signs, outputs = kind(number, 3, seed=16)
    p = squared(graph, sub.Gaussian(), layer=layer, weights=signs, outputs=outputs)
    before, after = _parameters(p), []

    def keep(density: sub.Density, history: object) -> bool:
        after.extend(_parameters(density))
        return True

    sub.fit(
        p,
        x,
        weights=weights,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        batch_size=len(x),
        max_epochs=1,
        callbacks=[keep],
        progress=False,
    )
    return [new - old for new, old in zip(after, before, strict=True)]


def _parameters(p: sub.Density) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in p.parameters()]


FIT_AND_SAMPLE = """
import hashlib, sys
import numpy as np, pandas as pd, subtractive as sub
random = np.random.default_rng(3)
table = pd.DataFrame({"a": random.normal(size=400), "b": random.choice(["x", "y"], 400)})
table["c"] = table["a"] ** 2 + random.normal(size=400)
model = sub.SubtractiveMixture(max_epochs=int(sys.argv[1]), random_state=5).fit(table)
digest = hashlib.sha256()
for name, tensor in sorted(model.density_.state_dict().items()):
    digest.update(name.encode() + tensor.numpy().tobytes())
digest.update(model.sample(50, random_state=1).to_csv().encode())
digest.update(model.score_samples(table).tobytes())
print(digest.hexdigest())
"""


@check(17, "same seed: fit, sample and score in fresh interpreters", "bit-identical")
def same_seed(size: Size) -> Outcome:
    """Run one program several times and compare digests of everything that it made."""
    digests = [run_program(FIT_AND_SAMPLE, str(size.of(10, 1))) for _ in range(size.of(3, 2))]
    same = len(set(digests)) == 1
    return Outcome(f"{len(digests)} processes, {len(set(digests))} result", same)


TRAIN_TOGETHER = """
import os, sys, torch, subtractive as sub
from subtractive.learning.checkpoint import save_state
torch.set_num_threads(1)
x = torch.randn(45, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
circuit = sub.Circuit(sub.random_binary_tree(3, seed=0), sub.Gaussian(), num_units=4,
                      num_outputs=2, seed=0, dtype=torch.float64)
p = sub.SquaredCircuit(circuit)
steps = []
sub.fit(p, x, batch_size=11, max_epochs=1, progress=False,
        optimizer=lambda q: torch.optim.SGD(q, lr=0.01),
        callbacks=[lambda d, h: steps.append({k: v.clone() for k, v in d.state_dict().items()})])
if os.environ.get("RANK", "0") == "0":
    save_state(sys.argv[1], steps[0])
"""


@check(18, "several processes = one: 2 and 4 gloo ranks, an uneven last batch", "relative ≤ 1e-12")
def several_processes(size: Size) -> Outcome:
    """Compare weights after one epoch of gradient descent with those of a single process."""
    from subtractive.learning.checkpoint import load_state

    with tempfile.TemporaryDirectory() as folder:
        run_program(TRAIN_TOGETHER, f"{folder}/1")
        expected = load_state(f"{folder}/1")
        errors = []
        for count in (2,) if size.quick else (2, 4):
            script = Path(folder) / "train.py"
            script.write_text(TRAIN_TOGETHER)
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            subprocess.run(
                [*launcher, "--nproc-per-node", str(count), script, f"{folder}/{count}"],
                env=environment(GLOO_SOCKET_IFNAME="lo"),
                check=True,
                capture_output=True,
                timeout=300,
            )
            found = load_state(f"{folder}/{count}")
            errors += [
                float(((found[k] - v).abs() / v.abs().clamp(min=1e-3)).max())
                for k, v in expected.items()
                if v.is_floating_point()
            ]
    return Outcome(f"{max(errors):.1e} at worst", max(errors) <= 1e-12)
