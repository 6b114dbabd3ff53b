"""The quick way up a circuit against the careful one, which every oracle of the library checks."""

import math

import pytest
import torch
from subtractive.circuits.planning import NARROW_FROM

import subtractive as sub
from subtractive.circuits.circuit import Circuit
from subtractive.inference.partition import square_integrals
from subtractive.numerics.scaled import log_magnitude

TREES = {
    "binary": lambda: sub.random_binary_tree(7, seed=1),
    "linear": lambda: sub.linear_tree(6),
    "flat": lambda: sub.flat(5),
}
FAMILIES = {"gaussian": sub.Gaussian, "embedding": lambda: sub.Embedding(4)}


def make(tree: str, family: str, **settings):
    return Circuit(
        TREES[tree](), FAMILIES[family](), num_units=4, seed=0, dtype=torch.float64, **settings
    )


def rows(circuit: Circuit, family: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (9, circuit.num_variables)
    if family == "embedding":
        return torch.randint(4, shape, generator=generator).double()
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    gaps = x.clone()
    gaps[:, 1] = math.nan  # one region integrated out for all rows
    gaps[2:5, -1] = math.nan  # and one for some of them
    return gaps


def careful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Circuit, "quick_log_root", lambda *_, **__: None)


def value_and_slopes(p: sub.Density, x: torch.Tensor):
    weights = torch.linspace(1, 2, len(x), dtype=torch.float64)
    value = p.log_prob(x)
    return value.detach(), torch.autograd.grad((weights * value).sum(), list(p.parameters()))


