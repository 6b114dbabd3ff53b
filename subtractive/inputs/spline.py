"""Spline inputs: piecewise polynomials on an interval (paper: App. E)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from subtractive.inputs.base import EVERYWHERE, Tensors, Window
from subtractive.inputs.bsplines import quantile_knots, spline_gram, spline_integral, spline_values
from subtractive.inputs.embedding import share_states
from subtractive.inputs.quadratic_form_sampling import (
    by_chunks,
    draw_piecewise,
    quadratic,
    uniforms,
)
from subtractive.inputs.statistics import Sample
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.validation import whole_number


@final
@dataclass(frozen=True)
class Spline(UnivariateFamily):
    """Splines ``f_k(x) = Σ_b α_kb B_b(x)`` of degree ``order`` on the closed interval ``domain``.

    Outside the interval f is exactly zero, and so is its gradient. There are
    num_bases - order - 1 interior knots, uniform unless given. Coefficients start uniform in
    (0, 1) and are real, or with ``non_negative`` positive, as monotonic circuits need.

    >>> Spline(5, domain=(0.0, 3.0)).constants(1)["knots"]
    tensor([0., 0., 0., 1., 2., 3., 3., 3.], dtype=torch.float64)
    """

    num_bases: int
    order: int = 2
    domain: tuple[float, float] = (0.0, 1.0)
    knots: tuple[float, ...] | None = None
    non_negative: bool = False

    def __post_init__(self) -> None:
        order = whole_number("order", self.order, 0)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "num_bases", whole_number("num_bases", self.num_bases, order + 1))
        lower, upper = map(float, self.domain)
        if not -math.inf < lower < upper < math.inf:
            raise ValueError(f"domain must be a finite interval a < b, got {self.domain}.")
        object.__setattr__(self, "domain", (lower, upper))
        if self.knots is not None:
            object.__setattr__(self, "knots", tuple(map(float, self.knots)))
            self._check_knots(self.knots)

    @classmethod
    def from_quantiles(
        cls,
        column: ArrayLike | Tensor,
        num_bases: int,
        *,
        order: int = 2,
        margin: float = 0.05,
        non_negative: bool = False,
    ) -> Spline:
        """Put the knots where the data are: at the quantiles of a column, NaN being left out.

        The domain exceeds the range of the data by the fraction ``margin`` of it on either side;
        that of a constant column c is c ± margin max(|c|, 1).

        >>> Spline.from_quantiles([0.0, 1.0, 2.0, 10.0], num_bases=4, margin=0.0).knots
        (1.5,)
        """
        data = column.detach().cpu() if isinstance(column, Tensor) else column
        values = np.asarray(data, dtype=np.float64).ravel()
        values = values[~np.isnan(values)]
        if values.size == 0 or np.isinf(values).any():
            raise ValueError(
                f"quantiles need finite values, got {values.size} values and "
                f"{np.isinf(values).sum()} infinite ones among them. Give domain=(a, b) instead."
            )
        lower, upper = float(values.min()), float(values.max())
        excess = margin * ((upper - lower) or max(abs(lower), 1.0))
        domain = (lower - excess, upper + excess)
        uniform = cls(num_bases, order, domain, None, non_negative)
        return replace(uniform, knots=quantile_knots(values, num_bases - order - 1, domain))

    @property
    def fold_key(self) -> Hashable:
        return Spline, self.num_bases, self.order, self.non_negative

    @property
    def is_non_negative(self) -> bool:
        return self.non_negative

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        shape = (num_units, self.num_bases)
        start = 1 - torch.rand(shape, generator=generator, dtype=torch.float64)  # never zero
        return {"log_coefficient": start.log()} if self.non_negative else {"coefficient": start}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        start = 1 - torch.rand(num_units, self.num_bases, generator=generator, dtype=torch.float64)
        coefficient = start * self._heights(*sample.column(0)) ** (1 / power)
        return (
            {"log_coefficient": coefficient.log()}
            if self.non_negative
            else {"coefficient": coefficient}
        )

    def constants(self, num_units: int) -> dict[str, Tensor]:
        lower, upper = self.domain
        uniform = np.linspace(lower, upper, self.num_bases - self.order + 1)[1:-1]
        line = [lower, *(uniform if self.knots is None else self.knots), upper]
        return {"knots": torch.from_numpy(np.pad(line, self.order, mode="edge"))}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        knots = p["knots"]
        position = x[..., 0].to(knots.dtype).contiguous()
        return LeafMessage(spline_values(self._coefficients(p), knots, position), None)

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        return LeafMessage(spline_integral(self._coefficients(p), p["knots"], window), None)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        left = self._coefficients(p)
        right = left if q is p else self._coefficients(q)
        if not torch.equal(p["knots"], q["knots"]):
            raise ValueError("products of splines need the same knots and domain on both sides.")
        return LeafMessage(spline_gram(left, right, p["knots"], window), None)

    def draw_square(
        self, p: Tensors, environment: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        coefficients, knots = self._coefficients(p), p["knots"]

        def draw(rows: slice) -> Tensor:
            forms = environment[rows]

            def density(points: Tensor, some: Tensor) -> Tensor:
                values = spline_values(coefficients, knots, points.reshape(1, -1))
                return quadratic(values[0].unflatten(0, points.shape), forms[some])

            return draw_piecewise(
                self._edges(p), density, num_nodes=self.order + 1, uniform=uniform[rows]
            )

        uniform = uniforms(len(environment), generator)
        width = coefficients.shape[1] * (self.order + 1)
        return by_chunks(draw, len(environment), width * self.num_bases)

    def draw_units(self, p: Tensors, units: Tensor, generator: torch.Generator | None) -> Tensor:
        columns = []
        for region, unit in enumerate(units):
            one = {name: tensor[region : region + 1] for name, tensor in p.items()}

            def density(
                points: Tensor, some: Tensor, unit: Tensor = unit, one: Tensors = one
            ) -> Tensor:
                values = spline_values(
                    self._coefficients(one), one["knots"], points.reshape(1, -1)
                )
                values = values[0].unflatten(0, points.shape)  # (n or 1, q, i)
                chosen = unit[some, None, None].expand(-1, points.shape[1], 1)
                return torch.gather(values.expand(len(some), -1, -1), -1, chosen)[..., 0]

            columns.append(
                draw_piecewise(
                    self._edges(one),
                    density,
                    num_nodes=self.order // 2 + 1,
                    uniform=uniforms(len(unit), generator),
                )
            )
        return torch.stack(columns)

    def overlap(self, p: Tensors) -> Tensor:
        if self.non_negative:
            present = p["log_coefficient"] > -math.inf
        else:
            present = p["coefficient"] != 0
        return share_states(present.unfold(-1, self.order + 1, 1).any(-1))  # states: spans

    def _heights(self, values: Tensor, shares: Tensor) -> Tensor:
        """The density of values near each basis function, (b,), one being that of a uniform."""
        inside = (values >= self.domain[0]) & (values <= self.domain[1])
        knots = self.constants(1)["knots"][None]
        every = torch.eye(self.num_bases, dtype=torch.float64)[None]
        mass = shares[inside] @ spline_values(every, knots, values[None, inside])[0]
        count = shares.new_tensor(float(inside.sum()))
        mass = mass * (count / shares[inside].sum() if count > 0 else 0)
        width = spline_integral(every, knots, EVERYWHERE)[0, 0] / (self.domain[1] - self.domain[0])
        # As if half a row more had been seen near each basis function, spread evenly.
        extra = 0.5 * self.num_bases
        return (mass / width + extra) / (count + extra)

    def _edges(self, p: Tensors) -> Tensor:
        return p["knots"][0, self.order : p["knots"].shape[1] - self.order]  # (c + 1,)

    def _coefficients(self, p: Tensors) -> Tensor:
        return p["log_coefficient"].exp() if self.non_negative else p["coefficient"]

    def _check_knots(self, knots: tuple[float, ...]) -> None:
        expected = self.num_bases - self.order - 1
        if len(knots) != expected:
            raise ValueError(
                f"{self.num_bases} bases of order {self.order} need {expected} interior knots "
                f"(num_bases - order - 1), got {len(knots)}."
            )
        line = (self.domain[0], *knots, self.domain[1])
        if not all(left < right for left, right in pairwise(line)):
            raise ValueError(
                f"knots must increase strictly and lie inside the domain {self.domain}, got "
                f"{knots}. Leave out repeated knots and the ends of the domain."
            )
