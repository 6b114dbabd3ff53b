"""Multivariate Gaussians: Cholesky factors, overlaps of all pairs, and partial evidence.

The covariance of unit k is Σ_k = L_k L_kᵀ with L_k lower triangular. It is parametrised rather
than its inverse because everything but values needs it: marginals are made of rows of L, and the
product of two densities integrates to N(μ_i; μ_j, Σ_i + Σ_j).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.numerics.transforms import is_transformed

# Entries of the matrices that are decomposed at a time: small enough for a processor's cache.
ENTRIES = 2**18


def cholesky_factor(p: Tensors) -> Tensor:
    """The lower triangular L with Σ = L Lᵀ, (f, i, s, s)."""
    return p["lower"].tril(-1) + p["log_diagonal"].exp().diag_embed()


def whiten(factor: Tensor, deviation: Tensor) -> Tensor:
    """``L⁻¹ δ``, (..., s, n), of factors L, (..., s, s), and deviations δ, (..., s, n)."""
    white: Tensor = torch.linalg.solve_triangular(factor, deviation, upper=False)
    return white


def log_normal(factor: Tensor, white: Tensor) -> Tensor:
    """``log N(δ; 0, L Lᵀ)``, (..., n), of whitened deviations ``L⁻¹ δ``."""
    log_volume = (factor.diagonal(dim1=-2, dim2=-1).log() + HALF_LOG_TWO_PI).sum(-1)
    return -0.5 * white.square().sum(-2) - log_volume[..., None]


def conditional_scales(factor: Tensor) -> Tensor:
    """The standard deviations of each variable given all others, (..., s), of factors L."""
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    precision = whiten(factor, identity.expand_as(factor)).square().sum(-2)
    return precision.rsqrt()


def outside(
    holes: Sequence[Sequence[float]],
    x: Tensor,
    logs: Tensor,
    observed: Sequence[bool] | None = None,
) -> Tensor:
    """Logarithms (f, n, ...) of functions of x (f, n, s), -inf where a variable is in a hole.

    A hole is met exactly, or as rounded to single precision.
    """
    inside = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    for variable, points in enumerate(holes):
        if observed is None or observed[variable]:
            exact = torch.tensor(points, dtype=torch.float64, device=x.device)
            both = torch.cat([exact.to(x.dtype), exact.float().to(x.dtype)])
            inside |= (x[..., variable, None] == both).any(-1)
    if not bool(inside.any()):
        return logs
    return logs.masked_fill(inside.reshape(*inside.shape, *[1] * (logs.ndim - 2)), -math.inf)


class Pairs(NamedTuple):
    """Pairs of units, and for each entry of a gram (i, j) the position of its pair."""

    first: Tensor  # (pair,)
    second: Tensor
    place: Tensor  # (i, j)

    def matrix(self, entries: Tensor) -> Tensor:
        """The entries (f, pair, n) as grams (f, n, i, j)."""
        flat = entries.mT.index_select(-1, self.place.flatten())
        gram: Tensor = flat.unflatten(-1, self.place.shape)
        return gram


def unit_pairs(p: Tensors, q: Tensors) -> Pairs:
    """Every unit of ``p`` with every unit of ``q``; of one layer with itself only those i <= j."""
    needed = torch.ones(p["mean"].shape[1], q["mean"].shape[1], device=p["mean"].device)
    first, second = (needed.triu() if q is p else needed).nonzero(as_tuple=True)
    place = torch.zeros_like(needed, dtype=torch.long)
    place[first, second] = torch.arange(len(first), device=place.device)
    return Pairs(first, second, torch.maximum(place, place.mT) if q is p else place)


class Normals(NamedTuple):
    """Gaussians with n means per unit and one covariance L Lᵀ."""

    mean: Tensor  # (f, i, s, n)
    factor: Tensor  # L, (f, i, s, s)


class Chunk(NamedTuple):
    """Some pairs of units, and what ``log N(μ_i; μ_j, Σ_i + Σ_j)`` is made of."""

    first: Tensor  # (pair,)
    second: Tensor
    deviation: Tensor  # μ_i - μ_j, (f, pair, s, n)
    factor: Tensor  # of Σ_i + Σ_j, (f, pair, s, s)


def chunks(p: Normals, q: Normals, first: Tensor, second: Tensor) -> Iterator[Chunk]:
    """The pairs (i, j) a few at a time."""
    left, right = (normals.factor @ normals.factor.mT for normals in (p, q))
    step = chunk_size(p.mean)
    for some, others in zip(first.split(step), second.split(step), strict=True):
        deviation = p.mean.index_select(1, some) - q.mean.index_select(1, others)
        covariance = left.index_select(1, some) + right.index_select(1, others)
        factor, info = torch.linalg.cholesky_ex(covariance)
        eps = torch.finfo(factor.dtype).eps
        is_lost = (info > 0) | ~(magnification(factor) < eps**-0.5)
        if is_lost.any():
            region, pair = is_lost.nonzero(as_tuple=True)
            halves = p.factor[region, some[pair]], q.factor[region, others[pair]]
            exact = triangular(torch.cat(halves, -1))
            # The result for a matrix that is singular even so is NaN.
            is_lost = ~(magnification(exact) < 1e-6 * eps**-2)
            exact = torch.where(is_lost[..., None, None], math.nan, exact)
            factor = factor.index_put((region, pair), exact)
        yield Chunk(some, others, deviation, factor)


def chunk_size(mean: Tensor) -> int:
    """How many pairs of units with means (f, i, s, n) are worked on at a time."""
    num_regions, _, size, num_rows = mean.shape
    return max(1, ENTRIES // max(1, num_regions * size * (size + num_rows)))


def magnification(factor: Tensor) -> Tensor:
    """An estimate, (...), of how relative errors of the variances grow in log det L Lᵀ.

    With D the variances it is the trace of ``D½ (L Lᵀ)⁻¹ D½``, probed by one vector. Its entries
    follow no pattern, so that no likely null vector is orthogonal to it.
    """
    probe = torch.arange(factor.shape[-1], dtype=factor.dtype, device=factor.device).cos()
    scale = factor.detach().square().sum(-1, keepdim=True).sqrt()  # (..., s, 1)
    return whiten(factor.detach(), probe[:, None] * scale).square().sum((-2, -1))


def triangular(root: Tensor) -> Tensor:
    """The Cholesky factor of ``M Mᵀ`` from M itself, (..., s, t), t >= s.

    It takes longer than a Cholesky decomposition but does not square the condition number.
    """
    factor: Tensor = torch.linalg.qr(root.mT).R.mT
    is_negative = factor.diagonal(dim1=-2, dim2=-1) < 0
    return torch.where(is_negative[..., None, :], -factor, factor)


def log_overlaps_of_pairs(p: Normals, q: Normals, first: Tensor, second: Tensor) -> Tensor:
    """``log N(δ; 0, S)``, (f, pair, n), with δ = μ_i - μ_j and S = Σ_i + Σ_j of pairs of units."""
    parts = [
        log_normal(chunk.factor, whiten(chunk.factor, chunk.deviation))
        for chunk in chunks(p, q, first, second)
    ]
    return torch.cat(parts, 1)


class LogOverlaps(torch.autograd.Function):
    r"""The same with its derivative spelled out.

    .. math:: \partial_S = ½ (S^{-1} δ δ^T S^{-1} - S^{-1}), \qquad \partial_δ = -S^{-1} δ

    The derivative is spelled out because the derivative of a Cholesky decomposition takes more
    than twice as long, and works chunk by chunk so that no more than one is kept. It consists of
    differentiable operations again.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(*inputs)
        mean_p, factor_p, mean_q, factor_q, first, second = inputs
        p, q = Normals(mean_p, factor_p), Normals(mean_q, factor_q)
        return log_overlaps_of_pairs(p, q, first, second)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        mean_p, factor_p, mean_q, factor_q, first, second = ctx.saved_tensors
        p, q = Normals(mean_p, factor_p), Normals(mean_q, factor_q)
        means = [torch.zeros_like(tensor) for tensor in (mean_p, mean_q)]
        covariances = [torch.zeros_like(tensor) for tensor in (factor_p, factor_q)]
        shares = gradient.split(chunk_size(mean_p), 1)
        for chunk, share in zip(chunks(p, q, first, second), shares, strict=True):
            inverse = torch.cholesky_inverse(chunk.factor)
            solved = inverse @ chunk.deviation
            weighted = share[..., None, :] * solved  # (f, pair, s, n)
            grad = weighted @ solved.mT - share.sum(-1)[..., None, None] * inverse
            for k, units in enumerate((chunk.first, chunk.second)):
                means[k].index_add_(1, units, weighted, alpha=(-1, 1)[k])
                covariances[k].index_add_(1, units, grad)
        grad_p, grad_q = covariances[0] @ factor_p, covariances[1] @ factor_q
        return means[0], grad_p, means[1], grad_q, None, None


