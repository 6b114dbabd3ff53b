"""The partition function Z: computed, guarded against cancellation, remembered (paper: Sec. 3.2).

Z costs products of K x K matrices, a few rows cost less: repeated queries would spend most of
their time on Z. So log Z is kept until a number of the density changes. What is kept is compared
number by number with the density as it is now, so it cannot be out of date.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import LeafSource, evaluate, leaves_of, root_of_grams
from subtractive.circuits.layers import ElementwiseLayer, KroneckerLayer
from subtractive.inputs.base import EVERYWHERE
from subtractive.numerics.messages import (
    LeafMessage,
    Scaled,
    log_sum,
    log_sum_of_squares,
    safe_log,
    sum_of_squares,
)
from subtractive.numerics.transforms import is_transformed
from subtractive.regions.folding import LeafCall

# Rounding errors of this relative size are simulated; real ones in float64 are 1e7 times smaller.
_NOISE = 2.0**-30


class CancellationWarning(UserWarning):
    """Positive and negative parts of Z cancel almost exactly: few digits are left.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", sub.CancellationWarning)
    ...     sub.SquaredCircuit(circuit).log_partition().isfinite().item()
    True
    """


class CancellationError(ArithmeticError):
    """Positive and negative parts of Z cancel completely.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> with torch.no_grad():
    ...     _ = next(circuit.sum_layers[0].parameters()).zero_()
    >>> sub.SquaredCircuit(circuit).log_partition()
    Traceback (most recent call last):
    subtractive.inference.partition.CancellationError: ...
    """


def log_square_partition(circuit: Circuit) -> Tensor:
    """log Z = log Σ_s ∫|c_s|², a scalar, in float64, without the guard."""
    root = evaluate(circuit.schedule, circuit.sum_layers, square_integrals(circuit))
    total = sum_of_squares(root.mantissa)
    if not is_transformed() and not total.detach() > 0:
        raise CancellationError(
            f"the partition function came out as {float(total.detach()):.3g} times "
            "its own scale: its positive and negative parts cancel completely, or a parameter is "
            "not a finite number. The model has no normalised density; go back to earlier "
            "weights, or start again with a smaller learning rate."
        )
    return (safe_log(total) + root.log_scale)[0, 0]


def log_plain_partition(circuit: Circuit) -> Tensor:
    """log Σ_s ∫c_s, a scalar, of a circuit that is never negative."""
    root = evaluate(circuit.schedule, circuit.sum_layers, plain_integrals(circuit))
    return log_sum(root)[0, 0]


def plain_integrals(circuit: Circuit) -> LeafSource:
    """∫ f of all inputs."""
    layers = circuit.input_layers

    def integral(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        return layers[call.layer].integral(call.folds, EVERYWHERE, dtype)

    return integral


def square_integrals(circuit: Circuit) -> LeafSource:
    """∫ f fᵀ of all inputs: the leaves of Z."""
    layers = circuit.input_layers

    def gram(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        return layers[call.layer].gram(call.folds, EVERYWHERE)

    return gram


@torch.no_grad()
def check_cancellation(circuit: Circuit, log_partition: Tensor) -> bool:
    """Whether log Z would stay as it is under rounding errors; warns if not.

    Z is computed again with a small random relative error on every entry of every message. Twins
    of weight w and −w a relative distance ε apart leave Z ≈ ε², which an error of η moves by η/ε²:
    where that is as large as Z itself, float64 has lost all but seven digits.
    """
    if is_transformed():
        return False
    if not _is_signed(circuit):
        return True  # nothing is negative, and nothing cancels
    noise = torch.Generator(device=circuit.device).manual_seed(0)
    root = _perturbed_root(circuit, lambda gram: gram * _noisy(gram, noise))
    is_left = bool(sum_of_squares(root.mantissa) > 0)
    is_left = is_left and bool((log_sum_of_squares(root)[0, 0] - log_partition).abs() <= 1)
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


def _is_signed(circuit: Circuit) -> bool:
    """Whether a weight or an input function may be negative as things are now."""
    weights = [layer.weights() for layer in circuit.sum_layers]
    plain = all(isinstance(layer, ElementwiseLayer | KroneckerLayer) for layer in circuit.layers)
    return (
        not plain
        or not all(family.is_non_negative for family in circuit.families)
        or any(weight.is_complex() or bool((weight < 0).any()) for weight in weights)
    )


def _perturbed_root(circuit: Circuit, perturb: Callable[[Tensor], Tensor]) -> Scaled:
    """The root's message with all leaves and sums perturbed."""
    schedule, layers = circuit.schedule, circuit.sum_layers
    exact = leaves_of(schedule, square_integrals(circuit))
    leaves = [_perturbed_leaf(leaf, perturb) for leaf in exact]
    return root_of_grams(schedule, layers, leaves, perturb=perturb)


def _perturbed_leaf(leaf: LeafMessage, perturb: Callable[[Tensor], Tensor]) -> LeafMessage:
    if leaf.mantissa is not None:
        return leaf._replace(mantissa=perturb(leaf.mantissa))
    assert leaf.exponent is not None
    return leaf._replace(exponent=leaf.exponent + perturb(torch.ones_like(leaf.exponent)).log())


def _noisy(like: Tensor, generator: torch.Generator) -> Tensor:
    """Factors near one, symmetric in the last two axes as a gram is."""
    # Not mere signs: those of twins i and j would cancel as the twins do, one time in four.
    errors = torch.randn(like.shape, generator=generator, dtype=torch.float64, device=like.device)
    return 1 + _NOISE * (errors.triu() + errors.triu(1).mT)


# A density of more numbers is not copied.
MOST_NUMBERS = 2**26


class _State(NamedTuple):
    kinds: list[type[nn.Module]]
    numbers: list[Tensor]


class _Known(NamedTuple):
    log_partition: Tensor
    state: _State


# Beside the densities, not in them: copies and files of them stay as they are.
_KNOWN: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def recall(density: nn.Module) -> Tensor | None:
    """log Z if it is known of exactly this density."""
    known = _KNOWN.get(density)
    if known is None:
        return None
    kinds, numbers = _state(density)
    if known.state.kinds != kinds or len(numbers) != len(known.state.numbers):
        return None
    # The last ones first: they are the root's weights, which every step of training changes.
    pairs = zip(reversed(numbers), reversed(known.state.numbers), strict=True)
    return known.log_partition.clone() if all(_same(*pair) for pair in pairs) else None


def remember(density: nn.Module, log_partition: Tensor) -> None:
    """Keep log Z, and a copy of what it was computed from."""
    kinds, numbers = _state(density)
    if sum(tensor.numel() for tensor in numbers) <= MOST_NUMBERS:
        copies = [tensor.detach().clone() for tensor in numbers]
        _KNOWN[density] = _Known(log_partition.detach().clone(), _State(kinds, copies))


def _state(density: nn.Module) -> _State:
    """All that a density is made of."""
    kinds: list[type[nn.Module]] = []
    numbers: list[Tensor] = []
    for module in density.modules():
        kinds.append(type(module))
        for tensors in (module._parameters, module._buffers):
            numbers.extend(tensor for tensor in tensors.values() if tensor is not None)
    return _State(kinds, numbers)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.device == other.device and one.equal(other)
