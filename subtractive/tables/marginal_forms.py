"""The marginals of all columns given one box, in terms of input functions.

They are found once, for all members of a mixture: distribution functions can then be asked for
again and again, as quantiles do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import Expectations
from subtractive.inference.unit_marginals import (
    Marginal,
    UnitShares,
    plain_marginals,
    square_marginals,
)
from subtractive.inputs.base import TestFunctions
from subtractive.tables.forest import Forest


class Part(NamedTuple):
    """The marginal of a variable in one member of a mixture, or in some, and their share."""

    weight: float
    marginal: Marginal


@final
class Marginals:
    """The marginals of a density given one row of evidence."""

    def __init__(self, density: Density, evidence: Evidence) -> None:
        self.density, self.evidence = density, evidence
        self._parts = marginal_parts(density, evidence)

    @torch.no_grad()
    def expectations(self, functions: Sequence[TestFunctions | None]) -> Expectations:
        """Expectations (1, q) for each variable; ``None`` skips one."""
        if self._parts is None:
            return self.density.expectations(self.evidence, functions)
        found: Expectations = []
        for variable, function in enumerate(functions):
            if function is None:
                found.append(None)
                continue
            answers = [w * one.expectations(function) for w, one in self._parts[variable]]
            found.append(torch.stack(answers).sum(0))
        return found


@torch.no_grad()
def marginal_parts(density: Density, evidence: Evidence) -> dict[int, list[Part]] | None:
    """What the marginal of each variable that is not observed is made of.

    ``None`` where a member is a density, or has inputs, of a kind that is not known here.
    """
    forest = Forest.of(density)
    shares = None if forest is None else forest.unit_shares(evidence)
    if shares is not None:
        return {variable: [Part(1.0, one)] for variable, one in shares.items()}
    if not isinstance(density, Mixture):
        own = _of_circuit(density, evidence)
        return None if own is None else {v: [Part(1.0, one)] for v, one in own.items()}
    joined: dict[int, list[Part]] = {}
    posterior = density.posterior(evidence)[0].tolist()
    for member, weight in zip(density.members, posterior, strict=True):
        if weight == 0:
            continue
        assert isinstance(member, Density)
        parts = marginal_parts(member, evidence)
        if parts is None:
            return None
        for variable, some in parts.items():
            weighted = [Part(weight * part.weight, part.marginal) for part in some]
            joined.setdefault(variable, []).extend(weighted)
    return {variable: _merged(parts) for variable, parts in joined.items()}


def _of_circuit(density: Density, evidence: Evidence) -> dict[int, Marginal] | None:
    if isinstance(density, SquaredCircuit):
        return square_marginals(density.circuit, evidence)
    if isinstance(density, MonotonicCircuit):
        return plain_marginals(density.circuit, evidence)
    return None


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Parts that are mixtures of functions of the same family as one mixture."""
    alike: dict[object, list[tuple[float, UnitShares]]] = {}
    others = []
    for part in parts:
        if isinstance(part.marginal, UnitShares):
            alike.setdefault(part.marginal.family, []).append((part.weight, part.marginal))
        else:
            others.append(part)
    return [*(_as_one(same) for same in alike.values()), *others]


def _as_one(parts: Sequence[tuple[float, UnitShares]]) -> Part:
    first = parts[0][1]

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors), 1)

    tensors = {name: joined([one.tensors[name] for _, one in parts]) for name in first.tensors}
    shares = joined([weight * one.shares for weight, one in parts])
    return Part(1.0, UnitShares(first.family, tensors, shares))
