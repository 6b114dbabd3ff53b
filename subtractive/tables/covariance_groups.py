"""Full covariances of the continuous columns of a table, beside its categories, atoms and gaps.

Columns of numbers without gaps, and with few atoms, form one region of Gaussians; all others are
leaves beside it. Rows with an atom in the group, or with a number far away, which would ruin a
covariance, belong to a small hidden tree that is mixed in. As many components are taken as
held-out rows ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inputs.base import InputFamily
from subtractive.learning.covariance_group import covariance_group
from subtractive.learning.em import fit_em
from subtractive.learning.hidden_chow_liu import hidden_chow_liu_tree
from subtractive.learning.history import History
from subtractive.learning.objective import paired_gain
from subtractive.tables.columns import Numeric
from subtractive.tables.effort import Budget, EndOf
from subtractive.tables.scale_limits import limit_scales, limit_shares, scale_limits
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import DitheredBatches

# A column of which more rows are at atoms stays out of the group.
MOST_AT_ATOMS = 0.1
# Numbers of components: from so many on, twice as many while held-out rows find it better, and
# each with so many rows for every column of the group.
LEAST_COMPONENTS, LEAST_IF_LARGE, MOST_COMPONENTS, ROWS_PER_COLUMN = 2, 16, 256, 5
LARGE = 4000  # rows
# Rows that a covariance shrinks by for every column, towards what all components have in common:
# fewer, as long as held-out rows find it better.
PSEUDOCOUNTS = (1.0, 0.3, 0.1)
# Values are spread over this share of their cells, so that repeated rows are no singular
# covariance. Over whole cells, columns that nearly determine each other would seem to do so less:
# what is given is at the centre of its cell, and the rounding would count twice.
SHARE_OF_CELL = 0.25
LEAST_EPOCHS, MAX_EPOCHS, PATIENCE, BATCH = 3, 25, 2, 2048
TREE_STATES, TREE_SHARE = 8, 0.1  # of the tree, and its weight at the start
SHARE_OF_TIME = 0.06  # of what is left that may be spent here
# So many rows for each component, and more in proportion to the columns, say what there is to say.
MOST_ROWS, MOST_ROWS_PER_COLUMN = 256, 16


class Grouped(NamedTuple):
    """The members and their weights, how they were trained, and log p of held-out rows, (n,)."""

    members: tuple[MonotonicCircuit, ...]
    weights: tuple[float, ...]
    history: History
    scores: Tensor

    @property
    def num_components(self) -> int:
        """The number of covariances."""
        return max(member.circuit.input_layers[0].num_units for member in self.members)


def group_of(data: Data, families: Sequence[InputFamily]) -> list[int]:
    """The variables that may share covariances: none if there are less than two."""
    group = []
    for variable, column in enumerate(data.columns):
        x = data.train.x[:, variable]
        if not isinstance(column, Numeric) or bool(x.isnan().any()):
            continue
        atoms = torch.tensor(families[variable].atoms, dtype=x.dtype)
        at_atoms = data.train.weights @ torch.isin(x, atoms).to(x.dtype)
        if at_atoms <= MOST_AT_ATOMS * data.train.weights.sum():
            group.append(variable)
    return group if len(group) > 1 else []


def best_group(
    data: Data,
    *,
    max_epochs: int,
    budget: Budget,
    seed: int,
    share: float = SHARE_OF_TIME,
    least: int = 0,
) -> Grouped | None:
    """The mixture of full covariances that held-out rows prefer, if the table has a group.

    It may take a ``share`` of the time that is left, and has so many components at ``least``.
    """
    families = [column.family(signed=False) for column in data.columns]
    group = group_of(data, families)
    rows = len(data.train.x)
    most = min(MOST_COMPONENTS, rows // (ROWS_PER_COLUMN * max(1, len(group))))
    size = max(least, min(LEAST_COMPONENTS if rows < LARGE else LEAST_IF_LARGE, most))
    if not group or not 1 <= size <= most:
        return None
    end, best = budget.used + share * budget.left, None
    per_component = max(MOST_ROWS, MOST_ROWS_PER_COLUMN * len(group))
    while best is None or (size <= most and budget.used < end):
        some = data.some(per_component * size, seed)
        start = _start(some, families, group, size, seed)
        found = _trained(start, some, min(max_epochs, MAX_EPOCHS), seed, budget, end)
        if best is not None and paired_gain(found.scores, best.scores, data.valid.weights) <= 0:
            break
        best, size = found, 2 * size
    assert best is not None
    return best if len(some.train.x) == rows else _with_all_rows(best, data, seed, budget)


def _start(
    data: Data, families: Sequence[InputFamily], group: list[int], size: int, seed: int
) -> Mixture:
    x, weights = data.start.x, data.start.weights
    circuit = covariance_group(x, families, group, size, weights=weights, seed=seed)
    tree = hidden_chow_liu_tree(
        x, families, TREE_STATES, weights=weights, seed=seed, dtype=torch.float64
    )
    # The tree comes first: it has a family, with atoms, for each column.
    return Mixture([tree, circuit], weights=[TREE_SHARE, 1 - TREE_SHARE])


def _trained(
    mixture: Mixture, data: Data, max_epochs: int, seed: int, budget: Budget, end: float
) -> Grouped:
    """After EM with fewer and fewer pseudocounts, as held-out rows find it better."""
    best = _with_pseudocount(PSEUDOCOUNTS[0], mixture, data, max_epochs, seed, budget, end)
    for pseudocount in PSEUDOCOUNTS[1:]:
        if budget.used >= end:
            break
        mixture = deepcopy(mixture)
        found = _with_pseudocount(pseudocount, mixture, data, max_epochs, seed, budget, end)
        if paired_gain(found.scores, best.scores, data.valid.weights) <= 0:
            break
        best = found
    return best


def _with_all_rows(best: Grouped, data: Data, seed: int, budget: Budget) -> Grouped:
    """After some steps of all rows: shares that part of them have are off by chance."""
    mixture = Mixture([deepcopy(member) for member in best.members], weights=best.weights)
    least, end = PSEUDOCOUNTS[-1], budget.used
    found = _with_pseudocount(least, mixture, data, LEAST_EPOCHS, seed, budget, end)
    is_better = paired_gain(found.scores, best.scores, data.valid.weights) > 0
    return found if is_better else best


def _with_pseudocount(
    pseudocount: float,
    mixture: Mixture,
    data: Data,
    max_epochs: int,
    seed: int,
    budget: Budget,
    end: float,
) -> Grouped:
    """After EM of whole passes: covariances of few rows would be of little use."""
    limits = scale_limits(data.columns)

    def limit(density: Density) -> None:
        limit_scales(density, limits, 1)
        limit_shares(density, float(data.train.weights.sum()))

    end_of_all = EndOf(budget, epochs=1)

    def is_over(density: Density, history: History) -> bool:
        has_learned = len(history.epochs) >= LEAST_EPOCHS
        return end_of_all(density, history) or (has_learned and budget.used >= end)

    limit(mixture)
    generator = torch.Generator().manual_seed(seed)
    history = fit_em(
        mixture,
        DitheredBatches(data.train, data.columns, BATCH, generator, SHARE_OF_CELL),
        data.valid.x,
        valid_weights=data.valid.weights,
        batches_per_step=math.inf,
        pseudocount=pseudocount,
        max_epochs=max_epochs,
        patience=PATIENCE,
        after_step=limit,
        callbacks=[is_over],
        progress=False,
    )
    with torch.no_grad():
        scores = mixture.log_prob(data.valid.x)
    if history.stopped == "interrupted":
        raise KeyboardInterrupt
    members = tuple(member for member in mixture.members if isinstance(member, MonotonicCircuit))
    shares = tuple(mixture.logits.detach().double().softmax(0).tolist())
    return Grouped(members, shares, history, scores)
