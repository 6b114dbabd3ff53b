"""Checks 8 to 11: gradients, reference values, cancellation and underflow."""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import torch
from scipy import stats

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.models import CONTINUOUS, DOUBLE, GRAPHS, kind, points, squared
from tests.oracles import mp_log_partition, mp_log_square


@check(
    8,
    "gradients: gradcheck in float64, all layers, also near a sign change",
    "pass",
)
def gradients(size: Size) -> Outcome:
    """Compare gradients in all parameters, and in rows, with finite differences."""
    passed, tried = 0, 0
    for number in range(size.of(24, 2)):
        name = ["gaussian", "rbf", "spline"][number % 3]
        graph, layer, weights, outputs = kind(number, 3, seed=8)
        p = squared(graph, CONTINUOUS[name], layer=layer, weights=weights, outputs=outputs)
        x = points(name, 3, 3, number)
        tried, passed = tried + 1, passed + _gradcheck(p, x)
    for distance in (1e-1, 1e-2, 1e-3, 1e-4):
        for side in (-1, 1):
            p = _two_gaussians()
            x = torch.tensor([[math.log(2.0) / 2 + 0.5 + side * distance]], dtype=DOUBLE)
            tried, passed = tried + 1, passed + _gradcheck(p, x, step=distance * 1e-4)
    return Outcome(f"{passed} of {tried} models pass", passed == tried)


def _two_gaussians() -> sub.SquaredCircuit:
    """c(x) = N(x; 0, 1) − N(x; 1, 1) / √2, which changes its sign at log(2)/2 + 1/2."""
    p = squared(sub.flat(1), sub.Gaussian(), units=2, outputs=1)
    layer = p.circuit.input_layers[0]
    with torch.no_grad():
        layer.get_tensor("mean").copy_(torch.tensor([[0.0, 1.0]]))
        layer.get_tensor("log_scale").zero_()
        # N(x; 0) / N(x; 1) = exp(1/2 - x) = w at x = 1/2 - log w.
        ratio = math.exp(0.5 - (math.log(2.0) / 2 + 0.5))
        next(p.circuit.sum_layers[0].weights.parameters()).copy_(
            torch.tensor([[[1.0, -ratio]]], dtype=DOUBLE)
        )
    return p


def _gradcheck(p: sub.SquaredCircuit, x: torch.Tensor, step: float = 1e-6) -> bool:
    """Whether gradients of log p in parameters and rows agree with central differences."""
    parameters = [q for q in p.parameters() if q.requires_grad]
    x = x.clone().requires_grad_()
    found = torch.autograd.grad(p.log_prob(x).sum(), [x, *parameters])
    random = torch.Generator().manual_seed(0)
    for tensor, gradient in zip([x, *parameters], found, strict=True):
        direction = torch.randn(tensor.shape, generator=random, dtype=tensor.dtype)
        slope = (
            (gradient.conj() * direction).real.sum()
            if gradient.is_complex()
            else (gradient * direction).sum()
        )
        with torch.no_grad():
            before = tensor.data.clone()
            values = []
            for sign in (1, -1):
                tensor.data = before + sign * step * direction
                values.append(float(p.log_prob(x).sum()))
            tensor.data = before
        expected = (values[0] - values[1]) / (2 * step)
        if not math.isclose(float(slope), expected, rel_tol=1e-5, abs_tol=1e-4):
            return False
    return True


@check(9, "reference values: closed forms, quimb, mpmath with 50 digits", "relative ≤ 1e-10")
@torch.no_grad()
def reference_values(size: Size) -> Outcome:
    """Compare log p and log Z with other libraries and with arithmetic in 50 digits."""
    errors = [*_closed_forms(), *_quimb_norms(size.of(6, 1))]
    for number in range(size.of(12, 2)):
        graph, _, weights, outputs = kind(number, 4, seed=9)
        p = squared(graph, sub.Gaussian(), weights=weights, outputs=outputs)
        exact = mp_log_partition(p.circuit)
        errors.append(abs(float(p.log_partition()) - exact) / max(1.0, abs(exact)))
        for row in points("gaussian", 2, 4, number):
            exact = mp_log_square(p.circuit, row.tolist())
            errors.append(abs(float(p.log_square(row[None])) - exact) / max(1.0, abs(exact)))
    largest = max(errors)
    return Outcome(f"{largest:.1e} at worst of {len(errors)} values", largest <= 1e-10)


def _closed_forms() -> list[float]:
    """One Gaussian squared is a Gaussian of width σ/√2; two of them have Z in closed form."""
    p = _two_gaussians()
    ratio = math.exp(-math.log(2.0) / 2)
    norm = [[stats.norm.pdf(a - b, scale=math.sqrt(2)) for a in (0, 1)] for b in (0, 1)]
    z = norm[0][0] - 2 * ratio * norm[0][1] + ratio**2 * norm[1][1]
    errors = [abs(float(p.log_partition()) / math.log(z) - 1)]
    for x in (-2.0, 0.1, 3.0):
        value = stats.norm.pdf(x) - ratio * stats.norm.pdf(x, 1)
        found = float(p.log_prob(torch.tensor([[x]], dtype=DOUBLE)))
        errors.append(abs(found - math.log(value**2 / z)))
    single = squared(sub.flat(1), sub.Gaussian(), units=1, outputs=1)
    layer = single.circuit.input_layers[0]
    mean, scale = float(layer.get_tensor("mean")), math.exp(float(layer.get_tensor("log_scale")))
    found = float(single.log_prob(torch.tensor([[0.7]], dtype=DOUBLE)))
    return [*errors, abs(found - stats.norm.logpdf(0.7, mean, scale / math.sqrt(2)))]


