"""The partition function Z, and a guard against digits lost to cancellation (paper: Sec. 3.2)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.route import Visit
from subtractive.inputs.base import EVERYWHERE
from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.scaled import Scaled, log_magnitude, settle
from subtractive.numerics.signed_log import SignedLog

# Rounding errors of this relative size are simulated; real ones in float64 are 1e7 times smaller.
_NOISE = 2.0**-30


class CancellationWarning(UserWarning):
    """Positive and negative parts of Z cancel almost exactly: few digits are left."""


class CancellationError(ArithmeticError):
    """Positive and negative parts of Z cancel so far that nothing is left of it."""


def log_square_partition(circuit: Circuit) -> Tensor:
    """log Z = log Σ_s ∫|c_s|², a scalar, in float64, without the guard."""
    leaves = square_integrals(circuit)
    quick = circuit.quick_log_root(circuit.straight, leaves, squares=True)
    if quick is not None and quick.lost is None:
        return quick.log_total[0]
    root = circuit.root(circuit.straight, leaves)
    if not _trace(root) > 0:
        raise CancellationError(
            f"the partition function came out as {float(_trace(root)):.3g} times its own scale: "
            "its positive and negative parts cancel completely, or a parameter is not a finite "
            "number. The model has no normalised density; go back to earlier weights, or start "
            "again with a smaller learning rate."
        )
    return log_magnitude(root)[0]


def log_plain_partition(circuit: Circuit) -> Tensor:
    """log Σ_s ∫c_s, a scalar, of a circuit that is never negative."""
    leaves = [layer.integral(slice(None), EVERYWHERE) for layer in circuit.input_layers()]
    return circuit.log_root(circuit.straight, leaves, squares=False)[0]


def square_integrals(circuit: Circuit) -> list[LeafMessage]:
    """∫ f fᵀ of all inputs: the leaves of Z."""
    return [layer.gram(slice(None), EVERYWHERE) for layer in circuit.input_layers()]


@torch.no_grad()
def check_cancellation(circuit: Circuit, log_partition: Tensor) -> bool:
    """Whether log Z would stay as it is under rounding errors; warns if not.

    Z is computed again with a small random relative error on every entry of every message. Twins
    of weight w and −w a relative distance ε apart leave Z ≈ ε², which an error of η moves by η/ε²:
    where that is as large as Z itself, float64 has lost all but seven digits.
    """
    noise = torch.Generator(device=circuit.device).manual_seed(0)
    leaves = [_noisy_leaf(leaf, noise) for leaf in square_integrals(circuit)]
    quick = circuit.disturbed_log_root(leaves, lambda gram: gram * _noisy(gram, noise))
    if quick is not None and quick.lost is None:
        is_left = bool((quick.log_total[0] - log_partition).abs() <= 1)
    else:
        root = _noisy_root(circuit, leaves, noise)
        is_left = bool(_trace(root) > 0)
        is_left = is_left and bool((log_magnitude(root)[0] - log_partition).abs() <= 1)
    if not is_left:
        warnings.warn(
            "positive and negative components cancel almost exactly: fewer than seven digits of "
            "the partition function are left, and all log-densities carry that error. Components "
            "of opposite weight have become nearly equal; fewer units, or a smaller learning "
            "rate, avoid that.",
            CancellationWarning,
            stacklevel=4,
        )
    return is_left


def _noisy_root(circuit: Circuit, leaves: Sequence[LeafMessage], noise: torch.Generator) -> Scaled:
    """The root's message by the careful way."""

    def scaled(visit: Visit, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        message = circuit.scaled(visit, children)
        return message._replace(mantissa=message.mantissa * _noisy(message.mantissa, noise))

    def signed(visit: Visit, children: Sequence[LeafMessage | SignedLog]) -> SignedLog:
        sign, log_abs = circuit.signed_log(visit, children)
        return SignedLog(sign * _noisy(sign, noise), log_abs)

    root = circuit.climb(circuit.straight, leaves, scaled)
    if root.log_scale.isnan().any():  # underflow, which is another matter than cancellation
        root = settle(LeafMessage(*circuit.climb(circuit.straight, leaves, signed)))
    return root


def _noisy_leaf(leaf: LeafMessage, noise: torch.Generator) -> LeafMessage:
    factor = _noisy(leaf.some, noise)
    if leaf.mantissa is not None:
        return leaf._replace(mantissa=leaf.mantissa * factor)
    assert leaf.exponent is not None
    return leaf._replace(exponent=leaf.exponent + factor.log())


def _trace(root: Scaled) -> Tensor:
    return root.mantissa.detach().diagonal(dim1=-2, dim2=-1).sum(-1).real.squeeze()


def _noisy(like: Tensor, generator: torch.Generator) -> Tensor:
    """Factors near one, symmetric in the last two axes as a gram is."""
    # Not mere signs: those of twins i and j would cancel as the twins do, one time in four.
    errors = torch.randn(like.shape, generator=generator, dtype=torch.float64, device=like.device)
    return 1 + _NOISE * (errors.triu() + errors.triu(1).mT)