def compare_with_careful_way(p, x, monkeypatch):
    value, slopes = value_and_slopes(p, x)
    careful(monkeypatch)
    expected, expected_slopes = value_and_slopes(p, x)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    for slope, other in zip(slopes, expected_slopes, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tree", TREES)
def test_values_and_slopes_are_those_of_the_careful_way(
    tree, family, num_outputs, gaps, monkeypatch
):
    p = sub.SquaredCircuit(make(tree, family, num_outputs=num_outputs))
    x = rows(p.circuit, family)
    x = with_gaps(x) if gaps else x
    compare_with_careful_way(p, x, monkeypatch)


def test_a_monotonic_circuit_is_summed_and_not_squared(monkeypatch):
    p = sub.MonotonicCircuit(make("binary", "gaussian", weights=sub.positive_weights))
    x = with_gaps(rows(p.circuit, "gaussian"))
    compare_with_careful_way(p, x, monkeypatch)


def test_the_quick_way_is_really_taken(monkeypatch):
    circuit = make("linear", "gaussian")
    p, x = sub.SquaredCircuit(circuit), rows(circuit, "gaussian")
    expected = p.log_prob(x)
    monkeypatch.setattr(Circuit, "climb", None)  # the careful way needs it
    torch.testing.assert_close(p.log_square(x) - p.log_normaliser(), expected, rtol=0, atol=0)


def test_slopes_can_be_differentiated_again():
    p = sub.SquaredCircuit(make("binary", "gaussian"))
    x = rows(p.circuit, "gaussian")[:2].requires_grad_()
    assert torch.autograd.gradgradcheck(p.log_square, x)


def test_slopes_of_several_outputs_can_be_asked_at_once():
    p = sub.SquaredCircuit(make("linear", "gaussian"))
    x = rows(p.circuit, "gaussian")[:3].requires_grad_()
    value = p.log_square(x)
    each = torch.eye(3, dtype=torch.float64)
    (together,) = torch.autograd.grad(value, x, each, is_grads_batched=True, retain_graph=True)
    for row, one in enumerate(each):
        (alone,) = torch.autograd.grad(value, x, one, retain_graph=True)
        torch.testing.assert_close(together[row], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tree", TREES)
def test_rows_that_underflow_are_left_to_the_careful_way(tree, dtype, monkeypatch):
    circuit = make(tree, "gaussian").to(dtype)
    p, x = sub.SquaredCircuit(circuit), rows(circuit, "gaussian").to(dtype)
    x[3], x[5] = 300.0, -40.0  # units differ by factors that are no numbers
    value, slopes = value_and_slopes(p, x)
    careful(monkeypatch)
    expected, expected_slopes = value_and_slopes(p, x)
    precision = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(value, expected, rtol=precision, atol=precision)
    for slope, other in zip(slopes, expected_slopes, strict=True):
        size = other.abs().max().item()
        torch.testing.assert_close(slope, other, rtol=100 * precision, atol=precision * size)


def test_digits_that_underflow_takes_are_noticed():
    circuit = make("linear", "gaussian").to(torch.float32)
    with torch.no_grad():
        for layer in circuit.sum_layers:
            layer.weights.value.mul_(1e-18)  # twice in a row, which leaves few digits in float32
    leaves = circuit.values(rows(circuit, "gaussian").float())
    quick = circuit.quick_log_root(circuit.straight, leaves, squares=True)
    assert quick is not None
    assert quick.lost is not None
    assert quick.lost.all()
    root = circuit.log_root(circuit.straight, leaves, squares=True)
    exact = circuit.double().log_abs(rows(circuit, "gaussian").float().double())[0][:, 0]
    torch.testing.assert_close(root, 2 * exact, rtol=1e-5, atol=1e-4)


def test_deep_circuits_do_not_need_the_careful_way():
    circuit = Circuit(sub.linear_tree(60), sub.Gaussian(), num_units=8, seed=0)
    x = torch.randn(50, 60, generator=torch.Generator().manual_seed(0))
    for leaves in (circuit.values(x), square_integrals(circuit)):
        quick = circuit.quick_log_root(circuit.straight, leaves, squares=True)
        assert quick is not None
        assert quick.lost is None
        expected = log_magnitude(circuit.root(circuit.straight, leaves))
        torch.testing.assert_close(quick.log_total, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "settings", [{"product": sub.KroneckerLayer}, {"weights": sub.complex_weights}]
)
def test_other_circuits_are_left_to_the_careful_way(settings):
    circuit = Circuit(sub.random_binary_tree(3), sub.Gaussian(), num_units=2, seed=0, **settings)
    leaves = circuit.values(torch.zeros(2, 3))
    assert circuit.quick_log_root(circuit.straight, leaves, squares=True) is None


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("tree", ["binary", "linear"])
def test_slopes_of_wide_grams_in_single_precision_are_good_to_its_digits(tree, scale):
    circuit = Circuit(TREES[tree](), sub.Gaussian(), num_units=NARROW_FROM, seed=0)
    with torch.no_grad():
        circuit.sum_layers[0].weights.value.mul_(scale)
    p = sub.SquaredCircuit(circuit)
    narrow = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    p.double()
    wide = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    for slope, exact in zip(narrow, wide, strict=True):
        size = exact.abs().max().item()
        torch.testing.assert_close(slope.double(), exact, rtol=1e-4, atol=1e-5 * size)


def test_slopes_of_twins_that_cancel_keep_the_digits_of_single_precision():
    """f(x) - f(x - ε): Z is ε², and its slope in a weight 2/ε² times a difference of ε."""
    circuit = Circuit(sub.random_binary_tree(2), sub.Gaussian(), num_units=NARROW_FROM, seed=0)
    with torch.no_grad():
        layer = circuit.input_layers[0]
        layer.mean[:, 1::2] = layer.mean[:, ::2] + 1e-2
        layer.log_scale[:, 1::2] = layer.log_scale[:, ::2]
        weights = circuit.sum_layers[0].weights.value
        weights[..., 1::2] = -weights[..., ::2]
    p = sub.SquaredCircuit(circuit)
    narrow = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    p.double()
    wide = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    for slope, exact in zip(narrow, wide, strict=True):
        size = exact.abs().max().item()
        torch.testing.assert_close(slope.double(), exact, rtol=1e-3, atol=1e-4 * size)
