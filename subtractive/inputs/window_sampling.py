"""Drawing a value inside a window from a quadratic form, or from one function, of any family.

The mass of a window has a closed form for every family; a uniform number becomes a value by
inverting it. Evidence that is a set, not a point, is sampled in this way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors, Window, state_weights
from subtractive.inputs.gaussian import Gaussian, pair_product
from subtractive.inputs.quadratic_form_sampling import by_chunks, quadratic, uniforms
from subtractive.inputs.signed_mixture import draw_gaussian_square
from subtractive.numerics.inversion import choose_cell, invert
from subtractive.numerics.leaf_operations import relative_values

_LARGEST_BRACKET = 2.0**60
# A window with a smaller share of the mass has too few digits in the whole distribution function.
_ENOUGH = 1e-6


@final
@dataclass(frozen=True)
class Form:
    """Σ_ij E_ij f_i f_j with environments (n, i, j), or f_k with one-hot vectors of k, (n, i)."""

    family: InputFamily
    p: Tensors  # of one region
    weights: Tensor

    def rows(self, rows: Tensor | slice) -> Form:
        """The forms of some rows."""
        return Form(self.family, self.p, self.weights[rows])

    def mass(self, window: Window) -> Tensor:
        """Their integrals over a window for each row, (n,), up to one factor for all of them."""
        if self.weights.dim() == 3:
            message = self.family.gram(self.p, self.p, window)
            reference = self.family.gram(self.p, self.p, EVERYWHERE)
        else:
            message = self.family.integral(self.p, window)
            reference = self.family.integral(self.p, EVERYWHERE)
        return (self.weights * relative_values(message, reference)[0]).flatten(1).sum(1)

    def height(self, points: Tensor) -> Tensor:
        """Their values at points (n, q), (n, q), up to the same factor."""
        flat = points.reshape(1, -1, 1)
        values = self.family.values(self.p, flat)
        if self.weights.dim() == 3:
            reference = self.family.gram(self.p, self.p, EVERYWHERE)
            peak = reference.exponent
            scale = 0.0 if peak is None else float(peak.max())
            size = values.some if values.exponent is None else (values.exponent - scale / 2).exp()
            if values.exponent is not None and values.mantissa is not None:
                size = size * values.mantissa
            return quadratic(size[0].unflatten(0, points.shape), self.weights)
        found = relative_values(values, self.family.integral(self.p, EVERYWHERE))[0]
        heights: Tensor = found.unflatten(0, points.shape) * self.weights[:, None]
        return heights.sum(-1)


def draw_in_window(form: Form, window: Window, generator: torch.Generator | None) -> Tensor:
    """A value (n,) of each row's form inside a window, whose bounds are (1, 1) or (1, n)."""
    count, family = len(form.weights), form.family
    if family.num_states is not None:
        return _draw_state(form, window, family.num_states, generator)
    if not isinstance(family, WithAtoms):
        return _draw_number(form, window, uniforms(count, generator))
    atoms = torch.tensor(family.atoms, dtype=torch.float64)
    inside = _bound(window.lower, -math.inf, count)[:, None] < atoms
    inside = inside & (atoms <= _bound(window.upper, math.inf, count)[:, None])  # (n, v)
    smooth = Form(family.base, form.p, form.weights)
    # Masses of atoms and of the rest in one unit: that of the family with atoms.
    rest = form.mass(window)
    points = form.height(atoms.expand(count, -1)).clamp(min=0) * inside
    masses = torch.cat([points, (rest - points.sum(1))[:, None].clamp(min=0)], 1)
    cell, _ = choose_cell(masses, uniforms(count, generator))
    drawn = torch.cat([atoms, torch.zeros(1, dtype=torch.float64)])[cell]
    rows = (cell == len(atoms)).nonzero()[:, 0]
    part = Window(_rows(window.lower, rows), _rows(window.upper, rows))
    drawn[rows] = _draw_number(smooth.rows(rows), part, uniforms(len(rows), generator))
    return drawn


