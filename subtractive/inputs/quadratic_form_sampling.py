"""Drawing a value from a quadratic form Σ_ij E_ij f_i(x) f_j(x) of input functions, exactly.

The form is a density of x up to its total mass: E is the environment of the region, a positive
semi-definite matrix for each row. Uniform numbers are turned into values by inverting the
cumulative distribution function, in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subtractive.inputs.base import Window
from subtractive.inputs.quadrature import Line
from subtractive.numerics.inversion import choose_cell, invert

# How many numbers an intermediate tensor may hold: few enough for a processor's cache.
_CHUNK = 2**19
# Ranges of fewer states than this are not worth a second draw.
_FEW_STATES = 6


def uniforms(num_rows: int, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers, (n,), in float64."""
    return torch.rand(num_rows, generator=generator, dtype=torch.float64)


def quadratic(values: Tensor, environment: Tensor) -> Tensor:
    """Σ_ij E_ij f_i f_j, (n, q), of values (n or 1, q, i) and environments (n, i, j).

    >>> quadratic(torch.tensor([[[1.0, 2.0]]]), torch.eye(2)[None])
    tensor([[5.]])
    """
    return ((values @ environment) * values).sum(-1)


def by_chunks(function: Callable[[slice], Tensor], num_rows: int, numbers_per_row: int) -> Tensor:
    """Evaluate a function of a slice of rows piece by piece, to bound the memory."""
    size = max(1, _CHUNK // max(1, numbers_per_row))
    pieces = [function(slice(at, min(at + size, num_rows))) for at in range(0, num_rows, size)]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)


def draw_state(table: Tensor, environment: Tensor, generator: torch.Generator | None) -> Tensor:
    """A state (n,) with probability Σ_ij E_ij f_i(v) f_j(v), from the values (i, v).

    Of many states a range is drawn first, by the sum of its products f fᵀ, and then one of its
    states: √v + √v quadratic forms per row instead of v.
    """
    uniform = uniforms(len(environment), generator)
    size = math.isqrt(table.shape[1])
    if size < _FEW_STATES:
        return _draw_of_few(table, environment, uniform)
    ranges = table.split(size, 1)
    grams = torch.stack([part @ part.mT for part in ranges])  # (r, i, j)
    forms = environment.flatten(1)
    cell, left = choose_cell(forms @ grams.flatten(1).mT, uniform)
    state = torch.zeros_like(uniform)
    for number in cell.unique().tolist():
        rows = (cell == number).nonzero()[:, 0]
        products = (ranges[number][:, None] * ranges[number][None]).flatten(0, 1)  # (i j, v)
        masses = (forms[rows] @ products).clamp(min=0)
        share = left[rows] / masses.sum(1)
        inner = choose_cell(masses, share.nan_to_num(0.0).clamp(0.0, 1.0))[0]
        state[rows] = (number * size + inner).double()
    return state


