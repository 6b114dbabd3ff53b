"""Mixtures of densities with non-negative weights (paper: App. H.3, several region graphs)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from subtractive.circuits.circuit import Circuit
from subtractive.densities.base import Density
from subtractive.densities.flat_expectations import weigh_and_expect_flat
from subtractive.densities.flat_members import flat_members
from subtractive.densities.member_groups import member_groups
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import Expectations
from subtractive.inputs.base import InputFamily, TestFunctions
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.messages import LeafMessage, log_sum_exp, to_scaled
from subtractive.numerics.transforms import full_precision


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
        self, members: Sequence[Density], *, weights: Sequence[float] | Tensor | None = None
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(_checked_members(members))
        shares = _shares(weights, len(self.members))
        dtype = next(self.members.parameters()).dtype
        self.logits = nn.Parameter(shares.log().to(dtype))

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return self._densities()[0].families

    @property
    def device(self) -> torch.device:
        return self.logits.device

    def describe(self) -> dict[str, Any]:
        members = [member.describe() for member in self._densities()]
        return {"kind": "mixture", "members": members}

    def log_weight(self, evidence: Evidence) -> Tensor:
        return log_sum_exp(self._log_shares(evidence))

    def _log_shares(self, evidence: Evidence) -> Tensor:
        """log w_m p_m(evidence), (n, m)."""
        if evidence.is_empty:
            return self.logits.double().log_softmax(0).expand(len(evidence), -1)
        members = self._quick_log_members(evidence)
        if members is None:
            members = self._log_members(evidence)
        return members + self.logits.double().log_softmax(0)

    def _log_members(self, evidence: Evidence) -> Tensor:
        """log p_m(evidence), (n, m)."""
        members = self._densities()
        found: dict[int, Tensor] = {}
        for group in member_groups(members):
            found.update(zip(group.numbers, group.log_weights(evidence), strict=True))
        normalised = [found[number] - _log_normaliser(m) for number, m in enumerate(members)]
        return torch.stack(normalised, -1)

    @full_precision
    def _quick_log_members(self, evidence: Evidence) -> Tensor | None:
        """log p_m(evidence), (n, m), if all members can be evaluated together."""
        if len(evidence) == 0 or evidence.lower is not None or evidence.upper is not None:
            return None
        together = flat_members(self._densities())
        log_weights = None if together is None else together.log_weights(evidence)
        log_normalisers = None if together is None else together.log_normalisers()
        if log_weights is None or log_normalisers is None:
            return None
        return log_weights - log_normalisers

    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        log_shares = self._log_shares(evidence.shared()).detach()
        shares = to_scaled(LeafMessage(None, log_shares[None])).mantissa[0]
        shares = shares.expand(len(evidence), -1)
        chosen, _ = choose_cell(shares, uniforms(len(evidence), generator))
        x = evidence.x.double()
        for number, member in enumerate(self._densities()):
            rows = (chosen == number).nonzero()[:, 0]
            x = x.index_copy(0, rows, member.sample_given(evidence.rows(rows), generator))
        return x

    def posterior(self, evidence: Evidence) -> Tensor:
        """The probability of each member given evidence, (n, m)."""
        shares = self._log_shares(evidence)
        return (shares - log_sum_exp(shares)[:, None]).exp()

    def expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Expectations:
        return self.weigh_and_expect(evidence, functions)[1]

    def weigh_and_expect(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> tuple[Tensor, Expectations]:
        quick = self._quick_expectations(evidence, functions)
        if quick is not None:
            return quick
        members = self._densities()
        found: dict[int, tuple[Tensor, Expectations]] = {}
        for group in member_groups(members):
            asked = group.weigh_and_expect(evidence, functions)
            found.update(zip(group.numbers, asked, strict=True))
        weights = [found[number][0] - _log_normaliser(m) for number, m in enumerate(members)]
        shares = torch.stack(weights, -1) + self.logits.double().log_softmax(0)  # (n, m)
        log_weight = log_sum_exp(shares)
        posterior = (shares - log_weight[:, None]).exp()
        expected = [found[number][1] for number in range(len(members))]
        answers: Expectations = []
        for answer, observed in zip(zip(*expected, strict=True), evidence.observed.T, strict=True):
            known = [tensor for tensor in answer if tensor is not None]
            answers.append(_averaged(known, posterior, observed) if known else None)
        return log_weight, answers

    @full_precision
    def _quick_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> tuple[Tensor, Expectations] | None:
        """The same, if all members can be asked together."""
        if len(evidence) == 0 or evidence.lower is not None or evidence.upper is not None:
            return None
        together = flat_members(self._densities())
        log_normalisers = None if together is None else together.log_normalisers()
        if together is None or log_normalisers is None:
            return None
        log_prior = self.logits.double().log_softmax(0) - log_normalisers
        return weigh_and_expect_flat(together, log_prior, evidence, functions)

    def product_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Tensor:
        return self._mean_of_members(
            evidence, lambda member: member.product_expectations(evidence, functions)
        )

    def circuit_expectation(self, evidence: Evidence, circuit: Circuit) -> Tensor:
        return self._mean_of_members(
            evidence, lambda member: member.circuit_expectation(evidence, circuit)
        )

    def _mean_of_members(self, evidence: Evidence, ask: Callable[[Density], Tensor]) -> Tensor:
        """Σ_m p(m | evidence) times the members' answers; one that excludes it is not asked."""
        posterior = self.posterior(evidence)[0]
        answers = [
            share * ask(member)
            for member, share in zip(self._densities(), posterior, strict=True)
            if share > 0
        ]
        return torch.stack(answers).sum(0)

    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        members = [
            member.log_tilted(evidence, tilt) - member.log_normaliser()
            for member in self._densities()
        ]
        return log_sum_exp(torch.stack(members) + self.logits.double().log_softmax(0))

    def log_normaliser(self) -> Tensor:
        """Zero: the members are normalised."""
        return torch.zeros((), dtype=torch.float64, device=self.device)

    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        checks = [
            member.check_normaliser(member.log_normaliser().detach())
            for member in self._densities()
        ]
        return all(checks)

    def _densities(self) -> list[Density]:
        return [member for member in self.members if isinstance(member, Density)]


