"""Sum, Hadamard and Kronecker layers, on vectors and on grams (paper: Defs. 1 and A.6, Alg. 1).

Each layer is followed by its sum, as in the paper: ``W a``, ``W (a ⊙ b)`` and ``W (a ⊗ b)``. On
the square, vectors become grams: ``W A Wᴴ``, ``W (A ⊙ B) Wᴴ`` and ``W (A ⊗ B) Wᴴ``; neither
``W ⊗ W`` nor ``A ⊗ B`` is ever formed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from subtractive.circuits.congruence import congruence
from subtractive.circuits.environment import Environment, below_hadamard, below_kronecker
from subtractive.circuits.weights import Weights
from subtractive.io.registry import Registry
from subtractive.numerics.leaf_message import Index, LeafMessage, pick
from subtractive.numerics.scaled import Scaled, joined, multiply, rescale, settle
from subtractive.numerics.signed_log import (
    SignedLog,
    kronecker_signed,
    mix_signed,
    multiply_signed,
    signed_log,
)


def mix(weight: Tensor, values: Tensor) -> Tensor:
    """``y = W x``: weights (f, o, i), values (f, n, i), result (f, n, o)."""
    dtype = torch.promote_types(weight.dtype, values.dtype)
    return torch.bmm(values.to(dtype), weight.to(dtype).mT)


def mix_gram(weight: Tensor, gram: Tensor, other: Tensor) -> Tensor:
    """``Y = W G Vᴴ``: weights (f, o, i) and (f, p, j), gram (f, n, i, j), result (f, n, o, p)."""
    regions, rows, i, j = gram.shape
    right = mix(other.conj(), gram.reshape(regions, rows * i, j)).unflatten(1, (rows, i))
    turned = right.mT  # (f, n, p, i)
    return torch.unflatten(mix(weight, turned.flatten(1, 2)), 1, (rows, -1)).mT


def kronecker(vectors: Sequence[Tensor]) -> Tensor:
    """``a ⊗ b ⊗ ...``, (f, n, i·j·...), of vectors (f, n, i), (f, n, j), ..."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = (product[..., :, None] * vector[..., None, :]).flatten(2)
    return product


def mix_kronecker_gram(weight: Tensor, grams: Sequence[Tensor], other: Tensor) -> Tensor:
    """``W (A ⊗ B ⊗ ...) Vᴴ`` by applying each gram to its own axis of W.

    Weights (f, o, i·j·...) and (f, p, k·l·...), grams (f, n, i, k), (f, n, j, l), ..., result
    (f, n, o, p).
    """
    rows = max(gram.shape[1] for gram in grams)
    dtype = weight.dtype
    for gram in grams:
        dtype = torch.promote_types(dtype, gram.dtype)
    regions, outputs = weight.shape[:2]
    # (f, n, o, i·j·...); each turn contracts the foremost input axis and appends its image.
    image = weight[:, None].to(dtype).expand(regions, rows, -1, -1)
    for gram in grams:
        image = image.reshape(regions, rows, outputs, gram.shape[2], -1)
        image = image.movedim(3, -1) @ gram[:, :, None].to(dtype)  # (f, n, o, rest, k)
        image = image.flatten(3)
    mixed = mix(other.conj(), image.flatten(1, 2))
    return torch.unflatten(mixed, 1, (rows, outputs))


LAYERS: Registry[Layer] = Registry("layer")


