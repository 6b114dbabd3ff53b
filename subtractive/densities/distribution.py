"""A density as a ``torch.distributions.Distribution``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from subtractive.inference.evidence import Evidence
from subtractive.inputs.base import InputFamily
from subtractive.inputs.univariate import UnivariateFamily

if TYPE_CHECKING:
    from subtractive.densities.base import Density


@final
class DensityDistribution(Distribution):
    """A view of a density with the names and shapes of ``torch.distributions``.

    The event is one row of d variables. The view shares the density's parameters. A NaN entry of
    a value is integrated out, as everywhere in this library.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Gaussian(), num_units=2, seed=0)
    >>> distribution = sub.SquaredCircuit(circuit).as_distribution()
    >>> distribution.event_shape, distribution.log_prob(torch.zeros(5, 4, 3)).shape
    (torch.Size([3]), torch.Size([5, 4]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, density: Density, batch_shape: torch.Size = torch.Size()) -> None:  # noqa: B008 - immutable
        self.density = density
        # The density checks every value itself, and takes NaN for what is missing.
        super().__init__(batch_shape, torch.Size([density.num_variables]), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """What values each variable can take."""
        return constraints.stack([_support(family) for family in self.density.families], dim=-1)

    @property
    def mean(self) -> Tensor:
        """E[x], (*batch, d)."""
        return self.density.mean().expand(self._extended_shape())

    @property
    def variance(self) -> Tensor:
        """The variance of each variable, (*batch, d)."""
        return self.density.variance().expand(self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), (...), of values (..., d)."""
        log_prob = self.density.log_prob(value)
        return log_prob.expand(torch.broadcast_shapes(log_prob.shape, self.batch_shape))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: ANN401, B008 - as in torch
        """Exact samples, (*sample_shape, *batch, d), by torch's global random numbers.

        ``density.sample(n, generator=...)`` takes a generator of one's own.
        """
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.density.sample(shape[:-1].numel()).reshape(shape)

    def cdf(self, value: Tensor) -> Tensor:
        """P(x_1 <= value_1, ..., x_d <= value_d), (...), of values (..., d).

        Infinity leaves a variable out: with all but one infinite, it is the distribution function
        of that one.
        """
        if value.shape[-1:] != self.event_shape or bool(value.isnan().any()):
            raise ValueError(
                f"cdf needs values of shape (..., {self.event_shape[0]}) without NaN, got shape "
                f"{tuple(value.shape)}. Use infinity for variables that do not matter."
            )
        upper = value.reshape(-1, *self.event_shape).double()
        hidden = torch.zeros_like(upper, dtype=torch.bool)
        below = Evidence(
            torch.zeros_like(upper), hidden, torch.full_like(upper, -torch.inf), upper
        )
        log_share = self.density.log_weight(below) - self.density.log_partition()
        share = log_share.exp().clamp(max=1.0).reshape(value.shape[:-1])
        return share.expand(torch.broadcast_shapes(share.shape, self.batch_shape))

    def expand(
        self,
        batch_shape: Any,  # noqa: ANN401 - as in torch
        _instance: Distribution | None = None,
    ) -> DensityDistribution:
        """The same density for every element of a batch."""
        return DensityDistribution(self.density, torch.Size(batch_shape))


def _support(family: InputFamily) -> constraints.Constraint:
    if family.num_states is not None:
        return constraints.integer_interval(0, family.num_states - 1)
    ends = family.support if isinstance(family, UnivariateFamily) else (-math.inf, math.inf)
    return constraints.real if math.inf in map(abs, ends) else constraints.interval(*ends)
