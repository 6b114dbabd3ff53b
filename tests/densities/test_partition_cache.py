"""Z is computed once for the same numbers, and again after any change of them."""

import copy
import gc
import io
import warnings

import pytest
import torch

import subtractive as sub
from subtractive.circuits.weights import PositiveWeights
from subtractive.inference import partition


def squared(seed=0, **settings):
    circuit = sub.Circuit(
        sub.random_binary_tree(4, seed=0),
        sub.Gaussian(),
        num_units=5,
        seed=seed,
        dtype=torch.float64,
        **settings,
    )
    return sub.SquaredCircuit(circuit)


def additive(seed=0):
    circuit = squared(seed, weights=sub.positive_weights).circuit
    return sub.MonotonicCircuit(circuit)


DENSITIES = {
    "squared": squared,
    "additive": additive,
    "mixture": lambda: sub.Mixture([squared(0), squared(1), additive(2)]),
}


def counted(density, monkeypatch):
    """How often the density computed Z anew, as a list that grows."""
    calls, compute = [], type(density).log_normaliser
    monkeypatch.setattr(
        type(density), "log_normaliser", lambda self: calls.append(self) or compute(self)
    )
    return calls


def fresh_log_prob(density, x):
    """By a density that remembers nothing."""
    return copy.deepcopy(density).log_prob(x)


@pytest.mark.parametrize("name", DENSITIES)
@torch.no_grad()
def test_a_second_question_does_not_compute_z_again(name, monkeypatch):
    density, x = DENSITIES[name](), torch.randn(7, 4)
    first = density.log_prob(x)
    calls = counted(density, monkeypatch)
    assert torch.equal(density.log_prob(x), first)
    density.log_marginal(x, torch.tensor([True, False, True, False]))
    assert not calls


CHANGES = {
    "in place": lambda p: p.add_(0.1),
    "through .data": lambda p: p.data.mul_(1.5),
    "through numpy": lambda p: p.detach().numpy().__iadd__(0.1),
    "one number": lambda p: p.view(-1)[-1:].add_(1e-3),
    "swapped storage": lambda p: p.set_(p.detach().clone() + 0.1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", DENSITIES)
def test_any_change_of_any_parameter_is_noticed(name, change):
    density, x = DENSITIES[name](), torch.randn(7, 4)
    for parameter in density.parameters():
        with torch.no_grad():
            density.log_prob(x)
            CHANGES[change](parameter)
            torch.testing.assert_close(
                density.log_prob(x), fresh_log_prob(density, x), rtol=0, atol=0
            )


@torch.no_grad()
def test_other_weights_of_the_same_numbers_are_noticed():
    density, x = squared(), torch.randn(3, 4)
    density.log_prob(x)
    layer = density.circuit.sum_layers[-1]
    layer.weights = PositiveWeights(layer.weights().abs())
    layer.weights.log_value.copy_(squared().circuit.sum_layers[-1].weights())
    torch.testing.assert_close(density.log_prob(x), fresh_log_prob(density, x), rtol=0, atol=0)


@torch.no_grad()
def test_another_precision_is_noticed():
    density, x = squared(), torch.randn(3, 4)
    density.log_prob(x)
    density.float()
    torch.testing.assert_close(density.log_prob(x), fresh_log_prob(density, x), rtol=0, atol=0)


def test_gradients_are_those_of_a_density_that_was_never_asked():
    asked, fresh, x = squared(), squared(), torch.randn(3, 4)
    with torch.no_grad():
        asked.log_prob(x)
    for density in (asked, fresh):
        density.log_prob(x).sum().backward()
    for one, other in zip(asked.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@torch.no_grad()
def test_what_was_handed_out_can_be_changed():
    density = squared()
    density.log_partition().zero_()
    first = density.log_partition()
    expected = first.clone()
    first.zero_()
    assert density.log_partition() == expected != 0


@torch.no_grad()
def test_lost_digits_are_warned_about_every_time():
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2, dtype=torch.float64)
    circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, 2.0**-18]]))
    circuit.input_layers[0].log_scale.zero_()
    circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
    density = sub.SquaredCircuit(circuit)
    for model in (density, sub.Mixture([density]), density.marginal([0])):
        for _ in range(2):
            with pytest.warns(sub.CancellationWarning):
                model.log_prob(torch.zeros(1, 1))


@torch.no_grad()
def test_copies_files_and_deleted_densities_take_nothing_along():
    density, x = squared(), torch.randn(3, 4)
    density.log_prob(x)  # makes plans, which belong to the circuit
    density.circuit.sum_layers[-1].weights.value.mul_(2)
    sizes = []
    for _ in range(2):
        file = io.BytesIO()
        torch.save(density, file)
        sizes.append(file.getbuffer().nbytes)
        density.log_prob(x)
    assert sizes[0] == sizes[1]
    assert partition.recall(copy.deepcopy(density)) is None
    gc.collect()
    count = len(partition._KNOWN)
    del density
    gc.collect()
    assert len(partition._KNOWN) == count - 1


@torch.no_grad()
def test_densities_of_very_many_numbers_are_not_copied(monkeypatch):
    monkeypatch.setattr(partition, "MOST_NUMBERS", 10)
    density = squared()
    density.log_partition()
    assert partition.recall(density) is None


@torch.no_grad()
def test_a_failed_z_is_not_partition_cache():
    density, x = squared(), torch.randn(3, 4)
    density.log_prob(x)
    weights = density.circuit.sum_layers[-1].weights.value
    kept = weights.clone()
    weights.fill_(float("nan"))
    with pytest.raises(sub.CancellationError), warnings.catch_warnings():
        density.log_prob(x)
    weights.copy_(kept)
    torch.testing.assert_close(density.log_prob(x), fresh_log_prob(density, x), rtol=0, atol=0)
