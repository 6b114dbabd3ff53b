"""The kinds of models that are compared on digits, at equally many units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

import subtractive as sub


@final
@dataclass(frozen=True)
class Kind:
    """How a model is built, and the learning rate that was best on rows to choose from."""

    is_square: bool
    is_positive: bool
    learning_rate: float
    num_outputs: int = 1


# Rates were chosen from 0.03, 0.02, 0.01 and 0.003 on the validation rows, for the quad tree.
KINDS = {
    "additive": Kind(is_square=False, is_positive=True, learning_rate=0.03),
    "squared": Kind(is_square=True, is_positive=False, learning_rate=0.01),
    "squared, positive": Kind(is_square=True, is_positive=True, learning_rate=0.03),
    "eight squares": Kind(is_square=True, is_positive=False, learning_rate=0.01, num_outputs=8),
}


def fitted(
    kind: Kind,
    graph: sub.RegionGraph,
    rows: tuple[Tensor, Tensor],
    *,
    sizes: tuple[int, int],
    seed: int,
    options: Mapping[str, Any],
) -> tuple[sub.Density, sub.History]:
    """A model with (states, units) of given sizes, trained on the first of two tables of rows."""
    num_states, num_units = sizes
    circuit = sub.Circuit(
        graph,
        sub.Categorical(num_states) if kind.is_positive else sub.Embedding(num_states),
        num_units=num_units,
        num_outputs=kind.num_outputs,
        weights=sub.positive_weights if kind.is_positive else sub.real_weights,
        seed=seed,
    )
    density = sub.SquaredCircuit(circuit) if kind.is_square else sub.MonotonicCircuit(circuit)
    sub.initialise(density, rows[0], seed=seed)
    rate = kind.learning_rate
    history = sub.fit(density, *rows, learning_rate=rate, seed=seed, progress=False, **options)
    return density, history
