"""Fused layers against the reference path, which every oracle of the library checks."""

import math

import pytest
import torch
from oracles import mp_log_square_integral
from registry import every_kind

import subtractive as sub
from subtractive.circuits import evaluation, row_blocks
from subtractive.circuits.evaluation import ForwardPass, evaluate, leaves_of, reference
from subtractive.inference.partition import square_integrals
from subtractive.numerics.messages import log_sum_of_squares

REAL, SINGLE = torch.float64, torch.float32
TREES = {
    "binary": lambda: sub.random_binary_tree(7, seed=1),
    "linear": lambda: sub.linear_tree(6),
    "flat": lambda: sub.flat(5),
    "four variables": lambda: sub.random_binary_tree(4, seed=1),
}
FAMILIES = {"gaussian": sub.Gaussian, "embedding": lambda: sub.Embedding(4)}
WEIGHTS = {"real": sub.real_weights, "complex": sub.complex_weights}
# Exponents of far rows are about 1e5, which takes five digits from their exponentials.
PRECISION = {SINGLE: 1e-5, REAL: 1e-10}
PRODUCTS = {"hadamard": sub.HadamardLayer, "kronecker": sub.KroneckerLayer}


def make(tree, family="gaussian", **options):
    settings = {"num_units": 4, "seed": 0, "dtype": REAL} | options
    return sub.SquaredCircuit(sub.Circuit(TREES[tree](), FAMILIES[family](), **settings))


def rows(p, family="gaussian", count=9):
    generator = torch.Generator().manual_seed(2)
    shape = (count, p.num_variables)
    if family == "embedding":
        return torch.randint(4, shape, generator=generator).double()
    return torch.randn(shape, generator=generator, dtype=REAL)


def with_gaps(x):
    gaps = x.clone()
    gaps[:, 1] = math.nan  # one region integrated out for all rows
    gaps[2:5, -1] = math.nan  # and one for some of them
    return gaps


def value_and_gradients(p, x):
    weights = torch.linspace(1, 2, len(x), dtype=REAL)
    value = p.log_prob(x)
    return value.detach(), torch.autograd.grad((weights * value).sum(), list(p.parameters()))


def by_reference(p, x):
    """The same, every row by the reference path."""

    def every_row(schedule, ranges, found):
        root = ranges[-1].peak
        return torch.ones(root.shape[1], dtype=torch.bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "underflowed", every_row)
        return value_and_gradients(p, x)


def compare_with_reference(p, x, precision=1e-12):
    value, grads = value_and_gradients(p, x)
    expected, expected_grads = by_reference(p, x)
    torch.testing.assert_close(value, expected, rtol=precision, atol=precision)
    for grad, other in zip(grads, expected_grads, strict=True):
        size = max(1.0, other.abs().max().item())
        torch.testing.assert_close(grad, other, rtol=100 * precision, atol=precision * size)


KINDS = [
    (tree, family, product, weights, outputs, gaps)
    for tree in TREES
    for family in FAMILIES
    for product in PRODUCTS
    for weights in WEIGHTS
    for outputs in (1, 3)
    for gaps in (False, True)
]


@every_kind(("tree", "family", "product", "weights", "outputs", "gaps"), KINDS)
def test_values_and_gradients_are_those_of_the_reference_path(
    tree, family, product, weights, outputs, gaps
):
    settings = {"product": PRODUCTS[product], "weights": WEIGHTS[weights], "num_units": 3}
    p = make(tree, family, num_outputs=outputs, **settings)
    x = rows(p, family)
    compare_with_reference(p, with_gaps(x) if gaps else x)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_monotonic_circuit_is_summed_and_not_squared(product):
    settings = {"product": PRODUCTS[product], "weights": sub.positive_weights}
    p = sub.MonotonicCircuit(make("binary", **settings).circuit)
    compare_with_reference(p, with_gaps(rows(p)))


def test_rows_of_moderate_numbers_never_take_the_reference_path(monkeypatch):
    p = make("linear", num_outputs=2)
    x = with_gaps(rows(p))
    expected = p.log_square(x), p.log_normaliser()
    monkeypatch.setattr(evaluation, "reference", None)
    assert torch.equal(p.log_square(x), expected[0])
    assert torch.equal(p.log_normaliser(), expected[1])


