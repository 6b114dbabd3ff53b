"""Hidden Chow-Liu trees of a table: as many states and members as held-out rows ask for.

A tree by EM learns in seconds, for any mix of columns. The number of states is doubled while
held-out rows find more of them better, and trees from other seeds are mixed with equal weights:
each has errors of its own, which a mixture averages. Full covariances of the continuous columns
are mixed in by the weight that held-out rows give them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor
from tqdm import tqdm

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import positive_weights
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import InputFamily
from subtractive.learning.em import decaying_steps, fit_em
from subtractive.learning.expected_flows import Flows, update
from subtractive.learning.hidden_chow_liu import hidden_chow_liu_tree
from subtractive.learning.history import History
from subtractive.learning.objective import paired_gain
from subtractive.learning.sufficient_statistics import count
from subtractive.numerics.scaled import log_sum_exp
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.regions.trees import flat
from subtractive.tables.covariance_groups import Grouped, best_group
from subtractive.tables.effort import Budget
from subtractive.tables.scale_limits import limit_scales, limit_shares, scale_limits
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import DitheredBatches, Rows, num_trained_rows

LEAST_STATES, MOST_STATES = 8, 512
ROWS_PER_STATE = 16
MEMBERS = 8
PSEUDOCOUNT = 0.1  # rows in each unit; a whole row would already blur what is known well
MAX_EPOCHS, PATIENCE = 30, 2
# Of many rows, so many epochs show which number of states is best.
TRIAL_ROWS, TRIAL_EPOCHS = 4000, 3
# The weights of distant columns when rows are clustered, of which the better one is kept: what
# distant columns say together must pass through all hidden variables between them, which EM finds
# slowly from clusters of neighbours alone; but those are finer.
DISTANT = (1.0, 0.0)
# Twice the states take twice the time: they are tried if so many trials more would fit.
WORTH = 10
LEAST_PART = 0.6  # of the time that a member takes, without which it is not begun
BATCH = 512  # small batches: their noise leads out of poor optima
# Nats per column by which one more member must be better to go on, and by which a tree of more
# states may be worse: larger trees gain more from being mixed.
WORTHWHILE, LUCK = 1e-3, 3e-3
# A tree so many nats per column behind another model is given up: more states gain less.
REACH = 0.2
# The weight of the broad component, which is rarely drawn from: one of its rows in a thousand
# would change the correlations of samples. And its widths as multiples of those of the columns.
BROAD_SHARE, BROAD_WIDTH = 1e-5, 2.0
# Full covariances are mixed in if they gain so many nats per column: their likelihood may be
# good where samples of them are not. They and the trees have this weight at least, and no row
# counts for more than such odds, in nats, when they are weighed.
WORTH_MIXING, LEAST_WEIGHT, MOST_ODDS = 0.02, 0.01, 20.0


class Trained(NamedTuple):
    """A tree or its square, how it was trained, and log p of the held-out rows, (n,)."""

    density: MonotonicCircuit | SquaredCircuit
    history: History
    scores: Tensor


@final
class HiddenTrees:
    """A search for the best mixture of hidden trees within a budget of time."""

    def __init__(
        self, data: Data, *, rival: Tensor | None, max_epochs: int, seed: int, progress: bool
    ) -> None:
        """``rival`` are the scores (n,) of held-out rows by the best model so far."""
        self.data = data
        self.columns, self.train, self.start, self.valid = data
        self.rival, self.num_rows = rival, num_trained_rows(self.train)
        self.max_epochs, self.seed = min(max_epochs, MAX_EPOCHS), seed
        self.families = [column.family(signed=False) for column in self.columns]
        self.limits = scale_limits(self.columns)
        self.broad = broad_component(self.start, self.families)
        with torch.no_grad():
            self.broad_scores = self.broad.log_prob(self.valid.x)
        self.members: list[Trained] = []
        self.group: Grouped | None = None
        self.distant = DISTANT[0]
        self.cost = 0.0  # seconds that the last tree took
        self.bar = tqdm(unit="tree", disable=None if progress else True)

    def search(self, budget: Budget) -> None:
        """Double the states while it helps, then add members, until the time is over."""
        self.graph = chow_liu_tree(self.start.x.numpy())
        with self.bar:
            self._choose_states(budget)
            self._add_covariances(budget)
            if self._is_hopeless():
                return
            if self.num_rows >= TRIAL_ROWS:
                self.members = [self._trained(self.members[0].density, 0, budget, TRIAL_EPOCHS)]
            while len(self.members) < MEMBERS and LEAST_PART * self.cost < budget.left:
                number = len(self.members)
                tree = self._trained(self._tree(self.num_states, number), number, budget)
                before = [member.scores for member in self.members]
                together = log_mean([*before, tree.scores])
                goes_on = self._is_better(together, log_mean(before), WORTHWHILE)
                self.members.append(tree)
                if not goes_on:
                    break

    def _choose_states(self, budget: Budget) -> None:
        """Leave one tree, of as many states as held-out rows ask for."""
        is_large = self.num_rows >= TRIAL_ROWS
        # Fewer states than that do not tell yet which start is better.
        states = 8 * LEAST_STATES if is_large else LEAST_STATES
        most = max(states, min(MOST_STATES, self.num_rows // ROWS_PER_STATE))
        epochs = TRIAL_EPOCHS if is_large else MAX_EPOCHS
        trials = {}
        for self.distant in DISTANT:
            tree = self._tree(states, 0)
            trials[self.distant] = self._trained(tree, 0, budget, max_epochs=epochs)
        near = paired_gain(trials[0.0].scores, trials[1.0].scores, self.valid.weights) > 0
        self.distant = 0.0 if near else 1.0
        self.members = [trials[self.distant]]
        while 2 * states <= most and WORTH * self.cost < budget.left and not self._is_hopeless():
            states *= 2
            trial = self._trained(self._tree(states, 0), 0, budget, max_epochs=epochs)
            if not self._is_better(trial.scores, self.members[0].scores, -LUCK):
                return
            self.members = [trial]

    def _add_covariances(self, budget: Budget) -> None:
        """Find full covariances, which are then a rival of the trees, too."""
        self.bar.set_postfix_str("full covariances")
        self.group = best_group(
            self.data, max_epochs=self.max_epochs, budget=budget, seed=self.seed
        )
        self.bar.update()
        if self.group is None:
            return
        if self.rival is None or self._is_better(self.group.scores, self.rival, 0.0):
            self.rival = self.group.scores

    @property
    def num_states(self) -> int:
        """The number of states of each hidden variable."""
        return self.members[0].density.circuit.input_layers[0].num_units

    @property
    def share_of_group(self) -> float:
        """The weight of full covariances that makes held-out rows most likely, or zero."""
        if self.group is None:
            return 0.0
        trees = log_mean([member.scores for member in self.members])
        log_odds = (self.group.scores - trees).clamp(-MOST_ODDS, MOST_ODDS)
        weights, share = self.valid.weights / self.valid.weights.sum(), 0.5
        for _ in range(100):
            odds = log_odds.exp() * share / (1 - share)
            share = min(1 - LEAST_WEIGHT, max(LEAST_WEIGHT, float(weights @ (odds / (1 + odds)))))
        mixed = torch.stack([trees + math.log1p(-share), self.group.scores + math.log(share)], -1)
        is_worth_it = self._is_better(log_sum_exp(mixed), trees, WORTH_MIXING)
        return share if is_worth_it else 0.0

    @property
    def density(self) -> Density:
        """The members, and the broad component, in double precision."""
        share = self.share_of_group
        trees: list[Density] = [member.density.double() for member in self.members]
        weights = [(1 - share) / len(trees)] * len(trees)
        if self.group is not None and share > 0:
            trees += self.group.members
            weights += [share * weight for weight in self.group.weights]
        return with_broad(trees, weights, self.broad)

    @property
    def history(self) -> History:
        """That of the first member, with the score of all."""
        first = replace(self.members[0].history)
        weights = self.valid.weights
        first.best_score = float((weights * self.scores).sum() / weights.sum())
        return first

    @property
    def scores(self) -> Tensor:
        """log p of the held-out rows, (n,), for all members and the broad component."""
        share = self.share_of_group
        trees = log_mean([member.scores for member in self.members])
        parts = [trees + math.log1p(-share), self.broad_scores + math.log(BROAD_SHARE)]
        if self.group is not None and share > 0:
            parts.append(self.group.scores + math.log(share))
        return log_sum_exp(torch.stack(parts, -1))

    def _tree(self, num_states: int, number: int) -> MonotonicCircuit:
        """A tree at its start."""
        tree = hidden_chow_liu_tree(
            self.start.x,
            self.families,
            num_states,
            weights=self.train.weights,
            graph=self.graph,
            distant=self.distant,
            seed=self.seed + number,
            dtype=torch.float32,
        )
        self._limit(tree)
        return tree

    def _trained(
        self,
        tree: MonotonicCircuit | SquaredCircuit,
        number: int,
        budget: Budget,
        done: int = 0,
        max_epochs: int = MAX_EPOCHS,
    ) -> Trained:
        """A tree after EM, of which so many epochs are ``done``."""
        before, size = budget.used, max(32, min(BATCH, self.num_rows // 8))
        states, left = tree.circuit.input_layers[0].num_units, max(0.0, budget.left)
        self.bar.set_postfix({"states": states, "seconds left": f"{left:.0f}"})
        steps, offset = decaying_steps(), done * math.ceil(self.num_rows / size)
        generator = torch.Generator().manual_seed(self.seed + number)
        history = fit_em(
            tree,
            DitheredBatches(self.train, self.columns, size, generator),
            self.valid.x,
            valid_weights=self.valid.weights,
            step_size=lambda step: steps(offset + step),
            pseudocount=PSEUDOCOUNT,
            max_epochs=min(self.max_epochs, max_epochs),
            patience=PATIENCE,
            after_step=self._limit,
            callbacks=[lambda *_: budget.left <= 0],
            progress=False,
        )
        with torch.no_grad():
            trained = Trained(tree, history, tree.log_prob(self.valid.x))
        self.cost = budget.used - before
        self.bar.update()
        if history.stopped == "interrupted":
            self.members = self.members or [trained]
            raise KeyboardInterrupt
        return trained

    def _limit(self, density: Density) -> None:
        limit_scales(density, self.limits, 1)
        limit_shares(density, float(self.train.weights.sum()))

    def _is_better(self, scores: Tensor, others: Tensor, by: float) -> bool:
        """Whether held-out rows prefer scores (n,) to others, by so many nats per column."""
        return paired_gain(scores, others, self.valid.weights) > by * len(self.columns)

    def _is_hopeless(self) -> bool:
        """Whether the tree is so far behind another model that more of it will not do."""
        return self.rival is not None and not self._is_better(
            self.members[0].scores, self.rival, -REACH
        )


def log_mean(scores: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean density, (n,), of several log-densities (n,)."""
    return log_sum_exp(torch.stack(list(scores), -1)) - math.log(len(scores))


