"""Gaussians of a common frame are Gaussians of full covariance, in every query."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import cholesky, gauss_legendre, grid
from registry import every_kind
from scipy import stats

import subtractive as sub
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.semi_tied_gaussian import SemiTiedGaussian, semi_tied_start
from subtractive.inputs.statistics import Sample

GRAPHS = {
    "one region": sub.flat([[0, 1, 2]]),
    "with single variables": sub.RegionGraph.from_nested(({0, 2}, 1)),
    "flat groups": sub.flat([[0, 2], [1]]),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def build(graph, norm=1, *, weights=sub.real_weights, dtype=torch.float64):
    """Units under transforms with correlations of either sign."""
    circuit = sub.Circuit(
        graph,
        SemiTiedGaussian(norm),
        num_units=3,
        num_outputs=2,
        weights=weights,
        seed=0,
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for inputs in circuit.input_layers:
            for name, size in (("log_diagonal", 0.3), ("lower", 0.5), ("centre", 0.5)):
                value = inputs.get_tensor(name)
                value.copy_(size * torch.randn(value.shape, generator=generator).double())
            whiten = inputs.get_tensor("whiten")
            whiten.add_(0.5 * torch.randn(whiten.shape, generator=generator).double().tril(-1))
    return circuit


def naive_normals(p):
    """Means and covariances of one region's units, by inverses of whole matrices."""
    back = np.linalg.inv(cholesky(p)[0] @ p["whiten"][0])
    means = [p["centre"][0] + back @ mean for mean in p["mean"]]
    covariances = [back @ np.diag(np.exp(2 * log)) @ back.T for log in p["log_scale"]]
    return means, covariances


def numbers(inputs, fold=0):
    return {name: inputs.get_tensor(name)[fold].detach().numpy() for name in inputs.names}


def twin(circuit, family):
    """The same circuit of Gaussians that share nothing."""
    other = sub.Circuit(
        circuit.graph, family, num_units=3, num_outputs=2, dtype=torch.float64, seed=0
    )
    other.layers = circuit.layers
    with torch.no_grad():
        for inputs, copies in zip(circuit.input_layers, other.input_layers, strict=True):
            for fold in range(len(inputs.scopes)):
                means, covariances = naive_normals(numbers(inputs, fold))
                factors = torch.from_numpy(np.linalg.cholesky(covariances))
                copies.get_tensor("mean")[fold] = torch.from_numpy(np.stack(means))
                diagonal = factors.diagonal(dim1=-2, dim2=-1).log()
                copies.get_tensor("log_diagonal")[fold] = diagonal
                copies.get_tensor("lower")[fold] = factors
    return other


def test_values_are_those_of_scipy():
    inputs = build(GRAPHS["one region"]).input_layers[0]
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    log_values = inputs.values(x, slice(None)).exponent[0].detach()
    for k, (mean, covariance) in enumerate(zip(*naive_normals(numbers(inputs)), strict=True)):
        expected = stats.multivariate_normal(mean, covariance).logpdf(x.numpy())
        torch.testing.assert_close(log_values[:, k], torch.from_numpy(expected), **CLOSE)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_powers_and_products_integrate_as_by_quadrature(norm):
    inputs = build(sub.flat([[0, 1]]), norm).input_layers[0]
    x, weights = grid([gauss_legendre(-18.0, 18.0, 400)] * 2)
    values = inputs.values(x, slice(None)).exponent[0].detach().exp()  # (n, i)
    total = weights @ values**norm
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-8, atol=1e-8)
    products = values.mT @ (weights[:, None] * values)
    gram = inputs.gram(slice(None), EVERYWHERE).exponent[0, 0].detach().exp()
    torch.testing.assert_close(gram, products, rtol=1e-8, atol=1e-12)


