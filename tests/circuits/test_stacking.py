"""Stacks of circuits: each root is that of its own circuit, whatever is asked."""

import pytest
import torch

import subtractive as sub
from subtractive.circuits.circuit import Stack, structure
from subtractive.densities import member_groups
from subtractive.inference.evidence import make_evidence
from subtractive.inference.expectations import weigh_plain_expectations, weigh_stack_expectations
from subtractive.inference.marginal import (
    log_integral,
    log_integrals,
    log_square_integral,
    log_square_integrals,
)
from subtractive.inputs.test_functions import Moments

GRAPH = sub.RegionGraph.from_nested((((0, 1), 2), (3, 4)))
FAMILIES = [sub.Gaussian(), sub.Categorical(3), sub.Gaussian(), sub.Categorical(2), sub.Gaussian()]
KINDS = {
    "monotonic": {"weights": sub.positive_weights},
    "real, two outputs": {"num_outputs": 2},
    "complex": {"weights": sub.complex_weights},
    "Kronecker": {"product": sub.KroneckerLayer},
    "shared inputs": {"shared_inputs": True},
    "a sum over each input": {"num_input_units": 5},
}
OBSERVED = {
    "everything": [True] * 5,
    "nothing": [False] * 5,
    "one side": [True, True, True, False, False],
    "every second": [True, False, True, False, True],
}


def circuits(kind, *, count=3, inputs=FAMILIES):
    return [
        sub.Circuit(GRAPH, inputs, num_units=3, seed=seed, dtype=torch.float64, **KINDS[kind])
        for seed in range(count)
    ]


def rows(count=7, *, observed=None):
    noise = torch.randn(count, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = noise.clone()
    x[:, 1], x[:, 3] = noise[:, 1].abs().floor().clamp(max=2), (noise[:, 3] > 0).double()
    return make_evidence(x, observed, FAMILIES, torch.device("cpu"))


@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
@pytest.mark.parametrize("kind", KINDS)
def test_the_squares_of_a_stack_are_those_of_its_circuits(kind, observed):
    some = circuits(kind)
    evidence = rows(observed=torch.tensor(observed))
    expected = torch.stack([log_square_integral(circuit, evidence) for circuit in some])
    found = log_square_integrals(Stack.of(some), evidence)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("observed", OBSERVED.values(), ids=OBSERVED)
def test_the_integrals_of_a_stack_are_those_of_its_circuits(observed):
    some = circuits("monotonic")
    evidence = rows(observed=torch.tensor(observed))
    expected = torch.stack([log_integral(circuit, evidence) for circuit in some])
    found = log_integrals(Stack.of(some), evidence)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_expectations_of_a_stack_are_those_of_its_circuits():
    some = circuits("monotonic")
    mask = torch.rand(7, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    evidence, functions = rows(observed=mask), [Moments(), None, Moments(), Moments(), Moments()]
    log_weights, found = weigh_stack_expectations(Stack.of(some), evidence, functions)
    for number, circuit in enumerate(some):
        log_weight, expected = weigh_plain_expectations(circuit, evidence, functions)
        torch.testing.assert_close(log_weights[number], log_weight, rtol=1e-13, atol=1e-13)
        for own, answer in zip(found, expected, strict=True):
            assert (own is None) == (answer is None)
            if own is not None:
                torch.testing.assert_close(
                    own[number], answer, rtol=1e-12, atol=1e-12, equal_nan=True
                )


def test_gradients_pass_through_a_stack():
    some = circuits("real, two outputs")
    evidence = rows(observed=torch.tensor(OBSERVED["one side"]))
    parameters = [p for circuit in some for p in circuit.parameters()]
    alone = sum(log_square_integral(circuit, evidence).sum() for circuit in some)
    together = log_square_integrals(Stack.of(some), evidence).sum()
    expected = torch.autograd.grad(alone, parameters)
    for own, other in zip(torch.autograd.grad(together, parameters), expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-11, atol=1e-12)


def test_a_row_that_underflows_in_one_circuit_is_right_in_all():
    narrow, wide = circuits("real, two outputs", count=2, inputs=sub.Gaussian())
    with torch.no_grad():
        for layer in narrow.input_layers:
            layer.log_scale.fill_(-8.0)
    x = torch.zeros(3, 5, dtype=torch.float64)
    x[1] = 40.0
    evidence = make_evidence(x, None, narrow.families, torch.device("cpu"))
    expected = torch.stack([log_square_integral(circuit, evidence) for circuit in (narrow, wide)])
    assert bool(expected.isfinite().all())
    assert expected.min() < -1e9
    found = log_square_integrals(Stack.of([narrow, wide]), evidence)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_circuits_of_different_structure_are_not_stacked():
    first, second = circuits("monotonic", count=2)
    other_graph = sub.Circuit(
        sub.linear_tree(5), FAMILIES, num_units=3, weights=sub.positive_weights, seed=0
    ).double()
    wider = sub.Circuit(
        GRAPH, FAMILIES, num_units=4, weights=sub.positive_weights, seed=0, dtype=torch.float64
    )
    assert structure(first) == structure(second)
    assert len({structure(c) for c in (first, other_graph, wider, circuits("complex")[0])}) == 4


@pytest.mark.parametrize("kind", ["monotonic", "real, two outputs"])
def test_a_mixture_is_the_same_with_and_without_stacks(kind, monkeypatch):
    density = sub.MonotonicCircuit if kind == "monotonic" else sub.SquaredCircuit
    mixture = sub.Mixture([density(circuit) for circuit in circuits(kind)], weights=[1, 2, 3])
    x = rows().x.clone()
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.4] = torch.nan
    together = mixture.log_prob(x), mixture.mean(x), mixture.variance(x)
    monkeypatch.setattr(member_groups, "MOST_NUMBERS", 0)
    alone = mixture.log_prob(x), mixture.mean(x), mixture.variance(x)
    for own, other in zip(together, alone, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)
