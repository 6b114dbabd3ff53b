"""Squared circuits: p(x) = Σ_s |c_s(x)|² / Z (paper: Sec. 3.2, NPC²)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from subtractive.circuits.building import require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.densities.base import Density
from subtractive.inference.circuit_expectation import square_expectation
from subtractive.inference.covariance import log_tilted_square
from subtractive.inference.evidence import Evidence, make_evidence
from subtractive.inference.expectations import Expectations, square_expectations
from subtractive.inference.marginal import log_square_integral
from subtractive.inference.partition import check_cancellation, log_square_partition
from subtractive.inference.product_expectations import square_products
from subtractive.inference.sampling import sample_square
from subtractive.inputs.base import InputFamily, TestFunctions


@final
class SquaredCircuit(Density):
    """The square of a circuit, or a sum of squares if it has several outputs.

    Real weights give the paper's NPC², positive ones MPC², complex ones |c|²; over the linear
    tree it is a Born machine, over :func:`flat` a squared mixture or a PSD model.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> sub.SquaredCircuit(circuit).log_prob(torch.zeros(4, 2)).shape
    torch.Size([4])
    """

    def __init__(self, circuit: Circuit) -> None:
        super().__init__()
        if not isinstance(circuit, Circuit):
            raise ValueError(f"SquaredCircuit takes a Circuit, got {type(circuit).__name__}.")
        require_tree(circuit.graph, "a circuit that can be squared")
        self.circuit = circuit

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return self.circuit.families

    @property
    def device(self) -> torch.device:
        return self.circuit.device

    def log_square(self, x: Tensor) -> Tensor:
        """log Σ_s |c_s(x)|², (n,): ``log_prob`` without its normalisation."""
        return self.log_weight(make_evidence(x, None, self.families, self.device))

    def describe(self) -> dict[str, Any]:
        return {"kind": "squared", "circuit": self.circuit.describe()}

    def log_weight(self, evidence: Evidence) -> Tensor:
        return log_square_integral(self.circuit, evidence)

    def log_normaliser(self) -> Tensor:
        return log_square_partition(self.circuit)

    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        return self.circuit.is_non_negative or check_cancellation(self.circuit, log_normaliser)

    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        return sample_square(self.circuit, evidence, generator)

    def expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Expectations:
        return square_expectations(self.circuit, evidence, functions)

    def product_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Tensor:
        return square_products(self.circuit, evidence, functions)

    def circuit_expectation(self, evidence: Evidence, circuit: Circuit) -> Tensor:
        return square_expectation(self.circuit, evidence, circuit)

    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        return log_tilted_square(self.circuit, evidence, tilt)
