"""Orthonormal weights, for which Z is one, against free ones: digits and Kronecker products."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import mean
from typing import Any, ClassVar, final

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

import subtractive as sub
from studies.digits.digits import NUM_STATES, bits_per_dimension, load, region_graph
from studies.grid.experiment import Place, Record, Run, Staged
from studies.grid.outputs import Page
from studies.models.evaluation import grouped, mean_and_deviation
from subtractive.plots.style import quiet

FREE, ORTHONORMAL = "free", "orthonormal"
# Learning rates, relative to the size of the weights, of which the validation images choose.
RATES: Mapping[str, tuple[float, ...]] = {
    FREE: (0.02, 0.006, 0.002),
    ORTHONORMAL: (0.1, 0.03, 0.01),
}


@final
@dataclass(frozen=True)
class Orthonormal(Staged):
    """Squares of one tree, size and start, in two parametrisations; how long to learn.

    With orthonormal rows in every matrix and every table of inputs, the functions of every region
    are orthonormal if products are Kronecker products, and Z = 1. Every circuit has such a form.
    """

    name: ClassVar[str] = "orthonormal"
    title: ClassVar[str] = "Orthonormal weights against free ones"

    structure: str = "quad-2"
    units: int = 8
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 100
    patience: int = 6
    batch_size: int = 256

    def runs(self) -> Sequence[Run]:
        return [
            {"weights": weights, "rate": rate, "seed": self.seeds[0]}
            for weights, rates in RATES.items()
            for rate in rates
        ]

    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        best = chosen(records, self.seeds[0])
        return [
            {"weights": weights, "rate": rate, "seed": seed}
            for seed in self.seeds[1:]
            for weights, rate in best.items()
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        digits, seed = load(), run["seed"]
        circuit = sub.Circuit(
            region_graph(self.structure, digits.train, seed),
            sub.Embedding(NUM_STATES),
            num_units=self.units,
            product=sub.KroneckerLayer,
            seed=seed,
        )
        density = sub.SquaredCircuit(circuit)
        sub.initialise(density, digits.train, seed=seed)
        orthonormalise(circuit)  # the same density, and the same start for both
        start, rows = time.process_time(), (digits.train, digits.valid)
        if run["weights"] == FREE:
            history = sub.fit(
                density,
                *rows,
                learning_rate=run["rate"],
                batch_size=self.batch_size,
                max_epochs=self.epochs,
                patience=self.patience,
                seed=seed,
                progress=False,
            )
            epochs = len(history.epochs)
        else:
            epochs = self._fit_orthonormal(density, rows, run)
        seconds = time.process_time() - start
        scores = {
            name: bits_per_dimension(density, part) for name, part in load()._asdict().items()
        }
        with torch.no_grad():
            log_z = float(density.log_partition())
        facts = {"parameters": circuit.num_parameters, "epochs": epochs, "cpu": seconds}
        return scores | facts | {"log_z": log_z}

    def _fit_orthonormal(
        self, density: sub.SquaredCircuit, rows: tuple[Tensor, Tensor], run: Run
    ) -> int:
        """Learn along orthonormal matrices, without Z; the best epoch stays. The epochs done."""
        train, valid = rows
        matrices = [*density.parameters()]
        groups = [{"params": [m], "lr": run["rate"] / m.shape[-1] ** 0.5} for m in matrices]
        optimizer = torch.optim.Adam(groups)
        scheduler = ReduceLROnPlateau(optimizer, "max", 0.5, self.patience // 2, threshold=0.0)
        generator = torch.Generator().manual_seed(run["seed"])
        best, best_epoch, state = -math.inf, 0, deepcopy(density.state_dict())
        epoch = 0
        while epoch < self.epochs and epoch - best_epoch < self.patience:
            epoch += 1
            for batch in torch.randperm(len(train), generator=generator).split(self.batch_size):
                optimizer.zero_grad()
                (-density.log_square(train[batch]).mean()).backward()
                project(matrices)
                optimizer.step()
                retract(matrices)
            with torch.no_grad():
                score = float(density.log_square(valid).mean())
            scheduler.step(score)
            if score > best:
                best, best_epoch, state = score, epoch, deepcopy(density.state_dict())
        density.load_state_dict(state)
        return epoch

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        best = chosen(records, self.seeds[0])
        kept = [r for r in records if best[r.run["weights"]] == r.run["rate"]]
        rows: list[list[Any]] = []
        for weights, group in grouped(kept, lambda run: run["weights"]).items():
            count = len(group)
            bits = [mean(r.result[name] for r in group) for name in ("train", "valid")]
            test, deviation = mean_and_deviation([r.result["test"] for r in group])
            epochs, cpu = (sum(r.result[name] for r in group) for name in ("epochs", "cpu"))
            times = [round(epochs / count, 1), round(cpu / count, 1), round(1000 * cpu / epochs)]
            scores = [round(number, 4) for number in (*bits, test)]
            error = None if deviation is None else round(deviation, 4)
            rows.append([weights, best[weights], count, *scores, error, *times])
        columns = ["weights", "rate", "seeds", "train", "valid", "test", "± test"]
        outputs.table(
            "scores",
            "Bits per pixel, lower is better, at the rate that the validation images of the first "
            "seed prefer; processor time of one training in seconds, and of an epoch in ms.",
            [*columns, "epochs", "CPU", "CPU per epoch"],
            rows,
        )
        outputs.table(
            "rates",
            "Bits per pixel of the validation images with the first seed.",
            ["weights", "rate", "valid"],
            [
                [r.run["weights"], r.run["rate"], round(r.result["valid"], 4)]
                for r in records
                if r.run["seed"] == self.seeds[0]
            ],
        )
        outputs.figure(
            "scores", "Bits per pixel of test images against processor time.", draw(kept)
        )


def draw(records: Sequence[Record]) -> Figure:
    """A point for each training: bits per pixel against processor time."""
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    for weights, group in grouped(records, lambda run: run["weights"]).items():
        seconds, bits = ([r.result[name] for r in group] for name in ("cpu", "test"))
        axes.plot(seconds, bits, "o", ms=4, label=weights)
    axes.set_xlabel("processor seconds of a training", fontsize=9)
    axes.set_ylabel("bits per pixel, test", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def chosen(records: Sequence[Record], seed: int) -> dict[str, float]:
    """The rate of each parametrisation that is best on the validation images of a seed."""
    first = [record for record in records if record.run["seed"] == seed]
    return {
        weights: min(group, key=lambda r: float(r.result["valid"])).run["rate"]
        for weights, group in grouped(first, lambda run: run["weights"]).items()
    }


@torch.no_grad()
def orthonormalise(circuit: sub.Circuit) -> None:
    """Make the functions of every region orthonormal, from the inputs to the root.

    A matrix is an orthonormal one behind a triangular one, which the parent takes over:
    W (R_a a ⊗ R_b b) = W (R_a ⊗ R_b) (a ⊗ b). The root has norm one afterwards, so that Z is one.
    """
    graph = circuit.graph
    triangles: dict[int, Tensor] = {}
    for number, region in enumerate(graph.regions):
        if not region.partitions:
            inputs, place = circuit.input_of(number)
            matrix = inputs.get_tensor("table")[place]
        else:
            sums, place = circuit.sum_of(number)
            (value,) = sums.weights.parameters()
            matrix = value[place]
            (partition,) = region.partitions
            for child in partition.children:
                assert child in triangles, "children come before their parents"
            first, *others = (triangles.pop(child) for child in partition.children)
            for other in others:
                first = torch.kron(first, other)
            matrix.copy_(matrix @ first)
        basis, triangle = signed_qr(matrix)
        matrix.copy_(basis)
        triangles[number] = triangle[0]


def signed_qr(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices (..., o, i) as R Q: Q (..., o, i) with orthonormal rows, and R (..., o, o)."""
    basis, triangle = torch.linalg.qr(matrix.mT)
    sign = triangle.diagonal(dim1=-2, dim2=-1).sign()
    sign = torch.where(sign == 0, torch.ones_like(sign), sign)
    return basis.mT * sign[..., None], triangle.mT * sign[..., None, :]


@torch.no_grad()
def project(matrices: Sequence[Tensor]) -> None:
    """Take from gradients what would leave the orthonormal matrices: G - sym(G Wᵀ) W."""
    for matrix in matrices:
        assert matrix.grad is not None
        inner = matrix.grad @ matrix.mT
        matrix.grad -= (inner + inner.mT) / 2 @ matrix


@torch.no_grad()
def retract(matrices: Sequence[Tensor]) -> None:
    """Back to orthonormal rows."""
    for matrix in matrices:
        matrix.copy_(signed_qr(matrix)[0])


FULL = Orthonormal()
QUICK = Orthonormal(units=2, seeds=(0,), epochs=2)
