"""The circuits that the defaults try on a table, and how they start."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch

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
from subtractive.learning.initialise import initialise
from subtractive.learning.semi_tied_mixture import semi_tied_mixture
from subtractive.reductions.gaussian_mixture import (
    monotonic_gaussian_mixture,
    squared_gaussian_mixture,
)
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.regions.graph import RegionGraph
from subtractive.regions.trees import flat, linear_tree, random_binary_tree
from subtractive.tables.recipe import Recipe
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import Rows

# What a user leaves open, see docs/quality.md: squares of a tree, numbers of components that EM
# tries, numbers of frames and of units in each.
SQUARES = 8
SIZES = (4, 16, 64)
FRAMES, UNITS_OF_FRAME = (8, 32), 16
# EM starts so often, but large problems once: so many rows times components times columns².
RESTARTS, LARGE = 3, 5 * 10**7
# Of fewer rows per column a tree learns less than full covariances do: it is not tried.
ROWS_PER_COLUMN = 100
# Steps of a tree, and of mixtures after EM; epochs at least.
STEPS, STEPS_AFTER_EM, LEAST_EPOCHS = 1500, 200, 12
# Beyond so many components times columns a step spends its time on the integrals of all pairs of
# components, whatever the number of rows: fewer epochs must do.
WIDE, LEAST_EPOCHS_IF_WIDE = 2000, 4
# A mixture that starts so many nats per column behind a tree is not trained.
REACH = 0.1
# Full covariances see rows with the same gaps together: of few gaps, or few patterns, only.
MOST_PATTERNS = 32


class Candidate(NamedTuple):
    """A density at its start, from a seed, and how long to train it at least."""

    start: Callable[[int], Density]
    num_steps: int
    num_epochs: int
    data: Data
    reach: float = math.inf  # nats per column that training may gain, at most


@final
class Candidates:
    """What a recipe tries."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def of(self, data: Data, seed: int) -> Iterator[Candidate]:
        """The candidates for a table, in the order of trying."""
        train, signed = data.start, self.recipe.kind == "squared"
        families = [column.family(signed=signed) for column in data.columns]
        starts_from_em = self.may_start_from_em(train, families)
        is_long = len(train.x) >= ROWS_PER_COLUMN * len(families)
        has_tree = not starts_from_em or (is_long and self.recipe.structure != "flat")
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

    def may_start_from_em(self, rows: Rows, families: Sequence[InputFamily]) -> bool:
        """Whether a flat mixture is wanted, or worth a try, that EM can find a start for."""
        if self.recipe.covariance != "full" or any(family != Gaussian() for family in families):
            return False
        if self.recipe.kind == "squared-monotonic" or self.recipe.num_structures > 1:
            return False
        if self.recipe.num_squares not in (None, self.recipe.num_components):
            return False
        num_complete = int((~rows.x.isnan().any(1)).sum())
        if self.recipe.structure == "flat":
            return num_complete > 0
        mostly_complete = 2 * num_complete >= max(len(rows.x), 8 * len(families))
        few_patterns = len(torch.unique(rows.x.isnan(), dim=0)) <= MOST_PATTERNS
        return self.recipe.structure == "auto" and mostly_complete and few_patterns

    def _may_have_frames(self, rows: Rows) -> bool:
        """Whether all is left open, and no entry is missing: rows with gaps take frames long."""
        return self.recipe.is_open and not bool(rows.x.isnan().any())

    def _sizes(self, rows: Rows) -> list[int]:
        """How many components EM tries: as the user says, or as the rows can pay for."""
        if self.recipe.num_components is not None and self.recipe.structure == "flat":
            return [self.recipe.num_components]
        if self.recipe.num_components is not None:
            return [min(self.recipe.num_components, _most_components(rows, 2))]
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
        if self.recipe.kind == "monotonic":
            return monotonic_gaussian_mixture(*parts, dtype=torch.float64)
        return squared_gaussian_mixture(*parts, dtype=torch.float64)

    def _from_frames(self, rows: Rows, count: int, seed: int) -> Density:
        """Several frames found by EM, with Gaussians of different places and widths in each."""
        return semi_tied_mixture(
            rows.x,
            count,
            UNITS_OF_FRAME,
            is_squared=self.recipe.kind == "squared",
            weights=rows.weights,
            seed=seed,
            dtype=torch.float64,
        )

    def _from_data(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        """Circuits over one or several structures, their inputs started from the columns."""
        seeds = np.random.SeedSequence(seed).generate_state(self.recipe.num_structures).tolist()
        members = [self._circuit(rows, families, one) for one in seeds]
        density = members[0] if len(members) == 1 else Mixture(members)
        initialise(density, rows.x, weights=rows.weights, seed=seed)
        return density

    def _circuit(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        graph, inputs = self._graph(rows, families, seed)
        num_units = self.recipe.num_components or units_of_tree(rows)
        squares = self.recipe.num_squares or min(SQUARES, num_units)
        circuit = Circuit(
            graph,
            inputs,
            num_units=num_units,
            num_outputs=1 if self.recipe.kind == "monotonic" else squares,
            weights=real_weights if self.recipe.kind == "squared" else positive_weights,
            seed=seed,
            dtype=torch.float64,
        )
        return (
            MonotonicCircuit(circuit)
            if self.recipe.kind == "monotonic"
            else SquaredCircuit(circuit)
        )

    def _graph(
        self, rows: Rows, families: Sequence[InputFamily], seed: int
    ) -> tuple[RegionGraph, Sequence[InputFamily]]:
        count = len(families)
        if self.recipe.structure == "linear":
            return linear_tree(count, seed=seed), families
        if self.recipe.structure == "flat":
            return _flat(families, together=self.recipe.covariance == "full")
        if self.recipe.structure == "binary" or self.recipe.num_structures > 1:
            return random_binary_tree(count, seed=seed), families
        return chow_liu_tree(rows.x.numpy()), families


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
