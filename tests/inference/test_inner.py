"""Inner products of circuits against sums over all states and against quadrature."""

import itertools
import math

import mpmath
import pytest
import torch
from oracles import gauss_legendre, grid, input_of_region, layer_of_region, mp_log_partition
from registry import DISCRETE, FAMILIES, GRAPHS, LAYERS, WEIGHTS, build, domain, every_kind

import subtractive as sub

KINDS = list(
    itertools.product(["binary", "linear", "flat"], FAMILIES, LAYERS, [("real", "real")])
) + list(
    itertools.product(
        ["nested", "linear"],
        ["embedding", "gaussian"],
        LAYERS,
        itertools.product(WEIGHTS, WEIGHTS),
    )
)
SMOOTH = ("gaussian", "rbf")


def brute_force(first, second, family, d):
    """Σ or ∫ of c₁(x) c₂(x)* for all pairs of outputs."""
    x, w = grid([gauss_legendre(-9, 9, 96)] * d) if family in SMOOTH else domain(family, d)
    dtype = torch.promote_types(first(x[:1]).dtype, second(x[:1]).dtype)
    left, right = first(x).to(dtype), second(x).to(dtype)
    return (left.mT * w) @ right.conj()


@every_kind(("graph", "family", "layer", "weights"), KINDS)
@torch.no_grad()
def test_inner_products_are_sums_over_the_domain(graph, family, layer, weights):
    d = 3 if family in DISCRETE else 2
    first = build(graph, family, layer=layer, weights=weights[0], outputs=2, d=d, seed=1)
    second = build(graph, family, layer=layer, weights=weights[1], outputs=3, d=d, seed=2)
    product = sub.inner(first, second)
    assert product.shape == (2, 3)
    expected = brute_force(first, second, family, d)
    torch.testing.assert_close(product, expected.to(product.dtype), rtol=1e-8, atol=1e-8)
    log_abs, sign = sub.inference.log_inner(first, second)
    torch.testing.assert_close(log_abs.exp() * sign, product, rtol=1e-12, atol=0)


