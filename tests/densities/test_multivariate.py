"""Input regions of several variables: mixtures of full covariance, flat and inside deep trees."""

import itertools

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid, naive_log_square
from registry import LAYERS, WEIGHTS
from scipy import special, stats

import subtractive as sub

AXIS = gauss_legendre(-7.5, 7.5, 44)
WIDE_AXIS = gauss_legendre(-10.5, 10.5, 56)  # squares have narrower tails than sums
GRAPHS = {
    "one region": sub.flat([[0, 1, 2]]),
    "flat groups": sub.flat([[0, 2], [1]]),
    "deep groups": sub.RegionGraph.from_nested(({0, 2}, 1)),
}
BIG_GRAPHS = {
    "binary": sub.random_binary_tree([[0, 3], [1], [2, 5], [4], [6]], seed=1),
    "linear": sub.linear_tree([[4, 1, 0], [2], [3, 5], [6]], seed=2),
    "flat": sub.flat([[0, 6], [1, 2, 3], [4, 5]]),
    "one region": sub.flat([[0, 1, 2, 3, 4, 5, 6]]),
    "nested": sub.RegionGraph.from_nested(((({5, 1}, 0), {2, 6}), {3, 4})),
}


def build(graph, *, layer="hadamard", weights="real", outputs=2, units=3, seed=0):
    """Random components with correlations of either sign, in float64."""
    kind, initialise = WEIGHTS[weights]
    circuit = sub.Circuit(
        graph,
        sub.MultivariateGaussian(),
        num_units=units,
        num_outputs=outputs,
        weights=kind,
        initialise=initialise,
        product=LAYERS[layer],
        seed=seed,
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for inputs in circuit.input_layers:
            noise = torch.randn(inputs.lower.shape, generator=generator, dtype=torch.float64)
            inputs.lower.copy_(0.5 * noise)
    return circuit


every_kind = pytest.mark.parametrize(
    ("graph", "layer", "weights", "outputs"),
    [
        *itertools.product(GRAPHS, LAYERS, ["real"], [1, 3]),
        ("deep groups", "kronecker", "complex", 2),
    ],
)


@every_kind
@torch.no_grad()
def test_probabilities_sum_to_one_and_marginals_are_integrals_of_the_joint(
    graph, layer, weights, outputs
):
    p = sub.SquaredCircuit(build(GRAPHS[graph], layer=layer, weights=weights, outputs=outputs))
    check_all_marginals(p, AXIS)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", GRAPHS)
@torch.no_grad()
def test_additive_circuits_obey_the_same_laws(graph, layer):
    circuit = build(GRAPHS[graph], layer=layer, weights="positive")
    check_all_marginals(sub.MonotonicCircuit(circuit), WIDE_AXIS)


def check_all_marginals(p, axis):
    x, w = grid([axis] * 3)
    size = len(axis[0])
    joint = (p.log_prob(x).exp() * w).reshape(size, size, size)
    torch.testing.assert_close(joint.sum().item(), 1.0, rtol=0, atol=1e-6)
    for observed in itertools.product([True, False], repeat=3):
        seen = [v for v in range(3) if observed[v]]
        if len(seen) in (0, 3):
            continue
        points, share = grid([axis] * len(seen))
        rows = torch.full((len(points), 3), torch.nan, dtype=torch.float64)
        rows[:, seen] = points
        expected = joint.sum([v for v in range(3) if v not in seen]).flatten()
        marginal = p.log_prob(rows).exp() * share
        torch.testing.assert_close(marginal, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", BIG_GRAPHS)
@torch.no_grad()
def test_one_mask_per_row_equals_one_row_at_a_time(graph, layer):
    circuit = build(BIG_GRAPHS[graph], layer=layer, units=2)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 7, generator=generator, dtype=torch.float64)
    observed = torch.rand(12, 7, generator=generator) < 0.5
    observed[0], observed[1], observed[3] = True, False, observed[2]
    for p in (
        sub.SquaredCircuit(circuit),
        sub.MonotonicCircuit(build(BIG_GRAPHS[graph], layer=layer, weights="positive")),
    ):
        alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(12)])
        torch.testing.assert_close(p.log_marginal(x, observed), alone, rtol=0, atol=1e-11)
        missing = torch.where(observed, x, torch.nan)
        torch.testing.assert_close(p.log_prob(missing), alone, rtol=0, atol=1e-11)
        torch.testing.assert_close(alone[1].item(), 0.0, rtol=0, atol=1e-11)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", BIG_GRAPHS)
