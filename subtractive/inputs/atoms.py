"""Atoms: input functions with values of their own at single points (zero-inflated columns).

The base measure of such a variable is that of the wrapped family plus one at each atom: the
density is a probability at an atom, and a density per unit length elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import EVERYWHERE, Tensors, Window
from subtractive.inputs.embedding import share_states, table_gram, table_integral
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.statistics import Sample
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.leaf_operations import add, choose, relative_values
from subtractive.numerics.messages import LeafMessage


@final
@dataclass(frozen=True)
class WithAtoms(UnivariateFamily):
    r"""Functions of a continuous family that take learned values at some points.

    .. math:: f_k(x) = a_{kv} \text{ at the atoms } x = t_v, \quad g_k(x) \text{ elsewhere},
        \qquad \int f_i f_j = \sum_v a_{iv} a_{jv} + \int g_i g_j

    A value is an atom if it equals one exactly, or as rounded to single precision. The values a
    have any sign, or with ``non_negative`` are positive, as monotonic circuits need.

    >>> rain = torch.cat([torch.zeros(60, 1), torch.randn(40, 1).exp()])
    >>> family = sub.WithAtoms(sub.Gaussian(), atoms=(0.0,))
    >>> density = sub.SquaredCircuit(sub.Circuit(sub.flat(1), family, num_units=4, seed=0))
    >>> history = sub.fit(density, rain, progress=False)
    >>> round(density.log_prob(torch.zeros(1, 1)).exp().item(), 1)  # the probability of no rain
    0.6
    """

    base: UnivariateFamily
    atoms: tuple[float, ...] = (0.0,)
    non_negative: bool = False

    def __post_init__(self) -> None:
        atoms = tuple(sorted(float(atom) + 0.0 for atom in self.atoms))
        if not atoms or len(set(atoms)) < len(atoms) or not all(map(math.isfinite, atoms)):
            raise ValueError(f"atoms must be distinct finite numbers, at least one, got {atoms}.")
        object.__setattr__(self, "atoms", atoms)
        if not isinstance(self.base, UnivariateFamily) or isinstance(self.base, WithAtoms):
            raise ValueError(
                "WithAtoms takes a family of one variable, without atoms, got "
                f"{type(self.base).__name__}. List all atoms at once."
            )
        if self.base.num_states is not None:
            raise ValueError(
                f"WithAtoms takes a continuous family, got {type(self.base).__name__}, whose "
                "states all have values of their own already."
            )
        if self.non_negative and not self.base.is_non_negative:
            raise ValueError(
                f"non_negative atoms need a non-negative family, got {self.base}. Use "
                "Gaussian() or Spline(..., non_negative=True)."
            )

    @property
    def fold_key(self) -> Hashable:
        return WithAtoms, self.base.fold_key, self.atoms, self.non_negative

    @property
    def gram_dtype(self) -> torch.dtype | None:
        return self.base.gram_dtype

    @property
    def is_non_negative(self) -> bool:
        return self.non_negative

    def check(self, column: Tensor, variable: int) -> None:
        self.base.check(column[~self.is_atom(column).any(-1)], variable)

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        learned = self.base.init(num_units, generator)
        return learned | self._learned(self._noise(num_units, generator))

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        is_atom = self.is_atom(sample.columns).any(-1)  # (n, 1)
        rest = Sample(sample.columns.masked_fill(is_atom, math.nan), sample.weights)
        learned = self.base.init_from_data(rest, num_units, power, generator)
        known, weights = sample.column(0)
        # As if each atom, and what is between them, had been seen half a time more.
        rows = weights * (len(weights) / weights.sum())
        counts = 0.5 + rows @ self.is_atom(known).double()  # (v,)
        odds = counts / (len(known) + 0.5 * (1 + len(counts)) - counts.sum())
        constants = self.base.constants(num_units)
        p = {name: tensor[None] for name, tensor in (learned | constants).items()}
        # Atoms have their share of ∫ c^power if the weights of all units are equal.
        whole = (
            self.base.gram(p, p, EVERYWHERE) if power > 1 else self.base.integral(p, EVERYWHERE)
        )
        height = (odds * whole.value().mean()) ** (1 / power)
        return learned | self._learned(height * 2 * self._noise(num_units, generator))

    def update_scale(self, p: Tensors) -> dict[str, Tensor]:
        return self.base.update_scale(p)

    def constants(self, num_units: int) -> dict[str, Tensor]:
        return self.base.constants(num_units)

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        is_atom = self.is_atom(x[..., 0])  # (f, n, v)
        one_hot = is_atom.to(self._table(p).dtype)
        if self.non_negative:
            # A table may hold -inf, which a matrix product would turn into NaN.
            index = one_hot.argmax(-1)[:, None].expand(-1, p["log_atom"].shape[1], -1)
            here = LeafMessage(None, p["log_atom"].gather(2, index).mT)
        else:
            here = LeafMessage(one_hot @ p["atom"].mT, None)
        return choose(is_atom.any(-1), here, self.base.values(p, x))

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        weights = self._weights(p, window)
        table, peak = self._scaled_table(p, weights)
        mantissa = table_integral(table, weights)
        exponent = None if peak is None else peak[:, None, :].expand_as(mantissa)
        atoms = LeafMessage(mantissa, exponent)
        return add(self.base.integral(p, window), atoms)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        weights = self._weights(p, window)
        left, left_peak = self._scaled_table(p, weights)
        right, right_peak = (left, left_peak) if q is p else self._scaled_table(q, weights)
        mantissa, exponent = table_gram(left, right, weights), None
        if left_peak is not None and right_peak is not None:
            peak = left_peak[:, None, :, None] + right_peak[:, None, None, :]  # (f, 1, i, j)
            exponent = peak.expand_as(mantissa)
        atoms = LeafMessage(mantissa, exponent)
        return add(self.base.gram(p, q, window), atoms)

    def draw_square(
        self, p: Tensors, environment: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        gram = self.gram(p, p, EVERYWHERE)
        values = self.values(p, self._places(p)).outer()  # (1, v, i, j)
        smooth = relative_values(self.base.gram(p, p, EVERYWHERE), gram)
        products = torch.cat([relative_values(values, gram), smooth], 1)[0]  # (v + 1, i, j)
        masses = environment.flatten(1) @ products.flatten(1).mT  # (n, v + 1)
        cell, _ = choose_cell(masses, uniforms(len(masses), generator))
        drawn = self._atom_of(cell)
        rows = drawn.isnan().nonzero()[:, 0]
        if len(rows) > 0:
            drawn[rows] = self.base.draw_square(p, environment[rows], generator)
        return drawn

    def draw_units(self, p: Tensors, units: Tensor, generator: torch.Generator | None) -> Tensor:
        integral = self.integral(p, EVERYWHERE)
        smooth = relative_values(self.base.integral(p, EVERYWHERE), integral)
        values = relative_values(self.values(p, self._places(p)), integral)
        masses = torch.cat([values, smooth], 1).mT  # (f, i, v + 1)
        chosen = masses.gather(1, units[..., None].expand(-1, -1, masses.shape[2])).flatten(0, 1)
        cell, _ = choose_cell(chosen, uniforms(len(chosen), generator))
        atom = self._atom_of(cell).reshape(units.shape)
        elsewhere = self.base.draw_units(p, units, generator)
        return torch.where(atom.isnan(), elsewhere, atom)

    def overlap(self, p: Tensors) -> Tensor:
        present = p["log_atom"] > -math.inf if self.non_negative else p["atom"] != 0
        return self.base.overlap(p) | share_states(present)

    def _noise(self, num_units: int, generator: torch.Generator | None) -> Tensor:
        shape = (num_units, len(self.atoms))
        return 1 - torch.rand(shape, generator=generator, dtype=torch.float64)  # never zero

    def _learned(self, table: Tensor) -> dict[str, Tensor]:
        return {"log_atom": table.log()} if self.non_negative else {"atom": table}

    def _table(self, p: Tensors) -> Tensor:
        return p["log_atom"] if self.non_negative else p["atom"]  # (f, i, v)

    def is_atom(self, x: Tensor) -> Tensor:
        """Which atom each value is, one more axis."""
        atoms = torch.tensor(self.atoms, dtype=torch.float64, device=x.device)
        # A table in single precision knows only the rounded atom, whatever the model's precision.
        rounded = atoms.float().to(x.dtype)
        return (x[..., None] == atoms.to(x.dtype)) | (x[..., None] == rounded)

    def _places(self, p: Tensors) -> Tensor:
        """The atoms as values of each region, (f, v, 1)."""
        table = self._table(p)
        return torch.tensor(self.atoms, dtype=torch.float64).expand(len(table), -1)[..., None]

    def _atom_of(self, cell: Tensor) -> Tensor:
        """The atoms with these numbers, NaN for what is no atom."""
        return torch.tensor([*self.atoms, math.nan], dtype=torch.float64)[cell]

    def _weights(self, p: Tensors, window: Window) -> Tensor:
        """``t_v^power`` of the atoms inside the window, else zero, (f, m, v)."""
        table = self._table(p)
        atoms = torch.tensor(self.atoms, dtype=torch.float64, device=table.device)
        weights = (atoms**window.power)[None, None]
        if window.lower is not None:
            weights = weights * (atoms > window.lower[..., None])
        if window.upper is not None:
            weights = weights * (atoms <= window.upper[..., None])
        return weights.to(table.dtype).expand(len(table), -1, -1)

    def _scaled_table(self, p: Tensors, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """The values at the atoms (f, i, v) over exp(peak), and the peaks (f, i), if any."""
        table = self._table(p)
        if not self.non_negative:
            return table, None
        # Atoms outside of all windows do not count: a rare one is exact in a window of its own.
        table = table.masked_fill(~(weights != 0).any(1)[:, None, :], -math.inf)
        peak = table.detach().amax(-1)
        peak = torch.where(peak == -math.inf, 0.0, peak)
        return (table - peak[..., None]).exp(), peak
