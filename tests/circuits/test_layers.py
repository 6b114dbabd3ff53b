import itertools
import math

import numpy as np
import pytest
import torch
from registry import LAYERS, WEIGHTS, build, every_kind, points
from torch.autograd import gradcheck

import subtractive as sub
from subtractive.circuits.sums import kronecker, mix, mix_gram, mix_kronecker_gram
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights
from subtractive.numerics.messages import LeafMessage, spread
from subtractive.numerics.signed_log import mix_signed, signed_log

CLOSE = {"rtol": 1e-12, "atol": 1e-13}
REAL, COMPLEX = torch.float64, torch.complex128
EVERY = slice(None)
DTYPES = [(REAL, REAL), (COMPLEX, REAL), (REAL, COMPLEX), (COMPLEX, COMPLEX)]


def draw(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(product):
    return product.mantissa * spread(product.log_scale.exp(), product.mantissa)


def fused(layer, children, folds=EVERY, other=None):
    """``W p`` of vectors, ``W P Wᴴ`` or ``W P Vᴴ`` of grams, as plain numbers."""
    weight = layer.weight(folds)
    if not any(child.is_gram for child in children):
        product = layer.vector(children, folds)
        return plain(product._replace(mantissa=mix(weight, product.mantissa)))
    widths = [child.shape[2] for child in children]
    weight = layer.expanded(weight, widths, folds)
    if other is not None:
        other = other.expanded(other.weight(folds), widths, folds)
    return plain(layer.sum_gram(children, weight, other))


def by_reference(layer, children):
    """The same by the signed log-sum-exp."""
    widths = [child.shape[2] for child in children]
    weight = layer.expanded(layer.weight(EVERY), widths, EVERY)
    signed = [signed_log(child) for child in children]
    sign, log_abs = mix_signed(weight, layer.reference(signed))
    return sign * log_abs.exp()


def weights_of(kind, shape, seed=0):
    if kind == "positive":
        return PositiveWeights(draw(*shape, seed=seed).exp())
    if kind == "complex":
        return ComplexWeights(draw(*shape, seed=seed, dtype=COMPLEX))
    return RealWeights(draw(*shape, seed=seed))


def numpy_product(layer, children):
    """The product of the children's vectors or matrices of one region and row."""
    product = children[0]
    for child in children[1:]:
        product = np.kron(product, child) if layer == "kronecker" else product * child
    return product


@pytest.mark.parametrize(("weights", "values"), DTYPES)
def test_mixing_is_a_matrix_product(weights, values):
    weight, x = draw(2, 5, 4, dtype=weights), draw(2, 3, 4, seed=1, dtype=values)
    dtype = torch.promote_types(weights, values)
    expected = torch.einsum("foi,fni->fno", weight.to(dtype), x.to(dtype))
    torch.testing.assert_close(mix(weight, x), expected, **CLOSE)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("weights", "values"), DTYPES)
def test_mixing_a_gram_works_from_both_sides(weights, values, rows):
    left, right = draw(2, 5, 4, dtype=weights), draw(2, 6, 3, seed=1, dtype=weights)
    gram = draw(2, rows, 4, 3, seed=2, dtype=values)
    dtype = torch.promote_types(weights, values)
    expected = torch.einsum(
        "foi,fnij,fpj->fnop", left.to(dtype), gram.to(dtype), right.to(dtype).conj()
    )
    torch.testing.assert_close(mix_gram(left, gram, right), expected, **CLOSE)


@pytest.mark.parametrize("widths", [(4,), (2, 3), (2, 3, 4), (1, 5, 1)])
def test_kronecker_is_that_of_numpy(widths):
    vectors = [draw(2, 3, width, seed=width, dtype=COMPLEX) for width in widths]
    product = kronecker(vectors)
    for f in range(2):
        for n in range(3):
            expected = numpy_product("kronecker", [v[f, n].numpy() for v in vectors])
            torch.testing.assert_close(product[f, n], torch.from_numpy(expected), **CLOSE)


