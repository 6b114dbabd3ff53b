"""B-spline inputs: piecewise polynomials on an interval (paper: App. E).

Everything is computed span by span in the coordinate ``x - start of the span``: polynomials in x
itself lose their digits when there are many knots. Axes beyond the usual: ``b`` basis function,
``s`` span between two neighbouring knots, ``a`` the order + 1 bases that live on a span, ``g``
quadrature node. A knot vector is (f, b + order + 1), its ends repeated order + 1 times.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import pad

from subtractive.inputs.base import Tensors, UnivariateFamily, Window
from subtractive.inputs.drawing import by_chunks, draw_piecewise, quadratic, uniforms
from subtractive.inputs.embedding import look_up, share_states, whole_number
from subtractive.numerics.scaled import Unscaled


def spans_of(knots: Tensor, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a knot vector (f, b + order + 1) into spans: starts (f, s), ends (f, s) and near knots.

    The last are (f, s, 2 order), measured from the start: those that the bases on a span depend
    on, ``order`` of them up to its start and as many from its end on.
    """
    count = knots.shape[1] - 2 * order - 1
    start, end = knots[:, order : order + count], knots[:, order + 1 : order + 1 + count]
    near = torch.arange(count)[:, None] + torch.arange(1, 2 * order + 1)  # (s, 2 order)
    return start, end, knots[:, near.to(knots.device)] - start[..., None]


def basis_values(near: Tensor, position: Tensor) -> Tensor:
    r"""The order + 1 B-splines that are not zero on a span (Cox and de Boor).

    .. math:: B_{a,k} = \frac{x - t_a}{t_{a+k} - t_a} B_{a,k-1}
              + \frac{t_{a+k+1} - x}{t_{a+k+1} - t_{a+1}} B_{a+1,k-1}

    ``near`` is (..., 2 order), ``position`` (...); the result is (..., a).

    >>> basis_values(torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor(0.5))
    tensor([0.2500, 0.5000, 0.2500])
    """
    order = near.shape[-1] // 2
    basis, x = torch.ones_like(position)[..., None], position[..., None]
    for degree in range(1, order + 1):
        before = near[..., order - degree : order]
        after = near[..., order : order + degree]
        width = after - before
        # Different knots may have been rounded to one number: nothing lives between them.
        share = basis / torch.where(width == 0, 1.0, width)
        basis = pad((after - x) * share, (0, 1)) + pad((x - before) * share, (1, 0))
    return basis


def spline_values(coefficients: Tensor, knots: Tensor, x: Tensor) -> Tensor:
    """``f_i(x) = Σ_b α_ib B_b(x)``, (f, n, i), at x (f, n); zero, as is its gradient, outside.

    ``coefficients`` α are (f, i, b). Derivatives at a knot are those from the right, but at the
    last knot, which belongs to the interval, those from the left.

    >>> hat, knots = torch.tensor([[[0.0, 1.0, 0.0]]]), torch.tensor([[0.0, 0.0, 0.5, 1.0, 1.0]])
    >>> spline_values(hat, knots, torch.tensor([[0.25, 0.5, 2.0]]))[..., 0]
    tensor([[0.5000, 1.0000, 0.0000]])
    """
    order = knots.shape[1] - coefficients.shape[2] - 1
    start, _, near = spans_of(knots, order)
    inside = (x >= knots[:, :1]) & (x <= knots[:, -1:])
    x = torch.where(inside, x, knots[:, :1])
    span = torch.searchsorted(start[:, 1:].contiguous(), x.detach(), right=True)  # (f, n)
    near = near.gather(1, span[..., None].expand(-1, -1, 2 * order))
    basis = basis_values(near, x - start.gather(1, span)) * inside[..., None]  # (f, n, a)
    terms = (basis[..., a, None] * look_up(coefficients, span + a) for a in range(order + 1))
    return reduce(torch.add, terms)