def draw_state_of_products(
    table: Tensor, vectors: Tensor, gram: Tensor, generator: torch.Generator | None
) -> Tensor:
    """A state (n,) of the form E = Σ_s h_s h_sᵀ ⊙ G, without the forms (n, i, j) of all rows.

    The values are (i, v), the vectors h (n, s, i), and G (i, j) is the same for all rows. A range
    of states has the mass Σ_s h_sᵀ (G ⊙ Σ_v f fᵀ) h_s, a state Σ_s (h_s ⊙ f)ᵀ G (h_s ⊙ f).
    """
    uniform = uniforms(len(vectors), generator)
    units, count = table.shape
    size = max(1, math.isqrt(count))
    number = -(-count // size)
    ranges = functional.pad(table, (0, number * size - count)).unflatten(1, (number, size))
    states = ranges.movedim(0, -1)  # (r, v, i)
    sums = gram * (states.mT @ states)  # (r, i, j)
    joined = sums.movedim(0, 1).flatten(1)  # (i, r j)

    def draw(rows: slice) -> Tensor:
        h = vectors[rows]  # (n, s, i)
        images = (h @ joined).unflatten(-1, (number, units))  # (n, s, r, j)
        cell, left = choose_cell((images * h[:, :, None]).sum((1, 3)), uniform[rows])
        inner = h[:, :, None] * states[cell][:, None]  # (n, s, v, i)
        masses = ((inner @ gram) * inner).sum((1, 3)).clamp(min=0)  # (n, v)
        share = (left / masses.sum(1)).nan_to_num(0.0).clamp(0.0, 1.0)
        return (cell * size + choose_cell(masses, share)[0]).double()

    return by_chunks(draw, len(vectors), vectors.shape[1] * units * (number + 2 * size))


def _draw_of_few(table: Tensor, environment: Tensor, uniform: Tensor) -> Tensor:
    def draw(rows: slice) -> Tensor:
        masses = quadratic(table.mT[None], environment[rows])  # (n, v)
        return choose_cell(masses, uniform[rows])[0].double()

    return by_chunks(draw, len(environment), table.numel())


def draw_state_of_unit(table: Tensor, units: Tensor, generator: torch.Generator | None) -> Tensor:
    """A state (f, n) with probability f_k(v), from the values (f, i, v) and units k (f, n)."""
    region = torch.arange(len(table), device=table.device)[:, None].expand_as(units).flatten()
    uniform = uniforms(len(region), generator)

    def draw(rows: slice) -> Tensor:
        masses = table[region[rows], units.flatten()[rows]]  # (r, v)
        return choose_cell(masses, uniform[rows])[0].double()

    return by_chunks(draw, len(region), table.shape[-1]).reshape(units.shape)


def draw_piecewise(
    edges: Tensor,
    density: Callable[[Tensor, Tensor], Tensor],
    *,
    num_nodes: int,
    uniform: Tensor,
) -> Tensor:
    """A value (n,) from densities that are polynomial between the edges (c + 1,).

    ``density(points, rows)`` maps points (r, q), or (1, q) for all rows, to the densities (r, q)
    of some rows; Gauss-Legendre rules of ``num_nodes`` nodes must integrate it exactly between
    two edges.
    """
    at, weights = np.polynomial.legendre.leggauss(num_nodes)
    node = torch.from_numpy((at + 1) / 2)  # (q,), in the unit interval
    weight = torch.from_numpy(weights / 2)
    width = edges.diff()
    points = edges[:-1, None] + width[:, None] * node  # (c, q)
    every = torch.arange(len(uniform))
    masses = density(points.reshape(1, -1), every).unflatten(-1, points.shape) @ weight * width
    cell, target = choose_cell(masses, uniform)
    lower, upper = edges[cell], edges[cell + 1]
    start = lower + (upper - lower) * target / masses.gather(-1, cell[:, None])[:, 0]

    def cumulative(t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        length = t - lower[rows]
        inner = lower[rows, None] + length[:, None] * node  # (r, q)
        heights = density(torch.cat([inner, t[:, None]], 1), rows)
        return heights[:, :-1] @ weight * length, heights[:, -1]

    return invert(cumulative, target, lower, upper, start)


def draw_by_windows(
    line: Line,
    masses: Callable[[Window], Tensor],
    density: Callable[[Tensor], Tensor],
    forms: Tensor,
    uniform: Tensor,
) -> Tensor:
    """A value (n,) from Σ_k F_nk h_k(x), given the integrals of h_k over windows.

    ``masses`` gives the integrals of all h_k over windows with bounds (1, m), (m, k);
    ``density`` their values at points (m,), (m, k); forms F are (n, k). First a panel is drawn,
    then a value inside it.
    """
    edges = line.edges
    ends = line.x(edges)[None]
    panels = masses(Window(ends[:, :-1], ends[:, 1:]))  # (c, k)
    cell, target = choose_cell(forms @ panels.mT, uniform)
    lower, upper, start = edges[cell], edges[cell + 1], ends[0][cell]

    def cumulative(t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        x = line.x(t)
        below = (forms[rows] * masses(Window(start[None, rows], x[None]))).sum(-1)
        return below, (forms[rows] * density(x)).sum(-1) * line.derivative(t)

    return line.x(invert(cumulative, target, lower, upper, 0.5 * (lower + upper)))
