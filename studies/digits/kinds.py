"""The kinds of models that are compared on digits, at equally many units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

import subtractive as sub
from subtractive.regions.purification import purified


@final
@dataclass(frozen=True)
class Kind:
    """How a model is built, and the learning rate that was best on rows to choose from."""

    is_square: bool
    is_positive: bool
    learning_rate: float
    num_outputs: int = 1
    num_terms: int = 1  # squares that are summed at every region
    pseudocount: float | None = None  # of expectation maximisation, which has no learning rate
    root_epochs: int = 0  # of an additive model, at whose square root this one starts


# So many epochs that early stopping ends the training before.
CONVERGED = 100

# Rates were chosen on the validation rows, for the quad tree: the best of 0.06, 0.03 and 0.01 with
# positive weights, of 0.02, 0.01 and 0.006 with signed ones, of 0.01, 0.006, 0.003 and 0.001 from
# square roots.
KINDS = {
    "additive": Kind(is_square=False, is_positive=True, learning_rate=0.06),
    "additive, EM": Kind(is_square=False, is_positive=True, learning_rate=0.0, pseudocount=5.0),
    "squared": Kind(is_square=True, is_positive=False, learning_rate=0.006),
    "squared, positive": Kind(is_square=True, is_positive=True, learning_rate=0.06),
    "eight squares": Kind(is_square=True, is_positive=False, learning_rate=0.006, num_outputs=8),
    "purified": Kind(is_square=True, is_positive=False, learning_rate=0.006, num_terms=3),
    "squared, root": Kind(
        is_square=True, is_positive=False, learning_rate=0.001, root_epochs=CONVERGED
    ),
    "squared, early root": Kind(
        is_square=True, is_positive=False, learning_rate=0.006, root_epochs=5
    ),
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
    if kind.root_epochs:
        return _fitted_from_root(kind, graph, rows, sizes=sizes, seed=seed, options=options)
    num_pixels = graph.num_variables
    graph = purified(graph) if kind.num_terms > 1 else graph
    num_purifiers = graph.num_variables - num_pixels
    pixel = sub.Categorical(num_states) if kind.is_positive else sub.Embedding(num_states)
    circuit = sub.Circuit(
        graph,
        [pixel] * num_pixels + [sub.Embedding(kind.num_terms)] * num_purifiers,
        num_units=num_units,
        num_outputs=kind.num_outputs,
        weights=sub.positive_weights if kind.is_positive else sub.real_weights,
        seed=seed,
    )
    density = sub.SquaredCircuit(circuit) if kind.is_square else sub.MonotonicCircuit(circuit)
    unknown = torch.full((len(rows[0]), num_purifiers), math.nan, dtype=rows[0].dtype)
    sub.initialise(density, torch.cat([rows[0], unknown], 1), seed=seed)
    if kind.pseudocount is not None:
        history = sub.learning.fit_em(
            density, *rows, pseudocount=kind.pseudocount, seed=seed, progress=False, **options
        )
        return density, history
    model = density.marginal(range(num_pixels)) if num_purifiers else density
    rate = kind.learning_rate
    history = sub.fit(model, *rows, learning_rate=rate, seed=seed, progress=False, **options)
    return model, history


def _fitted_from_root(
    kind: Kind,
    graph: sub.RegionGraph,
    rows: tuple[Tensor, Tensor],
    *,
    sizes: tuple[int, int],
    seed: int,
    options: Mapping[str, Any],
) -> tuple[sub.Density, sub.History]:
    """A square that starts at the square root of an additive model."""
    epochs = min(kind.root_epochs, options["max_epochs"])
    first, _ = fitted(
        KINDS["additive"],
        graph,
        rows,
        sizes=sizes,
        seed=seed,
        options={**options, "max_epochs": epochs},
    )
    assert isinstance(first, sub.MonotonicCircuit)
    density = sub.learning.square_root(first)
    rate = kind.learning_rate
    history = sub.fit(density, *rows, learning_rate=rate, seed=seed, progress=False, **options)
    return density, history