def span_quadrature(
    knots: Tensor, order: int, window: Window, degree: int
) -> tuple[Tensor, Tensor]:
    """Bases (f, m, s, g, a) and weights (f, m, s, g) of Gauss's rule on each span in the window.

    Exact, the factor x^power included, for products of bases of total degree ``degree``. The
    nodes move with the bounds, so that derivatives with respect to the bounds are exact too.
    """
    start, end, near = (tensor[:, None] for tensor in spans_of(knots, order))  # (f, 1, s, ...)
    lower = start if window.lower is None else _clip(window.lower, start, end)
    upper = end if window.upper is None else _clip(window.upper, start, end)
    length = (upper - lower).clamp(min=0)[..., None]  # (f, m, s, 1)
    nodes, weights = np.polynomial.legendre.leggauss((degree + window.power) // 2 + 1)
    position = (lower - start)[..., None] + length * knots.new_tensor((nodes + 1) / 2)
    factor = (start[..., None] + position) ** window.power
    measure = length * knots.new_tensor(weights / 2) * factor
    return basis_values(near[..., None, :], position), measure


def spline_integral(coefficients: Tensor, knots: Tensor, window: Window) -> Tensor:
    """``∫ x^power f_i dx`` over the window, (f, m, i), of splines with coefficients (f, i, b)."""
    order = knots.shape[1] - coefficients.shape[2] - 1
    basis, measure = span_quadrature(knots, order, window, order)
    shares = (measure[..., None, :] @ basis)[..., 0, :]  # (f, m, s, a)
    return _join(shares.unbind(-1)) @ coefficients.mT


def spline_gram(left: Tensor, right: Tensor, knots: Tensor, window: Window) -> Tensor:
    r"""Integrals of products of splines, from those of the basis (paper: App. E).

    .. math:: G_{ij} = \sum_{b c} α_{ib} β_{jc} \int x^{power} B_b(x) B_c(x) dx

    ``left`` α is (f, i, b), ``right`` β (f, j, b); the result is (f, m, i, j).
    """
    order = knots.shape[1] - left.shape[2] - 1
    basis, measure = span_quadrature(knots, order, window, 2 * order)
    blocks = (basis * measure[..., None]).mT @ basis  # (f, m, s, a, a)
    return banded_product(left, blocks) @ right.mT[:, None]


def banded_product(coefficients: Tensor, blocks: Tensor) -> Tensor:
    """α B, (f, m, i, b), B being the sum of the ``blocks`` (f, m, s, a, a) along its diagonal.

    B itself, b x b for every row of a window, is never formed.
    """
    spans, width = blocks.shape[2], blocks.shape[3]
    windows = [coefficients[:, None, :, a : a + spans] for a in range(width)]  # (f, 1, i, s)
    columns = blocks[:, :, None].unbind(-1)  # (f, m, 1, s, a)
    return _join(
        [reduce(torch.add, map(torch.mul, windows, column.unbind(-1))) for column in columns]
    )


def quantile_knots(
    column: NDArray[np.float64], count: int, domain: tuple[float, float]
) -> tuple[float, ...]:
    """``count`` knots at the quantiles of a column; where these coincide, halfway across gaps."""
    # Closer knots would be one number in single precision.
    least = 1e-6 * max(domain[1] - domain[0], abs(domain[0]), abs(domain[1]))
    knots = [domain[0]]
    for knot in np.quantile(column, np.linspace(0, 1, count + 2)[1:-1]):
        if knot - knots[-1] > least and domain[1] - knot > least:
            knots.append(float(knot))
    knots.append(domain[1])
    while len(knots) < count + 2:
        widest = int(np.argmax(np.diff(knots)))
        knots.insert(widest + 1, (knots[widest] + knots[widest + 1]) / 2)
    return tuple(knots[1:-1])


def _clip(bound: Tensor, start: Tensor, end: Tensor) -> Tensor:
    bound = bound.to(start.dtype)[..., None]  # (f, m, 1)
    # Not clamp: a bound on a knot moves one span only, the one to its left.
    return torch.where(bound <= start, start, torch.where(bound > end, end, bound))


def _join(shares: Sequence[Tensor]) -> Tensor:
    """Add what spans contribute to their 1st, 2nd, ... basis, each (..., s), into (..., b)."""
    last = len(shares) - 1
    return reduce(torch.add, (pad(share, (a, last - a)) for a, share in enumerate(shares)))


@final
@dataclass(frozen=True)
class Spline(UnivariateFamily):
    """Splines ``f_k(x) = Σ_b α_kb B_b(x)`` of degree ``order`` on the closed interval ``domain``.

    Outside the interval f is exactly zero, and so is its gradient. There are
    num_bases - order - 1 interior knots, uniform unless given. Coefficients start uniform in
    (0, 1) and are real, or with ``non_negative`` positive, as monotonic circuits need.

    >>> Spline(5, domain=(0.0, 3.0)).constants(1, 1)["knots"]
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

    @property
    def num_states(self) -> None:
        return None

    def check(self, column: Tensor, variable: int) -> None:
        wrong = ~column.isfinite()
        if wrong.any():
            raise ValueError(
                f"variable {variable} must hold finite numbers, got {column[wrong][0].item():g}. "
                "Replace it, or mark it as missing."
            )

    def parameters(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        shape = (num_units, self.num_bases)
        start = 1 - torch.rand(shape, generator=generator, dtype=torch.float64)  # never zero
        return {"log_coefficient": start.log()} if self.non_negative else {"coefficient": start}

    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        lower, upper = self.domain
        uniform = np.linspace(lower, upper, self.num_bases - self.order + 1)[1:-1]
        line = [lower, *(uniform if self.knots is None else self.knots), upper]
        return {"knots": torch.from_numpy(np.pad(line, self.order, mode="edge"))}

    def values(self, p: Tensors, x: Tensor) -> Unscaled:
        knots = p["knots"]
        position = x[..., 0].to(knots.dtype).contiguous()
        return Unscaled(spline_values(self._coefficients(p), knots, position), None)

    def integral(self, p: Tensors, window: Window) -> Unscaled:
        return Unscaled(spline_integral(self._coefficients(p), p["knots"], window), None)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> Unscaled:
        left = self._coefficients(p)
        right = left if q is p else self._coefficients(q)
        if not torch.equal(p["knots"], q["knots"]):
            raise ValueError("products of splines need the same knots and domain on both sides.")
        return Unscaled(spline_gram(left, right, p["knots"], window), None)

    def sample_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
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

        uniform = uniforms(len(x), generator)
        width = coefficients.shape[1] * (self.order + 1)
        return by_chunks(draw, len(x), width * self.num_bases)[:, None]

    def sample_units(
        self,
        p: Tensors,
        units: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
    ) -> Tensor:
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
        return torch.stack(columns)[..., None]

    def overlap(self, p: Tensors) -> Tensor:
        if self.non_negative:
            present = p["log_coefficient"] > -math.inf
        else:
            present = p["coefficient"] != 0
        return share_states(present.unfold(-1, self.order + 1, 1).any(-1))  # states: spans

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
