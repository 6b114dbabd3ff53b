"""How far densities are from each other: by exact samples, or exactly by inner products."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.inference.inner import log_inner


class Estimate(NamedTuple):
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


def estimate(terms: Tensor) -> Estimate:
    """The mean of independent terms (n,), n >= 2, and its standard error."""
    if len(terms) < 2:
        raise ValueError(
            f"a standard error needs at least 2 samples, got num_samples={len(terms)}."
        )
    error = terms.std() / len(terms) ** 0.5
    return Estimate(float(terms.mean()), float(error))


def fidelity(first: Circuit, second: Circuit) -> Tensor:
    """|∫ c₁ c₂*|² / (∫|c₁|² ∫|c₂|²), exactly: one where the circuits agree up to a factor.

    Both circuits have one output and the same region graph.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> round(sub.inference.fidelity(circuit, circuit).item(), 12)
    1.0
    """
    return (-2 * cauchy_schwarz(first, second)).exp()


def cauchy_schwarz(first: Circuit, second: Circuit) -> Tensor:
    """−log |∫ c₁ c₂*| / √(∫|c₁|² ∫|c₂|²), exactly: the Cauchy-Schwarz divergence of c₁ and c₂.

    Of two monotonic circuits it is the divergence of their densities.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> sub.inference.cauchy_schwarz(circuit, circuit).item()
    0.0
    """
    cross = log_inner(first, second)[0]  # (s, t)
    if cross.numel() != 1:
        raise ValueError(
            f"the overlap is defined for circuits of one output, got {first.num_outputs} and "
            f"{second.num_outputs}. Use log_inner for all pairs of outputs."
        )
    own, other = (log_inner(circuit, circuit)[0] for circuit in (first, second))
    # Rounding must not push the overlap of equal circuits beyond one.
    return (0.5 * (own + other) - cross)[0, 0].clamp(min=0)
