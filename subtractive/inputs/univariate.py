"""Families of functions of one variable: what authors define, and what is derived from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import (
    EVERYWHERE,
    Flags,
    InputFamily,
    Random,
    Tensors,
    TestFunctions,
    Window,
    state_weights,
)
from subtractive.inputs.quadratic_form_sampling import (
    by_chunks,
    draw_by_windows,
    draw_state,
    draw_state_of_unit,
    uniforms,
)
from subtractive.inputs.quadrature import NUM_NODES, Line, weighted_products, weighted_sum
from subtractive.inputs.statistics import Sample
from subtractive.numerics.leaf_operations import largest_exponent, relative_values, side_by_side
from subtractive.numerics.messages import LeafMessage

# How many numbers the values at the nodes of some windows may hold.
NUMBERS = 2**22


class UnivariateFamily(InputFamily):
    """A family of functions of one variable; evidence inside a region is all or nothing.

    Only :meth:`init` and :meth:`values` are required. Without an :meth:`integral` or a
    :meth:`gram` of its own a family is integrated by quadrature over its :attr:`support`
    (:mod:`subtractive.inputs.quadrature`), or summed over its states, and without a
    :meth:`draw_square` or :meth:`draw_units` sampled by inverting those integrals.

    >>> from subtractive.inputs import UnivariateFamily
    >>> isinstance(sub.Spline(8, domain=(0.0, 1.0)), UnivariateFamily)
    True
    """

    is_univariate = True

    @property
    def break_points(self) -> tuple[float, ...]:
        """Where the functions may not be smooth."""
        return ()

    @abstractmethod
    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        """What is learned, at its start, each (i, ...)."""

    def constants(self, num_units: int) -> dict[str, Tensor]:
        """What is fixed, but may differ from region to region: knots, centres."""
        return {}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        return self.init(num_units, generator)

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        parts = [
            weighted_sum(self._at(p, nodes), weights) for nodes, weights in self._rules(p, window)
        ]
        return side_by_side(parts, axis=1)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        parts = []
        for nodes, weights in self._rules(p, window):
            left = self._at(p, nodes)
            right = left if q is p else self._at(q, nodes)
            parts.append(weighted_products(left, right, weights))
        return side_by_side(parts, axis=1)

    def draw_square(
        self, p: Tensors, environment: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Values (n,) of one region from Σ_ij E_ij f_i f_j, with environments (n, i, j)."""
        if self.num_states is not None:
            return draw_state(self._state_table(p)[0], environment, generator)
        total, uniform = self.gram(p, p, EVERYWHERE), uniforms(len(environment), generator)

        def masses(window: Window) -> Tensor:
            return relative_values(self.gram(p, p, window), total)[0].flatten(1)  # (m, i j)

        def density(x: Tensor) -> Tensor:
            values = self.values(p, x[None, :, None]).outer()
            return relative_values(values, total)[0].flatten(1)

        def draw(rows: slice) -> Tensor:
            forms = environment[rows].flatten(1)
            return draw_by_windows(self._line, masses, density, forms, uniform[rows])

        return by_chunks(draw, len(environment), environment[:1].numel())

    def draw_units(self, p: Tensors, units: Tensor, generator: torch.Generator | None) -> Tensor:
        """Values (f, n) from f_k / ∫ f_k for units k (f, n)."""
        if self.num_states is not None:
            return draw_state_of_unit(self._state_table(p), units, generator)
        columns = []
        for region, unit in enumerate(units):
            one = {name: tensor[region : region + 1] for name, tensor in p.items()}
            total = self.integral(one, EVERYWHERE)

            def masses(window: Window, one: Tensors = one, total: LeafMessage = total) -> Tensor:
                return relative_values(self.integral(one, window), total)[0]  # (m, i)

            def density(x: Tensor, one: Tensors = one, total: LeafMessage = total) -> Tensor:
                return relative_values(self.values(one, x[None, :, None]), total)[0]

            mass = relative_values(total, total)[0, 0]
            chosen = torch.eye(len(mass), dtype=mass.dtype)[unit]  # (n, i)
            uniform = uniforms(len(unit), generator)
            columns.append(draw_by_windows(self._line, masses, density, chosen, uniform))
        return torch.stack(columns)

    @final
    def sample_square(
        self, p: Tensors, environment: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        return self.draw_square(p, environment, generator)[:, None]

    @final
    def sample_units(
        self, p: Tensors, units: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        return self.draw_units(p, units, generator)[..., None]

    @final
    def expectations_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
    ) -> list[Tensor | None]:
        if functions[0] is None:
            return [None]
        gram = self.gram(p, p, EVERYWHERE)
        numbers = relative_values(functions[0].of_products(self, p), gram)[0]  # (q, i, j)
        total = (environment * relative_values(gram, gram)[0]).sum((-2, -1))  # (n,)
        return [environment.flatten(1) @ numbers.flatten(1).mT / total[:, None]]

    @final
    def expectations_units(
        self,
        p: Tensors,
        shares: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
    ) -> list[Tensor | None]:
        if functions[0] is None:
            return [None]
        mass = self.integral(p, EVERYWHERE)
        numbers = relative_values(functions[0].of_functions(self, p), mass)[0]  # (q, i)
        return [shares @ (numbers / relative_values(mass, mass)[0]).mT]

    @final
    def tilted_gram(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        return tilted([self.gram(p, p, Window(power=power)) for power in range(3)], tilt)

    @final
    def tilted_integral(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        return tilted([self.integral(p, Window(power=power)) for power in range(3)], tilt)

    @property
    def _line(self) -> Line:
        return Line(*self.support, self.break_points)

    def _rules(self, p: Tensors, window: Window) -> list[tuple[Tensor, Tensor]]:
        """Nodes (f or 1, m or 1, g) and weights (f or 1, m, g) of the window, some rows each."""
        some = next(iter(p.values()))
        if self.num_states is not None:
            states = torch.arange(self.num_states, dtype=some.dtype, device=some.device)[
                None, None
            ]
            return [(states, state_weights(window, self.num_states, some))]
        count = len(self._line.edges) * NUM_NODES * some.shape[0] * some.shape[1]
        step = max(1, NUMBERS // count)
        rules = []
        for at in range(0, window.num_rows, step):
            part = window.rows(slice(at, at + step))
            nodes, weights = self._line.rule(part.lower, part.upper)
            rules.append((nodes.to(some), (weights * nodes**window.power).to(some)))
        return rules

    def _at(self, p: Tensors, nodes: Tensor) -> LeafMessage:
        """f at nodes (f or 1, m, g), (f, m, g, i)."""
        regions = len(next(iter(p.values())))
        x = nodes.expand(regions, -1, -1)
        values = self.values(p, x.flatten(1)[..., None])
        return values.map(lambda t: t.unflatten(1, x.shape[1:]))

    def _state_table(self, p: Tensors) -> Tensor:
        """f at all states, (f, i, v), up to a factor for each region."""
        assert self.num_states is not None
        regions = len(next(iter(p.values())))
        states = torch.arange(self.num_states, dtype=torch.float64)
        values = self.values(p, states[None, :, None].expand(regions, -1, -1))
        return relative_values(values, values).mT


def tilted(moments: Sequence[LeafMessage], tilt: Tensor) -> LeafMessage:
    """``M_0 + θ M_1 + θ² M_2 / 2`` of the moments of one region of one variable, θ being (1,)."""
    zeroth, first, second = (relative_values(moment, moments[0]) for moment in moments)
    return LeafMessage(
        zeroth + tilt * first + 0.5 * tilt.square() * second, largest_exponent(moments[0])
    )
