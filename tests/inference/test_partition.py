"""The partition function: exact where it can be known, and guarded where digits run out."""

import itertools
import math
import warnings

import pytest
import torch
from oracles import mp_log_partition
from registry import DISCRETE, FAMILIES, GRAPHS, LAYERS, WEIGHTS, build, domain, every_kind

import subtractive as sub
from subtractive.inference import partition
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import log_integral, log_square_integral
from subtractive.inference.partition import (
    check_cancellation,
    log_plain_partition,
    log_square_partition,
)


@pytest.mark.parametrize(
    ("family", "layer", "weights"), list(itertools.product(FAMILIES, LAYERS, WEIGHTS))
)
@torch.no_grad()
def test_z_is_the_sum_of_squares_over_the_domain(family, layer, weights):
    d = 3 if family in DISCRETE else 2
    circuit = build("binary", family, layer=layer, weights=weights, outputs=2, d=d)
    x, w = domain(family, d)
    expected = (circuit(x).abs().square().sum(1) * w).sum().log()
    torch.testing.assert_close(log_square_partition(circuit), expected, rtol=0, atol=1e-6)
    if circuit.is_non_negative:
        expected = (circuit(x).sum(1) * w).sum().log()
        torch.testing.assert_close(log_plain_partition(circuit), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_z_is_the_marginal_of_nothing(graph, layer):
    circuit = build(graph, "gaussian", layer=layer, weights="positive", outputs=2)
    nothing = torch.full((2, 4), math.nan, dtype=torch.float64)
    evidence = make_evidence(nothing, None, circuit.families, circuit.device)
    for whole, marginal in (
        (log_square_partition(circuit), log_square_integral(circuit, evidence)),
        (log_plain_partition(circuit), log_integral(circuit, evidence)),
    ):
        torch.testing.assert_close(marginal, whole.expand(2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", ["real", "complex"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_z_equals_fifty_digits(graph, weights):
    circuit = build(graph, "gaussian", weights=weights, outputs=2, d=6)
    expected = mp_log_partition(circuit)
    torch.testing.assert_close(log_square_partition(circuit).item(), expected, rtol=0, atol=1e-10)


def twins(distance, dtype=torch.float64):
    """N(0, 1) − N(distance, 1): Z = (1 − exp(−distance² / 4)) / √π."""
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2, dtype=dtype)
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, distance]], dtype=torch.float64))
        circuit.input_layers[0].log_scale.zero_()
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
    return circuit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [1.0, 0.25, 2.0**-7, 2.0**-10])
