"""Flat members of a mixture evaluated together say what they say one by one."""

import pytest
import torch

import subtractive as sub
from subtractive.densities.flat_members import flat_members
from subtractive.inference.evidence import make_evidence
from subtractive.inputs.test_functions import CumulativeAt, Moments

ONE_REGION = sub.flat([[2, 0, 1]])


def member(seed, *, family=None, kind="squared", graph=ONE_REGION, dtype=torch.float64, units=4):
    weights = sub.real_weights if kind == "squared" else sub.positive_weights
    circuit = sub.Circuit(
        graph,
        family or sub.MultivariateGaussian(norm=2),
        num_units=units,
        num_outputs=2 if kind == "squared" else 1,
        weights=weights,
        seed=seed,
        dtype=dtype,
    )
    return sub.SquaredCircuit(circuit) if kind == "squared" else sub.MonotonicCircuit(circuit)


def rows(count=7):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, generator=generator, dtype=torch.float64)


FAMILIES = [sub.MultivariateGaussian(norm=2), sub.SemiTiedGaussian(norm=2)]


@pytest.mark.parametrize("family", FAMILIES, ids=["multivariate", "tied"])
@pytest.mark.parametrize("kind", ["squared", "monotonic"])
def test_values_and_gradients_are_those_of_the_members(family, kind):
    members = [member(seed, family=family, kind=kind) for seed in range(3)]
    mixture, x = sub.Mixture(members, weights=[1, 2, 3]), rows()
    assert flat_members(members) is not None
    expected = (
        torch.stack([p.log_prob(x) for p in members]) + mixture.logits.log_softmax(0)[:, None]
    )
    expected = expected.logsumexp(0)
    torch.testing.assert_close(mixture.log_prob(x), expected, rtol=1e-12, atol=1e-12)
    parameters = list(mixture.parameters())
    grads = torch.autograd.grad(mixture.log_prob(x).sum(), parameters)
    for grad, wanted in zip(grads, torch.autograd.grad(expected.sum(), parameters), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-9, atol=1e-11)


def test_many_rows_in_blocks(monkeypatch):
    mixture, x = sub.Mixture([member(0), member(1)]), rows(50)
    whole = mixture.log_prob(x)
    monkeypatch.setattr("subtractive.densities.flat_members.BLOCK", 300)
    torch.testing.assert_close(mixture.log_prob(x), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=["multivariate", "tied"])
@pytest.mark.parametrize("kind", ["squared", "monotonic"])
@torch.no_grad()
def test_gaps_and_no_rows(family, kind, monkeypatch):
    members = [member(seed, family=family, kind=kind) for seed in range(2)]
    mixture, x = sub.Mixture(members), rows()
    x[2, 1] = x[4, 0] = x[5, 0] = x[6] = torch.nan
    expected = torch.stack([p.log_prob(x) for p in members]).exp().mean(0).log()
    torch.testing.assert_close(mixture.log_prob(x), expected, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr("subtractive.densities.flat_members.BLOCK", 100)
    torch.testing.assert_close(mixture.log_prob(x), expected, rtol=1e-10, atol=1e-10)
    assert mixture.log_prob(x[:0]).shape == (0,)


@torch.no_grad()
def test_boxes_are_asked_of_each_member():
    graph, x = sub.flat([[0]]), torch.tensor([-0.3, 0.8], dtype=torch.float64)
    mixture = sub.Mixture([member(seed, graph=graph) for seed in range(2)])
    below = mixture.cdf(0, x)
    inside = mixture.probability({0: (-0.3, 0.8)})
    torch.testing.assert_close(inside, below[1] - below[0], rtol=1e-9, atol=1e-12)


def test_rows_so_far_that_single_precision_underflows():
    members = [member(seed, dtype=torch.float32) for seed in range(2)]
    x = torch.tensor([[1e3, -2e3, 5e2], [0.0, 0.0, 0.0]])
    expected = torch.stack([p.log_prob(x) for p in members]).logsumexp(0) - torch.tensor(2.0).log()
    found = sub.Mixture(members).log_prob(x)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "others",
    [
        {"family": sub.MultivariateGaussian()},
        {"kind": "monotonic"},
        {"units": 5},
        {"graph": sub.flat([[0, 1], [2]])},
        {"dtype": torch.float32},
    ],
    ids=["family", "kind", "units", "regions", "dtype"],
)
@torch.no_grad()
def test_members_that_differ_are_asked_one_by_one(others):
    members, x = [member(0), member(1, **others)], rows()
    assert flat_members(members) is None
    expected = torch.stack([p.log_prob(x) for p in members]).exp().mean(0).log()
    torch.testing.assert_close(sub.Mixture(members).log_prob(x), expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_states_are_not_asked_together():
    graph = sub.flat(1)
    members = [
        sub.SquaredCircuit(sub.Circuit(graph, sub.Categorical(4), num_units=2, seed=seed))
        for seed in range(2)
    ]
    assert flat_members(members) is None
    table = sub.Mixture(members).pdf(0, torch.arange(4))
    torch.testing.assert_close(sub.Mixture(members).probability({0: {1, 3}}), table[[1, 3]].sum())


def test_members_that_cancel_are_refused_as_ever():
    bad = member(1)
    with torch.no_grad():
        bad.circuit.sum_layers[-1].weights.value.zero_()
    with pytest.raises(sub.CancellationError):
        sub.Mixture([member(0), bad]).log_prob(rows())


@pytest.mark.parametrize("family", FAMILIES, ids=["multivariate", "tied"])
@torch.no_grad()
def test_expectations_given_gaps_are_those_of_the_members(family, monkeypatch):
    members = [member(seed, family=family) for seed in range(3)]
    mixture, x = sub.Mixture(members, weights=[1, 2, 3]), rows(12)
    x[torch.arange(12) % 4 == 0, 0] = torch.nan
    x[torch.arange(12) % 3 == 0, 1:] = torch.nan
    evidence = make_evidence(x, None, mixture.families, mixture.device)
    functions = [Moments(), CumulativeAt(torch.tensor([-0.5, 1.0]).double()), None]
    assert mixture._quick_expectations(evidence, functions) is not None
    monkeypatch.setattr("subtractive.densities.flat_expectations.BLOCK", 100)
    log_weight, found = mixture.weigh_and_expect(evidence, functions)
    monkeypatch.setattr(sub.Mixture, "_quick_expectations", lambda *_: None)
    expected_weight, expected = mixture.weigh_and_expect(evidence, functions)
    torch.testing.assert_close(log_weight, expected_weight, rtol=1e-11, atol=1e-11)
    assert found[2] is None
    for answer, wanted in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(answer, wanted, rtol=1e-9, atol=1e-11, equal_nan=True)


@torch.no_grad()
def test_narrow_gaussians_are_asked_one_by_one():
    members = [member(seed) for seed in range(2)]
    mixture, x = sub.Mixture(members), rows(3)
    x[0, 1] = torch.nan
    for one in members:
        one.circuit.input_layers[0].get_tensor("log_diagonal").fill_(-12.0)
    evidence = make_evidence(x, None, mixture.families, mixture.device)
    assert mixture._quick_expectations(evidence, [Moments()] * 3) is None
