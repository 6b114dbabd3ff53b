"""Marginals and conditionals as densities, nested in every way."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import all_states
from registry import NUM_STATES, build, domain, points

import subtractive as sub


def squared(graph, family, **options):
    return sub.SquaredCircuit(build(graph, family, **options))


def monotonic(graph, family, **options):
    return sub.MonotonicCircuit(build(graph, family, weights="positive", **options))


def mixed(graph, family, **options):
    return sub.Mixture([squared(graph, family, **options), squared("flat", family, **options)])


DENSITIES = {"squared": squared, "monotonic": monotonic, "mixture": mixed}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


def table(p, d):
    """All probabilities as an array with one axis per variable."""
    states = all_states([NUM_STATES] * d)
    return p.log_prob(states).exp().detach().reshape([NUM_STATES] * d)


@every_density
@pytest.mark.parametrize("graph", ["binary", "nested"])
@torch.no_grad()
def test_every_marginal_in_every_order_is_a_sum_of_the_joint(make, graph):
    p = make(graph, "categorical", outputs=2)
    joint = table(p, 4)
    for size in (1, 2, 3, 4):
        for keep in itertools.permutations(range(4), size):
            if size > 2 and keep[0] > keep[1]:
                continue
            others = [v for v in range(4) if v not in keep]
            expected = joint.sum(others) if others else joint
            order = sorted(keep)
            expected = expected.permute([order.index(v) for v in keep])
            torch.testing.assert_close(table(p.marginal(keep), size), expected, rtol=0, atol=1e-12)


@every_density
@pytest.mark.parametrize("given", [{0: 1}, {3: 0, 1: 2}, {2: 1, 0: 0, 3: 2}])
def test_every_conditional_is_a_slice_of_the_joint(make, given):
    p = make("binary", "binomial")
    joint = table(p, 4)
    at = tuple(given.get(v, slice(None)) for v in range(4))
    expected = joint[at] / joint[at].sum()
    conditioned = p.condition(given)
    assert conditioned.num_variables == 4 - len(given)
    torch.testing.assert_close(table(conditioned, 4 - len(given)), expected, rtol=0, atol=1e-12)


@every_density
def test_restrictions_nest(make):
    p = make("linear", "categorical", d=5)
    joint = table(p, 5)
    # p(x_4, x_0, x_3, x_1), then x_0 = 2 leaves (x_4, x_3, x_1), then (x_1, x_4), then x_1 = 0
    nested = p.marginal([4, 0, 3, 1])
    expected = joint.sum(2).permute(3, 0, 2, 1)
    torch.testing.assert_close(table(nested, 4), expected, rtol=0, atol=1e-12)
    nested, expected = nested.condition({1: 2}), expected[:, 2] / expected[:, 2].sum()
    torch.testing.assert_close(table(nested, 3), expected, rtol=0, atol=1e-12)
    nested, expected = nested.marginal([2, 0]), expected.sum(1).T
    torch.testing.assert_close(table(nested, 2), expected, rtol=0, atol=1e-12)
    nested, expected = nested.condition({0: 0}), expected[0] / expected[0].sum()
    torch.testing.assert_close(table(nested, 1), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(nested.marginal([0]).log_partition(), nested.log_partition())


@every_density
def test_conditioning_twice_is_conditioning_once(make):
    p = make("nested", "gaussian")
    x = points("gaussian", 5, 2)
    once = p.condition({0: 0.3, 2: -0.4}).log_prob(x)
    twice = p.condition({2: -0.4}).condition({0: 0.3}).log_prob(x)
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-11)


def test_conditionals_of_continuous_variables_integrate_to_one():
    for family in ("gaussian", "rbf", "spline"):
        p = squared("linear", family, d=4, outputs=2, weights="complex")
        nodes, w = domain(family, 2)
        conditioned = p.condition({1: 0.25, 3: -0.5})
        total = (conditioned.log_prob(nodes).exp() * w).sum().item()
        torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-6)
        line, share = domain(family, 1)
        total = (conditioned.marginal([1]).log_prob(line).exp() * share).sum().item()
        torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-6)


@every_density
def test_restrictions_answer_every_query(make):
    p = make("binary", "categorical", d=5)
    q = p.condition({2: 1}).marginal([3, 0, 1])  # variables 4, 0 and 1 of p
    joint = table(q, 3)
    x = all_states([NUM_STATES] * 3)
    observed = torch.tensor([True, False, True])
    marginal = q.log_marginal(x, observed).exp().reshape(3, 3, 3)
    torch.testing.assert_close(
        marginal, joint.sum(1, keepdim=True).expand(3, 3, 3), rtol=0, atol=1e-12
    )
    rows = torch.where(observed, x, torch.nan)
    torch.testing.assert_close(q.log_prob(rows), q.log_marginal(x, observed), rtol=0, atol=1e-12)
    conditional = q.log_conditional(x, ~observed, observed).exp().reshape(3, 3, 3)
    torch.testing.assert_close(conditional, joint / joint.sum(1, keepdim=True), rtol=0, atol=1e-12)
    per_row = torch.rand(27, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    alone = torch.cat([q.log_marginal(x[k : k + 1], per_row[k]) for k in range(0, 27, 4)])
    torch.testing.assert_close(q.log_marginal(x, per_row)[::4], alone, rtol=0, atol=1e-12)


def test_keeping_everything_is_the_density_with_its_columns_permuted():
    p = squared("binary", "embedding")
    x = points("embedding", 6, 4)
    order = [2, 0, 3, 1]
    torch.testing.assert_close(
        p.marginal(order).log_prob(x[:, order]), p.log_prob(x), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(p.condition({}).log_prob(x), p.log_prob(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "variables", [(1, 0), np.array([1, 0]), torch.tensor([1, 0]), range(1, -1, -1)]
)
def test_variables_come_as_any_whole_numbers(variables):
    p = squared("flat", "categorical")
    x = points("categorical", 3, 2)
    expected = p.marginal([1, 0]).log_prob(x)
    torch.testing.assert_close(p.marginal(variables).log_prob(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "given", [{np.int64(1): np.float32(2)}, {1: torch.tensor(2)}, {1: True + 1}]
)
def test_given_values_come_as_any_numbers(given):
    p = squared("flat", "categorical")
    x = points("categorical", 3, 3)
    expected = p.condition({1: 2}).log_prob(x)
    torch.testing.assert_close(p.condition(given).log_prob(x), expected, rtol=0, atol=0)


@every_density
def test_parameters_are_shared_and_gradients_reach_them(make):
    p = make("binary", "gaussian")
    q = p.condition({1: 0.4}).marginal([2, 0])
    assert {id(t) for t in q.parameters()} == {id(t) for t in p.parameters()}
    x = points("gaussian", 4, 2).requires_grad_()
    q.log_prob(x).sum().backward()
    assert all(t.grad.isfinite().all() and t.grad.abs().sum() > 0 for t in p.parameters())
    assert (x.grad != 0).all()
    before = q.log_prob(x)
    with torch.no_grad():
        for t in p.parameters():
            t.add_(0.01)
    assert (q.log_prob(x) != before).all()


def test_gradients_are_exact():
    p = squared("nested", "gaussian", d=3, num_units=2, outputs=2)
    q = p.marginal([2, 0]).condition({1: 0.2})
    q.forward = q.log_prob
    names, start = zip(*q.named_parameters(), strict=True)

    def log_prob(x, *tensors):
        return torch.func.functional_call(q, dict(zip(names, tensors, strict=True)), (x,))

    x = points("gaussian", 3, 1).requires_grad_()
    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(log_prob, [x, *start], fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_of_low_precision_do_not_round_the_given_values(dtype):
    p = squared("flat", "gaussian", d=2)
    with torch.no_grad():
        p.circuit.input_layers[0].log_scale.sub_(8.0)
    q = p.condition({0: p.circuit.input_layers[0].mean[0, 1].item()})
    x = torch.tensor([[0.5], [1.25]], dtype=dtype)
    torch.testing.assert_close(q.log_prob(x), q.log_prob(x.double()), rtol=0, atol=1e-12)


def two_intervals():
    """A density on two copies of the unit square, far apart, exactly zero elsewhere."""
    members = [
        sub.SquaredCircuit(
            sub.Circuit(
                sub.flat(2), sub.Spline(4, domain=domain), num_units=2, seed=0, dtype=torch.float64
            )
        )
        for domain in ((0.0, 1.0), (5.0, 6.0))
    ]
    return sub.Mixture(members)


def test_impossible_evidence_is_refused_and_nearly_impossible_evidence_is_not():
    p = two_intervals()
    with pytest.raises(ValueError, match="probability zero in rows .*nothing can be conditioned"):
        p.condition({0: 3.0})
    with pytest.raises(ValueError, match="needs at least one variable left free"):
        p.condition({0: 0.5}).condition({0: 0.5})
    assert p.condition({0: 0.5}).log_prob([[5.5]]).item() == -math.inf
    gaussian = squared("linear", "gaussian").condition({1: 1e4})
    x = points("gaussian", 3, 3)
    assert gaussian.log_partition() < -1e7
    assert gaussian.log_prob(x).isfinite().all()


def test_evidence_may_be_impossible_only_together():
    graph = sub.flat(3)
    three = sub.Mixture(
        [
            sub.SquaredCircuit(
                sub.Circuit(
                    graph, sub.Spline(4, domain=d), num_units=2, seed=0, dtype=torch.float64
                )
            )
            for d in ((0.0, 1.0), (5.0, 6.0))
        ]
    )
    assert three.condition({0: 0.5}).num_variables == 2
    assert three.condition({1: 5.5}).num_variables == 2
    with pytest.raises(ValueError, match="probability zero"):
        three.condition({0: 0.5, 1: 5.5})
    with pytest.raises(ValueError, match="probability zero"):
        three.condition({0: 0.5}).condition({0: 5.5})


def test_rows_of_impossible_evidence_are_named():
    p = two_intervals()
    x = torch.tensor([[0.5, 0.5], [3.0, 0.5], [5.5, 5.5], [9.0, 0.5]], dtype=torch.float64)
    given = torch.tensor([True, False])
    with pytest.raises(ValueError, match=r"probability zero in rows \[1, 3\]"):
        p.log_conditional(x, ~given, given)
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3, 4\] and 3 more"):
        p.log_conditional(torch.full((8, 2), 3.0), ~given, given)
    assert p.log_conditional(x[[0]], given, ~given).isfinite().all()


def test_a_query_that_the_evidence_excludes_has_probability_zero():
    p = two_intervals()
    x = torch.tensor([[0.5, 5.5]], dtype=torch.float64)
    given = torch.tensor([True, False])
    assert p.log_conditional(x, ~given, given).item() == -math.inf