def log_overlaps(p: Normals, q: Normals, pairs: Pairs) -> Tensor:
    """``log ∫ N_i N_j = log N(μ_i; μ_j, Σ_i + Σ_j)`` of all pairs (i, j), (f, n, i, j)."""
    if is_transformed():
        entries = log_overlaps_of_pairs(p, q, pairs.first, pairs.second)
    else:
        entries = LogOverlaps.apply(*p, *q, pairs.first, pairs.second)  # type: ignore[no-untyped-call]
    return pairs.matrix(entries)


class Partial(NamedTuple):
    """The density of the observed variables O, and the conditional of the others."""

    log_marginal: Tensor  # log N(x_O; μ_O, Σ_OO), (f, n, i)
    conditional: Normals  # of the others given x_O


def observe(p: Tensors, x: Tensor, observed: Sequence[bool]) -> Partial:
    r"""The marginal of the observed variables O and the conditional of the others U.

    With the observed variables first, :math:`x_O = μ_O + A z` and :math:`x_U = μ_U + B z + C y`
    for standard normal z and y, where A and C are triangular.
    """
    seen = [k for k, is_seen in enumerate(observed) if is_seen]
    rest = [k for k, is_seen in enumerate(observed) if not is_seen]
    factor = cholesky_factor(p)
    if seen + rest != sorted(seen + rest):
        # Rows in another order are no longer triangular; a rotation of the noise makes them so.
        factor = triangular(factor[..., seen + rest, :])
    split = len(seen)
    deviation = x[..., seen].mT[:, None] - p["mean"][..., seen, None]  # (f, i, o, n)
    marginal, link = factor[..., :split, :split], factor[..., split:, :split]
    white = whiten(marginal, deviation)
    mean = p["mean"][..., rest, None] + link @ white  # (f, i, u, n)
    conditional = Normals(mean, factor[..., split:, split:])
    return Partial(log_normal(marginal, white).mT, conditional)


def conditional_normals(p: Tensors, x: Tensor, observed: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Of one region, given what is observed in x (n, s): means (n, i, u), deviations (i, u)."""
    mean, factor = observe(p, x[None], observed).conditional  # (1, i, u, n), (1, i, u, u)
    return mean[0].movedim(-1, 0), factor[0].square().sum(-1).sqrt()