def repeated_rows(p, x):
    """The values of rows, and which of them took the reference path."""
    seen = []

    def recorded(schedule, layers, source, some=None):
        seen.append(range(len(x)) if some is None else some.tolist())
        return reference(schedule, layers, source, some)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "reference", recorded)
        return p.log_square(x), [row for found in seen for row in found]


def unmixed(tree, **options):
    """A circuit whose units stay apart: at -x and at x they differ by any factor."""
    p = make(tree, num_units=2, **options)
    with torch.no_grad():
        for layer in p.circuit.sum_layers:
            weight = layer.weights.value
            weight.copy_(torch.eye(2) if weight.shape[1] == 2 else torch.ones(1, 2))
        (layer,) = p.circuit.input_layers
        layer.mean.copy_(torch.tensor([-1.0, 1.0]).expand(p.num_variables, 2))
        layer.log_scale.zero_()
    return p


def torn(p, distance):
    """A row whose variables in one half of the tree call for one unit, the others for another."""
    regions = p.circuit.graph.regions
    half = sorted(regions[regions[-1].partitions[0].children[0]].scope)
    row = torch.full((p.num_variables,), -distance, dtype=REAL)
    row[half] = distance
    return row


@pytest.mark.parametrize("dtype", [SINGLE, REAL])
@pytest.mark.parametrize("tree", ["binary", "linear", "four variables"])
def test_rows_that_underflow_take_the_reference_path_and_only_those(tree, dtype):
    p = unmixed(tree, dtype=dtype)
    x = rows(p).to(dtype)
    x[3] = torn(p, 1000.0)
    value, repeated = repeated_rows(p, x)
    assert repeated == [3]
    others = torch.arange(len(x)) != 3
    alone, nothing = repeated_rows(p, x[others])
    assert nothing == []
    torch.testing.assert_close(value[others], alone, rtol=0, atol=0)
    compare_with_reference(p, x, PRECISION[dtype])


@pytest.mark.parametrize("dtype", [SINGLE, REAL])
@pytest.mark.parametrize("tree", TREES)
def test_far_rows_are_those_of_the_reference_path(tree, dtype):
    p = make(tree, dtype=dtype)
    x = rows(p).to(dtype)
    x[3], x[5], x[7, ::2] = 300.0, -40.0, 1e3
    compare_with_reference(p, x, PRECISION[dtype])


@pytest.mark.parametrize("missing", [[], [0], [1, 3]])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("tree", ["binary", "linear", "four variables"])
def test_evidence_that_no_unit_explains_is_not_taken_for_impossible(tree, outputs, missing):
    p = unmixed(tree, num_outputs=outputs)
    x = rows(p, count=3)
    for distance in (30.0, 200.0, 2000.0):
        x[1] = torn(p, distance)
        x[1, missing] = math.nan
        exact = mp_log_square_integral(p.circuit, x[1].tolist())
        torch.testing.assert_close(p.log_square(x)[1].item(), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1e-18, 1e18])
def test_digits_that_underflow_takes_from_small_weights_are_noticed(size):
    p = make("linear", dtype=SINGLE)
    with torch.no_grad():
        for layer in p.circuit.sum_layers:
            layer.weights.value.mul_(size)  # twice in a row, which leaves few digits in float32
    x = rows(p).float()
    value = p.log_square(x)
    exact = p.double().circuit.log_abs(x.double())[0][:, 0]
    torch.testing.assert_close(value, 2 * exact, rtol=1e-5, atol=1e-4)


def test_weights_whose_units_underflow_one_by_one_are_noticed():
    p = make("linear")
    with torch.no_grad():
        for layer in p.circuit.sum_layers:
            layer.weights.value[..., ::2, :] *= 1e-160  # whose squares are no numbers,
            layer.weights.value[..., 1::2] = 0.0  # and nothing else counts
    compare_with_reference(p, rows(p))
    compare_with_reference(p, with_gaps(rows(p)))


