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

from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.learning.history import History
from subtractive.learning.objective import paired_gain
from subtractive.numerics.messages import log_sum_exp
from subtractive.tables.broad_component import BROAD_SHARE, broad_component, with_broad
from subtractive.tables.covariance_groups import Grouped, best_group
from subtractive.tables.effort import Budget
from subtractive.tables.training_data import Data
from subtractive.tables.tree_training import TreeTraining

# The search begins with so many states, but with one for so many rows where there are few rows. Of
# states with fewer rows each than the last number, validation rows are too few to judge.
LEAST_STATES, FIRST_STATES, MOST_STATES = 8, 64, 512
ROWS_PER_FIRST_STATE, ROWS_PER_STATE = 16, 32
MEMBERS = 8
# Of many rows, so many epochs show which number of states is best.
TRIAL_ROWS, TRIAL_EPOCHS = 4000, 3
# The weights of distant columns when rows are clustered: what distant columns say together must
# pass through all hidden variables between them, which EM finds slowly from clusters of
# neighbours alone; but those are finer, and better in the first epochs, which do not tell which is
# better in the end. The first two members try both.
DISTANT = (1.0, 0.0)
# Twice the states take up to three times as long, and several members are better than one that is
# larger: more states are tried if there is time for about two members of them. That is so
# many times the time of the last trial, which is a whole member where there are few rows.
WORTH, WORTH_IF_SMALL = 15, 4
LEAST_PART = 0.6  # of the time that a member takes, without which it is not begun
# Nats per column by which one more member must be better to go on, and by which a tree of more
# states may be worse than the best so far: larger trees gain more from being mixed. With three
# times as much, tables of few columns get hundreds of states, which blur what columns say of each
# other.
WORTHWHILE, LUCK = 1e-3, 1e-3
# A tree so many nats per column behind another model is given up: more states and members gain
# less. After a trial, which is short, learning to the end gains more.
REACH, REACH_OF_TRIAL = 0.07, 0.2
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
        self,
        data: Data,
        *,
        rival: Tensor | None,
        max_epochs: int,
        seed: int,
        progress: bool,
        has_much_time: bool = False,
    ) -> None:
        """``rival`` are the scores (n,) of held-out rows by the best model so far.

        Where there is much time, members are added unless held-out rows lose by it: samples gain
        by more of them than held-out rows can tell.
        """
        self.data = data
        self.columns, self.valid, self.rival = data.columns, data.valid, rival
        self.max_epochs, self.seed = max_epochs, seed
        self.worthwhile = -LUCK if has_much_time else WORTHWHILE
        self.training = TreeTraining(data, max_epochs=max_epochs, seed=seed)
        self.num_rows = self.training.num_rows
        self.broad = broad_component(data.start, self.training.families)
        with torch.no_grad():
            self.broad_scores = self.broad.log_prob(self.valid.x)
        self.members: list[Trained] = []
        self.group: Grouped | None = None
        self.distant = DISTANT[0]
        self.cost, self.epoch = 0.0, 0.0  # seconds that the last tree, and trial by epoch, took
        self.budget = Budget(0.0)
        self.bar = tqdm(unit="tree", disable=None if progress else True)

    def search(self, budget: Budget) -> None:
        """Double the states while it helps, then add members, until the time is over."""
        self.budget = budget
        with self.bar:
            reach = REACH_OF_TRIAL if self.is_large else REACH
            self._choose_states(reach)
            self._add_covariances()
            has_time = self.budget.left > LEAST_PART * self.epoch
            if self.is_large and has_time and not self._is_hopeless(reach):
                self.members = [self._trained(self.first, 0, is_begun=True)]
            if not self._is_hopeless(REACH):
                self._add_members()

    @property
    def is_large(self) -> bool:
        """Whether there are so many rows that trials are shorter than training."""
        return self.num_rows >= TRIAL_ROWS

    @property
    def first(self) -> MonotonicCircuit:
        """The tree of the first member, while it is a sum."""
        tree = self.members[0].density
        assert isinstance(tree, MonotonicCircuit)
        return tree

    def _choose_states(self, reach: float) -> None:
        """Leave one tree, of as many states as held-out rows ask for, while it is in ``reach``."""
        affordable = min(FIRST_STATES, self.num_rows / ROWS_PER_FIRST_STATE)
        states = 2 ** round(math.log2(max(LEAST_STATES, affordable)))
        most = max(states, min(MOST_STATES, self.num_rows // ROWS_PER_STATE))
        worth = WORTH if self.is_large else WORTH_IF_SMALL
        self.members = [self._tried(states)]
        best = self.members[0].scores
        while 2 * states <= most and not self._is_hopeless(reach):
            if worth * self.cost >= self.budget.left:
                return
            states *= 2
            trial = self._tried(states)
            if not self._is_better(trial.scores, best, -LUCK):
                return
            self.members = [trial]
            best = trial.scores if self._is_better(trial.scores, best, 0.0) else best

    def _tried(self, states: int) -> Trained:
        """The first tree with so many states: of many rows after some epochs, else trained."""
        tree = self._start(states, 0)
        return self._trial(tree, TRIAL_EPOCHS) if self.is_large else self._trained(tree, 0)

    def _add_members(self) -> None:
        """Mix in trees from other seeds while held-out rows gain by it."""
        for number in range(1, MEMBERS):
            if LEAST_PART * self.cost >= self.budget.left:
                return
            self.distant = DISTANT[1] if number == 1 else self.distant
            tree = self._trained(self._start(self.num_states, number), number)
            before = log_mean([member.scores for member in self.members])
            self.members.append(tree)
            together = log_mean([member.scores for member in self.members])
            if number == 1:
                self._keep_start(together)
            elif not self._is_better(together, before, self.worthwhile):
                return

    def _keep_start(self, together: Tensor) -> None:
        """Of two members that started differently, keep the better one, or both ``together``."""
        first, second = self.members
        is_second = self._is_better(second.scores, first.scores, 0.0)
        self.distant = DISTANT[1] if is_second else DISTANT[0]
        better = second if is_second else first
        if not self._is_better(together, better.scores, 0.0):
            self.members = [better]

    def _add_covariances(self) -> None:
        """Find full covariances, which are then a rival of the trees, too."""
        self.bar.set_postfix_str("full covariances")
        self.group = best_group(
            self.data, max_epochs=self.max_epochs, budget=self.budget, seed=self.seed
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

    def _start(self, num_states: int, number: int) -> MonotonicCircuit:
        """A tree at its start."""
        left = max(0.0, self.budget.left)
        self.bar.set_postfix({"states": num_states, "seconds left": f"{left:.0f}"})
        return self.training.tree(num_states, number, self.distant)

    def _trial(self, tree: MonotonicCircuit, epochs: int) -> Trained:
        """A tree after some epochs of EM."""
        before = self.budget.used
        history = self.training.by_small_steps(tree, 0, self.budget, most=epochs)
        self.epoch = (self.budget.used - before) / max(1, len(history.epochs))
        return self._judged(tree, history, self.budget.used - before)

    def _trained(self, tree: MonotonicCircuit, number: int, *, is_begun: bool = False) -> Trained:
        """A tree after EM, of small batches and then of all rows; or what follows its trial."""
        before = self.budget.used
        history = self.members[0].history if is_begun else History()
        # A step of all rows is worth more than one more epoch.
        if not is_begun or self.budget.left > 2 * self.epoch:
            steps = self.training.by_small_steps(tree, number, self.budget)
            history = joined(history, steps)
        if history.stopped != "interrupted":
            steps = self.training.by_whole_steps(tree, number, self.budget)
            history = joined(history, steps)
        return self._judged(tree, history, self.budget.used - before)

    @torch.no_grad()
    def _judged(self, tree: MonotonicCircuit, history: History, cost: float) -> Trained:
        """A tree that took so many seconds, with the scores of held-out rows."""
        trained = Trained(tree, history, tree.log_prob(self.valid.x))
        self.cost = cost
        self.bar.update()
        if history.stopped == "interrupted":
            self.members = self.members or [trained]
            raise KeyboardInterrupt
        return trained

    def _is_better(self, scores: Tensor, others: Tensor, by: float) -> bool:
        """Whether held-out rows prefer scores (n,) to others, by so many nats per column."""
        return paired_gain(scores, others, self.valid.weights) > by * len(self.columns)

    def _is_hopeless(self, reach: float) -> bool:
        """Whether the tree is so far behind another model that more of it will not do."""
        return self.rival is not None and not self._is_better(
            self.members[0].scores, self.rival, -reach
        )


def log_mean(scores: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean density, (n,), of several log-densities (n,)."""
    return log_sum_exp(torch.stack(list(scores), -1)) - math.log(len(scores))


def joined(first: History, then: History) -> History:
    """The history of training that began as ``first``, and went on from its best epoch."""
    count, seconds = len(first.epochs), first.seconds
    later = [
        row._replace(epoch=count + row.epoch, seconds=seconds + row.seconds) for row in then.epochs
    ]
    is_better = then.best_epoch > 0 or count == 0
    return History(
        [*first.epochs, *later],
        count + then.best_epoch if is_better else first.best_epoch,
        then.best_score,
        stopped=then.stopped if then.stopped == "interrupted" or not count else first.stopped,
    )
