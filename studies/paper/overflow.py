"""Z of squared circuits with and without stable arithmetic (paper: App. D, overflow of Z)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from subtractive.circuits.evaluation import leaves_of, reference
from subtractive.inference.partition import log_square_partition, square_integrals
from subtractive.init import Initialiser
from subtractive.numerics.messages import LeafMessage, log_sum_of_squares, to_scaled
from subtractive.plots.style import MODEL, OTHER, quiet
from subtractive.regions.folding import divide_leaves, root_of, traverse

WEIGHTS: dict[str, Callable[[], Initialiser]] = {
    "uniform": sub.init.uniform,
    "dirichlet": sub.init.dirichlet,
}
PLAIN = {"plain 32 bit": torch.float32, "plain 64 bit": torch.float64}
SCALED, SIGNED = "scaled", "signed log"
LOG_10 = math.log(10)


@final
@dataclass(frozen=True)
class Overflow(Experiment):
    """Random squared circuits over balanced trees, Gaussian inputs; two ways to draw weights.

    Weights uniform in (0, 1), as the paper starts them, make Z large; rows of weights that sum
    to one make it small.
    """

    name: ClassVar[str] = "overflow"
    title: ClassVar[str] = "Z overflows and underflows without stable arithmetic"

    variables: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    weights: tuple[str, ...] = ("uniform", "dirichlet")
    num_units: int = 16
    seeds: tuple[int, ...] = (0, 1, 2)

    def runs(self) -> Sequence[Run]:
        return [
            {"weights": weights, "variables": variables, "seed": seed}
            for weights in self.weights
            for variables in self.variables
            for seed in self.seeds
        ]

    @torch.no_grad()
    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        circuit = sub.Circuit(
            sub.random_binary_tree(run["variables"], seed=run["seed"]),
            sub.Gaussian(),
            num_units=self.num_units,
            initialise=WEIGHTS[run["weights"]](),
            seed=run["seed"],
        )
        layers, leaves = circuit.sum_layers, square_integrals(circuit)
        signed = to_scaled(LeafMessage(*reference(circuit.schedule, layers, leaves)))
        found = {
            SCALED: float(log_square_partition(circuit)),
            SIGNED: float(log_sum_of_squares(signed)[0, 0]),
        }
        plain = {name: float(plain_partition(circuit, dtype)) for name, dtype in PLAIN.items()}
        return {
            **{name: value / LOG_10 for name, value in found.items()},
            **{name: _log_or_none(value) for name, value in plain.items()},
            "outcomes": {name: outcome(value) for name, value in plain.items()},
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        first = [record for record in records if record.run["seed"] == self.seeds[0]]
        outputs.table(
            "partition",
            f"log₁₀ Z of squared circuits of K = {self.num_units} units (seed {self.seeds[0]}): "
            "our scaled arithmetic, the paper's signed logarithms, and plain numbers, which end "
            "as infinity or zero.",
            ["weights", "variables", SCALED, SIGNED, *PLAIN],
            [self._row(record) for record in first],
        )
        differences = [abs(r.result[SCALED] - r.result[SIGNED]) * LOG_10 for r in records]
        outputs.text(
            f"Over all {len(records)} circuits log Z by scaled arithmetic and by signed "
            f"logarithms differ by {max(differences):.1e} at most."
        )
        figure = Figure(figsize=(4.3 * len(self.weights), 3.3), layout="constrained")
        for axes, weights in zip(
            figure.subplots(1, len(self.weights), squeeze=False)[0], self.weights, strict=True
        ):
            group = [record for record in first if record.run["weights"] == weights]
            _draw(axes, group)
            axes.set_title(f"{weights} weights", fontsize=10)
        outputs.figure(
            "partition",
            "Z against the number of variables; a cross marks the last finite value of plain "
            "numbers, dotted lines the range of 32-bit and 64-bit floats.",
            figure,
        )

    def _row(self, record: Record) -> list[Any]:
        result = record.result
        plain = [
            result[name] if result[name] is not None else result["outcomes"][name]
            for name in PLAIN
        ]
        run = record.run
        return [run["weights"], run["variables"], result[SCALED], result[SIGNED], *plain]


def plain_partition(circuit: sub.Circuit, dtype: torch.dtype) -> Tensor:
    """Z = ∫ c² as anyone would compute it, in numbers as they are."""
    schedule = circuit.schedule

    def rule(number: int, children: Sequence[LeafMessage]) -> LeafMessage:
        product = reduce(torch.mul, (_number(child, dtype) for child in children))
        call = schedule.calls[number]
        weight = circuit.sum_layers[call.layer].weight(call.folds).to(dtype)[:, None]
        return LeafMessage(weight @ product @ weight.mT, None)

    leaves = leaves_of(schedule, square_integrals(circuit))
    root = root_of(schedule, traverse(schedule, divide_leaves(schedule, leaves), rule))
    return _number(root, dtype)[0, 0, 0, 0]


def _number(message: LeafMessage, dtype: torch.dtype) -> Tensor:
    if message.exponent is None:
        assert message.mantissa is not None
        return message.mantissa.to(dtype)
    size = message.exponent.to(dtype).exp()
    return size if message.mantissa is None else size * message.mantissa.to(dtype)


def outcome(value: float) -> str:
    """What became of a number."""
    if math.isfinite(value):
        return "finite" if value > 0 else "zero"
    return "infinite" if math.isinf(value) else "not a number"


def _log_or_none(value: float) -> float | None:
    return math.log10(value) if outcome(value) == "finite" else None


def _draw(axes: Axes, records: Sequence[Record]) -> None:
    quiet(axes)
    variables = [record.run["variables"] for record in records]
    axes.plot(
        variables,
        [r.result[SCALED] for r in records],
        "o-",
        color=MODEL,
        ms=4,
        lw=1.4,
        label=SCALED,
    )
    styles = {"plain 32 bit": (OTHER, 5.0), "plain 64 bit": ("#3b7d8c", 2.6)}
    for name, (colour, width) in styles.items():
        finite = [
            (r.run["variables"], r.result[name]) for r in records if r.result[name] is not None
        ]
        if finite:
            across, along = zip(*finite, strict=True)
            axes.plot(across, along, color=colour, lw=width, alpha=0.6, label=name, zorder=1)
            if len(finite) < len(records):
                axes.plot(across[-1], along[-1], "x", color=colour, ms=9, mew=2)
    values = [record.result[SCALED] for record in records]
    for name, dtype in PLAIN.items():
        limits = torch.finfo(dtype)
        limit = math.log10(limits.max if max(values) > 0 else limits.smallest_normal)
        axes.axhline(limit, color="black", lw=0.8, ls=":")
        axes.text(variables[0], limit, name.removeprefix("plain "), fontsize=8, va="bottom")
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=10)
    far = 2 * max(400.0, *map(abs, values))
    axes.set_ylim(*((0, far) if max(values) > 0 else (-far, 0)))
    axes.set_xticks(variables, [str(number) for number in variables])
    axes.set_xlabel("variables", fontsize=9)
    axes.set_ylabel("log₁₀ Z", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right" if max(values) > 0 else "upper right")


FULL = Overflow()
QUICK = Overflow(variables=(2, 8, 32, 128, 512), seeds=(0,))
