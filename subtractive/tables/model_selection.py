"""From settings in users' words to a trained density.

Candidates are trained within the effort that was asked for, and judged by rows held out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.learning.history import History
from subtractive.learning.loop import fit
from subtractive.learning.objective import paired_error, paired_gain
from subtractive.learning.relative_adam import relative_adam
from subtractive.learning.square_root import square_root
from subtractive.tables.broad_component import broad_component, with_broad
from subtractive.tables.candidates import Candidate, Candidates
from subtractive.tables.columns import Column
from subtractive.tables.covariance_groups import Grouped, best_group
from subtractive.tables.effort import EFFORTS, Budget, EndOf, seconds_of
from subtractive.tables.hidden_trees import HiddenTrees, Trained
from subtractive.tables.reading import Floats, Table
from subtractive.tables.recipe import Recipe
from subtractive.tables.scale_limits import limit_scales, scale_limits
from subtractive.tables.schema import Schema
from subtractive.tables.training_data import Data, encode_rows
from subtractive.tables.training_rows import DitheredBatches, Rows, batch_size, split
from subtractive.tables.weight_average import WeightAverage

# Adam's rate falls to a hundredth of this.
RATE = 0.03
# Epochs over which weights are averaged, and nats per column by which an average may look worse
# than the best epoch.
AVERAGED, LUCK = 2.0, 0.01
# The share of time that learning by gradients has where hidden trees follow.
SHARE_OF_GRADIENTS = 0.7
# Where covariances are best, so many times as many are tried in the time that is left.
MORE_COMPONENTS = 4
# Where there is much time, sums have this share of it. Squares begin where they end, learn at a
# smaller rate, and are kept if held-out rows prefer them by so many standard errors.
SHARE_OF_SUMS, RATE_OF_SQUARES, EPOCHS_OF_SQUARES, ERRORS = 0.7, 0.003, 12, 2.0


class Learned(NamedTuple):
    """A trained density, how it was trained, and the columns whose codes it is of."""

    density: Density
    history: History  # scores are those of the table
    columns: tuple[Column, ...]


@final
class ModelSelection:
    """The search for the model of a table that a recipe asks for."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.recipe, self.seed = recipe, seed
        self.candidates, self.best = Candidates(recipe), Best()

    def learn(self, rows: Rows, columns: tuple[Column, ...], used: float = 0.0) -> Learned:
        """Train each candidate on most of the rows, and keep what the others find most likely.

        So many seconds of the effort are ``used`` already. After Ctrl-C, ``best`` has what was
        found until then.
        """
        self.budget = Budget(seconds_of(self.recipe.effort, rows.x.numel()), used=used)
        train, valid = split(rows, self.recipe.validation_fraction, self.seed)
        data = Data.of(columns, train, valid, self.seed)
        has_trees = self.recipe.is_open and self.recipe.kind != "squared-monotonic"
        if not has_trees or self._is_worth_gradients(data):
            whole = self.budget
            self.budget = whole.part(SHARE_OF_GRADIENTS) if has_trees else whole
            self._by_gradients(data)
            self.budget = whole
        group = None
        if has_trees and self._has_time:
            group = self._by_covariances(data.standardised(self.seed))
        if has_trees and self._has_time:
            self._by_hidden_trees(data)
        if group is not None and self._has_time:
            self._by_more_covariances(data.standardised(self.seed), group)
        assert self.best.learned is not None
        return self.best.learned

    def learn_more(self, density: Density, rows: Rows, columns: tuple[Column, ...]) -> History:
        """Go on with a density, in one pass over new rows."""
        data = Data.of(columns, rows, None, self.seed)
        return self._fit(density, data, 1, relative_adam(density, RATE / 10))

    @property
    def _has_time(self) -> bool:
        """Whether there is time for more, or no model yet."""
        return self.best.learned is None or self.budget.left > 0

    def _is_worth_gradients(self, data: Data) -> bool:
        """Whether there may be more than hidden trees find: in continuous tables."""
        signed = self.recipe.kind == "squared"
        families = [column.family(signed=signed) for column in data.columns]
        return self.candidates.may_start_from_em(data.start, families)

    def _by_gradients(self, data: Data) -> None:
        """Offer each candidate after training."""
        for candidate in self.candidates.of(data, self.seed):
            if self.best.learned is not None and self.budget.left < 0:
                return
            density = candidate.start(self.seed)
            if self.best.is_beyond_reach(density, candidate):
                continue
            history = self._train(density, candidate)
            self.best.offer(Learned(density, history, candidate.data.columns), candidate.data)
            if history.stopped == "interrupted":
                raise KeyboardInterrupt

    def _by_covariances(self, data: Data) -> Grouped | None:
        """Offer full covariances of numbers, which lines relate better than normal scores do."""
        group = best_group(
            data, max_epochs=self.recipe.max_epochs, budget=self.budget, seed=self.seed
        )
        if group is not None:
            self._offer_covariances(group, data)
        return group

    def _offer_covariances(self, group: Grouped, data: Data) -> None:
        families = [column.family(signed=False) for column in data.columns]
        density = with_broad(group.members, group.weights, broad_component(data.start, families))
        history = in_table_units(group.history, data)
        self.best.offer(Learned(density, history, data.columns), data)

    def _by_more_covariances(self, data: Data, first: Grouped) -> None:
        """Spend the time that is left on more covariances, if the ``first`` ones are best."""
        best = self.best.learned
        assert best is not None
        if first.members[0] not in best.density.modules():
            return
        group = best_group(
            data,
            max_epochs=self.recipe.max_epochs,
            budget=self.budget,
            seed=self.seed,
            share=1.0,
            least=MORE_COMPONENTS * first.num_components,
        )
        if group is not None:
            self._offer_covariances(group, data)

    def _by_hidden_trees(self, data: Data) -> None:
        """Offer a mixture of hidden trees, also if the search for it is interrupted."""
        trees = HiddenTrees(
            data,
            rival=self.best.scores_of_codes(data),
            max_epochs=self.recipe.max_epochs,
            seed=self.seed,
            progress=self.recipe.progress,
            has_much_time=self._has_much_time,
        )
        is_best = False
        try:
            trees.search(self.budget.part(SHARE_OF_SUMS) if self._may_square else self.budget)
        finally:
            if trees.members:
                history = in_table_units(trees.history, data)
                is_best = self.best.offer(Learned(trees.density, history, data.columns), data)
        if is_best and self._may_square:
            self._by_squares(trees, data)

    @property
    def _has_much_time(self) -> bool:
        """Whether the user gave more time than a good model needs."""
        return seconds_of(self.recipe.effort) >= EFFORTS["best"]

    @property
    def _may_square(self) -> bool:
        """Whether there is the time for squares of what sums have learned."""
        return self._has_much_time and self.recipe.kind == "squared"

    def _by_squares(self, trees: HiddenTrees, data: Data) -> None:
        """Let trees go on as squares, which may subtract, while held-out rows clearly gain."""
        assert self.best.learned is not None
        sums, weights, kept, gain, cost = trees.scores, data.valid.weights, 0, 0.0, 0.0
        for number, tree in enumerate(trees.members):
            if self.budget.left < cost:
                break
            before, start = trees.scores, self.budget.used
            trees.members[number] = self._squared(tree, data)
            cost = self.budget.used - start
            gain = paired_gain(trees.scores, sums, weights)
            added = paired_gain(trees.scores, before, weights)
            if added <= ERRORS * paired_error(trees.scores, before, weights):
                trees.members[number] = tree
                break
            kept += 1
        if kept:
            gain = paired_gain(trees.scores, sums, weights)
            history = in_table_units(trees.history, data)
            if not self.best.offer(Learned(trees.density, history, data.columns), data):
                kept = 0  # a difference within rounding errors
        history = self.best.learned.history
        history.gain_of_squares, history.num_squared = gain, kept

    def _squared(self, tree: Trained, data: Data) -> Trained:
        """The square of a tree's square root, after some more learning."""
        assert isinstance(tree.density, MonotonicCircuit)
        density = square_root(tree.density)
        optimizer = relative_adam(density, RATE_OF_SQUARES)
        num_epochs = min(self.recipe.max_epochs, EPOCHS_OF_SQUARES)
        scheduler = CosineAnnealingLR(optimizer, num_epochs, RATE_OF_SQUARES / 100)
        history = self._fit(density, data, num_epochs, optimizer, scheduler)
        if history.stopped == "interrupted":
            raise KeyboardInterrupt
        with torch.no_grad():
            return Trained(density, tree.history, density.log_prob(data.valid.x))

    def _train(self, density: Density, candidate: Candidate) -> History:
        per_epoch = math.ceil(len(candidate.data.train.x) / batch_size(candidate.data.train))
        wanted = max(candidate.num_epochs, math.ceil(candidate.num_steps / per_epoch))
        num_epochs = min(self.recipe.max_epochs, wanted)
        optimizer = relative_adam(density, RATE)
        scheduler = CosineAnnealingLR(optimizer, num_epochs, RATE / 100)
        return self._fit(density, candidate.data, num_epochs, optimizer, scheduler)

    def _fit(
        self,
        density: Density,
        data: Data,
        num_epochs: int,
        optimizer: Optimizer,
        scheduler: LRScheduler | None = None,
    ) -> History:
        limits, power = scale_limits(data.columns), 1 if self.recipe.kind == "monotonic" else 2
        limit_scales(density, limits, power)
        size = batch_size(data.train)
        average = WeightAverage(density, data.valid, AVERAGED * len(data.train.x) / size)
        optimizer.register_step_post_hook(lambda *_: limit_scales(density, limits, power))
        optimizer.register_step_post_hook(lambda *_: average.update())
        generator = torch.Generator().manual_seed(self.seed)
        is_timed = scheduler is not None  # one pass over new rows goes to its end
        history = fit(
            density,
            DitheredBatches(data.train, data.columns, size, generator),
            data.valid.x,
            valid_weights=data.valid.weights,
            optimizer=optimizer,
            scheduler=scheduler,
            batch_size=size,
            max_epochs=num_epochs,
            patience=max(10, num_epochs // 3),
            callbacks=[average.judge, *([EndOf(self.budget, epochs=1)] if is_timed else [])],
            seed=self.seed,
            progress=self.recipe.progress,
        )
        # The best of many single epochs is in part luck, which an average is not.
        if average.best_score > history.best_score - LUCK * len(data.columns):
            density.load_state_dict(average.best)
            history.best_score, history.best_epoch = average.best_score, average.best_epoch
        return in_table_units(history, data)


@final
class Best:
    """The model that held-out rows prefer to all others so far."""

    def __init__(self) -> None:
        self.learned: Learned | None = None
        self._scores: Tensor | None = None

    def offer(self, learned: Learned, data: Data) -> bool:
        """Keep a model of the codes of ``data`` if it is better."""
        scores = scores_of(learned.density, data)
        is_better = (
            self._scores is None or paired_gain(scores, self._scores, data.valid.weights) > 0
        )
        if is_better:
            self.learned, self._scores = learned, scores
        return is_better

    def is_beyond_reach(self, density: Density, candidate: Candidate) -> bool:
        """Whether a start is so far behind that training it would be a waste."""
        if self._scores is None or candidate.reach == math.inf:
            return False
        data = candidate.data
        gain = paired_gain(scores_of(density, data), self._scores, data.valid.weights)
        return -gain > candidate.reach * data.valid.x.shape[1]

    def scores_of_codes(self, data: Data) -> Tensor | None:
        """log p of the held-out codes of ``data``, (n,), if there is a model."""
        return None if self._scores is None else self._scores - data.valid.log_abs_det_jacobian


def scores_of(density: Density, data: Data) -> Tensor:
    """log p of the held-out rows, (n,), in the units of the table."""
    with torch.no_grad():
        return density.log_prob(data.valid.x) + data.valid.log_abs_det_jacobian


def in_table_units(history: History, data: Data) -> History:
    """Scores of codes as scores of the table."""
    train, valid = data.train.mean_log_jacobian, data.valid.mean_log_jacobian
    epochs = [
        epoch._replace(train=epoch.train + train, valid=epoch.valid + valid)
        for epoch in history.epochs
    ]
    return replace(history, epochs=epochs, best_score=history.best_score + valid)


def learn_table(
    recipe: Recipe, schema: Schema, table: Table, weights: Floats, seed: int
) -> Learned:
    """Train a density on the rows of a table."""
    rows = encode_rows(schema, table, weights)
    return ModelSelection(recipe, seed).learn(rows, schema.variables)
