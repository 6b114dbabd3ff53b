"""What an input family must say about its functions f_1..f_K (paper: Sec. 2, Def. 1).

A family is frozen data: the fixed facts (number of states, knots, ...) and the formulas. The
numbers it works on arrive as a dictionary of tensors whose first axis is the region ``f``, owned
by :class:`subtractive.inputs.layer.InputLayer`. Adding a family is one file beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from subtractive.inputs.statistics import Sample
from subtractive.numerics.leaf_message import LeafMessage, largest_exponent, relative_values

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

    @property
    def is_total(self) -> bool:
        """Whether this is the integral of a product itself, over the whole real line."""
        return self.lower is None and self.upper is None and self.power == 0


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


def tilted(moments: Sequence[LeafMessage], tilt: Tensor) -> LeafMessage:
    """``M_0 + θ M_1 + θ² M_2 / 2`` of the moments of one region of one variable, θ being (1,)."""
    zeroth, first, second = (relative_values(moment, moments[0]) for moment in moments)
    return LeafMessage(
        zeroth + tilt * first + 0.5 * tilt.square() * second, largest_exponent(moments[0])
    )


class Question(ABC):
    """q functions of one variable, to be integrated against its density.

    They are powers, points or half-lines, see :mod:`subtractive.inputs.asking`.
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """The number q of functions."""

    @abstractmethod
    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        """Their integrals against f_i f_j, (f, q, i, j)."""

    @abstractmethod
    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        """Their integrals against f_i, (f, q, i)."""

    @abstractmethod
    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        """Their integrals against Σ_k w_k N(m_k, s_k), (n, q), with weights (n, k)."""


def name_and_facts(family: InputFamily) -> dict[str, Any]:
    """What a family without families inside is, as plain data."""
    facts = {entry.name: getattr(family, entry.name) for entry in fields(family)}  # type: ignore[arg-type]
    return {"family": type(family).__name__, **facts}


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
    def gram_dtype(self) -> torch.dtype | None:
        """The precision in which :meth:`gram` takes its tensors; ``None`` for their own.

        Its result is in double precision either way.
        """

    @property
    @abstractmethod
    def num_states(self) -> int | None:
        """The states are 0 .. num_states - 1; ``None`` for a continuous family."""

    @property
    def atoms(self) -> tuple[float, ...]:
        """The points that have a probability of their own, of a continuous family."""
        return ()

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The name of the family and its fixed facts as plain data, for files."""

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
    def parameters_from(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """What is learned, at a start from rows of one region.

        ``f_k ** power`` shall look like their density or a part of it, with noise that tells the
        units apart: power is 2 in a squared circuit, else 1. The result is always finite.
        """

    @abstractmethod
    def step_units(self, p: Tensors) -> dict[str, Tensor]:
        """How far a step of one goes for learned tensors, each (f, i, ...); one if not named.

        A mean has moved far when it has moved by the width of its function, not by one.
        """

    @abstractmethod
    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        """What is fixed, for one region: knots, centres, totals."""

    @abstractmethod
    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        """f(x), (f, n, i), at x (f, n, s), s being the number of variables of a region."""

    @abstractmethod
    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        """∫ x^power f_i over the window, (f, m, i)."""

    @abstractmethod
    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        """∫ x^power f_i g_j over the window, (f, m, i, j)."""

    @abstractmethod
    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        """f with the unobserved variables of a region integrated out, (f, n, i)."""

    @abstractmethod
    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> LeafMessage:
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
    def answer_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        questions: Sequence[Question | None],
    ) -> list[Tensor | None]:
        """Expectations (n, q) for each variable of one region under Σ_ij E_ij f_i f_j.

        Arguments are as for :meth:`sample_square`; observed variables are not answered.
        """

    @abstractmethod
    def answer_units(
        self,
        p: Tensors,
        shares: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        questions: Sequence[Question | None],
    ) -> list[Tensor | None]:
        """Expectations (n, q) for each variable of one region under Σ_i r_i f_i / ∫ f_i.

        The shares r (n, i) sum to one.
        """

    @abstractmethod
    def tilted_gram(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        """∫ (1 + t + t²/2) f_i f_j with t = Σ_k θ_k x_k over what is not observed, (1, 1, i, j).

        To second order in the tilt θ (s,) of one region this is ∫ exp(t) f_i f_j, whose logarithm
        generates means and covariances. Evidence x is (1, s).
        """

    @abstractmethod
    def tilted_integral(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        """∫ (1 + t + t²/2) f_i in the same way, (1, 1, i)."""

    @abstractmethod
    def overlap(self, p: Tensors) -> Tensor:
        """Whether the supports of f_i and f_j may meet, (f, i, j) bool: for determinism."""


class UnivariateFamily(InputFamily):
    """A family of functions of one variable: evidence inside a region is all or nothing."""

    def describe(self) -> dict[str, Any]:
        return name_and_facts(self)

    def check_scope(self, size: int) -> None:
        if size != 1:
            raise ValueError(
                f"{type(self).__name__} takes input regions of one variable, got a region of "
                f"{size}. Split the region, or use MultivariateGaussian."
            )

    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        raise AssertionError("a region of one variable is observed or not")

    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> LeafMessage:
        raise AssertionError("a region of one variable is observed or not")

    def answer_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        questions: Sequence[Question | None],
    ) -> list[Tensor | None]:
        if questions[0] is None:
            return [None]
        gram = self.gram(p, p, EVERYWHERE)
        numbers = relative_values(questions[0].of_products(self, p), gram)[0]  # (q, i, j)
        total = (environment * relative_values(gram, gram)[0]).sum((-2, -1))  # (n,)
        return [environment.flatten(1) @ numbers.flatten(1).mT / total[:, None]]

    def answer_units(
        self,
        p: Tensors,
        shares: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        questions: Sequence[Question | None],
    ) -> list[Tensor | None]:
        if questions[0] is None:
            return [None]
        mass = self.integral(p, EVERYWHERE)
        numbers = relative_values(questions[0].of_functions(self, p), mass)[0]  # (q, i)
        return [shares @ (numbers / relative_values(mass, mass)[0]).mT]

    def tilted_gram(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        return tilted([self.gram(p, p, Window(power=power)) for power in range(3)], tilt)

    def tilted_integral(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        return tilted([self.integral(p, Window(power=power)) for power in range(3)], tilt)