@torch.no_grad()
def test_joint_is_the_product_of_conditionals_in_any_order(graph, layer):
    p = sub.SquaredCircuit(build(BIG_GRAPHS[graph], layer=layer, units=2))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    total = torch.zeros(4, dtype=torch.float64)
    known = torch.zeros(7, dtype=torch.bool)
    for variable in torch.randperm(7, generator=generator).tolist():
        asked = torch.arange(7) == variable
        total = total + p.log_conditional(x, asked, known)
        known = known | asked
    torch.testing.assert_close(total, p.log_prob(x), rtol=0, atol=1e-8)


@pytest.mark.parametrize("graph", BIG_GRAPHS)
def test_values_equal_naive_ones(graph):
    circuit = build(BIG_GRAPHS[graph], weights="complex")
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fast = sub.SquaredCircuit(circuit).log_square(x)
    torch.testing.assert_close(fast, naive_log_square(circuit, x), rtol=1e-10, atol=1e-10)


def test_groups_of_uncorrelated_variables_are_products_of_single_ones():
    graph = sub.flat([[0, 1], [2]])
    grouped = build(graph, outputs=2)
    with torch.no_grad():
        for layer in grouped.input_layers:
            layer.lower.zero_()
    single = sub.Circuit(
        sub.flat(3), sub.Gaussian(), num_units=3, num_outputs=2, dtype=torch.float64
    )
    inputs = single.input_layers[0]
    with torch.no_grad():
        for layer in grouped.input_layers:
            for scope, mean, log_diagonal in zip(
                layer.scopes, layer.mean, layer.log_diagonal, strict=True
            ):
                for k, variable in enumerate(scope):
                    fold = inputs.scopes.index((variable,))
                    inputs.mean[fold] = mean[:, k]
                    inputs.log_scale[fold] = log_diagonal[:, k]
        single.sum_layers[0].weights.value.copy_(grouped.sum_layers[0].weights())
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[torch.rand(20, 3, generator=torch.Generator().manual_seed(1)) < 0.4] = torch.nan
    torch.testing.assert_close(
        sub.SquaredCircuit(grouped).log_prob(x),
        sub.SquaredCircuit(single).log_prob(x),
        rtol=0,
        atol=1e-11,
    )


def random_gmm(components, d, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(components))
    means = rng.normal(size=(components, d))
    roots = rng.normal(size=(components, d, d)) / np.sqrt(d) + 0.3 * np.eye(d)
    return weights, means, roots @ roots.transpose(0, 2, 1)


def sum_of_squares(weights, means, covariances):
    """Σ_k w_k N_k as a sum of squares: the root of N_k is a Gaussian of doubled covariance."""
    components, d = means.shape
    circuit = sub.Circuit(
        sub.flat([list(range(d))]),
        sub.MultivariateGaussian(),
        num_units=components,
        num_outputs=components,
        dtype=torch.float64,
    )
    factor = torch.from_numpy(np.linalg.cholesky(2 * covariances))
    # N(x; μ, Σ)^½ = N(x; μ, 2Σ) · constant, and the constants differ between components.
    log_det = np.linalg.slogdet(covariances)[1]
    log_constant = 0.25 * (d * np.log(2 * np.pi) + log_det) + 0.5 * d * np.log(2)
    root = np.sqrt(weights) * np.exp(log_constant)
    with torch.no_grad():
        layer = circuit.input_layers[0]
        layer.mean.copy_(torch.from_numpy(means)[None])
        layer.log_diagonal.copy_(factor.diagonal(dim1=-2, dim2=-1).log()[None])
        layer.lower.copy_(factor.tril(-1)[None])
        circuit.sum_layers[0].weights.value.copy_(torch.diag(torch.from_numpy(root))[None])
    return sub.SquaredCircuit(circuit)


