"""Means and covariances as derivatives of a cumulant generating function.

Tilting p by exp(Σ_d θ_d x_d) changes only the inputs. The logarithm of the tilted integral has the
mean as its gradient and the covariance as its Hessian at θ = 0, and for these two exp(t) may be
replaced by 1 + t + t²/2, which every family integrates exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import evaluate
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import OBSERVED, labels
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_operations import side_by_side
from subtractive.numerics.messages import LeafMessage, Scaled, log_sum, log_sum_of_squares
from subtractive.regions.folding import LeafCall

# How many rows of a Hessian are computed together: each holds the gradients of all messages.
_ROWS = 32


def log_tilted_square(circuit: Circuit, evidence: Evidence, tilt: Tensor) -> Tensor:
    """log Σ_s ∫|c_s|² (1 + t + t²/2) over what is not observed in one row, a scalar."""
    return _log_tilted(
        circuit,
        evidence,
        tilt,
        lambda family, *given: family.tilted_gram(*given),
        log_sum_of_squares,
    )


def log_tilted_plain(circuit: Circuit, evidence: Evidence, tilt: Tensor) -> Tensor:
    """log Σ_s ∫c_s (1 + t + t²/2) over what is not observed in one row, a scalar."""
    return _log_tilted(
        circuit, evidence, tilt, lambda family, *given: family.tilted_integral(*given), log_sum
    )


def cumulants(log_tilted: Callable[[Tensor], Tensor], size: int) -> tuple[Tensor, Tensor]:
    """The gradient (d,) and the Hessian (d, d) of a function of the tilt, at zero.

    No gradient passes to the parameters.
    """
    with torch.enable_grad():
        tilt = torch.zeros(size, dtype=torch.float64, requires_grad=True)
        (mean,) = torch.autograd.grad(log_tilted(tilt), tilt, create_graph=True)
        rows = [
            torch.autograd.grad(
                mean, tilt, some, retain_graph=True, materialize_grads=True, is_grads_batched=True
            )[0]
            for some in torch.eye(size, dtype=torch.float64).split(_ROWS)
        ]
    covariance = torch.cat(rows).detach()
    return mean.detach(), 0.5 * (covariance + covariance.mT)


def _log_tilted(
    circuit: Circuit,
    evidence: Evidence,
    tilt: Tensor,
    tilted: Callable[..., LeafMessage],
    finish: Callable[[Scaled], Tensor],
) -> Tensor:
    schedule = circuit.refold(labels(circuit, evidence))

    def region(layer: InputLayer, place: int) -> LeafMessage:
        scope = list(layer.scopes[place])
        p = layer.tensors(slice(place, place + 1), torch.float64)
        x, seen = evidence.x[:, scope].double(), evidence.pattern(scope)
        return tilted(layer.family, p, x, seen, tilt[scope])

    def leaf(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        layer = circuit.input_layers[call.layer]
        if call.label == OBSERVED:
            return layer.values(evidence.x, call.folds, dtype)
        places = torch.arange(len(layer.scopes))[call.folds].tolist()
        return side_by_side([region(layer, place) for place in places])

    return finish(evaluate(schedule, circuit.sum_layers, leaf))[0, 0]