class Layer(nn.Module, ABC):
    """A product of child regions followed by a sum; ``folds`` picks regions of the layer."""

    def __init_subclass__(cls, old_names: Sequence[str] = (), **options: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**options)
        LAYERS.add(cls, old_names)

    @property
    def name_in_files(self) -> str:
        """The name of this layer in files; ``ValueError`` if it could not be loaded again."""
        name = LAYERS.name_of(type(self))
        try:
            twin = type(self)(self.weights)
        except TypeError as error:
            raise ValueError(f"{name} cannot be saved: {name}(weights) fails ({error}).") from None
        if [t.shape for t in twin.state_dict().values()] != [
            t.shape for t in self.state_dict().values()
        ]:
            raise ValueError(f"{name} cannot be saved: {name}(weights) has other parameters.")
        return name

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights

    def weight(self, folds: Index) -> Tensor:
        """The weights of some regions, (f, o, i)."""
        return pick(self.weights(), folds)

    @staticmethod
    @abstractmethod
    def num_inputs(widths: Sequence[int]) -> int:
        """The number of product units over children of these widths."""

    @staticmethod
    @abstractmethod
    def num_connections(widths: Sequence[int]) -> int:
        """The inputs of all product units: the layer's share of the circuit's size."""

    @abstractmethod
    def product(self, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        """The product of vectors (f, n, ...) that the layer's sum is taken of."""

    @abstractmethod
    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        """The unit of each child that a product unit (f, n) is made of."""

    @abstractmethod
    def scaled(self, children: Sequence[LeafMessage | Scaled], folds: Index) -> Scaled:
        """The layer's message from its children's, vectors or grams."""

    @abstractmethod
    def cross(
        self, other: Layer, children: Sequence[LeafMessage | Scaled], folds: Index
    ) -> Scaled:
        """The gram of this layer with another one from the grams of their children."""

    @abstractmethod
    def environment(
        self, above: Environment, siblings: Sequence[LeafMessage | Scaled], slot: int
    ) -> Environment:
        """The environment of child ``slot`` from that of the products and the other children.

        Siblings' messages are vectors (1, n, i) where their variables are known, grams
        (1, n, i, j) where not.
        """

    @abstractmethod
    def signed_log(self, children: Sequence[LeafMessage | SignedLog], folds: Index) -> SignedLog:
        """The same as :meth:`scaled` in the paper's signed log arithmetic."""


@final
class SumLayer(Layer):
    """``W a``: weighted sums of the units of one child."""

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        if len(widths) > 1:
            raise ValueError(
                f"a sum has one child and cannot multiply {len(widths)} of them. Use "
                "product=HadamardLayer or product=KroneckerLayer."
            )
        return widths[0]

    @staticmethod
    def num_connections(widths: Sequence[int]) -> int:
        return 0

    def product(self, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        return settle(children[0])

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        return [units]

    def scaled(self, children: Sequence[LeafMessage | Scaled], folds: Index) -> Scaled:
        return _summed(settle(children[0]), self.weight(folds))

    def cross(
        self, other: Layer, children: Sequence[LeafMessage | Scaled], folds: Index
    ) -> Scaled:
        return _crossed(settle(children[0]), self.weight(folds), other.weight(folds))

    def signed_log(self, children: Sequence[LeafMessage | SignedLog], folds: Index) -> SignedLog:
        return mix_signed(self.weight(folds), signed_log(children[0]))

    def environment(
        self, above: Environment, siblings: Sequence[LeafMessage | Scaled], slot: int
    ) -> Environment:
        return above


@final
class HadamardLayer(Layer):
    """``W (a ⊙ b ⊙ ...)``: the children are multiplied unit by unit."""

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        if len(set(widths)) > 1:
            raise ValueError(
                f"a Hadamard product needs children of equal width, got {list(widths)}. Use "
                "KroneckerLayer, or give all layers the same number of units."
            )
        return widths[0]

    @staticmethod
    def num_connections(widths: Sequence[int]) -> int:
        return sum(widths)

    def product(self, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        return multiply(children)

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        return [units] * len(widths)

    def scaled(self, children: Sequence[LeafMessage | Scaled], folds: Index) -> Scaled:
        return summed_product(children, self.weight(folds))

    def cross(
        self, other: Layer, children: Sequence[LeafMessage | Scaled], folds: Index
    ) -> Scaled:
        return _crossed(multiply(children), self.weight(folds), other.weight(folds))

    def signed_log(self, children: Sequence[LeafMessage | SignedLog], folds: Index) -> SignedLog:
        return mix_signed(self.weight(folds), multiply_signed(children))

    def environment(
        self, above: Environment, siblings: Sequence[LeafMessage | Scaled], slot: int
    ) -> Environment:
        return below_hadamard(above, siblings)


@final
class KroneckerLayer(Layer):
    """``W (a ⊗ b ⊗ ...)``: every unit of one child meets every unit of the others."""

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        return math.prod(widths)

    @staticmethod
    def num_connections(widths: Sequence[int]) -> int:
        return len(widths) * math.prod(widths)

    def product(self, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        factors = [settle(child) for child in children]
        return joined(kronecker([factor.mantissa for factor in factors]), factors)

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        return list(torch.unravel_index(units, tuple(widths)))

    def scaled(self, children: Sequence[LeafMessage | Scaled], folds: Index) -> Scaled:
        weight = self.weight(folds)
        if any(child.is_gram for child in children):
            return _summed_kronecker(children, weight, weight)
        return _summed(self.product(children), weight)

    def cross(
        self, other: Layer, children: Sequence[LeafMessage | Scaled], folds: Index
    ) -> Scaled:
        return _summed_kronecker(children, self.weight(folds), other.weight(folds))

    def signed_log(self, children: Sequence[LeafMessage | SignedLog], folds: Index) -> SignedLog:
        return mix_signed(self.weight(folds), kronecker_signed(children))

    def environment(
        self, above: Environment, siblings: Sequence[LeafMessage | Scaled], slot: int
    ) -> Environment:
        return below_kronecker(above, siblings, slot)


def summed_product(children: Sequence[LeafMessage | Scaled], weight: Tensor) -> Scaled:
    """``W (a ⊙ b ⊙ ...)``: the square of a Hadamard product is the product of the squares."""
    return _summed(multiply(children), weight)


def _summed(product: Scaled, weight: Tensor) -> Scaled:
    unit = _unit(weight)
    if product.is_gram:
        return rescale(joined(congruence(weight, product.mantissa), [product]), unit * unit)
    return rescale(joined(mix(weight, product.mantissa), [product]), unit)


def _crossed(product: Scaled, left: Tensor, right: Tensor) -> Scaled:
    mantissa = mix_gram(left, product.mantissa, right)
    return rescale(joined(mantissa, [product]), _unit(left) * _unit(right))


def _summed_kronecker(
    children: Sequence[LeafMessage | Scaled], left: Tensor, right: Tensor
) -> Scaled:
    factors = [settle(child if child.is_gram else child.outer()) for child in children]
    mantissa = mix_kronecker_gram(left, [factor.mantissa for factor in factors], right)
    return rescale(joined(mantissa, factors), _unit(left) * _unit(right))


def _unit(weight: Tensor) -> float:
    return float(weight.detach().abs().amax())
