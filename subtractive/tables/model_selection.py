"""From settings in users' words to a trained density.

This is where the defaults live: which circuits are tried, how they start and how they train.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import positive_weights, real_weights
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import InputFamily
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.learning.expectation_maximisation import fit_gaussian_mixture
from subtractive.learning.history import History
from subtractive.learning.initialise import initialise
from subtractive.learning.loop import fit
from subtractive.learning.relative_adam import relative_adam
from subtractive.learning.semi_tied_mixture import semi_tied_mixture
from subtractive.numerics.validation import whole_number
from subtractive.reductions.gaussian_mixture import (
    monotonic_gaussian_mixture,
    squared_gaussian_mixture,
)
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.regions.graph import RegionGraph
from subtractive.regions.trees import flat, linear_tree, random_binary_tree
from subtractive.tables.columns import Column
from subtractive.tables.effort import EFFORTS, Budget, seconds_of
from subtractive.tables.hidden_trees import HiddenTrees
from subtractive.tables.scale_limits import limit_scales, scale_limits
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import DitheredBatches, Rows, batch_size, split
from subtractive.tables.weight_average import WeightAverage

KINDS = ("squared", "monotonic", "squared-monotonic")
STRUCTURES = ("auto", "binary", "linear", "flat", "chow-liu")
COVARIANCES = ("full", "diagonal")
# What a user leaves open, see docs/quality.md: squares of a tree, numbers of components that EM
# tries, numbers of frames and of units in each.
SQUARES = 8
SIZES = (4, 16, 64)
FRAMES, UNITS_OF_FRAME = (8, 32), 16
# EM starts so often, but large problems once: so many rows times components times columns².
RESTARTS, LARGE = 3, 5 * 10**7
# Of fewer rows per column a tree learns less than full covariances do: it is not tried.
ROWS_PER_COLUMN = 100
# Adam's rate falls to a hundredth of this over so many steps, in so many epochs at least.
RATE, STEPS, LEAST_EPOCHS = 0.03, 1500, 12
STEPS_AFTER_EM = 200
# Epochs over which weights are averaged, and nats per column by which an average may look worse
# than the best epoch.
AVERAGED, LUCK = 2.0, 0.01
# Beyond so many components times columns a step spends its time on the integrals of all pairs of
# components, whatever the number of rows: fewer epochs must do.
WIDE, LEAST_EPOCHS_IF_WIDE = 2000, 4
# A mixture that starts so many nats per column behind a tree is not trained.
REACH = 0.1
# Nats by which one row may prefer a model, at most.
MOST_PER_ROW = 20.0
# Full covariances see rows with the same gaps together: of few gaps, or few patterns, only.
MOST_PATTERNS = 32


class Learned(NamedTuple):
    """A trained density, how it was trained, and the columns whose codes it is of."""

    density: Density
    history: History  # scores are those of the table
    columns: tuple[Column, ...]


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a fit; what it has learned until then, and an estimator of it, or None."""

    def __init__(self, learned: Learned | None = None) -> None:
        super().__init__("the fit was interrupted.")
        self.learned = learned
        self.partial: Any = None


class Candidate(NamedTuple):
    """A density at its start, from a seed, and how long to train it at least."""

    start: Callable[[int], Density]
    num_steps: int
    num_epochs: int
    data: Data
    reach: float = math.inf  # nats per column that training may gain, at most


