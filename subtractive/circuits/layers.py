"""Sum, Hadamard and Kronecker layers, on vectors and on grams (paper: Defs. 1 and A.6, Alg. 1).

A layer multiplies the units of its children and sums the products: ``W a``, ``W (a ⊙ b)`` and
``W (a ⊗ b)``. On the square, vectors become grams: ``W A Wᴴ``, ``W (A ⊙ B) Wᴴ`` and
``W (A ⊗ B) Wᴴ``; neither ``W ⊗ W`` nor ``A ⊗ B`` is ever formed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn

from subtractive.circuits.environment import Environment, below_hadamard, below_kronecker
from subtractive.circuits.sums import kronecker, mix_gram, mix_kronecker_gram
from subtractive.circuits.weights import Weights
from subtractive.io.registry import Registry
from subtractive.numerics.messages import Index, Message, Scaled, added_scales, multiply, pick
from subtractive.numerics.signed_log import SignedLog, kronecker_signed, multiply_signed
from subtractive.regions.folding import CONTRACTION, TRANSPOSED, FoldedSchedule

LAYERS: Registry[Layer] = Registry("layer")


class Layer(nn.Module, ABC):
    """A product of child regions followed by a sum; ``folds`` picks regions of the layer.

    A layer of one's own defines :meth:`num_inputs` and :meth:`product`, see docs/extending.md. All
    else follows, because a product that is linear in each child is a Kronecker product followed
    by a matrix; one that is not is refused when a circuit is built of it.

    >>> issubclass(sub.KroneckerLayer, sub.Layer)
    True
    """

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

    @staticmethod
    @abstractmethod
    def num_inputs(widths: Sequence[int]) -> int:
        """The number k of product units over children of these widths."""

    @abstractmethod
    def product(self, factors: Sequence[Tensor], folds: Index) -> Tensor:
        """The product units (f, n, k) of vectors (f, n, i), one for each child."""

    @property
    def is_elementwise(self) -> bool:
        """Whether product unit i is the product of the children's units i, and nothing else."""
        return False

    @property
    def is_non_negative(self) -> bool:
        """Whether non-negative inputs give non-negative outputs, whatever the parameters."""
        return False

    def weight(self, folds: Index) -> Tensor:
        """The weights of some regions, (f, o, k)."""
        return pick(self.weights(), folds)

    def expanded(self, weight: Tensor, widths: Sequence[int], folds: Index) -> Tensor:
        """``W T``: weights (f, o, i·j·...) of the Kronecker product of children of these widths.

        The matrix T (f, k, i·j·...) is what the product makes of all combinations of units.
        """
        bases = []
        for slot, width in enumerate(widths):
            eye = torch.eye(width, dtype=weight.dtype, device=weight.device)
            before, after = math.prod(widths[:slot]), math.prod(widths[slot + 1 :])
            basis = eye[None, :, None].expand(before, -1, after, -1).reshape(1, -1, width)
            bases.append(basis.expand(len(weight), -1, -1))  # (f, i·j·..., i)
        return weight @ self.product(bases, folds).mT.to(weight.dtype)

    def vector(self, children: Sequence[Message], folds: Index) -> Scaled:
        """The product units of vectors, before their sum."""
        factors = [multiply([child]) for child in children]
        product = self.product([factor.mantissa for factor in factors], folds)
        return Scaled(product, added_scales(factors), float(len(factors)))

    def sum_gram(
        self, children: Sequence[Message], weight: Tensor, other: Tensor | None = None
    ) -> Scaled:
        """``W P Wᴴ``, or ``W P Vᴴ``, of the gram P of the product units; weights are expanded.

        The scale and the number of errors are those of P.
        """
        factors = [multiply([child]) for child in children]
        grams = [factor if factor.is_gram else factor.outer() for factor in factors]
        right = weight if other is None else other
        sums = mix_kronecker_gram(weight, [gram.mantissa for gram in grams], right)
        return Scaled(sums, added_scales(grams), 2.0 * len(grams))

    def reference(self, children: Sequence[SignedLog]) -> SignedLog:
        """The product in signed log arithmetic, vectors or grams; weights are expanded."""
        return kronecker_signed(children)

    def latent(self, children: Sequence[Message]) -> Tensor:
        """The product units (f, n, i·j·...) whose weights are expanded, to be chosen from."""
        return kronecker([multiply([child]).mantissa for child in children])

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        """The unit of each child that such a product unit (f, n) is made of."""
        return list(torch.unravel_index(units, tuple(widths)))

    def environment(
        self, above: Environment, siblings: Sequence[Message], slot: int
    ) -> Environment:
        """The environment of child ``slot`` from that of such product units.

        Siblings' messages are vectors (1, n, i) where their variables are known, grams
        (1, n, i, j) where not.
        """
        return below_kronecker(above, siblings, slot)


