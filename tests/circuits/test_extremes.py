"""Where numbers run out: thousands of variables, far tails, sparse and cancelling weights."""

import copy
import itertools
import math
import warnings

import mpmath
import numpy as np
import pytest
import torch
from oracles import mp_log_partition, mp_log_square
from registry import LAYERS, build, every_kind, points

import subtractive as sub
from subtractive.inference.partition import log_square_partition
from subtractive.inputs.base import EVERYWHERE

REAL, SINGLE = torch.float64, torch.float32
GRAPHS = {"linear": sub.linear_tree, "binary": sub.random_binary_tree, "flat": sub.flat}


def gaussians(graph, **options):
    settings = {"num_units": 3, "seed": 0, "dtype": REAL, "initialise": sub.init.normal()}
    return sub.Circuit(graph, sub.Gaussian(), **(settings | options))


def set_inputs(circuit, means, log_scale=0.0):
    """Give unit k of variable v the mean means[v][k]."""
    (layer,) = circuit.input_layers
    with torch.no_grad():
        for fold, (variable,) in enumerate(layer.scopes):
            layer.mean[fold] = torch.as_tensor(means[variable], dtype=layer.mean.dtype)
        layer.log_scale.fill_(log_scale)


def set_weights(circuit, *weights):
    with torch.no_grad():
        for k, weight in enumerate(weights):
            circuit.sum_layers[k].weights.value.copy_(torch.as_tensor(weight))


def log_square(circuit, x):
    """By both arithmetics, which must agree."""
    fast = sub.SquaredCircuit(circuit).log_square(x)
    exact = (2 * circuit.log_abs(x)[0]).logsumexp(-1)
    assert not fast.isnan().any()
    rounding = 1e-12 if circuit.dtype == REAL else 1e-5
    torch.testing.assert_close(fast, exact, rtol=rounding, atol=rounding)
    return fast


