"""A start for squared circuits of two variables: the square root of the data's density, by SVD.

A circuit of two variables, c(x, y) = Σ_k w_k f_k(x) g_k(y), is a matrix of rank K in the bases of
its inputs. If c² is to be the density p, c should be √p; and the matrix of rank K that is nearest
to √p in the mean square, which is the Hellinger distance of the densities, is known: keep the K
largest singular values. p is estimated by a histogram, smoothed a little.
"""

from __future__ import annotations

import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

import subtractive as sub
from subtractive.inputs.base import InputFamily
from subtractive.inputs.bsplines import spline_values

# How many cells of the histogram there are for each basis function of a spline.
CELLS = 6


@torch.no_grad()
def start_from_root(
    density: sub.SquaredCircuit,
    rows: Tensor,
    *,
    bandwidth: float,
    jitter: float = 0.01,
    seed: int = 0,
) -> None:
    """Start from √p of rows (n, 2); the bandwidth is in distances of basis functions.

    Inputs must be splines or embeddings. Every number is multiplied by 1 + jitter N(0, 1), so
    that starts of different seeds differ.
    """
    layer, families = density.circuit.input_layers[0], density.circuit.families
    edges = [_edges(family) for family in families]
    bases = [
        _basis(family, (edge[1:] + edge[:-1]) / 2)
        for family, edge in zip(families, edges, strict=True)
    ]
    counts = torch.histogramdd(rows.double(), edges).hist.numpy()
    widths = [bandwidth * basis.shape[0] / basis.shape[1] for basis in bases]
    smooth = gaussian_filter(counts, widths, mode="constant")
    table = torch.stack(nearest_of_rank(torch.from_numpy(smooth).sqrt(), bases, layer.num_units))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(table.shape, generator=generator, dtype=table.dtype)
    table = table / table.abs().mean() * (1 + jitter * noise)  # (2, k, b)
    layer.get_tensor(layer.names[0]).copy_(table[layer.variables[:, 0]])
    next(density.circuit.sum_layers[0].weights.parameters()).fill_(1.0)


def nearest_of_rank(values: Tensor, bases: list[Tensor], rank: int) -> list[Tensor]:
    """Coefficients (k, b) on either side of the sum of ``rank`` products nearest to ``values``.

    ``values`` (x, y) are those of a function on a grid, ``bases`` the values of the basis
    functions there, (x, b) and (y, b).

    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> left, right = nearest_of_rank(torch.diag(torch.tensor([4.0, 1.0])).double(), [eye] * 2, 1)
    >>> left.mT @ right
    tensor([[4., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    # With an orthonormal basis Q of the span the nearest matrix is a truncated SVD.
    (q_left, r_left), (q_right, r_right) = (torch.linalg.qr(basis) for basis in bases)
    u, sizes, v = torch.linalg.svd(q_left.mT @ values @ q_right)
    root = sizes[:rank].sqrt()
    left = torch.linalg.solve_triangular(r_left, u[:, :rank] * root, upper=True)
    right = torch.linalg.solve_triangular(r_right, v[:rank].mT * root, upper=True)
    return [left.mT, right.mT]


def _edges(family: InputFamily) -> Tensor:
    """The edges of the cells of a histogram."""
    if isinstance(family, sub.Embedding):
        return torch.arange(family.num_states + 1, dtype=torch.float64) - 0.5
    if isinstance(family, sub.Spline):
        return torch.linspace(*family.domain, CELLS * family.num_bases + 1, dtype=torch.float64)
    raise ValueError(f"a start from √p needs splines or embeddings, got {family!r}.")


def _basis(family: InputFamily, points: Tensor) -> Tensor:
    """The values of all basis functions at points (x,), (x, b)."""
    if isinstance(family, sub.Spline):
        every = torch.eye(family.num_bases, dtype=torch.float64)[None]
        return spline_values(every, family.constants(1)["knots"][None], points[None])[0]
    return torch.eye(len(points), dtype=torch.float64)