@final
@dataclass(frozen=True)
class Recipe:
    """How to build and train a density; all of it has been checked."""

    kind: str
    structure: str
    num_components: int | None
    num_squares: int | None
    num_structures: int
    covariance: str
    effort: str | float
    max_epochs: int
    validation_fraction: float
    progress: bool

    def __post_init__(self) -> None:
        for name, choices in (
            ("kind", KINDS),
            ("structure", STRUCTURES),
            ("covariance", COVARIANCES),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(map(repr, choices))}, got "
                    f"{getattr(self, name)!r}."
                )
        seconds_of(self.effort)
        if self.num_components is not None:
            whole_number("n_components", self.num_components, 1)
        whole_number("n_structures", self.num_structures, 1)
        whole_number("max_epochs", self.max_epochs, 1)
        squares = 1 if self.num_squares is None else whole_number("n_squares", self.num_squares, 1)
        if squares > 1 and self.kind == "monotonic":
            raise ValueError("a monotonic model has no squares to sum: leave n_squares out.")
        if self.num_structures > 1 and self.structure in ("flat", "chow-liu"):
            raise ValueError(
                f"there is only one {self.structure!r} structure: n_structures > 1 needs 'binary' "
                "or 'linear' ones, which are drawn at random."
            )
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and below 1, got "
                f"{self.validation_fraction!r}."
            )

    def learn(self, rows: Rows, columns: tuple[Column, ...], seed: int) -> Learned:
        """Train each candidate on most of the rows, and keep what the others find most likely."""
        budget = Budget(seconds_of(self.effort, rows.x.numel()))
        train, valid = split(rows, self.validation_fraction, seed)
        data = Data.of(columns, train, valid, seed)
        has_trees, best = self._may_have_hidden_trees(), Best()
        try:
            if not has_trees or self._is_worth_gradients(data):
                self._by_gradients(data, seed, budget, best)
            if has_trees:
                self._by_hidden_trees(data, seed, budget, best)
        except KeyboardInterrupt:
            raise FitInterrupted(best.learned) from None
        assert best.learned is not None
        return best.learned

    def _may_have_hidden_trees(self) -> bool:
        """Whether structure and size are left open."""
        is_open = self.num_components is None and self.num_squares is None
        is_auto = self.structure == "auto" and self.num_structures == 1
        return is_open and is_auto and self.kind != "squared-monotonic"

    def _is_worth_gradients(self, data: Data) -> bool:
        """Whether there may be more than hidden trees find: continuous tables, or much time."""
        families = [column.family(signed=self.kind == "squared") for column in data.columns]
        is_continuous = self._may_start_from_em(data.start, families)
        return is_continuous or seconds_of(self.effort) >= EFFORTS["best"]

    def _by_gradients(self, data: Data, seed: int, budget: Budget, best: Best) -> None:
        """Offer each candidate after training."""
        for candidate in self._candidates(data, seed):
            if best.learned is not None and budget.left < 0:
                return
            density = candidate.start(seed)
            if best.learned is not None and is_hopeless(density, best.learned, candidate):
                continue
            history = self._train(density, candidate, seed, budget)
            best.offer(Learned(density, history, candidate.data.columns), candidate.data)
            if history.stopped == "interrupted":
                raise KeyboardInterrupt

    def _by_hidden_trees(self, data: Data, seed: int, budget: Budget, best: Best) -> None:
        """Offer a mixture of hidden trees, also if the search for it is interrupted."""
        trees = HiddenTrees(data, max_epochs=self.max_epochs, seed=seed, progress=self.progress)
        try:
            trees.search(budget)
        finally:
            if trees.members:
                history = in_table_units(trees.history, data)
                best.offer(Learned(trees.density, history, data.columns), data)

    def learn_more(
        self, density: Density, rows: Rows, columns: tuple[Column, ...], seed: int
    ) -> History:
        """Go on with a density, in one pass over new rows."""
        data = Data.of(columns, rows, None, seed)
        return self._fit(density, data, 1, relative_adam(density, RATE / 10), None, seed)

    def _train(self, density: Density, candidate: Candidate, seed: int, budget: Budget) -> History:
        per_epoch = math.ceil(len(candidate.data.train.x) / batch_size(candidate.data.train))
        wanted = max(candidate.num_epochs, math.ceil(candidate.num_steps / per_epoch))
        num_epochs = min(self.max_epochs, wanted)
        optimizer = relative_adam(density, RATE)
        scheduler = CosineAnnealingLR(optimizer, num_epochs, RATE / 100)
        return self._fit(density, candidate.data, num_epochs, optimizer, scheduler, seed, budget)

    def _fit(
        self,
        density: Density,
        data: Data,
        num_epochs: int,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        seed: int,
        budget: Budget | None = None,
    ) -> History:
        limits, power = scale_limits(data.columns), 1 if self.kind == "monotonic" else 2
        limit_scales(density, limits, power)
        size = batch_size(data.train)
        average = WeightAverage(density, data.valid, AVERAGED * len(data.train.x) / size)
        optimizer.register_step_post_hook(lambda *_: limit_scales(density, limits, power))
        optimizer.register_step_post_hook(lambda *_: average.update())
        generator = torch.Generator().manual_seed(seed)
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
            callbacks=[average.judge, lambda *_: budget is not None and budget.left <= 0],
            seed=seed,
            progress=self.progress,
        )
        # The best of many single epochs is in part luck, which an average is not.
        if average.best_score > history.best_score - LUCK * len(data.columns):
            density.load_state_dict(average.best)
            history.best_score, history.best_epoch = average.best_score, average.best_epoch
        return in_table_units(history, data)

    def _candidates(self, data: Data, seed: int) -> Iterator[Candidate]:
        train, signed = data.start, self.kind == "squared"
        families = [column.family(signed=signed) for column in data.columns]
        starts_from_em = self._may_start_from_em(train, families)
        is_long = len(train.x) >= ROWS_PER_COLUMN * len(families)
        has_tree = not starts_from_em or (is_long and self.structure != "flat")
        if has_tree:
            start = partial(self._from_data, train, families)
            yield Candidate(start, STEPS, LEAST_EPOCHS, data)
        if starts_from_em:
            data = data.standardised(seed)
            train = data.start
        if starts_from_em and self._may_have_frames(train):
            for count in _affordable(FRAMES, train, 4):
                start = partial(self._from_frames, train, count)
                yield Candidate(start, STEPS_AFTER_EM, LEAST_EPOCHS, data)
            return
        # Which size is best shows after training only: EM overfits sizes that learn well.
        for size in self._sizes(train) if starts_from_em else []:
            is_wide = size * len(families) > WIDE
            num_epochs = LEAST_EPOCHS_IF_WIDE if is_wide else LEAST_EPOCHS
            reach = REACH if has_tree else math.inf
            start = partial(self._from_em, train, size)
            yield Candidate(start, STEPS_AFTER_EM, num_epochs, data, reach)

    def _may_start_from_em(self, rows: Rows, families: Sequence[InputFamily]) -> bool:
        """Whether a flat mixture is wanted, or worth a try, that EM can find a start for."""
        if self.covariance != "full" or any(family != Gaussian() for family in families):
            return False
        if self.kind == "squared-monotonic" or self.num_structures > 1:
            return False
        if self.num_squares not in (None, self.num_components):
            return False
        num_complete = int((~rows.x.isnan().any(1)).sum())
        if self.structure == "flat":
            return num_complete > 0
        mostly_complete = 2 * num_complete >= max(len(rows.x), 8 * len(families))
        few_patterns = len(torch.unique(rows.x.isnan(), dim=0)) <= MOST_PATTERNS
        return self.structure == "auto" and mostly_complete and few_patterns

    def _may_have_frames(self, rows: Rows) -> bool:
        """Whether all is left open, and no entry is missing: rows with gaps take frames long."""
        is_open = self.num_components is None and self.num_squares is None
        return self.structure == "auto" and is_open and not bool(rows.x.isnan().any())

    def _sizes(self, rows: Rows) -> list[int]:
        """How many components EM tries: as the user says, or as the rows can pay for."""
        if self.num_components is not None and self.structure == "flat":
            return [self.num_components]
        if self.num_components is not None:
            return [min(self.num_components, _most_components(rows, 2))]
        return _affordable(SIZES, rows, 2)

    def _from_em(self, rows: Rows, size: int, seed: int) -> Density:
        """A Gaussian mixture found by EM: exactly, as a circuit that may learn to subtract."""
        work = len(rows.x) * size * rows.x.shape[1] ** 2
        found = fit_gaussian_mixture(
            rows.x,
            size,
            weights=rows.weights,
            num_restarts=RESTARTS if work < LARGE else 1,
            seed=seed,
        )
        kept = found.weights > 0
        parts = (found.weights[kept], found.means[kept], found.covariances[kept])
        if self.kind == "monotonic":
            return monotonic_gaussian_mixture(*parts, dtype=torch.float64)
        return squared_gaussian_mixture(*parts, dtype=torch.float64)

    def _from_frames(self, rows: Rows, count: int, seed: int) -> Density:
        """Several frames found by EM, with Gaussians of different places and widths in each."""
        return semi_tied_mixture(
            rows.x,
            count,
            UNITS_OF_FRAME,
            is_squared=self.kind == "squared",
            weights=rows.weights,
            seed=seed,
            dtype=torch.float64,
        )

    def _from_data(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        """Circuits over one or several structures, their inputs started from the columns."""
        seeds = np.random.SeedSequence(seed).generate_state(self.num_structures).tolist()
        members = [self._circuit(rows, families, one) for one in seeds]
        density = members[0] if len(members) == 1 else Mixture(members)
        initialise(density, rows.x, weights=rows.weights, seed=seed)
        return density

    def _circuit(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        graph, inputs = self._graph(rows, families, seed)
        num_units = self.num_components or units_of_tree(rows)
        squares = self.num_squares or min(SQUARES, num_units)
        circuit = Circuit(
            graph,
            inputs,
            num_units=num_units,
            num_outputs=1 if self.kind == "monotonic" else squares,
            weights=real_weights if self.kind == "squared" else positive_weights,
            seed=seed,
            dtype=torch.float64,
        )
        return MonotonicCircuit(circuit) if self.kind == "monotonic" else SquaredCircuit(circuit)

    def _graph(
        self, rows: Rows, families: Sequence[InputFamily], seed: int
    ) -> tuple[RegionGraph, Sequence[InputFamily]]:
        count = len(families)
        if self.structure == "linear":
            return linear_tree(count, seed=seed), families
        if self.structure == "flat":
            return _flat(families, together=self.covariance == "full")
        if self.structure == "binary" or self.num_structures > 1:
            return random_binary_tree(count, seed=seed), families
        return chow_liu_tree(rows.x.numpy()), families


@final
class Best:
    """The model that held-out rows prefer to all others so far."""

    def __init__(self) -> None:
        self.learned: Learned | None = None
        self._scores: Tensor | None = None

    def offer(self, learned: Learned, data: Data) -> None:
        """Keep a model of the codes of ``data`` if it is better.

        Differences are paired, and no row counts for more than some nats: one that both models
        find nearly impossible does not say which of them is better.
        """
        with torch.no_grad():
            scores = learned.density.log_prob(data.valid.x) + data.valid.log_abs_det_jacobian
        if self._scores is not None:
            gains = (scores - self._scores).clamp(-MOST_PER_ROW, MOST_PER_ROW).nan_to_num()
            if not float((data.valid.weights * gains).sum()) > 0:
                return
        self.learned, self._scores = learned, scores


def is_hopeless(density: Density, best: Learned, candidate: Candidate) -> bool:
    """Whether a start is so far behind the best model that training it would be a waste."""
    if candidate.reach == math.inf:
        return False
    valid = candidate.data.valid
    with torch.no_grad():
        scores = density.log_prob(valid.x) + valid.log_abs_det_jacobian
    score = float((valid.weights * scores).sum() / valid.weights.sum())
    return best.history.best_score - score > candidate.reach * valid.x.shape[1]


def in_table_units(history: History, data: Data) -> History:
    """Scores of codes as scores of the table."""
    train, valid = data.train.mean_log_jacobian, data.valid.mean_log_jacobian
    epochs = [
        epoch._replace(train=epoch.train + train, valid=epoch.valid + valid)
        for epoch in history.epochs
    ]
    return replace(history, epochs=epochs, best_score=history.best_score + valid)


def _most_components(rows: Rows, rows_per_column: int) -> int:
    """How many covariances the rows can pay for, each so many rows for every column."""
    return max(1, len(rows.x) // (rows_per_column * rows.x.shape[1]))


def _affordable(sizes: Sequence[int], rows: Rows, rows_per_column: int) -> list[int]:
    most = _most_components(rows, rows_per_column)
    return [size for size in sizes if size <= most] or [most]


def units_of_tree(rows: Rows) -> int:
    """The more rows, the more units can be told apart."""
    return 32 if len(rows.x) >= 10_000 else 16 if len(rows.x) >= 1_000 else 8


def _flat(
    families: Sequence[InputFamily], *, together: bool
) -> tuple[RegionGraph, Sequence[InputFamily]]:
    """One product over all variables, those of Gaussians perhaps ``together`` in one region."""
    group = [i for i, family in enumerate(families) if family == Gaussian()] if together else []
    if len(group) < 2:
        return flat(len(families)), families
    others = [[i] for i in range(len(families)) if i not in group]
    inputs = [MultivariateGaussian() if i in group else f for i, f in enumerate(families)]
    return flat([group, *others]), inputs