def check_finite_gradients(circuit, value):
    grads = torch.autograd.grad(value, list(circuit.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


THOUSAND = [
    ("linear", sub.real_weights),
    ("binary", sub.real_weights),
    ("binary", sub.complex_weights),
    ("flat", sub.real_weights),
]


@pytest.mark.parametrize(("graph", "weights"), THOUSAND)
def test_a_thousand_variables_with_log_densities_of_minus_a_hundred_thousand(graph, weights):
    circuit = gaussians(GRAPHS[graph](1000), weights=weights, num_units=2)
    generator = torch.Generator().manual_seed(0)
    x = 14 * torch.randn(1, 1000, generator=generator, dtype=REAL).sign()
    value = log_square(circuit, x) / 2
    exact = mp_log_square(circuit, x[0].tolist()) / 2
    assert -1.3e5 < exact < -0.7e5
    torch.testing.assert_close(value.item(), exact, rtol=1e-11, atol=0)
    check_finite_gradients(circuit, value.sum())


@pytest.mark.parametrize("graph", GRAPHS)
def test_narrow_gaussians_in_512_variables(graph):
    circuit = gaussians(GRAPHS[graph](512), num_units=2)
    (layer,) = circuit.input_layers
    with torch.no_grad():
        layer.log_scale.fill_(-6.0)
    generator = torch.Generator().manual_seed(0)
    anywhere = torch.randn(1, 512, generator=generator, dtype=REAL)
    # Near the mean of one unit or another, as data are.
    unit = torch.randint(2, (512, 1), generator=generator)
    near = layer.mean.detach().gather(1, unit)[:, 0] + 0.002 * anywhere[0]
    x = torch.cat([anywhere, torch.empty(1, 512).double()])
    x[1, layer.variables[:, 0]] = near
    value = log_square(circuit, x)
    for n in range(2):
        exact = mp_log_square(circuit, x[n].tolist())
        torch.testing.assert_close(value[n].item(), exact, rtol=1e-11, atol=0)
    check_finite_gradients(circuit, value.sum())


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_ten_thousand_standard_deviations_out(graph, layer):
    circuit = gaussians(GRAPHS[graph](4), product=LAYERS[layer], num_units=2, num_outputs=2)
    x = torch.tensor([[1e4, -1e4, 0.0, 1e4], [1e4, 1e4, 1e4, 1e4]], dtype=REAL)
    value = log_square(circuit, x)
    for n, row in enumerate(x.tolist()):
        exact = mp_log_square(circuit, row)
        assert exact < -1e8
        torch.testing.assert_close(value[n].item(), exact, rtol=1e-12, atol=0)
    check_finite_gradients(circuit, value.sum())


def chain(means, dtype=REAL):
    """A mixture of two components as a linear tree: all sums but the root's take one unit."""
    circuit = gaussians(sub.linear_tree(len(means)), num_units=2, dtype=dtype)
    set_inputs(circuit, means)
    set_weights(circuit, *[torch.eye(2)[None]] * (len(means) - 2), torch.ones(1, 1, 2))
    return circuit


@pytest.mark.parametrize(
    ("means", "dtype"),
    [
        # The second component is lost first, and would win in the end.
        ([[35.0, 0.0], [35.0, 0.0], [0.0, 28.5], [0.0, 28.5]], REAL),
        ([[20.0, 0.0]] * 8 + [[0.0, 28.5]] * 2, REAL),
        ([[11.0, 0.0]] * 4 + [[0.0, 10.5]] * 2, SINGLE),
        ([[10.0, 0.0]] * 2 + [[0.0, 10.0]] * 2, SINGLE),
    ],
)
def test_components_that_were_lost_are_missed_further_up(means, dtype):
    circuit = chain(means, dtype)
    x = torch.zeros(1, len(means), dtype=dtype)
    value = log_square(circuit, x)
    exact = mp_log_square(circuit, x[0].tolist())
    rounding = 1e-12 if dtype == REAL else 1e-6
    torch.testing.assert_close(value.item(), exact, rtol=rounding, atol=0)
    # A weight of zero would join the best parts of both components: its gradient may overflow.
    grads = torch.autograd.grad(value.sum(), list(circuit.parameters()))
    assert not any(grad.isnan().any() for grad in grads)


@pytest.mark.parametrize("missing", [[], [0], [1, 3], [2, 3], [0, 1, 2]])
def test_components_that_were_lost_are_missed_beside_missing_values(missing):
    means = [[35.0, 0.0], [35.0, 0.0], [0.0, 28.5], [0.0, 28.5]]
    p = sub.SquaredCircuit(chain(means))
    x = torch.zeros(1, 4, dtype=REAL)
    x[:, missing] = math.nan
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for i, j in itertools.product(range(2), repeat=2):
            term = mpmath.mpf(1)
            for variable, mean in enumerate(means):
                if variable in missing:
                    term *= mpmath.npdf(mean[i], mean[j], mpmath.sqrt(2))
                else:
                    term *= mpmath.npdf(0, mean[i], 1) * mpmath.npdf(0, mean[j], 1)
            total += term
        exact = float(mpmath.log(total))
    torch.testing.assert_close(p.log_square(x).item(), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("size", "dtype"), [(1.0, REAL), (1e-40, REAL), (1e-15, SINGLE)])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_dominant_unit_that_is_cut_off_leaves_the_exact_answer(layer, size, dtype):
    circuit = gaussians(sub.linear_tree(4), product=LAYERS[layer], num_units=2, dtype=dtype)
    set_inputs(circuit, [[0.0, 40.0]] * 4)
    products = 4 if layer == "kronecker" else 2
    inner = torch.zeros(1, 2, products, dtype=REAL)
    root = torch.zeros(1, 1, products, dtype=REAL)
    inner[0, 0, 0] = inner[0, 1, -1] = root[0, 0, -1] = size
    set_weights(circuit, inner, inner, root)
    x = torch.tensor([[0.0] * 4, [40.0] * 4], dtype=dtype)
    value = log_square(circuit, x)
    assert value[0].item() < -6400
    for n, row in enumerate(x.tolist()):
        exact = mp_log_square(circuit, row)
        rounding = 1e-12 if dtype == REAL else 1e-6
        torch.testing.assert_close(value[n].item(), exact, rtol=rounding, atol=0)
    check_finite_gradients(circuit, value.sum())


def underflowing():
    """Z is about 1e-800, which only the signed logarithms can hold."""
    circuit = gaussians(sub.linear_tree(4), num_units=2)
    small = torch.tensor([[[1.0, 0.0], [0.0, 1e-200]]], dtype=REAL)
    set_weights(circuit, small, small, torch.tensor([[[0.0, 1.0]]]))
    return circuit


def test_a_partition_function_that_underflows_is_exact():
    circuit = underflowing()
    exact = mp_log_partition(circuit)
    assert exact < -1800
    torch.testing.assert_close(log_square_partition(circuit).item(), exact, rtol=1e-12, atol=0)
    check_finite_gradients(circuit, log_square_partition(circuit))


def test_underflow_is_not_taken_for_cancellation():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = sub.SquaredCircuit(underflowing())
        x = torch.zeros(1, 4, dtype=REAL)
        expected = mp_log_square(p.circuit, [0.0] * 4) - mp_log_partition(p.circuit)
        torch.testing.assert_close(p.log_prob(x).item(), expected, rtol=0, atol=1e-9)


MANY = {
    "embedding": sub.Embedding(4),
    "wide embedding": sub.Embedding(256),
    "categorical": sub.Categorical(256),
    "spline": sub.Spline(8),
}


@pytest.mark.parametrize("dtype", [SINGLE, REAL])
@pytest.mark.parametrize("name", MANY)
def test_products_of_many_small_numbers_do_not_vanish(name, dtype):
    family, d = MANY[name], 300
    circuit = sub.Circuit(sub.flat(d), family, num_units=3, seed=0, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, d, generator=generator, dtype=dtype)
    if family.num_states is not None:
        x = (x * family.num_states).floor()
    value = log_square(circuit, x)
    (layer,) = circuit.input_layers
    numbers = layer.values(x, slice(None)).value().detach().double().numpy()  # (d, n, i)
    gram = layer.gram(slice(None), EVERYWHERE).value().detach().numpy()
    weight = circuit.sum_layers[0].weights().detach().double().numpy()[0, 0]
    logs = np.log(numbers).sum(0) + np.log(weight)  # (n, i)
    np.testing.assert_allclose(
        value.detach(), 2 * np.logaddexp.reduce(logs, 1), rtol=1e-12 if dtype == REAL else 1e-5
    )
    logs = np.log(gram[:, 0]).sum(0) + np.log(np.outer(weight, weight))
    expected = np.logaddexp.reduce(logs, (0, 1))
    actual = sub.SquaredCircuit(circuit).log_partition().item()
    np.testing.assert_allclose(actual, expected, rtol=1e-12 if dtype == REAL else 1e-6)
    check_finite_gradients(circuit, value.sum())


def test_products_of_many_vectors_beside_grams_stay_exact():
    circuit = sub.Circuit(sub.flat(300), sub.Embedding(3), num_units=2, seed=0, dtype=REAL)
    x = torch.zeros(2, 300, dtype=REAL)
    x[:, :150] = math.nan
    x[1, 150:] = 2.0
    (layer,) = circuit.input_layers
    table = layer.table.detach().numpy()
    weight = circuit.sum_layers[0].weights.value.detach().numpy()[0, 0]
    missing = np.log(np.einsum("fiv,fjv->fij", table[:150], table[:150])).sum(0)
    for row, state in enumerate((0, 2)):
        seen = np.log(table[150:, :, state]).sum(0)
        logs = missing + seen[:, None] + seen[None] + np.log(np.outer(weight, weight))
        expected = np.logaddexp.reduce(logs, (0, 1))
        actual = sub.SquaredCircuit(circuit).log_square(x)[row].item()
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def twins(graph, distance, pair=(0, 1), **options):
    """Units in opposite pairs throughout: w f − w f', f' a relative ``distance`` from f."""
    circuit = gaussians(graph, **options)
    first, second = pair
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.mean[:, second] = layer.mean[:, first] * (1 + distance)
            layer.log_scale[:, second] = layer.log_scale[:, first]
        for k in range(len(circuit.layers)):
            value = circuit.sum_layers[k].weights.value
            kept = value[:, :, first].clone()
            value.zero_()
            value[:, :, first], value[:, :, second] = kept, -kept
    return circuit


@pytest.mark.parametrize("graph", GRAPHS)
def test_exactly_cancelling_twins_are_exactly_zero(graph):
    circuit = twins(GRAPHS[graph](4), 0.0, num_outputs=2)
    p, x = sub.SquaredCircuit(circuit), points("gaussian", 5, 4)
    value = p.log_square(x)
    assert (value == -math.inf).all()
    check_finite_gradients(circuit, value.sum())
    log_abs, sign = circuit.log_abs(x)
    assert (log_abs == -math.inf).all()
    assert not sign.any()
    assert not circuit(x).any()
    x[:, 1] = math.nan
    assert (p.log_square(x) == -math.inf).all()
    with pytest.raises(sub.CancellationError, match="cancel completely"):
        p.log_prob(x)


def test_a_density_that_vanishes_at_a_point_is_minus_infinity_there_only():
    circuit = gaussians(sub.flat(1), num_units=2)
    set_inputs(circuit, [[-1.0, 1.0]])
    set_weights(circuit, [[[1.0, -1.0]]])
    x = torch.tensor([[0.0], [0.1], [-0.1]], dtype=REAL, requires_grad=True)
    value = sub.SquaredCircuit(circuit).log_prob(x)
    assert value[0] == -math.inf
    assert value[1:].isfinite().all()
    check_finite_gradients(circuit, value.sum())
    (grad,) = torch.autograd.grad(sub.SquaredCircuit(circuit).log_prob(x).sum(), x)
    assert grad[0] == 0
    assert grad.isfinite().all()


def test_one_output_that_vanishes_does_not_hide_the_others():
    circuit = gaussians(sub.flat(2), num_units=2, num_outputs=2)
    set_inputs(circuit, [[1.0, 1.0], [0.0, 0.0]])
    set_weights(circuit, [[[1.0, -1.0], [1.0, 1.0]]])
    x = points("gaussian", 3, 2)
    value = log_square(circuit, x)
    assert value.isfinite().all()
    check_finite_gradients(circuit, value.sum())


@pytest.mark.parametrize(("graph", "d"), [("flat", 1), ("flat", 2), ("linear", 3), ("binary", 4)])
@pytest.mark.parametrize("units", [2, 3])
def test_near_cancellation_is_announced_before_digits_run_out(graph, d, units):
    for pair in itertools.combinations(range(units), 2):
        for power in range(1, 11):
            circuit = twins(GRAPHS[graph](d), 10.0**-power, pair, num_units=units)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    log_z = sub.SquaredCircuit(circuit).log_partition().item()
                except sub.CancellationError:
                    log_z = None
            assert log_z is None or math.isfinite(log_z)
            is_announced = log_z is None or any(
                issubclass(w.category, sub.CancellationWarning) for w in caught
            )
            if power <= 3:
                assert not is_announced
            if not is_announced:
                assert abs(math.expm1(log_z - mp_log_partition(circuit))) < 1e-3


@pytest.mark.parametrize(("graph", "weights"), THOUSAND)
@torch.no_grad()
def test_a_thousand_variables_are_no_reason_for_alarm(graph, weights):
    circuit = gaussians(GRAPHS[graph](1000), weights=weights, num_units=4, num_outputs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_z = sub.SquaredCircuit(circuit).log_partition()
    assert log_z.isfinite()


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e-10, 1e10, 1e30, 1e37])
@pytest.mark.parametrize("dtype", [SINGLE, REAL])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_size_of_the_weights_does_not_matter(layer, dtype, size):
    circuit = gaussians(sub.linear_tree(4), product=LAYERS[layer], num_units=2, dtype=dtype)
    scaled = copy.deepcopy(circuit)
    with torch.no_grad():
        for k in range(3):
            scaled.sum_layers[k].weights.value.mul_(size)
    x = points("gaussian", 3, 4)
    x[1, 2] = x[2, 0] = math.nan
    close = {"rtol": 0, "atol": 1e-11 if dtype == REAL else 1e-5}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, q = sub.SquaredCircuit(circuit), sub.SquaredCircuit(scaled)
        torch.testing.assert_close(q.log_prob(x), p.log_prob(x), **close)
        difference = (q.log_partition() - p.log_partition()).item()
    torch.testing.assert_close(difference, 6 * math.log(size), **close)
    check_finite_gradients(scaled, q.log_square(x).sum())


@pytest.mark.parametrize("size", [1e-160, 1e160])
@pytest.mark.parametrize("layer", LAYERS)
def test_weights_whose_squares_are_no_numbers_still_have_integrals(layer, size):
    circuit = gaussians(sub.linear_tree(4), product=LAYERS[layer], num_units=2)
    x = points("gaussian", 3, 4)
    x[1, 2] = x[2, 0] = math.nan
    before = sub.SquaredCircuit(circuit).log_square(x), log_square_partition(circuit)
    with torch.no_grad():
        for k in range(3):
            circuit.sum_layers[k].weights.value.mul_(size)
    after = sub.SquaredCircuit(circuit).log_square(x), log_square_partition(circuit)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, one + 6 * math.log(size), rtol=1e-13, atol=0)