def with_broad(
    members: Sequence[Density], weights: Sequence[float], broad: MonotonicCircuit
) -> Mixture:
    """Members with their weights, beside the broad component."""
    shares = [(1 - BROAD_SHARE) * weight for weight in weights]
    return Mixture([*members, broad], weights=[*shares, BROAD_SHARE])


def broad_component(rows: Rows, families: Sequence[InputFamily]) -> MonotonicCircuit:
    """Independent columns, Gaussians several times as wide as they are: room for any row.

    No row is then so improbable that it alone decides a mean score.
    """
    circuit = Circuit(
        flat(len(families)),
        families,
        num_units=1,
        weights=positive_weights,
        dtype=torch.float64,
        seed=0,
    )
    shares = rows.weights / rows.weights.sum()
    inputs = []
    for layer in circuit.input_layers:
        x = rows.x[:, layer.variables[:, 0]].mT  # (f, n)
        known = (~x.isnan() * shares)[..., None]
        inputs.append(count(layer.family, x.nan_to_num(), known))
    sums = [torch.ones_like(layer.weights()).detach() for layer in circuit.sum_layers]
    update(circuit, Flows(sums, inputs), 10 / len(rows.x))
    with torch.no_grad():
        for layer in circuit.input_layers:
            if "log_scale" in layer.names:
                layer.get_tensor("log_scale").add_(math.log(BROAD_WIDTH))
            elif layer.family.num_states is not None:
                table = layer.get_tensor("logits").softmax(-1)
                layer.get_tensor("logits").copy_(
                    (0.9 * table + 0.1 / layer.family.num_states).log()
                )
    return MonotonicCircuit(circuit)
