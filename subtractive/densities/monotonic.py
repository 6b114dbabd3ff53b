"""Monotonic circuits: p(x) = c(x) / Z with nothing negative in it (paper: Sec. 3, MPC)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.densities.base import Density
from subtractive.inference.circuit_expectation import plain_expectation
from subtractive.inference.covariance import log_tilted_plain
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import (
    Expectations,
    plain_expectations,
    weigh_plain_expectations,
)
from subtractive.inference.marginal import log_integral
from subtractive.inference.partition import log_plain_partition
from subtractive.inference.product_expectations import plain_products
from subtractive.inference.sampling import sample_plain
from subtractive.inputs.base import InputFamily, TestFunctions


@final
class MonotonicCircuit(Density):
    """A circuit of positive weights and non-negative inputs: the additive baseline.

    Over :func:`flat` it is an additive mixture, over the linear tree an inhomogeneous hidden
    Markov model.

    >>> graph = sub.linear_tree(3)
    >>> circuit = sub.Circuit(graph, sub.Gaussian(), num_units=2, weights=sub.positive_weights)
    >>> sub.MonotonicCircuit(circuit).log_prob(torch.zeros(4, 3)).shape
    torch.Size([4])
    """

    def __init__(self, circuit: Circuit) -> None:
        super().__init__()
        if not isinstance(circuit, Circuit):
            raise ValueError(f"MonotonicCircuit takes a Circuit, got {type(circuit).__name__}.")
        if not circuit.is_non_negative:
            raise ValueError(
                "a monotonic circuit needs positive weights and non-negative input functions. "
                "Build it with weights=positive_weights and families such as Gaussian(), "
                "Categorical(v), Binomial(n) or Spline(..., non_negative=True)."
            )
        self.circuit = circuit

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return self.circuit.families

    @property
    def device(self) -> torch.device:
        return self.circuit.device

    def describe(self) -> dict[str, Any]:
        return {"kind": "monotonic", "circuit": self.circuit.describe()}

    def log_weight(self, evidence: Evidence) -> Tensor:
        return log_integral(self.circuit, evidence)

    def log_normaliser(self) -> Tensor:
        return log_plain_partition(self.circuit)

    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        return True  # nothing is negative, and nothing cancels

    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        return sample_plain(self.circuit, evidence, generator)

    def expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Expectations:
        return plain_expectations(self.circuit, evidence, functions)

    def weigh_and_expect(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> tuple[Tensor, Expectations]:
        return weigh_plain_expectations(self.circuit, evidence, functions)

    def product_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Tensor:
        return plain_products(self.circuit, evidence, functions)

    def circuit_expectation(self, evidence: Evidence, circuit: Circuit) -> Tensor:
        return plain_expectation(self.circuit, evidence, circuit)

    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        return log_tilted_plain(self.circuit, evidence, tilt)
