"""How likely the defaults find test rows, of continuous and of binary sets, beside mixtures.

    python -m benchmarks.defaults power miniboone kin40k protein pumadyn32nm --mixtures --flows
    python -m benchmarks.defaults nltcs plants dna --trees --seeds 0 1 2

SubtractiveMixture() learns from the rows for training and for validation, of which it holds out a
tenth itself; columns of continuous sets are standardised by the training rows. Gaussian mixtures
are scikit-learn's: full or diagonal, with 4, 16 or 64 components, by validation. Flows are neural
spline flows of zuko, narrow and wide, each with as much time as our defaults took, the better one
by validation. Trees are Chow-Liu trees of binary columns, without hidden variables, their counts
smoothed by the pseudocount that validation rows prefer. Seconds are of processor time. Every
run is added to benchmarks/records/defaults.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.sparse.csgraph import minimum_spanning_tree

import subtractive as sub
from benchmarks.continuous_sets import DATA, gmm, load
from benchmarks.recording import Record, keep
from studies.data.binary import SETS, load_binary
from studies.data.splits import Splits
from studies.models.baselines import NSF, fit_flow
from studies.models.training import Schedule

RECORDS = Path(__file__).parent / "records" / "defaults.json"
SAME = ("set", "model", "seed")
FLOW = Schedule(epochs=1, batch_size=256, learning_rate=1e-3)
WIDTHS = ((64, 64), (256, 256, 256))


def rows_of(name: str, folder: Path, num_patches: int) -> Splits:
    """The parts of a set."""
    return load_binary(name, str(folder)) if name in SETS else load(name, folder, num_patches)


def table_of(rows: torch.Tensor) -> Any:  # noqa: ANN401
    """Zeros and ones as a data frame, whose columns have types; numbers as an array."""
    if rows.dtype == torch.int64:
        return pd.DataFrame(rows.numpy(), columns=[f"x{k}" for k in range(rows.shape[1])])
    return rows.double().numpy()


def levels_of(table: Any) -> dict[str, sub.tables.Categories] | None:  # noqa: ANN401
    """That binary columns have two values, of which some are never 1 in training."""
    is_binary = isinstance(table, pd.DataFrame)
    return {name: sub.tables.Categories((0, 1)) for name in table} if is_binary else None


def words(density: sub.Density) -> str:
    """What the defaults have chosen."""
    members = list(density.members) if isinstance(density, sub.Mixture) else [density]
    kinds = Counter(
        "square" if isinstance(member, sub.SquaredCircuit) else "sum" for member in members
    )
    families = {type(family).__name__ for member in members for family in member.families}
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    return f"{counts} of {', '.join(sorted(families))}"


def ours(name: str, rows: Splits, effort: str, seed: int) -> Record:
    """SubtractiveMixture with an effort."""
    together = table_of(torch.cat([rows.train, rows.valid]))
    start = time.process_time()
    model = sub.SubtractiveMixture(
        effort=effort, random_state=seed, schema=levels_of(together)
    ).fit(together)
    seconds = time.process_time() - start
    return {
        "set": name,
        "model": effort,
        "seed": seed,
        "log-likelihood": round(model.score(table_of(rows.test)), 4),
        "validation": round(model.history_.best_score, 4),
        "cpu seconds": round(seconds, 1),
        "parameters": sum(p.numel() for p in model.density_.parameters()),
        "chosen": words(model.density_),
        "squares against sums": model.history_.squares_against_sums,
    }


def mixtures(name: str, rows: Splits) -> Record:
    """The best Gaussian mixture by validation, and the time of them all."""
    found = [gmm(rows, covariance) for covariance in ("full", "diag")]
    best = max(found, key=lambda result: result.valid)
    return {
        "set": name,
        "model": "Gaussian mixture",
        "seed": 0,
        "log-likelihood": round(best.test, 4),
        "validation": round(best.valid, 4),
        "cpu seconds": round(sum(result.seconds for result in found), 1),
        "chosen": best.note,
    }


def flow(name: str, rows: Splits, seconds: float, seed: int) -> Record:
    """The better of two neural spline flows by validation, each trained for so many seconds."""
    found = []
    for hidden in WIDTHS:
        one = replace(FLOW, epochs=1)
        start = time.process_time()
        fit_flow(NSF, rows, one, hidden=hidden, seed=seed)
        epochs = max(1, int(seconds / (time.process_time() - start)))
        start = time.process_time()
        facts = fit_flow(NSF, rows, replace(FLOW, epochs=epochs), hidden=hidden, seed=seed)
        found.append((facts, hidden, time.process_time() - start))
    facts, hidden, used = max(found, key=lambda item: item[0]["valid"])
    return {
        "set": name,
        "model": "neural spline flow",
        "seed": seed,
        "log-likelihood": round(facts["test"], 4),
        "validation": round(facts["valid"], 4),
        "cpu seconds": round(used, 1),
        "parameters": facts["parameters"],
        "chosen": f"{len(hidden)} x {hidden[0]} hidden, best of {facts['epochs']} epochs",
    }


class ChowLiuTree(NamedTuple):
    """p(x) = Π_v p(x_v) Π_edges p(x_i, x_j) / (p(x_i) p(x_j)), of zeros and ones."""

    log_single: torch.Tensor  # (d, 2)
    log_lift: torch.Tensor  # (e, 2, 2): of each edge
    edges: torch.Tensor  # (e, 2)

    @classmethod
    def of(cls, x: torch.Tensor, pseudocount: float) -> ChowLiuTree:
        """From rows (n, d), and so many more of each pair of values of two columns."""
        values = torch.stack([1 - x, x]).double()  # (2, n, d)
        counts = torch.einsum("and,bne->deab", values, values) + pseudocount
        joint = counts / counts[0, 0].sum()
        single = (values.sum(1).mT + 2 * pseudocount) / (len(x) + 4 * pseudocount)
        lift = (joint / (single[:, None, :, None] * single[None, :, None, :])).log()
        information = (joint * lift).sum((2, 3))
        tree = minimum_spanning_tree(-information.fill_diagonal_(0).numpy())
        edges = torch.from_numpy(np.stack(tree.nonzero(), 1)).long()
        return cls(single.log(), lift[edges[:, 0], edges[:, 1]], edges)

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        """log p of rows, (n,)."""
        columns, edges = torch.arange(x.shape[1]), torch.arange(len(self.edges))
        first, second = x[:, self.edges[:, 0]], x[:, self.edges[:, 1]]
        lifts = self.log_lift[edges, first, second]
        return self.log_single[columns, x].sum(1) + lifts.sum(1)


def chow_liu(name: str, rows: Splits) -> Record:
    """The tree that validation rows prefer."""
    start = time.process_time()
    trees = {count: ChowLiuTree.of(rows.train, count) for count in (0.01, 0.1, 1.0)}
    best = max(trees, key=lambda count: float(trees[count].log_prob(rows.valid).mean()))
    return {
        "set": name,
        "model": "Chow-Liu tree",
        "seed": 0,
        "log-likelihood": round(float(trees[best].log_prob(rows.test).mean()), 4),
        "validation": round(float(trees[best].log_prob(rows.valid).mean()), 4),
        "cpu seconds": round(time.process_time() - start, 1),
        "parameters": 2 * rows.train.shape[1] - 1,
        "chosen": f"pseudocount {best}",
    }


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", help=f"continuous sets, or of {', '.join(SETS)}")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--efforts", nargs="*", default=["balanced"])
    parser.add_argument("--mixtures", action="store_true", help="Gaussian mixtures, too")
    parser.add_argument("--flows", action="store_true", help="neural spline flows, too")
    parser.add_argument("--trees", action="store_true", help="Chow-Liu trees of binary sets, too")
    parser.add_argument("--patches", type=int, default=20_000, help="of bsds300 to train on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.sets:
        rows = rows_of(name, options.data, options.patches)
        runs = [(effort, seed) for effort in options.efforts for seed in options.seeds]
        for effort, seed in runs:
            record = ours(name, rows, effort, seed)
            print(json.dumps(record), flush=True)
            keep(RECORDS, [record], SAME)
            if options.flows and effort == "balanced":
                rival = flow(name, rows, record["cpu seconds"], seed)
                print(json.dumps(rival), flush=True)
                keep(RECORDS, [rival], SAME)
        if options.trees and name in SETS:
            record = chow_liu(name, rows)
            print(json.dumps(record), flush=True)
            keep(RECORDS, [record], SAME)
        if options.mixtures:
            record = mixtures(name, rows)
            print(json.dumps(record), flush=True)
            keep(RECORDS, [record], SAME)


if __name__ == "__main__":
    main()
