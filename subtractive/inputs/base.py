"""What an input family must say about its functions f_1..f_K (paper: Sec. 2, Def. 1).

A family is frozen data: the fixed facts (number of states, knots, ...) and the formulas. The
numbers it works on arrive as a dictionary of tensors whose first axis is the region ``f``, owned
by :class:`subtractive.inputs.layer.InputLayer`. Adding a family is one file beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from subtractive.numerics.scaled import Unscaled

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Window:
    """The integral ``∫ x^power · (...) dx`` over ``lower < x <= upper``; ``None`` is an open end.

    Bounds are (f, m): m = 1 says the same bound for all rows. Discrete families sum over the
    states in the window; ``states`` (f, m, v) picks them one by one instead of by bounds.
    """

    lower: Tensor | None = None
    upper: Tensor | None = None
    power: int = 0
    states: Tensor | None = None


EVERYWHERE = Window()


def state_weights(window: Window, num_states: int, like: Tensor) -> Tensor:
    """``v^power`` for the states v inside the window, else zero, (f, m, v) or (1, 1, v)."""
    states = torch.arange(num_states, dtype=like.dtype, device=like.device)
    weights = states[None, None, :] ** window.power
    if window.lower is not None:
        weights = weights * (states > window.lower[..., None])
    if window.upper is not None:
        weights = weights * (states <= window.upper[..., None])
    return weights if window.states is None else weights * window.states


class InputFamily(ABC):
    """Functions f_1..f_K of one region, their integrals, and the integrals of their products.

    In the shapes below ``p`` and ``q`` are the tensors of two input layers over the same regions
    (usually the same layer twice), with i and j functions; ``m`` is one where a result is the
    same for all rows.
    """

    @property
    @abstractmethod
    def fold_key(self) -> Hashable:
        """Regions whose families have equal keys are stored and evaluated in one tensor."""

    @property
    @abstractmethod
    def is_non_negative(self) -> bool:
        """Whether f_k >= 0 whatever the parameters, as a monotonic circuit requires."""

    @property
    @abstractmethod
    def num_states(self) -> int | None:
        """The states are 0 .. num_states - 1; ``None`` for a continuous family."""

    @abstractmethod
    def check_scope(self, size: int) -> None:
        """Raise ``ValueError`` if a region of ``size`` variables cannot carry this family."""

    @abstractmethod
    def check(self, column: Tensor, variable: int) -> None:
        """Raise ``ValueError`` if an observed value of ``variable``, (n,), is impossible."""

    @abstractmethod
    def parameters(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """What is learned, at its start, for one region of ``size`` variables, each (i, ...)."""

    @abstractmethod
    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        """What is fixed, for one region: knots, centres, totals."""

    @abstractmethod
    def values(self, p: Tensors, x: Tensor) -> Unscaled:
        """f(x), (f, n, i), at x (f, n, s), s being the number of variables of a region."""

    @abstractmethod
    def integral(self, p: Tensors, window: Window) -> Unscaled:
        """∫ x^power f_i over the window, (f, m, i)."""

    @abstractmethod
    def gram(self, p: Tensors, q: Tensors, window: Window) -> Unscaled:
        """∫ x^power f_i g_j over the window, (f, m, i, j)."""

    @abstractmethod
    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> Unscaled:
        """f with the unobserved variables of a region integrated out, (f, n, i)."""

    @abstractmethod
    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> Unscaled:
        """f_i g_j with the unobserved variables of the region integrated out, (f, n, i, j)."""

    @abstractmethod
    def sample_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
    ) -> Tensor:
        """Values (n, s) of one region from Σ_ij E_ij f_i f_j, with environments (n, i, j).

        Variables that are observed keep their values in x (n, s), and the others are drawn given
        them.
        """

    @abstractmethod
    def sample_units(
        self,
        p: Tensors,
        units: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
    ) -> Tensor:
        """Values (f, n, s) from f_k / ∫ f_k for units k (f, n), given what is observed in x."""

    @abstractmethod
    def overlap(self, p: Tensors) -> Tensor:
        """Whether the supports of f_i and f_j may meet, (f, i, j) bool: for determinism."""


class UnivariateFamily(InputFamily):
    """A family of functions of one variable: evidence inside a region is all or nothing."""

    def check_scope(self, size: int) -> None:
        if size != 1:
            raise ValueError(
                f"{type(self).__name__} takes input regions of one variable, got a region of "
                f"{size}. Split the region, or use MultivariateGaussian."
            )

    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> Unscaled:
        raise AssertionError("a region of one variable is observed or not")

    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> Unscaled:
        raise AssertionError("a region of one variable is observed or not")