def _draw_state(
    form: Form, window: Window, num_states: int, generator: torch.Generator | None
) -> Tensor:
    count = len(form.weights)
    states = torch.arange(num_states, dtype=torch.float64)
    weights = state_weights(window, num_states, states)[0].expand(count, -1)  # (n, v)
    uniform = uniforms(count, generator)

    def draw(rows: slice) -> Tensor:
        part = form.rows(rows)
        heights = part.height(states.expand(len(part.weights), -1))
        return choose_cell(heights * weights[rows], uniform[rows])[0].double()

    return by_chunks(draw, count, num_states * form.weights.shape[1])


def _draw_number(form: Form, window: Window, uniform: Tensor) -> Tensor:
    """By the distribution function on the whole line, or where that has no digits, in the window.

    Of Gaussians the former is quick, because all rows have the same components.
    """
    if not isinstance(form.family, Gaussian) or form.weights.dim() != 3:
        return _draw_inside(form, window, uniform)
    total, inside = form.mass(EVERYWHERE), form.mass(window)
    below = inside - inside if window.lower is None else form.mass(Window(upper=window.lower))
    mean, log_scale, log_weight = (part[0, 0] for part in pair_product(form.p, form.p))
    level = (below + uniform * inside) / total
    drawn = draw_gaussian_square(form.weights, (mean, log_scale, log_weight), level)
    lower = _bound(window.lower, -math.inf, len(uniform))
    upper = _bound(window.upper, math.inf, len(uniform))
    drawn = torch.minimum(torch.maximum(drawn, lower.nextafter(upper)), upper)
    rows = (inside < _ENOUGH * total).nonzero()[:, 0]
    if len(rows):
        part = Window(_rows(window.lower, rows), _rows(window.upper, rows))
        drawn[rows] = _draw_inside(form.rows(rows), part, uniform[rows])
    return drawn


def _draw_inside(form: Form, window: Window, uniform: Tensor) -> Tensor:
    def draw(rows: slice) -> Tensor:
        index = torch.arange(len(uniform))[rows]
        part = Window(_rows(window.lower, index), _rows(window.upper, index))
        return _invert_mass(form.rows(rows), part, uniform[rows])

    return by_chunks(draw, len(uniform), form.weights[:1].numel())


def _invert_mass(form: Form, window: Window, uniform: Tensor) -> Tensor:
    count = len(uniform)
    lower = _bound(window.lower, -math.inf, count)
    upper = _bound(window.upper, math.inf, count)
    total = form.mass(Window(lower[None], upper[None]))
    lower = torch.where(lower.isfinite(), lower, -_reach(form, upper, total, -1))
    upper = torch.where(upper.isfinite(), upper, _reach(form, lower, total, 1))

    def cumulative(t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        part = form.rows(rows)
        below = part.mass(Window(lower[rows][None], t[None]))
        return below, part.height(t[:, None])[:, 0].clamp(min=1e-300)

    start = lower + (upper - lower) * uniform
    return invert(cumulative, uniform * total, lower, upper, start)


def _reach(form: Form, other: Tensor, total: Tensor, sign: int) -> Tensor:
    """How far from zero, (n,), nearly all of the mass between there and the other end ends."""
    distance = torch.full_like(total, 4.0)
    while float(distance[0]) < _LARGEST_BRACKET:
        end = sign * distance
        window = Window(other[None], end[None]) if sign > 0 else Window(end[None], other[None])
        # A window that is empty has not been reached yet.
        is_open = (sign * (end - other) <= 0) | (form.mass(window) < (1 - 1e-15) * total)
        if not bool(is_open.any()):
            break
        distance = distance * 2
    return distance


def _bound(bound: Tensor | None, default: float, count: int) -> Tensor:
    if bound is None:
        return torch.full((count,), default, dtype=torch.float64)
    return bound[0].double().expand(count)


def _rows(bound: Tensor | None, rows: Tensor) -> Tensor | None:
    return bound if bound is None or bound.shape[1] == 1 else bound[:, rows]
