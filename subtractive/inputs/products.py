"""Products f_i f_j of the functions of a family: the input layers of a square (paper: Alg. 1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors, Window
from subtractive.inputs.multivariate import MultivariateFamily
from subtractive.numerics.messages import LeafMessage


@final
@dataclass(frozen=True)
class Products(InputFamily):
    """The functions f_i(x) f_j(x) for given pairs (i, j) of a family's functions.

    They work on the tensors of that family. Their integrals are entries of its gram; products of
    four functions are not integrated, so the square of a square is not available.
    """

    family: InputFamily
    pairs: tuple[tuple[int, int], ...]

    @property
    def fold_key(self) -> Hashable:
        return (type(self), self.family.fold_key, self.pairs)

    @property
    def gram_dtype(self) -> torch.dtype | None:
        return self.family.gram_dtype

    @property
    def is_non_negative(self) -> bool:
        return self.family.is_non_negative or all(i == j for i, j in self.pairs)

    @property
    def num_states(self) -> int | None:
        return self.family.num_states

    def describe(self) -> dict[str, Any]:
        raise ValueError(
            "a square that is written out as a circuit cannot be saved. Save the density of the "
            "circuit that was squared: its file is smaller, too."
        )

    def check_scope(self, size: int) -> None:
        self.family.check_scope(size)

    def check(self, column: Tensor, variable: int) -> None:
        self.family.check(column, variable)

    def start(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self.family.start(size, 1 + max(map(max, self.pairs)), generator)

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        mantissa, exponent = self.family.values(p, x)
        first, second = self._indices
        return LeafMessage(
            None if mantissa is None else mantissa[..., first] * mantissa[..., second],
            None if exponent is None else exponent[..., first] + exponent[..., second],
        )

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        return self._entries(self.family.gram(p, p, window))

    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        assert isinstance(self.family, MultivariateFamily)
        return self._entries(self.family.partial_gram(p, p, x, observed))

    def overlap(self, p: Tensors) -> Tensor:
        below = self.family.overlap(p)
        first, second = self._indices
        return below[:, first][:, :, first] & below[:, second][:, :, second]

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ValueError(
            "a written-out square is for study: it can be evaluated and integrated, but neither "
            "squared again, sampled nor learned. Use the SquaredCircuit of the circuit itself."
        )

    gram = partial_gram = init_from_data = _refuse
    sample_square = sample_units = _refuse
    expectations_square = expectations_units = _refuse
    tilted_gram = tilted_integral = _refuse

    @property
    def _indices(self) -> tuple[list[int], list[int]]:
        return [i for i, _ in self.pairs], [j for _, j in self.pairs]

    def _entries(self, gram: LeafMessage) -> LeafMessage:
        first, second = self._indices
        return LeafMessage(
            None if gram.mantissa is None else gram.mantissa[..., first, second],
            None if gram.exponent is None else gram.exponent[..., first, second],
        )