def gmm_log_density(x, weights, means, covariances):
    logs = [
        np.log(w) + stats.multivariate_normal.logpdf(x, m, c)
        for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    return torch.from_numpy(special.logsumexp(np.reshape(logs, (len(weights), len(x))), axis=0))


@pytest.mark.parametrize(("components", "d"), [(1, 1), (3, 1), (2, 2), (5, 4), (8, 10)])
@torch.no_grad()
def test_a_gaussian_mixture_is_exactly_a_sum_of_squares(components, d):
    weights, means, covariances = random_gmm(components, d, seed=components + d)
    p = sum_of_squares(weights, means, covariances)
    x = np.random.default_rng(0).normal(size=(20, d)) * 2
    torch.testing.assert_close(p.log_partition().item(), 0.0, rtol=0, atol=1e-11)
    expected = gmm_log_density(x, weights, means, covariances)
    torch.testing.assert_close(p.log_prob(x), expected, rtol=1e-11, atol=1e-10)
    far = 1e3 * x
    expected = gmm_log_density(far, weights, means, covariances)
    torch.testing.assert_close(p.log_prob(far), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize(("components", "d"), [(2, 2), (5, 4), (8, 6)])
@torch.no_grad()
def test_marginals_and_conditionals_of_a_gaussian_mixture_are_those_of_its_blocks(components, d):
    weights, means, covariances = random_gmm(components, d, seed=7 * components + d)
    p = sum_of_squares(weights, means, covariances)
    rng = np.random.default_rng(1)
    for _ in range(4):
        keep = np.sort(rng.choice(d, size=rng.integers(1, d), replace=False))
        x = rng.normal(size=(6, len(keep)))
        block = covariances[:, keep][:, :, keep]
        expected = gmm_log_density(x, weights, means[:, keep], block)
        torch.testing.assert_close(p.marginal(keep).log_prob(x), expected, rtol=1e-9, atol=1e-9)
    row = rng.normal(size=(1, d))
    joint = gmm_log_density(row, weights, means, covariances)
    known = gmm_log_density(row[:, :1], weights, means[:, :1], covariances[:, :1, :1])
    conditioned = p.condition({0: row[0, 0]}).log_prob(row[:, 1:])
    torch.testing.assert_close(conditioned, joint - known, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("graph", ["one region", "deep groups"])
def test_gradients_of_partial_evidence_are_exact(graph):
    p = sub.SquaredCircuit(build(GRAPHS[graph], units=2))
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hidden = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]]).bool()
    p.forward = lambda x: p.log_marginal(x, ~hidden)
    names, start = zip(*p.named_parameters(), strict=True)

    def log_prob(x, *tensors):
        return torch.func.functional_call(p, dict(zip(names, tensors, strict=True)), (x,))

    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(log_prob, [x.requires_grad_(), *start], fast_mode=True)


@pytest.mark.parametrize("weights", ["real", "positive"])
def test_groups_of_which_everything_is_known_are_left_as_they_are(weights):
    circuit = build(GRAPHS["flat groups"], weights=weights)
    kind = sub.SquaredCircuit if weights == "real" else sub.MonotonicCircuit
    drawn = kind(circuit).sample(4, given={0: 0.3, 2: -0.2})
    assert drawn[:, [0, 2]].tolist() == [[pytest.approx(0.3), pytest.approx(-0.2)]] * 4
    assert len(set(drawn[:, 1].tolist())) == 4
