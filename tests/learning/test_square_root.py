"""Square roots of monotonic circuits, against path sums written out, and where they are exact."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import all_states, input_values, naive_value
from registry import GRAPHS, LAYERS, every_kind

import subtractive as sub
from subtractive.learning import purified_square_root, square_root

FAMILIES = {
    "categorical": sub.Categorical(3),
    "binomial": sub.Binomial(2),
    "gaussian": sub.Gaussian(),
    "atoms": sub.WithAtoms(sub.Gaussian(), (0.0,), non_negative=True),
}


def additive(graph, inputs, layer="hadamard", **options):
    settings = {"num_units": 3, "seed": 0, "dtype": torch.float64}
    circuit = sub.Circuit(
        graph, inputs, weights=sub.positive_weights, product=LAYERS[layer], **(settings | options)
    )
    return sub.MonotonicCircuit(circuit)


def rows(family, d):
    if family in ("categorical", "binomial"):
        return all_states([3] * d)
    x = torch.randn(30, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.where(x > 0.5, 0.0, x) if family == "atoms" else x


def same_up_to_a_factor(log_values, others):
    difference = log_values - others
    torch.testing.assert_close(
        difference, difference[:1].expand_as(difference), rtol=0, atol=1e-10
    )


@every_kind(("graph", "family", "layer"), list(itertools.product(GRAPHS, FAMILIES, LAYERS)))
def test_a_square_root_is_made_of_the_roots_of_all_weights_and_functions(graph, family, layer):
    model = additive(GRAPHS[graph](4), FAMILIES[family], layer)
    x = rows(family, 4)[:40]
    expected = [
        naive_value(model.circuit, row, lambda *at: np.sqrt(input_values(*at)), np.sqrt)[0]
        for row in x.tolist()
    ]
    squared = square_root(model)
    same_up_to_a_factor(squared.log_prob(x), 2 * torch.tensor(expected).log())
    assert abs(squared.log_partition().item()) < 1e-9


def test_inputs_of_another_width_and_regions_of_several_variables_have_roots():
    groups = sub.flat([[0, 1], [2, 3]])
    model = additive(groups, sub.MultivariateGaussian(), num_input_units=5)
    x = rows("gaussian", 4)
    expected = [
        naive_value(model.circuit, row, lambda *at: np.sqrt(input_values(*at)), np.sqrt)[0]
        for row in x.tolist()
    ]
    same_up_to_a_factor(square_root(model).log_prob(x), 2 * torch.tensor(expected).log())


def test_shared_inputs_stay_shared():
    model = additive(sub.linear_tree(4), sub.Categorical(3), shared_inputs=True)
    squared = square_root(model)
    assert squared.circuit.num_parameters == model.circuit.num_parameters
    x = rows("categorical", 4)
    assert math.isclose(squared.log_prob(x).exp().sum().item(), 1.0, rel_tol=1e-9)


@pytest.mark.parametrize("graph", [sub.flat(4), sub.linear_tree(4)], ids=["flat", "linear"])
def test_a_root_of_tables_that_do_not_overlap_is_the_same_density(graph):
    model = additive(graph, sub.Categorical(6))
    for layer in model.circuit.input_layers:
        # Unit k has the states 2k and 2k + 1 alone, so that every path is known.
        of_unit = torch.arange(6) // 2 == torch.arange(3)[:, None]
        with torch.no_grad():
            layer.logits.masked_fill_(~of_unit, -math.inf)
    x = all_states([6] * 4)
    expected = model.log_prob(x)
    possible = expected > -math.inf
    found = square_root(model).log_prob(x)
    assert torch.equal(found > -math.inf, possible)
    torch.testing.assert_close(found[possible], expected[possible], rtol=0, atol=1e-11)


def test_a_root_of_gaussians_far_apart_is_the_same_density():
    model = additive(sub.linear_tree(3), sub.Gaussian())
    (layer,) = model.circuit.input_layers
    with torch.no_grad():
        layer.mean.copy_(100.0 * torch.arange(3)[None].expand_as(layer.mean))
    x = model.sample(200, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        square_root(model).log_prob(x), model.log_prob(x), rtol=0, atol=1e-10
    )


def test_as_many_squares_as_units_leave_no_cross_terms_in_a_shallow_mixture():
    model = additive(sub.flat(3), sub.Gaussian(), num_units=4)
    x = rows("gaussian", 3)
    squared = square_root(model, num_squares=4)
    assert squared.circuit.num_outputs == 4
    torch.testing.assert_close(squared.log_prob(x), model.log_prob(x), rtol=0, atol=1e-11)


@every_kind(("graph", "family", "outputs"), list(itertools.product(GRAPHS, FAMILIES, [1, 2])))
def test_a_purified_root_is_the_same_density(graph, family, outputs):
    model = additive(GRAPHS[graph](4), FAMILIES[family], num_outputs=outputs)
    squared, x = purified_square_root(model), rows(family, 4)
    torch.testing.assert_close(squared.log_prob(x), model.log_prob(x), rtol=0, atol=1e-10)


def test_a_purified_root_learns_what_to_subtract():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, dtype=torch.float64, generator=generator)
    x = x / x.norm(dim=1, keepdim=True) * (1 + 0.1 * x[:, :1])  # a ring
    model = additive(sub.flat(2), sub.Gaussian(), num_units=4)
    sub.learning.fit_em(model, x, max_epochs=20, progress=False)
    squared = purified_square_root(model)
    before = squared.log_prob(x).mean().item()
    sub.fit(squared, x, x, max_epochs=20, learning_rate=0.01, progress=False)
    assert squared.log_prob(x).mean().item() > before + 0.02
    assert math.isclose(before, model.log_prob(x).mean().item(), rel_tol=1e-9)


def test_what_has_no_root_is_refused():
    spline = additive(sub.flat(2), sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True))
    with pytest.raises(ValueError, match="Spline functions have no square root"):
        square_root(spline)
    squared = sub.SquaredCircuit(sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2))
    with pytest.raises(ValueError, match="taken of a MonotonicCircuit, got SquaredCircuit"):
        square_root(squared)
    with pytest.raises(ValueError, match="Hadamard products at all sums"):
        purified_square_root(additive(sub.flat(2), sub.Gaussian(), "kronecker"))
    with pytest.raises(ValueError, match="num_squares"):
        square_root(additive(sub.flat(2), sub.Gaussian()), num_squares=0)