@final
class KroneckerLayer(Layer):
    """``W (a ⊗ b ⊗ ...)``: every unit of one child meets every unit of the others.

    >>> graph = sub.linear_tree(3)
    >>> circuit = sub.Circuit(graph, sub.Gaussian(), num_units=4, product=sub.KroneckerLayer)
    >>> circuit.sum_layers[0].weights().shape
    torch.Size([1, 4, 16])
    """

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        return math.prod(widths)

    def product(self, factors: Sequence[Tensor], folds: Index) -> Tensor:
        return kronecker(factors)

    @property
    def is_non_negative(self) -> bool:
        return self.weights.is_non_negative

    def expanded(self, weight: Tensor, widths: Sequence[int], folds: Index) -> Tensor:
        return weight

    def __init_subclass__(cls) -> NoReturn:
        raise _final("KroneckerLayer")


class ElementwiseLayer(Layer):
    """The rules of products unit by unit, for which no weights need to be expanded.

    The square of a Hadamard product is the Hadamard product of the squares.

    >>> issubclass(sub.HadamardLayer, sub.circuits.ElementwiseLayer)
    True
    """

    def product(self, factors: Sequence[Tensor], folds: Index) -> Tensor:
        return reduce(torch.mul, factors)

    @property
    def is_non_negative(self) -> bool:
        return self.weights.is_non_negative

    @property
    def is_elementwise(self) -> bool:
        return True

    def expanded(self, weight: Tensor, widths: Sequence[int], folds: Index) -> Tensor:
        return weight

    def vector(self, children: Sequence[Message], folds: Index) -> Scaled:
        return multiply(children)

    def sum_gram(
        self, children: Sequence[Message], weight: Tensor, other: Tensor | None = None
    ) -> Scaled:
        gram = multiply(children)
        right = weight if other is None else other
        return gram._replace(mantissa=mix_gram(weight, gram.mantissa, right))

    def reference(self, children: Sequence[SignedLog]) -> SignedLog:
        return multiply_signed(children)

    def latent(self, children: Sequence[Message]) -> Tensor:
        return multiply(children).mantissa

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        return [units] * len(widths)

    def environment(
        self, above: Environment, siblings: Sequence[Message], slot: int
    ) -> Environment:
        return below_hadamard(above, siblings) if siblings else above


@final
class HadamardLayer(ElementwiseLayer):
    """``W (a ⊙ b ⊙ ...)``: the children are multiplied unit by unit.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Gaussian(), num_units=4)
    >>> isinstance(circuit.sum_layers[0], sub.HadamardLayer)
    True
    """

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        if len(set(widths)) > 1:
            raise ValueError(
                f"a Hadamard product needs children of equal width, got {list(widths)}. Use "
                "KroneckerLayer, or give all layers the same number of units."
            )
        return widths[0]

    def __init_subclass__(cls) -> NoReturn:
        raise _final("HadamardLayer")


@final
class SumLayer(ElementwiseLayer):
    """``W a``: weighted sums of the units of one child.

    >>> circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=4)
    >>> isinstance(circuit.sum_layers[0], sub.SumLayer)
    True
    """

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        if len(widths) > 1:
            raise ValueError(
                f"a sum has one child and cannot multiply {len(widths)} of them. Use "
                "product=HadamardLayer or product=KroneckerLayer."
            )
        return widths[0]

    def __init_subclass__(cls) -> NoReturn:
        raise _final("SumLayer")


def _final(name: str) -> TypeError:
    return TypeError(
        f"{name} cannot be subclassed: its rules for squares and samples would not follow a new "
        "product. Subclass Layer."
    )


def weights_of_calls(schedule: FoldedSchedule, layers: Sequence[Layer]) -> list[Tensor]:
    """The weights (f, o, i) of each call; nothing is summed where messages are contracted."""
    weights = []
    for call in schedule.calls:
        if call.kind is not CONTRACTION:
            weight = layers[call.layer].weight(call.folds)
            weights.append(weight.mT if call.kind is TRANSPOSED else weight)
    return weights
