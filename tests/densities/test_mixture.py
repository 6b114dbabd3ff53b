"""Mixtures of densities on different region graphs."""

import itertools

import numpy as np
import pytest
import torch
from oracles import all_states
from registry import GRAPHS, build, domain, points

import subtractive as sub


def mixture(family, d=3, **options):
    """Squared members on every graph and one additive member, with unequal weights."""
    members = [
        sub.SquaredCircuit(build(graph, family, d=d, seed=k, outputs=1 + k % 2, layer=layer))
        for k, (graph, layer) in enumerate(
            zip(GRAPHS, itertools.cycle(["hadamard", "kronecker"]), strict=False)
        )
    ]
    if family not in ("embedding", "spline"):
        members.append(sub.MonotonicCircuit(build("flat", family, d=d, weights="positive")))
    weights = [float(k) for k in range(1, len(members) + 1)]
    return sub.Mixture(members, **({"weights": weights} | options))


@pytest.mark.parametrize("family", ["categorical", "embedding", "binomial", "gaussian", "spline"])
@torch.no_grad()
def test_probabilities_sum_to_one_and_marginals_are_sums_of_the_joint(family):
    p = mixture(family, d=2)
    x, w = domain(family, 2)
    joint = (p.log_prob(x).exp() * w).reshape(2 * [round(len(w) ** 0.5)])
    torch.testing.assert_close(joint.sum().item(), 1.0, rtol=0, atol=1e-9)
    line, share = domain(family, 1)
    for kept in range(2):
        rows = torch.full((len(line), 2), torch.nan, dtype=torch.float64)
        rows[:, kept] = line[:, 0]
        marginal = p.log_prob(rows).exp() * share
        torch.testing.assert_close(marginal, joint.sum(1 - kept), rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(
            p.marginal([kept]).log_prob(line), p.log_prob(rows), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_the_density_is_the_weighted_sum_of_its_members(family):
    p = mixture(family)
    x = points(family, 6, 3)
    x[0, 1] = x[3, 0] = torch.nan
    weights = torch.arange(1.0, 1.0 + len(p.members), dtype=torch.float64)
    weights = weights / weights.sum()
    members = torch.stack([member.log_prob(x).exp() for member in p.members], -1)
    expected = (members @ weights).log()
    torch.testing.assert_close(p.log_prob(x), expected, rtol=0, atol=1e-12)
    assert p.log_partition() == 0


def test_members_weigh_the_same_unless_told():
    members = [sub.SquaredCircuit(build(graph, "categorical")) for graph in ("binary", "flat")]
    x = points("categorical", 5, 4)
    expected = torch.stack([m.log_prob(x).exp() for m in members]).mean(0).log()
    torch.testing.assert_close(sub.Mixture(members).log_prob(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "weights",
    [
        (1, 3),
        [0.1, 0.3],
        np.array([0.25, 0.75]),
        np.array([1, 3]),
        torch.tensor([2.0, 6.0]),
        torch.tensor([1e-300, 3e-300], dtype=torch.float64),
    ],
)
def test_weights_come_as_any_numbers_and_are_normalised_in_double_precision(weights):
    members = [sub.SquaredCircuit(build("flat", "gaussian", d=2, seed=k)) for k in range(2)]
    p = sub.Mixture(members, weights=weights)
    x = points("gaussian", 4, 2)
    low, high = (member.log_prob(x).exp() for member in members)
    torch.testing.assert_close(p.log_prob(x), (0.25 * low + 0.75 * high).log(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_conditionals_weigh_the_members_by_the_evidence(family):
    p = mixture(family)
    x = points(family, 1, 3)
    conditioned = p.condition({1: x[0, 1].item()})
    nodes, w = domain(family, 2)
    total = (conditioned.log_prob(nodes).exp() * w).sum().item()
    torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-8)
    given = torch.tensor([False, True, False])
    expected = p.log_prob(x) - p.log_marginal(x, given)
    torch.testing.assert_close(conditioned.log_prob(x[:, [0, 2]]), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(p.log_conditional(x, ~given, given), expected, rtol=0, atol=1e-10)


def test_one_mask_per_row_equals_one_row_at_a_time():
    p = mixture("embedding", d=4)
    x = points("embedding", 10, 4)
    observed = torch.rand(10, 4, generator=torch.Generator().manual_seed(2)) < 0.5
    alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(10)])
    torch.testing.assert_close(p.log_marginal(x, observed), alone, rtol=0, atol=1e-12)


def test_gradients_reach_every_member_and_the_weights():
    p = mixture("gaussian")
    x = points("gaussian", 5, 3)
    x[0, 2] = torch.nan
    p.log_prob(x).sum().backward()
    for name, parameter in p.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_gradients_are_exact():
    members = [
        sub.SquaredCircuit(build(graph, "gaussian", d=2, num_units=2))
        for graph in ("flat", "linear")
    ]
    p = sub.Mixture(members, weights=[0.2, 0.8]).double()
    x = points("gaussian", 3, 2).requires_grad_()
    p.forward = p.log_prob
    names, start = zip(*p.named_parameters(), strict=True)

    def log_prob(x, *tensors):
        return torch.func.functional_call(p, dict(zip(names, tensors, strict=True)), (x,))

    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(log_prob, [x, *start], fast_mode=True)


def test_a_member_of_weight_zero_counts_for_nothing():
    first, second = (
        sub.SquaredCircuit(build(graph, "embedding")) for graph in ("binary", "linear")
    )
    p = sub.Mixture([first, second], weights=[1.0, 0.0])
    x = points("embedding", 5, 4)
    torch.testing.assert_close(p.log_prob(x), first.log_prob(x), rtol=0, atol=1e-12)
    p.log_prob(x).sum().backward()
    assert all(t.grad.isfinite().all() for t in p.parameters())
    assert all((t.grad == 0).all() for t in second.parameters())
    assert p.log_prob(x).exp().sum().isfinite()


def test_one_member_is_the_member():
    member = sub.SquaredCircuit(build("flat", "binomial"))
    x = points("binomial", 5, 4)
    torch.testing.assert_close(
        sub.Mixture([member]).log_prob(x), member.log_prob(x), rtol=0, atol=1e-12
    )


def bounded(lower, upper):
    """A density that is exactly zero outside an interval of either variable."""
    circuit = sub.Circuit(
        sub.flat(2), sub.Spline(5, domain=(lower, upper)), num_units=2, seed=0, dtype=torch.float64
    )
    return sub.SquaredCircuit(circuit)


def test_rows_impossible_under_all_members_are_minus_infinity_with_finite_gradients():
    p = sub.Mixture([bounded(0.0, 1.0), bounded(2.0, 3.0)])
    x = torch.tensor([[0.5, 0.5], [2.5, 2.5], [0.5, 2.5], [9.0, 9.0]], dtype=torch.float64)
    x.requires_grad_()
    result = p.log_prob(x)
    assert result.isneginf().tolist() == [False, False, True, True]
    result.sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[2:] == 0).all()
    assert all(t.grad.isfinite().all() for t in p.parameters())


def test_rows_impossible_under_one_member_are_left_to_the_other():
    first, second = bounded(0.0, 1.0), bounded(2.0, 3.0)
    p = sub.Mixture([first, second], weights=[0.25, 0.75])
    x = torch.tensor([[0.5, 0.25], [2.5, 2.25]], dtype=torch.float64)
    expected = torch.stack([first.log_prob(x)[0], second.log_prob(x)[1]])
    expected = expected + torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    torch.testing.assert_close(p.log_prob(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [0.5, 2.5])
def test_evidence_impossible_under_one_member_leaves_the_other(value):
    members = [bounded(0.0, 1.0), bounded(2.0, 3.0)]
    conditioned = sub.Mixture(members).condition({0: value})
    x = torch.tensor([[0.3], [2.3]], dtype=torch.float64)
    alive = members[0 if value < 1 else 1].condition({0: value})
    torch.testing.assert_close(
        conditioned.log_prob(x).exp(), alive.log_prob(x).exp(), rtol=0, atol=1e-12
    )


def test_mixtures_of_mixtures_and_of_conditionals_are_densities():
    inner = mixture("categorical", d=2)
    outer = sub.Mixture(
        [
            inner,
            mixture("categorical").condition({0: 1}),
            mixture("categorical").marginal([2, 0]),
            sub.SquaredCircuit(build("flat", "embedding", d=2)),
        ],
        weights=[0.4, 0.3, 0.2, 0.1],
    )
    x = all_states([3, 3])
    log_prob = outer.log_prob(x)
    torch.testing.assert_close(log_prob.exp().sum().item(), 1.0, rtol=0, atol=1e-10)
    marginal = outer.marginal([1]).log_prob(all_states([3])).exp()
    expected = log_prob.exp().reshape(3, 3).sum(0)
    torch.testing.assert_close(marginal, expected, rtol=0, atol=1e-12)


def test_members_may_have_different_families_of_the_same_states():
    circuits = [build("flat", family, d=2) for family in ("categorical", "embedding", "binomial")]
    p = sub.Mixture([sub.SquaredCircuit(circuit) for circuit in circuits])
    total = p.log_prob(all_states([3, 3])).exp().sum().item()
    torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-10)
    continuous = sub.Mixture(
        [sub.SquaredCircuit(build("flat", family, d=1)) for family in ("gaussian", "rbf")]
    )
    x, w = domain("gaussian", 1)
    total = (continuous.log_prob(x).exp() * w).sum().item()
    torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-8)
