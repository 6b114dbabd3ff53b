"""Input families: the contract of the functions f_1..f_K of a region (paper: Sec. 2, Def. 1).

A family is a frozen dataclass: fixed facts (number of states, knots, ...) and formulas. The
numbers it works on arrive as a dictionary of tensors whose first axis is the region ``f``, owned
by :class:`subtractive.inputs.layer.InputLayer`. To write a family, fill in
:class:`subtractive.inputs.univariate.UnivariateFamily`, or
:class:`subtractive.inputs.multivariate.MultivariateFamily` for regions of several variables.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from subtractive.inputs.statistics import Sample
from subtractive.io.registry import Registry
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.validation import check_finite, check_states

Tensors = Mapping[str, Tensor]
Flags = Sequence[bool]
Random = torch.Generator | None


@dataclass(frozen=True)
class Window:
    """The integral ``∫ x^power · (...) dx`` over ``lower < x <= upper``; ``None`` is an open end.

    Bounds are (f, m): m = 1 says the same bound for all rows. Discrete families sum over the
    states in the window; ``states`` (f, m, v) picks them one by one instead of by bounds.

    >>> from subtractive.inputs import Window
    >>> Window(lower=torch.zeros(1, 1), power=1).num_rows  # ∫ x (...) dx over x > 0
    1
    """

    lower: Tensor | None = None
    upper: Tensor | None = None
    power: int = 0
    states: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """The number m of rows that the bounds tell apart."""
        limits = [t for t in (self.lower, self.upper, self.states) if t is not None]
        return max((limit.shape[1] for limit in limits), default=1)

    def rows(self, rows: slice) -> Window:
        """The windows of some rows."""
        limits = (
            t if t is None or t.shape[1] == 1 else t[:, rows]
            for t in (self.lower, self.upper, self.states)
        )
        lower, upper, states = limits
        return Window(lower, upper, self.power, states)

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


class TestFunctions(ABC):
    """q functions of one variable whose expectations are wanted under its density.

    They are powers, points or half-lines, see :mod:`subtractive.inputs.test_functions`.
    """

    __test__ = False  # pytest must not take the class for a test

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


FAMILIES: Registry[InputFamily] = Registry("input family")


class InputFamily(ABC):
    """Functions f_1..f_K of one region, their integrals, and the integrals of their products.

    In the shapes below ``p`` and ``q`` are the tensors of two input layers over the same regions
    (usually the same layer twice), with i and j functions; ``m`` is one where a result is the
    same for all rows. ``observed`` says which variables of the region are known, with values in x.

    >>> isinstance(sub.Gaussian(), sub.InputFamily), sub.Embedding(3).num_states
    (True, 3)
    """

    is_univariate: ClassVar[bool] = False  # whether regions must have one variable

    def __init_subclass__(cls, old_names: Sequence[str] = (), **options: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**options)
        FAMILIES.add(cls, old_names)

    @property
    def fold_key(self) -> Hashable:
        """Regions whose families have equal keys are stored and evaluated in one tensor."""
        return self

    @property
    def is_non_negative(self) -> bool:
        """Whether f_k >= 0 whatever the parameters, as a monotonic circuit requires."""
        return False

    @property
    def gram_dtype(self) -> torch.dtype | None:
        """The precision in which :meth:`gram` takes its tensors; ``None`` for their own.

        Its result is in double precision either way.
        """
        return torch.float64

    @property
    def num_states(self) -> int | None:
        """The states are 0 .. num_states - 1; ``None`` for a continuous family."""
        return None

    @property
    def support(self) -> tuple[float, float]:
        """The interval outside of which all functions are zero."""
        return -math.inf, math.inf

    @property
    def atoms(self) -> tuple[float, ...]:
        """The points of a continuous family that have a probability of their own."""
        return ()

    def describe(self) -> dict[str, Any]:
        """The name of the family and its fields as plain data, for files."""
        if not is_dataclass(type(self)):
            raise ValueError(f"{type(self).__name__} must be a frozen dataclass to be saved.")
        facts = {entry.name: getattr(self, entry.name) for entry in fields(type(self))}  # type: ignore[arg-type]
        if not _is_rebuilt_from(facts, self):
            raise ValueError(
                f"{self} cannot be saved: {type(self).__name__} must be equal to what its "
                "constructor makes of its fields, which must be numbers, text, tuples or families."
            )
        for name, value in facts.items():
            if isinstance(value, InputFamily):
                facts[name] = value.describe()
        return {"family": FAMILIES.name_of(type(self)), **facts}

    def check(self, column: Tensor, variable: int) -> None:
        """Raise ``ValueError`` if an observed value of ``variable``, (n,), is impossible."""
        if self.num_states is None:
            check_finite(column, variable, self.support)
        else:
            check_states(column, variable, self.num_states)

    def check_scope(self, size: int) -> None:
        """Raise ``ValueError`` if a region of ``size`` variables cannot carry this family."""
        if size < 1 or (self.is_univariate and size > 1):
            count = "one variable" if self.is_univariate else "at least one variable"
            found = f"a region of {size}. Split it, or use MultivariateGaussian" if size else "0"
            raise ValueError(f"{type(self).__name__} takes input regions of {count}, got {found}.")

    def start(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What is learned, each (i, ...), and what is fixed, of a region of ``size`` variables."""
        sizes = (num_units,) if self.is_univariate else (size, num_units)
        return self.init(*sizes, generator), self.constants(*sizes)  # type: ignore[attr-defined]

    @abstractmethod
    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """What is learned, at a start from rows of one region.

        ``f_k ** power`` shall look like their density or a part of it, with noise that tells the
        units apart: power is 2 in a squared circuit, else 1. The result is always finite.
        """

    def update_scale(self, p: Tensors) -> dict[str, Tensor]:
        """How far a step of one goes for learned tensors, each (f, i, ...); one if not named.

        A mean has moved far when it has moved by the width of its function, not by one.
        """
        return {}

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
    def sample_square(
        self, p: Tensors, environment: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        """Values (n, s) of one region from Σ_ij E_ij f_i f_j, with environments (n, i, j).

        Variables that are observed keep their values in x (n, s), and the others are drawn given
        them.
        """

    @abstractmethod
    def sample_units(
        self, p: Tensors, units: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        """Values (f, n, s) from f_k / ∫ f_k for units k (f, n), given what is observed in x."""

    @abstractmethod
    def expectations_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
    ) -> list[Tensor | None]:
        """Expectations (n, q) for each variable of one region under Σ_ij E_ij f_i f_j.

        Arguments are as for :meth:`sample_square`; observed variables have none.
        """

    @abstractmethod
    def expectations_units(
        self,
        p: Tensors,
        shares: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
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

    def overlap(self, p: Tensors) -> Tensor:
        """Whether the supports of f_i and f_j may meet, (f, i, j) bool: for determinism."""
        some = next(iter(p.values()))
        regions, units = some.shape[:2]
        return torch.ones(regions, units, units, dtype=torch.bool, device=some.device)


def _is_rebuilt_from(facts: Mapping[str, Any], family: InputFamily) -> bool:
    """Whether the constructor makes an equal family of the facts as a file has them."""
    try:
        plain = {
            name: value if isinstance(value, InputFamily) else json.loads(json.dumps(value))
            for name, value in facts.items()
        }
        tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
        return type(family)(**tuples) == family
    except (TypeError, ValueError):
        return False