def _log_normaliser(member: Density) -> Tensor:
    """log Z of a member, which is known already unless its parameters have changed."""
    return member.log_normaliser() if torch.is_grad_enabled() else member.log_partition()


def _averaged(answers: Sequence[Tensor], posterior: Tensor, observed: Tensor) -> Tensor:
    """The members' answers, (n, q) each, by their posterior (n, m); NaN where observed (n,)."""
    # NaN times zero is NaN, and so is its gradient: a member that excludes the evidence has no
    # answer, and neither has an observed variable.
    silent = (posterior == 0) | observed[:, None]
    stacked = torch.where(silent[:, None], 0.0, torch.stack(list(answers), -1))  # (n, q, m)
    average = (stacked * posterior[:, None]).sum(-1)
    return torch.where(observed[:, None], math.nan, average)


def _checked_members(members: object) -> list[Density]:
    if not isinstance(members, Iterable):
        raise ValueError(
            f"members must be a list of densities, got {type(members).__name__}. For one density "
            "pass [density]."
        )
    densities = list(members)
    if not densities:
        raise ValueError("a mixture needs at least one member, got none.")
    for member in densities:
        if not isinstance(member, Density):
            raise ValueError(
                f"members must be densities, got {type(member).__name__}. Wrap a circuit in "
                "SquaredCircuit(circuit) or MonotonicCircuit(circuit)."
            )
        if [f.num_states for f in member.families] != [
            f.num_states for f in densities[0].families
        ]:
            raise ValueError(
                "members must be over the same variables: the number of variables, or the "
                "number of states of one, differs between them."
            )
    return densities


def _shares(weights: Sequence[float] | Tensor | None, count: int) -> Tensor:
    """The weights on the simplex, (m,) in float64; equal ones if none are given."""
    try:
        given = [1.0] * count if weights is None else [float(weight) for weight in weights]
    except (TypeError, ValueError):
        given = []
    start = torch.tensor(given, dtype=torch.float64)
    if len(given) != count or not bool((start >= 0).all()) or not 0 < start.sum() < math.inf:
        raise ValueError(
            f"weights must be {count} non-negative finite numbers, one per member and not all "
            f"zero, got {weights}."
        )
    return start / start.sum()
