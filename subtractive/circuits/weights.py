"""Real, positive and complex weights of sum layers: the same layer with other numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from subtractive.init import Initialiser
from subtractive.io.registry import Registry

WEIGHTS: Registry[Weights] = Registry("kind of weights")

# Weights whose largest is beyond, or below the inverse, are scaled before they are squared.
_MODERATE = {torch.float32: 1e4, torch.float64: 1e60}


class Weights(nn.Module, ABC):
    """A learnable matrix per region; calling it gives the matrices W, (f, o, i).

    To be saved, weights need one parameter only, and a constructor or an :meth:`of_shape` that
    makes one of a given shape.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> circuit.sum_layers[0].weights().shape
    torch.Size([1, 1, 3])
    """

    def __init_subclass__(cls, old_names: Sequence[str] = (), **options: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**options)
        WEIGHTS.add(cls, old_names)

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Weights:
        """Weights whose parameter has this shape, to be filled from a file."""
        return cls(torch.ones(*shape))

    @property
    def name_in_files(self) -> str:
        """The name of these weights in files; ``ValueError`` if they could not be loaded."""
        name = WEIGHTS.name_of(type(self))
        own = {key: tensor.shape for key, tensor in self.state_dict().items()}
        twin = type(self).of_shape(*own.values()) if len(own) == 1 else None
        if twin is None or own != {k: tensor.shape for k, tensor in twin.state_dict().items()}:
            raise ValueError(
                f"{name} cannot be saved: of_shape() must make weights with the same parameter, "
                f"and only one, got {sorted(own)}."
            )
        return name

    @abstractmethod
    def forward(self) -> Tensor: ...

    @abstractmethod
    def multiply_by(self, factor: float) -> None:
        """Multiply all matrices by a positive number, in place and without a gradient."""

    @property
    @abstractmethod
    def is_non_negative(self) -> bool:
        """Whether W >= 0 whatever the parameters, as a monotonic circuit requires."""


WeightKind = Callable[[tuple[int, int, int], Initialiser, torch.Generator | None], Weights]


@final
class RealWeights(Weights):
    """Weights of any sign: what makes a mixture subtractive."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value)

    def forward(self) -> Tensor:
        return self.value

    @torch.no_grad()
    def multiply_by(self, factor: float) -> None:
        self.value.mul_(factor)

    @property
    def is_non_negative(self) -> bool:
        return False


@final
class PositiveWeights(Weights):
    """Positive weights, stored as logarithms."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.log_value = nn.Parameter(value.log())

    def forward(self) -> Tensor:
        return self.log_value.exp()

    @torch.no_grad()
    def multiply_by(self, factor: float) -> None:
        self.log_value.add_(math.log(factor))

    @property
    def is_non_negative(self) -> bool:
        return True


@final
class ComplexWeights(Weights):
    """Complex weights, stored as real and imaginary parts so that ``.to(dtype)`` keeps both."""

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Weights:
        return cls(torch.ones(*shape[:-1], dtype=torch.complex64))

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.view_as_real(value).clone())

    def forward(self) -> Tensor:
        return torch.view_as_complex(self.parts)

    @torch.no_grad()
    def multiply_by(self, factor: float) -> None:
        self.parts.mul_(factor)

    @property
    def is_non_negative(self) -> bool:
        return False


@final
class GivenWeights(Weights):
    """Weights that are computed from others, with their gradients, and not learned."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self) -> Tensor:
        return self.value

    def multiply_by(self, factor: float) -> None:
        self.value = self.value * factor

    @property
    def is_non_negative(self) -> bool:
        return False


def real_weights(
    shape: tuple[int, int, int], initialise: Initialiser, generator: torch.Generator | None
) -> Weights:
    """Weights of any sign, for ``Circuit(..., weights=real_weights)``: the default.

    >>> bool((sub.real_weights((1, 2, 3), sub.init.normal(), None)().abs() > 0).all())
    True
    """
    return RealWeights(initialise(shape, generator))


def positive_weights(
    shape: tuple[int, int, int], initialise: Initialiser, generator: torch.Generator | None
) -> Weights:
    """Positive weights: monotonic circuits, and squared monotonic ones.

    >>> bool((sub.positive_weights((1, 2, 3), sub.init.uniform(), None)() > 0).all())
    True
    """
    value = initialise(shape, generator)
    if not bool((value > 0).all()):
        raise ValueError(
            "positive weights need a positive start, got values down to "
            f"{float(value.min()):.3g}. Use uniform(), log_normal() or dirichlet()."
        )
    return PositiveWeights(value)


def complex_weights(
    shape: tuple[int, int, int], initialise: Initialiser, generator: torch.Generator | None
) -> Weights:
    """Complex weights; real and imaginary parts are drawn in the same way.

    >>> sub.complex_weights((1, 2, 3), sub.init.normal(), None)().is_complex()
    True
    """
    real = initialise(shape, generator)
    return ComplexWeights(torch.complex(real, initialise(shape, generator)))


class Moderate(NamedTuple):
    """Weights W = matrix · exp(log_scale) whose squares stay finite."""

    matrix: Tensor  # (f, o, i)
    log_scale: float
    largest: float  # of the magnitudes of the matrix


def moderate(weights: Sequence[Tensor]) -> list[Moderate]:
    """Weights divided by their largest where their squares would leave the range of a float."""
    with torch.no_grad():
        bounds = [bound for weight in weights for bound in torch.aminmax(_parts(weight))]
        ends = torch.stack(bounds).tolist()
    sizes = [max(-low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
    found = []
    for weight, size in zip(weights, sizes, strict=True):
        limit = _MODERATE[weight.real.dtype]
        is_moderate = 1 / limit < size < limit or not 0 < size < math.inf
        found.append(
            Moderate(weight, 0.0, size)
            if is_moderate
            else Moderate(weight / size, math.log(size), 1.0)
        )
    return found


def _parts(weight: Tensor) -> Tensor:
    return torch.view_as_real(weight.resolve_conj()) if weight.is_complex() else weight
