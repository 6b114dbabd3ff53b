"""B-splines: bases, values, and exact integrals of products (paper: App. E).

Everything is computed span by span in the coordinate ``x - start of the span``: polynomials in x
itself lose their digits when there are many knots. Axes beyond the usual: ``b`` basis function,
``s`` span between two neighbouring knots, ``a`` the order + 1 bases that live on a span, ``g``
quadrature node. A knot vector is (f, b + order + 1), its ends repeated order + 1 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from subtractive.inputs.base import Window
from subtractive.inputs.embedding import look_up
from subtractive.inputs.quadrature import clip


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
    lower = start if window.lower is None else clip(window.lower.to(start.dtype), start, end)
    upper = end if window.upper is None else clip(window.upper.to(start.dtype), start, end)
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


def _join(shares: Sequence[Tensor]) -> Tensor:
    """Add what spans contribute to their 1st, 2nd, ... basis, each (..., s), into (..., b)."""
    last = len(shares) - 1
    return reduce(torch.add, (pad(share, (a, last - a)) for a, share in enumerate(shares)))
