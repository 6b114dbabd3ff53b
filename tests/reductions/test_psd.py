"""PSD models as sums of squares have the density that the quadratic form says they have."""

import numpy as np
import pytest
import torch
from scipy import integrate

import subtractive as sub

BANDWIDTHS = {"one": 0.7, "per variable": [0.5, 0.8, 1.3], "per point": None}


def random_model(m=5, d=3, rank=5, seed=0):
    """Points (m, d) and a positive semi-definite matrix (m, m) of a given rank."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(m, rank))
    return rng.normal(size=(m, d)), factor @ factor.T


def spread_out(bandwidth, m, d):
    if bandwidth is None:
        return np.exp(0.3 * np.random.default_rng(9).normal(size=(m, d)))
    return np.broadcast_to(bandwidth, (m, d))


def kernels(x, points, h):
    return np.exp(-0.5 * (((x[:, None] - points) / h) ** 2).sum(-1))


def form(x, points, matrix, h, kept=None):
    """κᵀ A κ with the variables that are not kept integrated out, (n,)."""
    kept = range(points.shape[1]) if kept is None else kept
    gone = [d for d in range(points.shape[1]) if d not in kept]
    k = kernels(x[:, kept], points[:, kept], h[:, kept])
    weighted = matrix * gram(points[:, gone], h[:, gone])
    return np.einsum("ni,ij,nj->n", k, weighted, k)


def gram(points, h):
    """∫ κ_i κ_j = Π_d √(2π) h_i h_j / √(h_i² + h_j²) exp(-(c_i - c_j)² / 2 (h_i² + h_j²))."""
    total = h[:, None] ** 2 + h[None] ** 2
    peak = np.sqrt(2 * np.pi) * h[:, None] * h[None] / np.sqrt(total)
    return (peak * np.exp(-0.5 * (points[:, None] - points[None]) ** 2 / total)).prod(-1)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS.values(), ids=BANDWIDTHS)
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_density_and_marginals_are_those_of_the_quadratic_form(rank, bandwidth):
    points, matrix = random_model(rank=rank)
    h = spread_out(bandwidth, 5, 3)
    given = h if bandwidth is None else bandwidth
    density = sub.reductions.squared_psd_model(points, matrix, given, dtype=torch.float64)
    assert density.circuit.num_outputs == rank
    partition = (matrix * gram(points, h)).sum()
    assert density.log_partition().item() == pytest.approx(np.log(partition), abs=1e-10)
    x = np.random.default_rng(1).normal(size=(50, 3))
    for kept in ([0, 1, 2], [0, 2], [1]):
        observed = torch.tensor([d in kept for d in range(3)])
        expected = torch.from_numpy(np.log(form(x, points, matrix, h, kept) / partition))
        actual = density.log_marginal(torch.from_numpy(x), observed).detach()
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_the_gram_of_this_test_is_the_integral_of_products():
    points, h = np.array([[0.3], [-0.8]]), np.array([[0.5], [1.2]])
    product = integrate.quad(
        lambda x: kernels(np.array([[x]]), points, h).prod(), -20, 20, epsabs=1e-13
    )[0]
    assert gram(points, h)[0, 1] == pytest.approx(product, rel=1e-10)


def test_one_variable_integrates_to_one():
    points, matrix = random_model(d=1)
    density = sub.reductions.squared_psd_model(points, matrix, 0.5, dtype=torch.float64)
    total = integrate.quad(
        lambda x: density.log_prob(torch.tensor([[x]]).double()).exp().item(), -10, 10
    )[0]
    assert total == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS.values(), ids=BANDWIDTHS)
def test_a_model_comes_back_from_its_circuit(bandwidth):
    points, matrix = random_model(rank=3)
    h = spread_out(bandwidth, 5, 3)
    given = h if bandwidth is None else bandwidth
    model = sub.reductions.psd_model(
        sub.reductions.squared_psd_model(points, matrix, given, dtype=torch.float64)
    )
    np.testing.assert_allclose(model.points, points, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(model.matrix, matrix, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.bandwidth, h, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("weights", [sub.real_weights, sub.complex_weights])
@pytest.mark.parametrize("d", [1, 3])
def test_a_circuit_of_gaussians_is_a_psd_model(d, weights):
    circuit = sub.Circuit(
        sub.flat(d),
        sub.Gaussian(),
        num_units=4,
        num_outputs=2,
        weights=weights,
        seed=0,
        dtype=torch.float64,
    )
    density = sub.SquaredCircuit(circuit)
    points, matrix, bandwidth = (tensor.numpy() for tensor in sub.reductions.psd_model(density))
    x = np.random.default_rng(1).normal(size=(20, d))
    expected = torch.from_numpy(np.log(form(x, points, matrix, bandwidth)))
    actual = density.log_square(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    again = sub.reductions.squared_psd_model(points, matrix, bandwidth, dtype=torch.float64)
    torch.testing.assert_close(
        again.log_partition().item(), density.log_partition().item(), rtol=0, atol=1e-10
    )


EYE = np.eye(2)
BAD = {
    "shapes": ((np.ones((3, 2)), EYE), r"points \(m, d\) and a matrix \(m, m\), got"),
    "flat points": ((np.ones(2), EYE), r"got shapes \(2,\)"),
    "bandwidth": (
        (np.ones((2, 3)), EYE, [1.0, 2.0]),
        r"one per variable \(3,\).*got shape \(2,\)",
    ),
    "narrow": ((np.ones((2, 1)), EYE, 0.0), "bandwidths must be positive, got 0"),
    "infinite": ((np.full((2, 1), np.inf), EYE), "needs finite points"),
    "asymmetric": ((np.ones((2, 1)), [[1.0, 2.0], [0.0, 1.0]]), r"Use \(A \+ A.T\) / 2"),
    "negative": ((np.ones((2, 1)), [[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1 "),
    "zero": ((np.ones((2, 1)), 0 * EYE), "must not be zero"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_what_is_no_psd_model_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        sub.reductions.squared_psd_model(*given)


def test_only_shallow_circuits_of_kernels_are_psd_models():
    deep = sub.Circuit(sub.random_binary_tree(3), sub.Gaussian(), num_units=2)
    with pytest.raises(ValueError, match="the circuit is deep: 2 layers"):
        sub.reductions.psd_model(sub.SquaredCircuit(deep))
    tables = sub.Circuit(sub.flat(2), sub.Embedding(2), num_units=2)
    with pytest.raises(ValueError, match="variable 0 has Embedding inputs"):
        sub.reductions.psd_model(sub.SquaredCircuit(tables))
    added = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, weights=sub.positive_weights)
    with pytest.raises(ValueError, match="expected a SquaredCircuit, got MonotonicCircuit"):
        sub.reductions.psd_model(sub.MonotonicCircuit(added))