@pytest.mark.parametrize(("weights", "values"), DTYPES)
@pytest.mark.parametrize("widths", [((2, 3), (3, 2)), ((2, 2, 3), (1, 3, 2)), ((4,), (3,))])
@pytest.mark.parametrize("rows", [(1, 1, 1), (3, 3, 3), (1, 3, 1)])
def test_kronecker_of_grams_is_mixed_without_forming_it(widths, rows, weights, values):
    left, right = widths
    grams = [
        draw(2, n, i, j, seed=10 * k, dtype=values)
        for k, (i, j, n) in enumerate(zip(left, right, rows, strict=False))
    ]
    w, v = (
        draw(2, 5, math.prod(left), dtype=weights),
        draw(2, 4, math.prod(right), seed=1, dtype=weights),
    )
    mixed = mix_kronecker_gram(w, grams, v)
    count = max(gram.shape[1] for gram in grams)
    assert mixed.shape == (2, count, 5, 4)
    for f in range(2):
        for n in range(count):
            parts = [gram[f, n % gram.shape[1]].numpy() for gram in grams]
            expected = w[f].numpy() @ numpy_product("kronecker", parts) @ v[f].numpy().conj().T
            torch.testing.assert_close(
                mixed[f, n], torch.from_numpy(expected).to(mixed.dtype), **CLOSE
            )


def test_one_complex_gram_among_real_ones_keeps_its_imaginary_part():
    grams = [draw(1, 1, 2, 2), draw(1, 1, 2, 2, seed=1, dtype=COMPLEX)]
    weight = draw(1, 3, 4, seed=2)
    expected = weight[0].to(COMPLEX) @ torch.kron(grams[0][0, 0].to(COMPLEX), grams[1][0, 0])
    mixed = mix_kronecker_gram(weight, grams, weight)
    torch.testing.assert_close(mixed[0, 0], expected @ weight[0].T.to(COMPLEX), **CLOSE)