def test_deep_circuits_lose_nothing():
    circuit = sub.Circuit(sub.linear_tree(60), sub.Gaussian(), num_units=8, seed=0)
    x = torch.randn(50, 60, generator=torch.Generator().manual_seed(0))
    for source in (circuit.values_at(x), square_integrals(circuit)):
        schedule, layers = circuit.schedule, circuit.sum_layers
        rule = ForwardPass(schedule, layers)
        leaves = leaves_of(schedule, source)
        _, lost = rule.root(rule.scale_leaves(leaves))
        assert lost is None
        sign, log_abs = reference(schedule, layers, source)
        squares = log_abs.diagonal(dim1=-2, dim2=-1) if sign.dim() == 4 else 2 * log_abs
        found = log_sum_of_squares(evaluate(schedule, layers, source))
        torch.testing.assert_close(found, squares.logsumexp(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("gaps", [False, True])
def test_gradients_can_be_differentiated_again(gaps):
    p = make("binary", num_units=2)
    x = rows(p)[:2]
    missing = torch.zeros_like(x, dtype=torch.bool)
    missing[:, 1] = gaps

    def function(x):
        return p.log_square(torch.where(missing, math.nan, x))

    assert torch.autograd.gradgradcheck(function, x.requires_grad_())


def test_second_derivatives_in_the_weights_are_right():
    p = make("linear", num_units=2)
    weights = p.circuit.sum_layers[1].weights.value

    class Normaliser(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = p

        def forward(self):
            return self.p.log_normaliser()

    def function(value):
        named = {"p.circuit.layers.1.weights.value": value}
        return torch.func.functional_call(Normaliser(), named, ())

    assert torch.autograd.gradgradcheck(function, weights.detach().requires_grad_())


def test_gradients_of_several_outputs_can_be_asked_at_once():
    p = make("linear")
    x = rows(p)[:3].requires_grad_()
    value = p.log_square(x)
    each = torch.eye(3, dtype=REAL)
    (together,) = torch.autograd.grad(value, x, each, is_grads_batched=True, retain_graph=True)
    for row, one in enumerate(each):
        (alone,) = torch.autograd.grad(value, x, one, retain_graph=True)
        torch.testing.assert_close(together[row], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("tree", ["binary", "linear"])
def test_gradients_of_wide_grams_in_single_precision_are_good_to_its_digits(tree, scale):
    p = make(tree, num_units=96, dtype=SINGLE)
    with torch.no_grad():
        p.circuit.sum_layers[0].weights.value.mul_(scale)
    narrow = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    p.double()
    wide = torch.autograd.grad(p.log_normaliser(), list(p.parameters()))
    for grad, exact in zip(narrow, wide, strict=True):
        size = exact.abs().max().item()
        torch.testing.assert_close(grad.double(), exact, rtol=1e-4, atol=1e-5 * size)


def test_gradients_of_twins_that_cancel_keep_the_digits_of_single_precision():
    """f(x) - f(x - ε): Z is ε², and its derivative by a weight 2/ε² times a difference of ε."""
    circuit = sub.Circuit(sub.random_binary_tree(2), sub.Gaussian(), num_units=96, seed=0)
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
    for grad, exact in zip(narrow, wide, strict=True):
        size = exact.abs().max().item()
        torch.testing.assert_close(grad.double(), exact, rtol=1e-3, atol=1e-4 * size)


@pytest.mark.parametrize("block", [1, 2**10])
@pytest.mark.parametrize("tree", TREES)
def test_blocks_of_rows_with_grams_give_the_same_as_one(tree, block, monkeypatch):
    p = make(tree, num_outputs=2)
    x = rows(p, count=50)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(4)) < 0.3] = math.nan
    x[7, ::2], x[7, 1::2] = 300.0, -300.0
    value, grads = value_and_gradients(p, x)
    monkeypatch.setattr(row_blocks, "_BLOCK", block)
    pieces, other_grads = value_and_gradients(p, x)
    torch.testing.assert_close(pieces, value, rtol=1e-12, atol=1e-12)
    for grad, other in zip(grads, other_grads, strict=True):
        size = max(1.0, other.abs().max().item())
        torch.testing.assert_close(grad, other, rtol=1e-10, atol=1e-11 * size)


@pytest.mark.parametrize("num_variables", [3, 8, 21])
@pytest.mark.parametrize("make_tree", [sub.linear_tree, sub.random_binary_tree])
def test_rows_that_are_equal_have_equal_densities_to_the_last_digit(make_tree, num_variables):
    circuit = sub.Circuit(
        make_tree(num_variables), sub.Gaussian(), num_units=2, seed=0, dtype=REAL
    )
    row = torch.randn(num_variables, generator=torch.Generator().manual_seed(0), dtype=REAL)
    values = sub.SquaredCircuit(circuit).log_prob(row.expand(37, -1))
    assert bool((values == values[0]).all())
