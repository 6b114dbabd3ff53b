"""Laws that hold for every kind of circuit: graphs x families x layers x weights x outputs."""

import pytest
import torch
from oracles import naive_log_square
from registry import DISCRETE, KINDS, build, domain, points

import subtractive as sub
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import labels, square_leaf
from subtractive.inference.partition import log_plain_partition

every_kind = pytest.mark.parametrize(("graph", "family", "layer", "weights", "outputs"), KINDS)


@every_kind
def test_probabilities_sum_to_one(graph, family, layer, weights, outputs):
    d = 4 if family in DISCRETE else 3
    p = sub.SquaredCircuit(
        build(graph, family, layer=layer, weights=weights, outputs=outputs, d=d)
    )
    x, w = domain(family, d)
    total = (p.log_prob(x).exp() * w).sum()
    tolerance = 1e-10 if family in DISCRETE else 1e-6
    torch.testing.assert_close(total.item(), 1.0, rtol=0, atol=tolerance)


@every_kind
def test_fast_values_equal_naive_ones(graph, family, layer, weights, outputs):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs)
    x = points(family, 5, 4)
    fast = sub.SquaredCircuit(circuit).log_square(x)
    torch.testing.assert_close(fast, naive_log_square(circuit, x), rtol=1e-10, atol=1e-10)


@every_kind
def test_marginal_is_the_integral_of_the_joint(graph, family, layer, weights, outputs):
    p = sub.SquaredCircuit(
        build(graph, family, layer=layer, weights=weights, outputs=outputs, d=3)
    )
    x = points(family, 1, 3)
    nodes, w = domain(family, 2)
    for kept in range(3):
        others = [v for v in range(3) if v != kept]
        rows = x.repeat(len(nodes), 1)
        rows[:, others] = nodes
        joint = (p.log_prob(rows).exp() * w).sum()
        observed = torch.arange(3) == kept
        marginal = p.log_marginal(x, observed).exp()
        torch.testing.assert_close(marginal[0], joint, rtol=1e-6, atol=0)
    nodes, w = domain(family, 1)
    rows = x.repeat(len(nodes), 1)
    rows[:, 1] = nodes[:, 0]
    joint = (p.log_prob(rows).exp() * w).sum()
    observed = torch.tensor([True, False, True])
    torch.testing.assert_close(p.log_marginal(x, observed).exp()[0], joint, rtol=1e-6, atol=0)


@every_kind
def test_marginal_times_conditional_is_the_joint(graph, family, layer, weights, outputs):
    p = sub.SquaredCircuit(build(graph, family, layer=layer, weights=weights, outputs=outputs))
    x = points(family, 8, 4)
    given = torch.tensor([True, False, True, False])
    product = p.log_marginal(x, given) + p.log_conditional(x, ~given, given)
    torch.testing.assert_close(product, p.log_prob(x), rtol=0, atol=1e-8)
    conditioned = p.condition({v: x[0, v].item() for v in (0, 2)})
    torch.testing.assert_close(
        conditioned.log_prob(x[:1, [1, 3]]),
        p.log_conditional(x[:1], ~given, given),
        rtol=0,
        atol=1e-8,
    )
    torch.testing.assert_close(
        p.marginal([2, 0]).log_prob(x[:, [2, 0]]), p.log_marginal(x, given), rtol=0, atol=1e-8
    )


@every_kind
def test_materialised_square_is_the_square(graph, family, layer, weights, outputs):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs, num_units=3)
    x = points(family, 6, 4)
    squared = sub.square(circuit)
    plain = circuit(x).abs().square().sum(1)
    written_out = squared(x)[:, 0]
    torch.testing.assert_close(
        written_out.real if written_out.is_complex() else written_out, plain, rtol=1e-9, atol=0
    )
    fast = sub.SquaredCircuit(circuit).log_partition()
    torch.testing.assert_close(log_plain_partition(squared), fast, rtol=0, atol=1e-9)
    assert squared.num_outputs == 1


@every_kind
def test_scaled_climb_equals_signed_log_climb(graph, family, layer, weights, outputs):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs)
    x = points(family, 4, 4)
    for observed in ([True] * 4, [True, False, True, False], [False] * 4):
        evidence = make_evidence(x, torch.tensor(observed), circuit.families, circuit.device)
        route = circuit.route(labels(circuit, evidence))
        leaves = [square_leaf(circuit.input_layer(e.layer), e, evidence) for e in route.entries]
        scaled = circuit.climb(route, leaves, circuit.scaled)
        sign, log_abs = circuit.climb(route, leaves, circuit.signed_log)
        extra = (None,) * (scaled.mantissa.dim() - 2)
        torch.testing.assert_close(
            scaled.mantissa,
            sign * (log_abs - scaled.log_scale[(..., *extra)]).exp(),
            rtol=1e-10,
            atol=1e-10,
        )


@every_kind
def test_one_mask_per_row_equals_one_row_at_a_time(graph, family, layer, weights, outputs):
    p = sub.SquaredCircuit(build(graph, family, layer=layer, weights=weights, outputs=outputs))
    x = points(family, 12, 4)
    observed = torch.rand(12, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    together = p.log_marginal(x, observed)
    alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(12)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        p.log_prob(torch.where(observed, x, torch.nan)), alone, rtol=0, atol=1e-10
    )
