"""The marginals of all columns given one box, as mixtures of input functions.

A question about single columns needs the shares of the units of their inputs, and nothing else
of a model. They are found once, for all members of a mixture side by side: distribution functions
can then be asked for again and again, as quantiles do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import (
    Expectations,
    UnitShares,
    gaussian_unit_shares,
)
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.gaussian import Gaussian
from subtractive.tables.forest import Forest


@final
class Marginals:
    """The marginals of a density given one row of evidence."""

    def __init__(self, density: Density, evidence: Evidence) -> None:
        self.density, self.evidence = density, evidence
        self._shares = unit_shares(density, evidence)

    @torch.no_grad()
    def expectations(self, functions: Sequence[TestFunctions | None]) -> Expectations:
        """Expectations (1, q) for each variable; ``None`` skips one."""
        if self._shares is None:
            return self.density.expectations(self.evidence, functions)
        found: Expectations = []
        for variable, function in enumerate(functions):
            if function is None:
                found.append(None)
                continue
            family, p, shares = self._shares[variable]
            if isinstance(family, Gaussian):  # plain numbers, without logarithms
                scale = p["log_scale"][0].exp()
                found.append(function.of_gaussians(shares, p["mean"], scale))
                continue
            here = self.evidence.x[:, [variable]]
            found.append(family.expectations_units(p, shares, here, [False], [function])[0])
        return found


class _Member(NamedTuple):
    """The shares of one member of a mixture, and its own share, a number."""

    shares: dict[int, UnitShares]
    weight: Tensor


@torch.no_grad()
def unit_shares(density: Density, evidence: Evidence) -> dict[int, UnitShares] | None:
    """The units of each variable that is not observed, and their shares.

    ``None`` where a marginal is no mixture of functions of one kind.
    """
    forest = Forest.of(density)
    if forest is not None:
        return forest.unit_shares(evidence)
    if isinstance(density, SquaredCircuit):
        return gaussian_unit_shares(density.circuit, evidence)
    if not isinstance(density, Mixture):
        return None
    members = []
    posterior = density.posterior(evidence)[0]
    for member, weight in zip(density.members, posterior, strict=True):
        if weight == 0:
            continue
        assert isinstance(member, Density)
        shares = unit_shares(member, evidence)
        if shares is None:
            return None
        members.append(_Member(shares, weight))
    return _joined(members)


def _joined(members: Sequence[_Member]) -> dict[int, UnitShares] | None:
    joined = {}
    for variable, first in members[0].shares.items():
        parts = [member.shares[variable] for member in members]
        if any(part.family != first.family for part in parts):
            return None
        tensors = {
            name: torch.cat([part.tensors[name] for part in parts], 1) for name in first.tensors
        }
        weighted = [
            part.shares * member.weight for part, member in zip(parts, members, strict=True)
        ]
        joined[variable] = UnitShares(first.family, tensors, torch.cat(weighted, 1))
    return joined
