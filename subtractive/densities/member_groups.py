"""The members of a mixture in groups of equal structure, each evaluated side by side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from torch import Tensor

from subtractive.circuits.circuit import Circuit, Stack, structure
from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import Expectations, weigh_stack_expectations
from subtractive.inference.marginal import log_integrals, log_square_integrals, row_width
from subtractive.inputs.base import TestFunctions

# Messages of more numbers leave the cache: then it is quicker to take one member after the other.
MOST_NUMBERS = 2**22


class Group(NamedTuple):
    """Some members, by their numbers in the mixture, and their circuits, if they have one each."""

    numbers: Sequence[int]
    members: Sequence[Density]
    circuits: Sequence[Circuit]

    def log_weights(self, evidence: Evidence) -> Sequence[Tensor]:
        """The unnormalised log-densities (n,) of all members."""
        if not self._pays(evidence):
            return [member.log_weight(evidence) for member in self.members]
        is_squared = isinstance(self.members[0], SquaredCircuit)
        log_roots = log_square_integrals if is_squared else log_integrals
        return log_roots(Stack.of(self.circuits), evidence).unbind()

    def weigh_and_expect(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> list[tuple[Tensor, Expectations]]:
        """For each member :meth:`Density.weigh_and_expect`."""
        if not self._pays(evidence) or isinstance(self.members[0], SquaredCircuit):
            return [member.weigh_and_expect(evidence, functions) for member in self.members]
        log_weights, found = weigh_stack_expectations(Stack.of(self.circuits), evidence, functions)
        return [
            (log_weight, [None if answer is None else answer[number] for answer in found])
            for number, log_weight in enumerate(log_weights.unbind())
        ]

    def _pays(self, evidence: Evidence) -> bool:
        """Whether there are several circuits, and so few rows that they should be stacked."""
        if len(self.circuits) < 2:
            return False
        return len(evidence) * len(self.circuits) * row_width(self.circuits[0]) <= MOST_NUMBERS


def member_groups(members: Sequence[Density]) -> list[Group]:
    """All members: circuits of equal structure together, others alone."""
    groups: dict[Hashable, list[int]] = {}
    for number, member in enumerate(members):
        key: Hashable = None
        if isinstance(member, SquaredCircuit | MonotonicCircuit):
            key = structure(member.circuit)
        groups.setdefault((type(member), number if key is None else key), []).append(number)
    return [_group(numbers, members) for numbers in groups.values()]


def _group(numbers: Sequence[int], members: Sequence[Density]) -> Group:
    some = [members[number] for number in numbers]
    circuits = [m.circuit for m in some if isinstance(m, SquaredCircuit | MonotonicCircuit)]
    return Group(numbers, some, circuits)
