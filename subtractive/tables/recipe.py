"""From settings in users' words to a trained density.

This is where the defaults live: which circuits are tried, how they start and how they train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import positive_weights, real_weights
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import InputFamily
from subtractive.inputs.embedding import whole_number
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.learning.expectation_maximisation import fit_gaussian_mixture
from subtractive.learning.history import History
from subtractive.learning.initialise import initialise
from subtractive.learning.loop import fit
from subtractive.reductions.gaussian_mixture import (
    monotonic_gaussian_mixture,
    squared_gaussian_mixture,
)
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.regions.graph import RegionGraph
from subtractive.regions.trees import flat, linear_tree, random_binary_tree

KINDS = ("squared", "monotonic", "squared-monotonic")
STRUCTURES = ("auto", "binary", "linear", "flat", "chow-liu")
COVARIANCES = ("full", "diagonal")
SQUARES = 8  # of a tree, unless the user says otherwise
SMALL = 50  # a table of fewer different rows trains without a held-out part
RATE, EM_RATE = 0.01, 0.001  # of learning: an EM start is lost by large first steps
PATIENCE, BATCH_SIZE = 10, 256
# Full covariances see rows with the same gaps together: of few gaps, or few patterns, only.
MOST_PATTERNS = 32


class Rows(NamedTuple):
    """Encoded rows (n, d) in float64, NaN where missing, and their weights (n,)."""

    x: Tensor
    weights: Tensor


class Learned(NamedTuple):
    """A trained density in float64, and how it was trained."""

    density: Density
    history: History


@final
@dataclass(frozen=True)
class Recipe:
    """How to build and train a density; all of it has been checked."""

    kind: str
    structure: str
    num_components: int
    num_squares: int | None
    num_structures: int
    covariance: str
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

    def learn(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Learned:
        """Train each candidate on most of the rows, and keep what the others find most likely."""
        train, valid = split(rows, self.validation_fraction, seed)
        best: Learned | None = None
        for start, rate in self._candidates(train, families):
            density = start(seed)
            history = self._train(density, train, valid, rate, seed)
            if best is None or history.best_score > best.history.best_score:
                best = Learned(density.double(), history)
        assert best is not None
        return best

    def learn_more(self, density: Density, rows: Rows, seed: int) -> History:
        """Go on with a density, in one pass over new rows."""
        rate = EM_RATE if _has_full_covariances(density) else RATE
        return self._train(density, rows, None, rate, seed, max_epochs=1)

    def _train(
        self,
        density: Density,
        train: Rows,
        valid: Rows | None,
        rate: float,
        seed: int,
        max_epochs: int | None = None,
    ) -> History:
        return fit(
            density,
            train.x,
            None if valid is None else valid.x,
            weights=train.weights,
            valid_weights=None if valid is None else valid.weights,
            learning_rate=rate,
            batch_size=BATCH_SIZE,
            max_epochs=max_epochs or self.max_epochs,
            patience=PATIENCE,
            seed=seed,
            progress=self.progress,
        )

    def _candidates(
        self, rows: Rows, families: Sequence[InputFamily]
    ) -> Iterator[tuple[Callable[[int], Density], float]]:
        """Functions from seeds to densities at their start, with a rate of learning."""
        if self._may_start_from_em(rows, families):
            if self.structure == "flat":
                yield lambda seed: self._from_em(rows, self.num_components, seed), EM_RATE
                return
            yield lambda seed: self._from_em(rows, self._affordable(rows), seed), EM_RATE
        yield lambda seed: self._from_data(rows, families, seed), RATE

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

    def _affordable(self, rows: Rows) -> int:
        """As many components as there are rows to estimate their covariances from."""
        return max(1, min(self.num_components, len(rows.x) // (4 * rows.x.shape[1])))

    def _from_em(self, rows: Rows, num_components: int, seed: int) -> Density:
        """A Gaussian mixture found by EM: exactly, as a circuit that may learn to subtract."""
        found = fit_gaussian_mixture(rows.x, num_components, weights=rows.weights, seed=seed)
        kept = found.weights > 0
        parts = (found.weights[kept], found.means[kept], found.covariances[kept])
        if self.kind == "monotonic":
            return monotonic_gaussian_mixture(*parts, dtype=torch.float64)
        return squared_gaussian_mixture(*parts, dtype=torch.float64)

    def _from_data(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        """Circuits over one or several structures, their inputs started from the columns."""
        seeds = np.random.SeedSequence(seed).generate_state(self.num_structures).tolist()
        members = [self._circuit(rows, families, one) for one in seeds]
        density = members[0] if len(members) == 1 else Mixture(members)
        initialise(density, rows.x, weights=rows.weights, seed=seed)
        return density

    def _circuit(self, rows: Rows, families: Sequence[InputFamily], seed: int) -> Density:
        graph, inputs = self._graph(rows, families, seed)
        squares = self.num_squares or min(SQUARES, self.num_components)
        circuit = Circuit(
            graph,
            inputs,
            num_units=self.num_components,
            num_outputs=1 if self.kind == "monotonic" else squares,
            weights=real_weights if self.kind == "squared" else positive_weights,
            seed=seed,
            dtype=torch.float32,
        )
        return MonotonicCircuit(circuit) if self.kind == "monotonic" else SquaredCircuit(circuit)

    def _graph(
        self, rows: Rows, families: Sequence[InputFamily], seed: int
    ) -> tuple[RegionGraph, Sequence[InputFamily]]:
        count = len(families)
        if self.structure == "linear":
            return linear_tree(count, seed=seed), families
        if self.structure == "chow-liu":
            return chow_liu_tree(rows.x.numpy()), families
        if self.structure == "flat":
            return _flat(families, together=self.covariance == "full")
        return random_binary_tree(count, seed=seed), families


def split(rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows | None]:
    """Rows to train on, and rows to judge by: a random share, or none of a small table."""
    num_valid = int(fraction * len(rows.x))
    if len(rows.x) < SMALL or num_valid == 0:
        return rows, None
    order = torch.randperm(len(rows.x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[num_valid:], order[:num_valid]
    return Rows(rows.x[train], rows.weights[train]), Rows(rows.x[valid], rows.weights[valid])


def merge(rows: Rows) -> Rows:
    """Equal rows made one with the sum of their weights, whatever their order.

    A row of weight two is therefore two rows, to the last bit.
    """
    codes = np.ascontiguousarray(rows.x.numpy()) + 0.0  # no negative zeros
    codes[np.isnan(codes)] = np.nan  # and one NaN
    keys = codes.view(np.dtype((np.void, codes.itemsize * codes.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    # Sums do not depend on the order of rows either if their terms are sorted.
    weights = rows.weights.numpy()
    order = np.lexsort((weights, inverse))
    totals = np.bincount(inverse[order], weights=weights[order])
    return Rows(torch.from_numpy(codes[first]), torch.from_numpy(totals))


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


def _has_full_covariances(density: Density) -> bool:
    return any(isinstance(family, MultivariateGaussian) for family in density.families)
