"""Mixtures of densities with non-negative weights (paper: App. H.3, several region graphs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from subtractive.densities.base import Density
from subtractive.inputs.base import InputFamily
from subtractive.queries.evidence import Evidence


@final
class Mixture(Density):
    """Σ_m w_m p_m(x), w on the simplex: the members may have different region graphs.

    >>> members = [
    ...     sub.SquaredCircuit(sub.Circuit(graph, sub.Gaussian(), num_units=2))
    ...     for graph in (sub.linear_tree(3), sub.flat(3))
    ... ]
    >>> sub.Mixture(members).log_prob(torch.zeros(2, 3)).shape
    torch.Size([2])
    """

    def __init__(
        self, members: Sequence[Density], *, weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        if not members:
            raise ValueError("a mixture needs at least one member, got none.")
        for member in members:
            if not isinstance(member, Density):
                raise ValueError(f"members must be densities, got {type(member).__name__}.")
            if [f.num_states for f in member.families] != [
                f.num_states for f in members[0].families
            ]:
                raise ValueError(
                    "members must be over the same variables: the number of variables, or the "
                    "number of states of one, differs between them."
                )
        start = torch.tensor(weights or [1.0] * len(members), dtype=torch.float64)
        if start.shape != (len(members),) or not bool((start >= 0).all()) or start.sum() <= 0:
            raise ValueError(
                f"weights must be {len(members)} non-negative numbers, not all zero, got "
                f"{weights}."
            )
        self.members = nn.ModuleList(members)
        self.logits = nn.Parameter((start / start.sum()).log().to(torch.get_default_dtype()))

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return self._densities()[0].families

    @property
    def device(self) -> torch.device:
        return self.logits.device

    def log_weight(self, evidence: Evidence) -> Tensor:
        members = [
            member.log_weight(evidence) - member.log_partition() for member in self._densities()
        ]
        shares = self.logits.double().log_softmax(0)
        return (torch.stack(members, -1) + shares).logsumexp(-1)

    def log_partition(self) -> Tensor:
        """Zero: the members are normalised."""
        return torch.zeros((), dtype=torch.float64, device=self.device)

    def _densities(self) -> list[Density]:
        return [member for member in self.members if isinstance(member, Density)]
