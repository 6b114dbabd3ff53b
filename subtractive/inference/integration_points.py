"""Points and weights that integrate products of input functions times any smooth function.

At states and atoms the sums are exact. On the line they are composite Gauss-Legendre rules, with
panels where the input functions vary: a scale of each Gaussian wide, or from knot to knot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily, Tensors
from subtractive.inputs.quadrature import Line
from subtractive.inputs.spline import Spline
from subtractive.inputs.univariate import UnivariateFamily

# Beyond so many scales nothing is left of a Gaussian; panels are one scale wide.
_REACH = 12
_NODES = 12


@torch.no_grad()
def integration_points(factors: Sequence[tuple[InputFamily, Tensors]]) -> tuple[Tensor, Tensor]:
    """Points (q,) and weights (q,) for products of the functions of some families.

    All are over one region of one variable, with tensors (1, i, ...); states and atoms, if there
    are any, are those of the first.
    """
    family = factors[0][0]
    if family.num_states is not None:
        states = torch.arange(family.num_states, dtype=torch.float64)
        return states, torch.ones_like(states)
    pieces = [_edges(family, p) for family, p in factors]
    if all(piece is None for piece in pieces):
        assert isinstance(family, UnivariateFamily)
        points, weights = Line(*family.support, family.break_points).rule(None, None)
        points, weights = points[0, 0], weights[0, 0]
    else:
        points, weights = _composite(torch.cat([piece for piece in pieces if piece is not None]))
    atoms = torch.tensor(family.atoms, dtype=torch.float64)
    return torch.cat([points, atoms]), torch.cat([weights, torch.ones_like(atoms)])


def _edges(family: InputFamily, p: Tensors) -> Tensor | None:
    """The ends of panels between which the functions are smooth; ``None`` if nothing is known."""
    if isinstance(family, WithAtoms):
        return _edges(family.base, p)
    if isinstance(family, Spline):
        return p["knots"].double().flatten()
    if "log_scale" in p:
        centre = (p["mean"] if "mean" in p else p["centre"])[0].double()
        steps = torch.arange(-_REACH, _REACH + 1, dtype=torch.float64)
        return (centre[:, None] + p["log_scale"][0].double().exp()[:, None] * steps).flatten()
    return None


def _composite(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre rules between consecutive edges."""
    edges = edges.unique()
    at, weight = map(torch.from_numpy, np.polynomial.legendre.leggauss(_NODES))
    half = edges.diff()[:, None] / 2
    return (edges[:-1, None] + half * (at + 1)).flatten(), (half * weight).flatten()