@every_kind(
    ("graph", "family"),
    list(itertools.product(GRAPHS, ["gaussian", "spline", "embedding", "binomial"])),
    together=1,
)
def test_single_precision_is_close_to_double(graph, family):
    d = 32
    circuit = sub.Circuit(
        GRAPHS[graph](d),
        {"gaussian": sub.Gaussian(), "spline": sub.Spline(6)}.get(family)
        or {"embedding": sub.Embedding(4), "binomial": sub.Binomial(3)}[family],
        num_units=4,
        seed=0,
        dtype=REAL,
    )
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(5, d, generator=generator)
    x = (4 * x).floor() if family in ("embedding", "binomial") else x
    single = copy.deepcopy(circuit).to(SINGLE)
    p, q = sub.SquaredCircuit(circuit), sub.SquaredCircuit(single)
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(q.log_partition(), p.log_partition(), rtol=1e-6, atol=1e-5)


def test_laws_hold_for_sparse_weights_and_impossible_states():
    circuit = build("binary", "embedding", d=4, num_units=3, outputs=2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in circuit.parameters():
            parameter.mul_(torch.rand(parameter.shape, generator=generator) < 0.5)
    x = torch.tensor(list(itertools.product(range(3), repeat=4)), dtype=REAL)
    p = sub.SquaredCircuit(circuit)
    value = p.log_prob(x)
    impossible = (circuit(x) == 0).all(1)
    assert 0 < impossible.sum() < len(x)
    assert ((value == -math.inf) == impossible).all()
    torch.testing.assert_close(value.exp().sum().item(), 1.0, rtol=0, atol=1e-12)
    check_finite_gradients(circuit, value[~impossible].sum())
    check_finite_gradients(circuit, p.log_prob(x).sum())