def test_opposite_twins_keep_their_digits_even_in_single_precision(distance, dtype):
    circuit = twins(distance, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_z = sub.SquaredCircuit(circuit).log_partition()
    expected = math.log(-math.expm1(-(distance**2) / 4) / math.sqrt(math.pi))
    torch.testing.assert_close(log_z.item(), expected, rtol=0, atol=1e-16 / distance**2 * 40)
    assert log_z.dtype == torch.float64


@pytest.mark.parametrize("distance", [2.0**-16, 2.0**-18, 2.0**-20])
def test_twins_too_close_are_warned_about_before_digits_run_out(distance):
    model = sub.SquaredCircuit(twins(distance))
    with pytest.warns(sub.CancellationWarning, match="fewer than seven digits.*smaller learning"):
        log_z = model.log_partition()
    expected = math.log(-math.expm1(-(distance**2) / 4) / math.sqrt(math.pi))
    assert abs(log_z.item() - expected) < 0.1


@pytest.mark.parametrize("units", [2, 3, 5])
@pytest.mark.parametrize("graph", [sub.flat(1), sub.flat(3), sub.linear_tree(3)])
def test_no_pair_of_twins_escapes_the_warning(graph, units):
    for first, second in itertools.combinations(range(units), 2):
        circuit = sub.Circuit(graph, sub.Gaussian(), num_units=units, seed=0, dtype=torch.float64)
        with torch.no_grad():
            for layer in circuit.input_layers:
                layer.mean[:, second] = layer.mean[:, first] + 2.0**-20
                layer.log_scale[:, second] = layer.log_scale[:, first]
            for k in range(len(circuit.layers)):
                value = circuit.sum_layers[k].weights.value
                value.copy_(torch.eye(*value.shape[1:]))
            circuit.sum_layers[-1].weights.value.zero_()
            circuit.sum_layers[-1].weights.value[..., first] = 1.0
            circuit.sum_layers[-1].weights.value[..., second] = -1.0
        with pytest.warns(sub.CancellationWarning):
            sub.SquaredCircuit(circuit).log_partition()


def test_the_warning_points_at_the_call():
    model = sub.SquaredCircuit(twins(2.0**-18))
    with pytest.warns(sub.CancellationWarning) as caught:
        model.log_prob(torch.zeros(1, 1))
    assert len(caught) == 1


@pytest.mark.parametrize("distance", [0.0, 1e-9])
def test_twins_that_are_one_have_no_density(distance):
    model = sub.SquaredCircuit(twins(distance))
    with pytest.raises(sub.CancellationError, match="cancel completely"):
        model.log_prob(torch.zeros(1, 1))


def test_additive_models_are_never_warned_about():
    circuit = sub.Circuit(
        sub.flat(1), sub.Gaussian(), num_units=2, weights=sub.positive_weights, dtype=torch.float64
    )
    with torch.no_grad():
        circuit.input_layers[0].mean.zero_()
        circuit.input_layers[0].log_scale.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sub.SquaredCircuit(circuit).log_partition()
        check_cancellation(circuit, log_square_partition(circuit))


def test_z_is_only_perturbed_where_something_is_negative(monkeypatch):
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, seed=0, dtype=torch.float64)
    perturbed = []
    exact = partition._perturbed_root
    monkeypatch.setattr(
        partition, "_perturbed_root", lambda *given: perturbed.append(1) or exact(*given)
    )
    sub.SquaredCircuit(circuit).log_partition()  # real weights that start positive
    assert not perturbed
    with torch.no_grad():
        circuit.sum_layers[0].weights.value[0, 0, 0] *= -1
    sub.SquaredCircuit(circuit).log_partition()
    assert perturbed


@every_kind(
    ("graph", "family", "weights"), list(itertools.product(GRAPHS, FAMILIES, ["real", "complex"]))
)
@torch.no_grad()
def test_ordinary_models_are_not_warned_about(graph, family, weights):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(2):
            circuit = build(graph, family, weights=weights, seed=seed, d=6)
            sub.SquaredCircuit(circuit).log_partition()


@pytest.mark.parametrize("layer", LAYERS)
def test_a_thousand_variables_stay_finite(layer):
    circuit = sub.Circuit(
        sub.random_binary_tree(1000, seed=0),
        sub.Gaussian(),
        num_units=3,
        product=LAYERS[layer],
        initialise=sub.init.normal(),
        seed=0,
        dtype=torch.float64,
    )
    log_z = log_square_partition(circuit)
    log_z.backward()
    assert log_z.isfinite()
    assert all(t.grad.isfinite().all() for t in circuit.parameters())
    if layer == "hadamard":
        torch.testing.assert_close(log_z.item(), mp_log_partition(circuit), rtol=1e-12, atol=0)


def test_narrow_gaussians_in_many_variables_stay_finite():
    circuit = sub.Circuit(
        sub.linear_tree(512), sub.Gaussian(), num_units=3, seed=0, dtype=torch.float64
    )
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.log_scale.fill_(-6.0)
    expected = mp_log_partition(circuit)
    torch.testing.assert_close(log_square_partition(circuit).item(), expected, rtol=1e-12, atol=0)


@every_kind(("family", "layer", "weights"), list(itertools.product(FAMILIES, LAYERS, WEIGHTS)))
def test_gradients_are_exact(family, layer, weights):
    circuit = build("nested", family, layer=layer, weights=weights, outputs=2, d=3)
    circuit.forward = lambda: log_square_partition(circuit)
    names, start = zip(*circuit.named_parameters(), strict=True)

    def log_z(*tensors):
        return torch.func.functional_call(circuit, dict(zip(names, tensors, strict=True)), ())

    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(log_z, start, fast_mode=True)


def test_z_is_quadratic_in_the_root_weights():
    circuit = build("binary", "gaussian", outputs=2)
    before = log_square_partition(circuit)
    with torch.no_grad():
        circuit.sum_layers[-1].weights.value.mul_(-1e-200)
    scaled = log_square_partition(circuit)
    expected = before + 2 * math.log(1e-200)
    torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=0)
