"""The input layer: the tensors of one family over several regions (paper: Def. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors, Window
from subtractive.inputs.multivariate import MultivariateFamily
from subtractive.inputs.products import Products
from subtractive.numerics.messages import Index, LeafMessage, pick


@final
class InputLayer(nn.Module):
    """K functions of each of several regions, folded; ``folds`` picks some of the regions.

    Integrals of products are computed in float64 whatever the dtype of the parameters: components
    that nearly cancel leave few digits. Where the functions are shared, all regions have the
    same: their tensors are stored once, (1, i, ...).
    """

    variables: Tensor

    def __init__(
        self,
        families: Sequence[InputFamily],
        scopes: Sequence[Sequence[int]],
        *,
        num_units: int,
        generator: torch.Generator | None,
        is_shared: bool = False,
    ) -> None:
        super().__init__()
        self.family = families[0]
        self.families = tuple(families)
        self.scopes = tuple(tuple(scope) for scope in scopes)
        self.num_units = num_units
        self.is_shared = is_shared
        self.register_buffer("variables", torch.tensor(self.scopes), persistent=False)  # (f, s)
        size = len(self.scopes[0])
        owners = families[:1] if is_shared else families
        starts = [family.start(size, num_units, generator) for family in owners]
        learned, fixed = zip(*starts, strict=True)
        for name in learned[0]:
            self.register_parameter(name, nn.Parameter(torch.stack([p[name] for p in learned])))
        for name in fixed[0]:
            self.register_buffer(name, torch.stack([p[name] for p in fixed]))
        self.names = (*learned[0], *fixed[0])

    @classmethod
    def side_by_side(cls, layers: Sequence[InputLayer]) -> InputLayer:
        """Layers of the same regions and families as one, each region of all layers in a row.

        Its tensors are computed from those of the layers, with their gradients.
        """
        first, count = layers[0], len(layers)
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer.family, layer.num_units, layer.is_shared = first.family, first.num_units, False
        layer.families = tuple(family for family in first.families for _ in layers)
        layer.scopes = tuple(scope for scope in first.scopes for _ in layers)
        variables = first.variables.repeat_interleave(count, 0)
        layer.register_buffer("variables", variables, persistent=False)
        layer.names = first.names
        each = [one.tensors(slice(None)) for one in layers]
        for name in first.names:
            setattr(layer, name, torch.stack([p[name] for p in each], 1).flatten(0, 1))
        return layer

    def tensors(self, folds: Index, dtype: torch.dtype | None = None) -> Tensors:
        """The numbers behind the functions of some regions, by name, region axis first."""
        if not self.is_shared:
            return {name: pick(self.get_tensor(name), folds).to(dtype) for name in self.names}
        count = len(self.variables[folds])
        return {
            name: tensor.expand(count, *tensor.shape[1:])
            for name, tensor in self._stored(dtype).items()
        }

    def _stored(self, dtype: torch.dtype | None = None) -> Tensors:
        """The tensors as they are stored."""
        return {name: self.get_tensor(name).to(dtype) for name in self.names}

    def get_tensor(self, name: str) -> Tensor:
        """A parameter or constant by its name."""
        tensor = getattr(self, name)
        assert isinstance(tensor, Tensor)
        return tensor

    @torch.no_grad()
    def update_scale(self) -> dict[str, Tensor]:
        """How far a step of one goes for some of the parameters, by name."""
        return self.family.update_scale(self._stored())

    def gather(self, x: Tensor, folds: Index, dtype: torch.dtype | None = None) -> Tensor:
        """The columns of x (n, d) that the regions see, (f, n, s)."""
        columns = x[:, self.variables[folds]].movedim(0, 1)
        if self.family.num_states is not None:
            return columns  # a state must not be rounded to another one
        return columns.to(dtype or self.get_tensor(self.names[0]).dtype)

    def values(self, x: Tensor, folds: Index, dtype: torch.dtype | None = None) -> LeafMessage:
        """f(x), (f, n, i), in the precision of the parameters or in another one."""
        columns = self.gather(x, folds, dtype)
        if not self.is_shared:
            return self.family.values(self.tensors(folds, dtype), columns)
        # Rows of one region: its gradient is then that of the stored tensors, not of copies.
        values = self.family.values(self._stored(dtype), columns.flatten(0, 1)[None])
        return values.unfolded(columns.shape[:2])

    def integral(
        self, folds: Index, window: Window, dtype: torch.dtype | None = None
    ) -> LeafMessage:
        """∫ f, (f, m, i)."""
        return self.family.integral(self.tensors(folds, dtype), window)

    def partial_integral(
        self,
        x: Tensor,
        observed: Sequence[bool],
        folds: Index,
        dtype: torch.dtype | None = None,
    ) -> LeafMessage:
        """∫ f over the unobserved variables of each region, (f, n, i)."""
        columns = self.gather(x, folds, dtype)
        return self._multivariate.partial_integral(self.tensors(folds, dtype), columns, observed)

    def gram(self, folds: Index, window: Window) -> LeafMessage:
        """∫ f fᵀ, (f, m, i, j)."""
        if self.is_shared and window is EVERYWHERE:
            p = self._stored(self.family.gram_dtype)
            return self.family.gram(p, p, window).repeated(len(self.variables[folds]))
        p = self.tensors(folds, self.family.gram_dtype)
        return self.family.gram(p, p, window)

    def partial_gram(self, x: Tensor, observed: Sequence[bool], folds: Index) -> LeafMessage:
        """∫ f fᵀ over the unobserved variables of each region, (f, n, i, j)."""
        p = self.tensors(folds, torch.float64)
        return self._multivariate.partial_gram(p, p, self.gather(x, folds).double(), observed)

    def cross_gram(self, other: InputLayer, window: Window) -> LeafMessage:
        """∫ f gᵀ with another layer of the same family, (f, m, i, j)."""
        every = slice(None)
        dtype = self.family.gram_dtype
        return self.family.gram(self.tensors(every, dtype), other.tensors(every, dtype), window)

    @property
    def _multivariate(self) -> MultivariateFamily | Products:
        """The family of regions of several variables."""
        assert isinstance(self.family, MultivariateFamily | Products)
        return self.family