@pytest.mark.parametrize("children", ["values", "grams", "values and grams"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", ["real", "positive", "complex"])
@pytest.mark.parametrize("name", LAYERS)
def test_both_paths_of_a_layer_equal_numpy(name, kind, count, children):
    dtype = COMPLEX if kind == "complex" else REAL
    inputs = []
    for k in range(count):
        is_gram = children == "grams" or (children != "values" and k == count - 1)
        value = draw(2, 3, *([2] * (1 + is_gram)), seed=k, dtype=dtype)
        inputs.append(value)
    width = 2**count if name == "kronecker" else 2
    layer = LAYERS[name](weights_of(kind, (2, 5, width), seed=9))
    messages = [LeafMessage(value, None) for value in inputs]
    results = fused(layer, messages), by_reference(layer, messages)
    weight = layer.weights().detach().numpy()
    for f in range(2):
        for n in range(3):
            parts = [value[f, n].numpy() for value in inputs]
            if children != "values":
                parts = [np.outer(p, p.conj()) if p.ndim == 1 else p for p in parts]
            product = numpy_product(name, parts)
            expected = weight[f] @ product
            if children != "values":
                expected = expected @ weight[f].conj().T
            for result in results:
                torch.testing.assert_close(result[f, n], torch.from_numpy(expected), **CLOSE)


def test_a_sum_layer_mixes_its_only_child():
    layer = sub.SumLayer(weights_of("complex", (2, 5, 3)))
    vector, gram = draw(2, 4, 3, seed=1), draw(2, 4, 3, 3, seed=2)
    weight = layer.weights()
    for value, expected in (
        (vector, torch.einsum("foi,fni->fno", weight, vector.to(COMPLEX))),
        (gram, torch.einsum("foi,fnij,fpj->fnop", weight, gram.to(COMPLEX), weight.conj())),
    ):
        message = LeafMessage(value, None)
        torch.testing.assert_close(fused(layer, [message]), expected, **CLOSE)
        torch.testing.assert_close(by_reference(layer, [message]), expected, **CLOSE)


@pytest.mark.parametrize("name", LAYERS)
def test_cross_grams_have_the_other_layer_on_the_right(name):
    width = 4 if name == "kronecker" else 2
    first = LAYERS[name](weights_of("complex", (1, 3, width)))
    second = LAYERS[name](weights_of("complex", (1, 5, width), seed=1))
    grams = [draw(1, 1, 2, 2, seed=k) for k in range(2)]
    product = numpy_product(name, [gram[0, 0].numpy() for gram in grams])
    expected = first.weights()[0].detach().numpy() @ product
    expected = expected @ second.weights()[0].detach().numpy().conj().T
    cross = fused(first, [LeafMessage(gram, None) for gram in grams], other=second)
    torch.testing.assert_close(cross[0, 0], torch.from_numpy(expected), **CLOSE)


def test_a_sum_crosses_another_sum():
    first, second = (
        sub.SumLayer(weights_of("real", (1, 3, 2))),
        sub.SumLayer(weights_of("real", (1, 4, 2), seed=1)),
    )
    gram = draw(1, 1, 2, 2, seed=2)
    expected = first.weights()[0] @ gram[0, 0] @ second.weights()[0].T
    cross = fused(first, [LeafMessage(gram, None)], other=second)
    torch.testing.assert_close(cross[0, 0], expected, **CLOSE)


def test_folds_pick_regions():
    layer = sub.HadamardLayer(weights_of("real", (4, 3, 2)))
    folds = [2, 0]
    children = [LeafMessage(draw(2, 5, 2, seed=k), None) for k in range(2)]
    product = children[0].some * children[1].some
    expected = torch.einsum("foi,fni->fno", layer.weights()[folds], product)
    torch.testing.assert_close(fused(layer, children, folds), expected, **CLOSE)
    torch.testing.assert_close(layer.weight(slice(1, 3)), layer.weights()[1:3], **CLOSE)


def test_counts_of_product_units():
    assert sub.SumLayer.num_inputs([3]) == 3
    assert sub.HadamardLayer.num_inputs([3, 3, 3]) == 3
    assert sub.KroneckerLayer.num_inputs([2, 3, 4]) == 24


def test_a_hadamard_product_needs_equal_widths():
    with pytest.raises(ValueError, match=r"equal width, got \[2, 3\]. Use KroneckerLayer"):
        sub.HadamardLayer.num_inputs([2, 3])


def test_a_sum_refuses_to_be_a_product():
    with pytest.raises(ValueError, match=r"cannot multiply 2 of them.*HadamardLayer"):
        sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, product=sub.SumLayer)


class LogProb(torch.nn.Module):
    """log p at fixed rows as a function of the parameters."""

    def __init__(self, density, x):
        super().__init__()
        self.density, self.x = density, x

    def forward(self):
        return self.density.log_prob(self.x)


def check_gradients(density, x, **options):
    """Compare the gradients of log_prob in every parameter with differences."""
    asked = LogProb(density, x)
    names, tensors = zip(*asked.named_parameters(), strict=True)

    def function(*values):
        return torch.func.functional_call(asked, dict(zip(names, values, strict=True)), ())

    values = [tensor.detach().requires_grad_() for tensor in tensors]
    settings = {"rtol": 1e-5, "atol": 1e-7, "check_undefined_grad": False}
    assert gradcheck(function, values, **(settings | options))


@every_kind(
    ("layer", "weights", "family"),
    list(
        itertools.product(
            LAYERS, WEIGHTS, ["categorical", "embedding", "binomial", "gaussian", "spline"]
        )
    ),
)
def test_log_prob_has_the_right_gradient_in_every_parameter(layer, weights, family):
    circuit = build("nested", family, layer=layer, weights=weights, outputs=2, d=3, num_units=2)
    x = points(family, 3, 3)
    x[1, 0] = x[2, 1] = x[2, 2] = math.nan
    check_gradients(sub.SquaredCircuit(circuit), x, fast_mode=True)


@pytest.mark.parametrize("weights", ["real", "positive", "complex"])
@pytest.mark.parametrize("layer", LAYERS)
def test_weights_over_fixed_kernels_have_the_right_gradient(layer, weights):
    circuit = build("linear", "rbf", layer=layer, weights=weights, d=2)
    x = points("rbf", 3, 2)
    x[0, 1] = math.nan
    check_gradients(sub.SquaredCircuit(circuit), x, fast_mode=True)


@pytest.mark.parametrize("weights", ["real", "complex"])
def test_regions_of_several_variables_have_the_right_gradient(weights):
    circuit = sub.Circuit(
        sub.flat([[0, 1], [2]]),
        sub.MultivariateGaussian(),
        num_units=2,
        weights={"real": sub.real_weights, "complex": sub.complex_weights}[weights],
        initialise=sub.init.normal(),
        seed=0,
        dtype=REAL,
    )
    x = draw(4, 3)
    x[0, 1] = x[1, 2] = x[2] = math.nan
    check_gradients(sub.SquaredCircuit(circuit), x, fast_mode=True)


@pytest.mark.parametrize("layer", LAYERS)
def test_monotonic_circuits_have_the_right_gradient(layer):
    circuit = build("nested", "gaussian", layer=layer, weights="positive", d=3, num_units=2)
    x = points("gaussian", 3, 3)
    x[1, 0] = x[2, 1] = math.nan
    check_gradients(sub.MonotonicCircuit(circuit), x)


def test_every_single_gradient_of_a_small_circuit():
    circuit = build("nested", "gaussian", weights="complex", outputs=2, d=3, num_units=2)
    x = points("gaussian", 2, 3)
    x[1, 0] = math.nan
    check_gradients(sub.SquaredCircuit(circuit), x)


def test_a_table_entry_of_zero_beside_gaussians_has_the_right_gradient():
    circuit = sub.Circuit(
        sub.flat(2), [sub.Embedding(2), sub.Gaussian()], num_units=2, seed=0, dtype=REAL
    )
    with torch.no_grad():
        circuit.input_layers[0].table[0, 0] = 0
    x = torch.tensor([[0.0, 0.3], [1.0, -0.2], [math.nan, 0.1]], dtype=REAL)
    check_gradients(sub.SquaredCircuit(circuit), x)


@pytest.mark.parametrize("distance", [1e-3, -1e-3, 1e-6])
def test_gradients_are_right_near_a_change_of_sign(distance):
    circuit = build("flat", "gaussian", d=1, num_units=2)
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[-1.0, 1.0]]))
        circuit.input_layers[0].log_scale.zero_()
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
    x = torch.tensor([[distance]], dtype=REAL, requires_grad=True)
    p = sub.SquaredCircuit(circuit)
    # c(x) is a multiple of exp(-x²/2) sinh(x), so that log c² has the derivative 2 coth(x) - 2x.
    (grad,) = torch.autograd.grad(p.log_prob(x).sum(), x)
    expected = 2 / math.tanh(distance) - 2 * distance
    torch.testing.assert_close(grad.item(), expected, rtol=1e-9, atol=0)
    if abs(distance) >= 1e-3:  # closer, differences drown in rounding
        check_gradients(p, x.detach(), eps=1e-6, rtol=1e-4)


@pytest.mark.parametrize("weights", ["real", "complex"])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_reference_path_has_the_right_gradient(layer, weights):
    circuit = build("linear", "gaussian", layer=layer, weights=weights, outputs=2, d=3)
    x = points("gaussian", 3, 3)
    names, tensors = zip(*circuit.named_parameters(), strict=True)

    class LogAbs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.circuit = circuit

        def forward(self):
            return self.circuit.log_abs(x)

    def function(*values):
        named = {f"circuit.{n}": v for n, v in zip(names, values, strict=True)}
        return torch.func.functional_call(LogAbs(), named, ())

    values = [tensor.detach().requires_grad_() for tensor in tensors]
    assert gradcheck(
        function, values, rtol=1e-5, atol=1e-7, fast_mode=True, check_undefined_grad=False
    )
