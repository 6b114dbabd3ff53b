"""Weights of any size give the same density, and single precision says where its digits end."""

import copy
import math
import warnings

import mpmath
import pytest
import torch
from registry import every_kind

import subtractive as sub
from subtractive.inference.inner import log_inner

REAL = torch.float64
TREES = {
    "linear": sub.linear_tree(4),
    "binary": sub.random_binary_tree(4, seed=1),
    "flat": sub.flat(4),
}
PRODUCTS = {"hadamard": sub.HadamardLayer, "kronecker": sub.KroneckerLayer}
WEIGHTS = {"real": sub.real_weights, "complex": sub.complex_weights}
SIZES = [1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300]
PLACES = ["every layer", "the root", "one layer below"]
KINDS = [
    (tree, product, weights, outputs, place, size)
    for tree in TREES
    for product in PRODUCTS
    for weights in WEIGHTS
    for outputs in (1, 3)
    for place in PLACES
    for size in SIZES
]
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def pair(tree, product, weights, outputs, place, size):
    """A density, the same with weights times ``size``, and the logarithm of c's factor."""
    circuit = sub.Circuit(
        TREES[tree],
        sub.Gaussian(),
        num_units=2,
        num_outputs=outputs,
        product=PRODUCTS[product],
        weights=WEIGHTS[weights],
        initialise=sub.init.normal(),
        seed=0,
        dtype=REAL,
    )
    scaled = copy.deepcopy(circuit)
    layers = {"every layer": slice(None), "the root": slice(-1, None), "one layer below": slice(1)}
    log_factor = 0.0
    with torch.no_grad():
        for layer in scaled.sum_layers[layers[place]]:
            for parameter in layer.weights.parameters():
                parameter.mul_(size)
            log_factor += len(layer.weights()) * math.log(size)
    return sub.SquaredCircuit(circuit), sub.SquaredCircuit(scaled), log_factor


def rows():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=REAL)
    x[1, 2] = x[2, 0] = x[3, :3] = math.nan
    return x


@every_kind(("tree", "product", "weights", "outputs", "place", "size"), KINDS, together=1)
def test_weights_of_any_size_give_the_same_answers(tree, product, weights, outputs, place, size):
    p, q, log_factor = pair(tree, product, weights, outputs, place, size)
    x, given = rows(), {1: 0.3}
    for ask in (
        lambda density: density.log_prob(x),
        lambda density: density.mean(),
        lambda density: density.variance(given),
        lambda density: density.covariance(),
        lambda density: density.covariance(given),
        lambda density: density.condition(given).log_prob(x[:, [0, 2, 3]]),
        lambda density: density.marginal([2, 0]).log_prob(x[:, [2, 0]]),
        lambda density: density.probability({0: (-1.0, 0.5)}, given),
        lambda density: density.cdf(3, torch.tensor([-1.0, 0.0, 1.0])),
        lambda density: density.impute(x),
    ):
        torch.testing.assert_close(ask(q), ask(p), **CLOSE)
    draws = [
        density.sample(20, given=given, generator=torch.Generator().manual_seed(1))
        for density in (q, p)
    ]
    torch.testing.assert_close(*draws, rtol=0, atol=1e-6)
    found = q.log_partition() - p.log_partition()
    torch.testing.assert_close(found.item(), 2 * log_factor, rtol=1e-12, atol=1e-9)
    logs, signs = log_inner(p.circuit, q.circuit)
    expected, expected_signs = log_inner(p.circuit, p.circuit)
    torch.testing.assert_close(logs, expected + log_factor, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(signs, expected_signs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_gradients_in_the_logarithm_of_weights_of_any_size_are_the_same(size):
    p, q, _ = pair("linear", "hadamard", "real", 2, "every layer", size)
    grads = []
    for density in (p, q):
        log_prob = density.log_prob(rows()).sum()
        weights = [layer.weights.value for layer in density.circuit.sum_layers]
        found = torch.autograd.grad(log_prob, weights)
        grads.append([g * w for g, w in zip(found, weights, strict=True)])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-9)


def twins(distance, dtype):
    """N(0, 1) − N(distance, 1), whose square is nearly zero everywhere."""
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2, seed=0, dtype=dtype)
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, distance]]))
        circuit.input_layers[0].log_scale.zero_()
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
    return sub.SquaredCircuit(circuit)


def exact_log_prob(distance, x):
    """Of twins a distance apart, to fifty digits."""
    with mpmath.workdps(50):
        distance, x = mpmath.mpf(distance), mpmath.mpf(x)
        value = (mpmath.npdf(x, 0, 1) - mpmath.npdf(x, distance, 1)) ** 2
        same, cross = mpmath.npdf(0, 0, mpmath.sqrt(2)), mpmath.npdf(distance, 0, mpmath.sqrt(2))
        return float(mpmath.log(value / (2 * same - 2 * cross)))


def announced(p, x):
    """log p, and whether lost digits were announced; ``None`` if nothing was left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = p.log_prob(x).detach()
        except sub.CancellationError:
            return None, True
    return value, any(issubclass(w.category, sub.CancellationWarning) for w in caught)


@pytest.mark.parametrize("distance", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_twins_in_single_precision_are_those_of_double_precision_or_announced(distance):
    p = twins(distance, torch.float32)
    x = torch.linspace(-3, 3, 13)[:, None]
    value, is_announced = announced(p, x)
    wide, _ = announced(p.double(), x.double())
    distance = p.circuit.input_layers[0].mean[0, 1].item()  # as single precision has it
    exact = torch.tensor([exact_log_prob(distance, row) for row in x[:, 0].tolist()]).double()
    assert (value is not None) or is_announced
    if distance > 1e-4:
        assert not is_announced
    if not is_announced:
        torch.testing.assert_close(value, wide, rtol=0, atol=1e-3)
        torch.testing.assert_close(value, exact, rtol=0, atol=1e-3)