@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_real_and_complex_circuits_of_unequal_depth_can_be_compared(layer):
    for nested in (((0, 1), 2), (0, (1, 2)), (0, (1, 2), 3), ((0, 1), 2, (3, 4))):
        graph = sub.RegionGraph.from_nested(nested)
        first, second = (
            sub.Circuit(
                graph,
                sub.Embedding(2),
                num_units=2,
                product=LAYERS[layer],
                initialise=sub.init.normal(),
                weights=kind,
                seed=seed,
                dtype=torch.float64,
            )
            for seed, kind in enumerate((sub.real_weights, sub.complex_weights))
        )
        x = torch.cartesian_prod(*[torch.arange(2.0, dtype=torch.float64)] * graph.num_variables)
        expected = (first(x).to(torch.complex128).mT) @ second(x).conj()
        torch.testing.assert_close(sub.inner(first, second), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            sub.inner(second, first), expected.conj().mT, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_circuits_may_have_different_numbers_of_units(layer):
    for graph in GRAPHS:
        first = build(graph, "embedding", layer=layer, num_units=2, seed=1)
        second = build(graph, "embedding", layer=layer, num_units=4, seed=2)
        expected = brute_force(first, second, "embedding", 4)
        torch.testing.assert_close(sub.inner(first, second), expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_circuits_whose_sums_widen_the_inputs_can_be_compared():
    first, second = (
        build("binary", "embedding", num_units=k, num_input_units=5, seed=k) for k in (2, 3)
    )
    expected = brute_force(first, second, "embedding", 4)
    torch.testing.assert_close(sub.inner(first, second), expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_kernels_at_different_centres_can_be_compared():
    first, second = (
        sub.Circuit(sub.flat(2), family, num_units=2, seed=0, dtype=torch.float64)
        for family in (sub.RBF((-1.0, 1.0), 0.8), sub.RBF((0.0, 0.7), (0.5, 1.5)))
    )
    expected = brute_force(first, second, "rbf", 2)
    torch.testing.assert_close(sub.inner(first, second), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("family", ["gaussian", "embedding", "spline"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@torch.no_grad()
def test_a_circuit_with_itself_is_its_partition_function(family, layer, weights):
    circuit = build("binary", family, layer=layer, weights=weights, outputs=2)
    gram = sub.inner(circuit, circuit)
    z = sub.SquaredCircuit(circuit).log_partition()
    torch.testing.assert_close(gram.diagonal().sum().real.log(), z, rtol=0, atol=1e-10)
    torch.testing.assert_close(gram, gram.conj().mT, rtol=1e-12, atol=1e-12)
    assert torch.linalg.eigvalsh(gram).min() > -1e-12 * gram.abs().max()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("weights", WEIGHTS)
@torch.no_grad()
def test_no_inner_product_exceeds_the_norms(seed, weights):
    first, second = (build("linear", "gaussian", weights=weights, seed=seed + k) for k in (0, 50))
    between = sub.inference.log_inner(first, second)[0]
    norms = sub.inference.log_inner(first, first)[0] + sub.inference.log_inner(second, second)[0]
    assert (2 * between <= norms + 1e-12).all()


@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_five_hundred_variables_stay_finite(layer):
    graph = sub.random_binary_tree(500, seed=0)
    first, second = (
        sub.Circuit(
            graph,
            sub.Gaussian(),
            num_units=2,
            product=LAYERS[layer],
            initialise=sub.init.normal(),
            seed=seed,
            dtype=torch.float64,
        )
        for seed in range(2)
    )
    log_abs, sign = sub.inference.log_inner(first, second)
    assert log_abs.isfinite()
    assert sign.abs() == 1
    norms = [sub.inference.log_inner(c, c)[0].item() for c in (first, second)]
    assert 2 * log_abs.item() <= sum(norms)
    if layer == "hadamard":
        torch.testing.assert_close(norms[0], mp_log_partition(first), rtol=1e-10, atol=0)


def test_gradients_are_exact():
    first = build("nested", "gaussian", d=3, num_units=2, seed=1)
    second = build("nested", "gaussian", d=3, num_units=2, seed=2)
    names, start = zip(*first.named_parameters(), strict=True)

    first.forward = lambda: sub.inner(first, second)

    def product(*tensors):
        return torch.func.functional_call(first, dict(zip(names, tensors, strict=True)), ())

    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(product, start, fast_mode=True)


def unit_vectors(graph, weights):
    """A circuit whose input functions are the indicators of the two states."""
    circuit = sub.Circuit(graph, sub.Embedding(2), num_units=2, dtype=torch.float64)
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.table.copy_(torch.eye(2).expand_as(layer.table))
        for k in range(len(circuit.layers) - 1):
            value = circuit.sum_layers[k].weights.value
            value.copy_(torch.eye(2).expand_as(value))
        circuit.sum_layers[-1].weights.value.copy_(torch.tensor([[weights]]))
    return circuit


@pytest.mark.parametrize("nested", [0, (0, 1), ((0, 1), (2, 3))])
def test_orthogonal_circuits_have_an_inner_product_of_zero(nested):
    graph = sub.RegionGraph.from_nested(nested)
    even, odd = unit_vectors(graph, [1.0, 1.0]), unit_vectors(graph, [1.0, -1.0])
    assert sub.inner(even, odd).item() == 0
    log_abs, sign = sub.inference.log_inner(even, odd)
    assert log_abs.item() == -math.inf
    assert sign.item() == 0


def test_circuits_on_disjoint_states_have_an_inner_product_of_zero():
    graph = sub.RegionGraph.from_nested(((0, 1), 2))
    first, second = unit_vectors(graph, [1.0, 0.0]), unit_vectors(graph, [0.0, 1.0])
    assert sub.inner(first, second).item() == 0


def test_one_vanishing_pair_of_outputs_does_not_spoil_the_gradients_of_the_others():
    circuit = sub.Circuit(sub.flat(1), sub.Embedding(2), num_units=2, num_outputs=2)
    with torch.no_grad():
        circuit.input_layers[0].table.copy_(torch.eye(2)[None])
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, 1.0], [1.0, -1.0]]]))
    log_abs, _ = sub.inference.log_inner(circuit, circuit)
    assert log_abs.isneginf().tolist() == [[False, True], [True, False]]
    log_abs[0, 0].backward()
    assert all(t.grad.isfinite().all() for t in circuit.parameters())


def mp_log_inner(first, second):
    """log|∫ c₁ c₂| of two Gaussian circuits of one output by cross grams of 50 digits."""
    with mpmath.workdps(50):
        inputs, layers = [
            [read(c) for c in (first, second)] for read in (input_of_region, layer_of_region)
        ]
        grams = {}
        for region, node in enumerate(first.graph.regions):
            if not node.partitions:
                grams[region] = mpmath.matrix(overlaps(*(place[region][1] for place in inputs)))
                continue
            children = [grams[child] for child in node.partitions[0].children]
            kronecker = isinstance(layers[0][region][0], sub.KroneckerLayer)
            joined = joined_grams(children, kronecker=kronecker)
            left, right = (mpmath.matrix(place[region][1].tolist()) for place in layers)
            grams[region] = left * joined * right.T
        return float(mpmath.log(abs(grams[first.graph.root][0, 0])))


def overlaps(p, q):
    def overlap(i, j):
        total = mpmath.exp(2 * mpmath.mpf(float(p["log_scale"][i])))
        total += mpmath.exp(2 * mpmath.mpf(float(q["log_scale"][j])))
        distance = mpmath.mpf(float(p["mean"][i])) - mpmath.mpf(float(q["mean"][j]))
        return mpmath.exp(-(distance**2) / (2 * total)) / mpmath.sqrt(2 * mpmath.pi * total)

    return [[overlap(i, j) for j in range(len(q["mean"]))] for i in range(len(p["mean"]))]


def joined_grams(grams, *, kronecker):
    """Entries of the Hadamard or Kronecker product, one by one."""
    units = [list(itertools.product(*(range(g.rows) for g in grams)))]
    units.append(list(itertools.product(*(range(g.cols) for g in grams))))
    if not kronecker:
        units = [[u for u in pairs if len(set(u)) == 1] for pairs in units]
    return mpmath.matrix(
        [
            [
                mpmath.fprod(g[i, j] for g, i, j in zip(grams, rows, columns, strict=True))
                for columns in units[1]
            ]
            for rows in units[0]
        ]
    )


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("seed", range(3))
def test_circuits_far_apart_keep_their_digits(layer, spread, seed):
    graph = sub.RegionGraph.from_nested(((0, 1), (2, (3, 4))))
    circuits = [
        sub.Circuit(
            graph,
            sub.Gaussian(),
            num_units=2,
            product=LAYERS[layer],
            initialise=sub.init.normal(),
            seed=2 * seed + k,
            dtype=torch.float64,
        )
        for k in range(2)
    ]
    with torch.no_grad():
        for circuit in circuits:
            circuit.input_layers[0].mean.mul_(spread)
    log_abs, sign = sub.inference.log_inner(*circuits)
    torch.testing.assert_close(log_abs.item(), mp_log_inner(*circuits), rtol=1e-10, atol=1e-9)
    assert sign.abs().item() == 1
    log_abs.sum().backward()
    assert all(t.grad.isfinite().all() for c in circuits for t in c.parameters())