def _quimb_norms(count: int) -> list[float]:
    """log of the squared norm of matrix product states."""
    import quimb.tensor as qtn

    errors = []
    for number in range(count):
        dtype = ["float64", "complex128"][number % 2]
        state = qtn.MPS_rand_state(6 + number, 3, seed=number, dtype=dtype)
        p = sub.reductions.from_quimb(state, dtype=DOUBLE)
        exact = math.log(abs(complex(state.H @ state)))
        errors.append(abs(float(p.log_partition()) - exact) / max(1.0, abs(exact)))
    return errors


@check(
    10,
    "cancellation: twins w, −w at distances 1e-1 to 1e-8",
    "error or warning before relative error > 1e-3; never NaN",
)
def cancellation(size: Size) -> Outcome:
    """Scores of N(0, 1) − N(ε, 1), squared, in both precisions against 50 digits."""
    silent, tried, announced = 0.0, 0, 0
    nan = False
    for dtype in (torch.float32, torch.float64):
        for exponent in range(1, 9):
            p, distance = _twins(10.0**-exponent, dtype)
            x = torch.linspace(-3, 3, size.of(31, 5), dtype=dtype)[:, None]
            tried += 1
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    value = p.log_prob(x).detach()
                except sub.CancellationError:
                    announced += 1
                    continue
            nan |= bool(value.isnan().any())
            if any(issubclass(w.category, sub.CancellationWarning) for w in caught):
                announced += 1
                continue
            exact = [_twins_log_prob(distance, row) for row in x[:, 0].tolist()]
            errors = (value.double() - torch.tensor(exact, dtype=DOUBLE)).abs()
            silent = max(silent, float(errors.expm1().max()))
    figure = f"{silent:.1e} at worst without a word, {announced} of {tried} announced"
    return Outcome(figure, silent <= 1e-3 and not nan)


def _twins(distance: float, dtype: torch.dtype) -> tuple[sub.SquaredCircuit, float]:
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2, seed=0, dtype=dtype)
    layer = circuit.input_layers[0]
    with torch.no_grad():
        layer.get_tensor("mean").copy_(torch.tensor([[0.0, distance]]))
        layer.get_tensor("log_scale").zero_()
        next(circuit.sum_layers[0].weights.parameters()).copy_(torch.tensor([[[1.0, -1.0]]]))
    return sub.SquaredCircuit(circuit), layer.get_tensor("mean")[0, 1].item()


def _twins_log_prob(distance: float, x: float) -> float:
    with mpmath.workdps(50):
        far, at = mpmath.mpf(distance), mpmath.mpf(x)
        value = (mpmath.npdf(at, 0, 1) - mpmath.npdf(at, far, 1)) ** 2
        same, cross = mpmath.npdf(0, 0, mpmath.sqrt(2)), mpmath.npdf(far, 0, mpmath.sqrt(2))
        return float(mpmath.log(value / (2 * same - 2 * cross)))


@check(
    11,
    "underflow: 1,000 variables, log-densities near −1e5; points 1e6 σ away",
    "finite, no clamp, relative ≤ 1e-8",
)
@torch.no_grad()
def underflow(size: Size) -> Outcome:
    """One function per variable is a product of Gaussians, whose log-density is known."""
    errors, lowest = [], 0.0
    for d, distance in ((size.of(1000, 100), 10.0), (size.of(2000, 50), 14.0), (3, 1e6)):
        for make in GRAPHS.values() if d <= 100 else (GRAPHS["linear"], GRAPHS["flat"]):
            graph = make(d, 0)
            p = squared(graph, sub.Gaussian(), units=1, outputs=1)
            layer = p.circuit.input_layers[0]
            mean = layer.get_tensor("mean")[:, 0].numpy()
            scale = np.exp(layer.get_tensor("log_scale")[:, 0].numpy()) / math.sqrt(2)
            x = mean + distance * scale
            exact = float(stats.norm.logpdf(x, mean, scale).sum())
            row = torch.empty(1, d, dtype=DOUBLE)
            row[0, layer.variables[:, 0]] = torch.from_numpy(x)
            found = float(p.log_prob(row))
            lowest = min(lowest, found)
            errors.append(abs(found / exact - 1) if math.isfinite(found) else math.inf)
    figure = f"{max(errors):.1e} at worst of {len(errors)} models, down to {lowest:.3g}"
    return Outcome(figure, max(errors) <= 1e-8)