@every_kind(
    ("graph", "norm", "kind"),
    list(itertools.product(GRAPHS, [1, 2], ["squared", "monotonic"])),
)
@torch.no_grad()
def test_every_query_answers_as_without_tying(graph, norm, kind):
    is_squared = kind == "squared"
    make = sub.SquaredCircuit if is_squared else sub.MonotonicCircuit
    weights = sub.real_weights if is_squared else sub.positive_weights
    circuit = build(GRAPHS[graph], norm, weights=weights)
    tied, plain = make(circuit), make(twin(circuit, sub.MultivariateGaussian(norm)))
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[1, 0] = x[2, 1] = x[3, 2] = x[4, 1:] = math.nan
    torch.testing.assert_close(tied.log_prob(x), plain.log_prob(x), **CLOSE)
    torch.testing.assert_close(tied.log_partition(), plain.log_partition(), **CLOSE)
    torch.testing.assert_close(tied.covariance(), plain.covariance(), rtol=1e-6, atol=1e-8)
    for given in (None, {1: 0.3}):
        torch.testing.assert_close(tied.mean(given), plain.mean(given), **CLOSE)
        torch.testing.assert_close(tied.variance(given), plain.variance(given), **CLOSE)
        points = torch.linspace(-2, 2, 5, dtype=torch.float64)
        for ask in ("pdf", "cdf"):
            one, other = (getattr(p, ask)(2, points, given) for p in (tied, plain))
            torch.testing.assert_close(one, other, **CLOSE)
        draws = [p.sample(20, given=given, generator=seeded()) for p in (tied, plain)]
        torch.testing.assert_close(*draws, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(tied.impute(x), plain.impute(x), **CLOSE)


def seeded():
    return torch.Generator().manual_seed(0)


@torch.no_grad()
def test_inner_products_of_different_frames():
    one = build(GRAPHS["one region"])
    other = build(GRAPHS["one region"])
    other.input_layers[0].get_tensor("lower").mul_(-1)
    expected = sub.inference.log_inner(
        *(twin(c, sub.MultivariateGaussian()) for c in (one, other))
    )
    for value, wanted in zip(sub.inference.log_inner(one, other), expected, strict=True):
        torch.testing.assert_close(value, wanted, **CLOSE)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_slopes_of_values_and_of_the_partition_function(graph):
    circuit = build(graph, norm=2)
    p = sub.SquaredCircuit(circuit)
    x = torch.randn(3, 3, generator=seeded(), dtype=torch.float64)
    names = [name for name, _ in circuit.named_parameters()]

    def both(*tensors):
        parameters = dict(zip(names, tensors, strict=True))
        call = torch.func.functional_call
        return call(Both(p), {f"density.circuit.{n}": t for n, t in parameters.items()}, (x,))

    tensors = tuple(t.detach().clone().requires_grad_() for t in circuit.parameters())
    assert torch.autograd.gradcheck(both, tensors)


class Both(torch.nn.Module):
    def __init__(self, density):
        super().__init__()
        self.density = density

    def forward(self, x):
        return self.density.log_square(x), self.density.log_normaliser()


@torch.no_grad()
def test_narrow_units_far_from_the_centre_keep_their_digits_in_single_precision():
    circuit = build(GRAPHS["one region"], dtype=torch.float32)
    inputs = circuit.input_layers[0]
    inputs.get_tensor("mean").fill_(30.0)
    inputs.get_tensor("log_scale").fill_(math.log(1e-2))
    p = {name: inputs.get_tensor(name) for name in inputs.names}
    exact = {name: tensor.double() for name, tensor in p.items()}
    # Where the map B W takes x to is rounded as x is; so compare at the same y, where W is one.
    for tensors in (p, exact):
        for name in ("lower", "log_diagonal", "centre"):
            tensors[name].zero_()
        tensors["whiten"].copy_(torch.eye(3))
    x = torch.full((1, 1, 3), 30.0078125)
    single = SemiTiedGaussian().values(p, x).exponent
    double = SemiTiedGaussian().values(exact, x.double()).exponent
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=1e-5)


@torch.no_grad()
def test_scales_too_different_to_be_added_are_not_lost():
    circuit = build(GRAPHS["one region"], norm=2)
    log_scale = circuit.input_layers[0].get_tensor("log_scale")
    log_scale[:, 0], log_scale[:, 1] = -320.0, 320.0
    gram = circuit.input_layers[0].gram(slice(None), EVERYWHERE).exponent[0, 0]
    torch.testing.assert_close(gram.diagonal(), torch.zeros(3, dtype=torch.float64), **CLOSE)
    assert gram[0, 1] < -900


@torch.no_grad()
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("size", [3, 24])
def test_a_frame_starts_where_its_gaussian_is(power, size):
    mixing = torch.eye(size, dtype=torch.float64) + 0.3 * torch.ones(size, size).double().tril()
    mean = torch.arange(size, dtype=torch.float64)
    start = semi_tied_start(mean, mixing @ mixing.mT, 500, power, seeded())
    family = SemiTiedGaussian(norm=power)
    rows = mean + torch.randn(2000, size, generator=seeded(), dtype=torch.float64) @ mixing.mT
    values = family.values({name: t[None] for name, t in start.items()}, rows[None])
    mixture = (power * values.exponent[0]).logsumexp(1).mean() - math.log(500)
    normal = torch.distributions.MultivariateNormal(mean, scale_tril=mixing)
    loss = float(normal.log_prob(rows).mean() - mixture)
    assert 0 < loss < 2.5


@pytest.mark.parametrize("power", [1, 2])
def test_a_start_from_any_rows_is_finite(power):
    columns = torch.randn(30, 4, generator=seeded(), dtype=torch.float64)
    columns[:, 1] = 7.0  # constant
    columns[:, 2] = columns[:, 0]  # a copy
    columns[3, 3] = 1e9  # an outlier
    columns[4] = math.nan
    sample = Sample(columns, torch.ones(30, dtype=torch.float64))
    start = SemiTiedGaussian().init_from_data(sample, 5, power, seeded())
    assert all(bool(tensor.isfinite().all()) for tensor in start.values())
    assert bool((start["whiten"].diagonal(dim1=-2, dim2=-1) > 0).all())


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="norm must be a whole number of at least 1, got 0"):
        SemiTiedGaussian(norm=0)
    density = sub.SquaredCircuit(build(GRAPHS["one region"]))
    with pytest.raises(ValueError, match="no closed form for a box"):
        density.probability({0: (0, 1), 1: (0, 1)})
