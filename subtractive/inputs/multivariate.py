"""Families of functions of regions of several variables: what they must define in addition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors
from subtractive.numerics.messages import LeafMessage


class MultivariateFamily(InputFamily):
    """A family of functions of several variables, some of which may be observed.

    >>> from subtractive.inputs import MultivariateFamily
    >>> isinstance(sub.MultivariateGaussian(), MultivariateFamily)
    True
    """

    @abstractmethod
    def init(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """What is learned, at its start, for regions of ``size`` variables, each (i, ...)."""

    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        """What is fixed, but may differ from region to region."""
        return {}

    @abstractmethod
    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        """f with the unobserved variables of a region integrated out, (f, n, i)."""

    @abstractmethod
    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> LeafMessage:
        """f_i g_j with the unobserved variables of the region integrated out, (f, n, i, j)."""
