"""Laws that hold for every kind of circuit: graphs x families x layers x weights x outputs."""

import torch
from oracles import naive_log_square
from registry import DISCRETE, build, domain, points

import subtractive as sub
from subtractive.circuits.circuit import Stack
from subtractive.circuits.evaluation import evaluate, reference
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import labels, square_leaves
from subtractive.inference.partition import log_plain_partition


def square_of(kind, **options):
    """The square of a random circuit of a kind (graph, family, layer, weights, outputs)."""
    graph, family, layer, weights, outputs = kind
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs, **options)
    return sub.SquaredCircuit(circuit)


def probabilities_sum_to_one(kind):
    d = 4 if kind[1] in DISCRETE else 3
    x, w = domain(kind[1], d)
    total = (square_of(kind, d=d).log_prob(x).exp() * w).sum()
    tolerance = 1e-10 if kind[1] in DISCRETE else 1e-6
    torch.testing.assert_close(total.item(), 1.0, rtol=0, atol=tolerance)


def fast_values_equal_naive_ones(kind):
    p, x = square_of(kind), points(kind[1], 5, 4)
    expected = naive_log_square(p.circuit, x)
    torch.testing.assert_close(p.log_square(x), expected, rtol=1e-10, atol=1e-10)


def marginal_is_the_integral_of_the_joint(kind):
    p, x = square_of(kind, d=3), points(kind[1], 1, 3)
    for kept in ([0], [1], [2], [0, 2]):
        others = [v for v in range(3) if v not in kept]
        nodes, w = domain(kind[1], len(others))
        rows = x.repeat(len(nodes), 1)
        rows[:, others] = nodes
        joint = (p.log_prob(rows).exp() * w).sum()
        observed = torch.zeros(3, dtype=torch.bool)
        observed[kept] = True
        marginal = p.log_marginal(x, observed).exp()
        torch.testing.assert_close(marginal[0], joint, rtol=1e-6, atol=0)


def marginal_times_conditional_is_the_joint(kind):
    p, x = square_of(kind), points(kind[1], 8, 4)
    close = {"rtol": 0, "atol": 1e-8}
    given = torch.tensor([True, False, True, False])
    product = p.log_marginal(x, given) + p.log_conditional(x, ~given, given)
    torch.testing.assert_close(product, p.log_prob(x), **close)
    conditioned = p.condition({v: x[0, v].item() for v in (0, 2)})
    expected = p.log_conditional(x[:1], ~given, given)
    torch.testing.assert_close(conditioned.log_prob(x[:1, [1, 3]]), expected, **close)
    marginal = p.marginal([2, 0])
    torch.testing.assert_close(marginal.log_prob(x[:, [2, 0]]), p.log_marginal(x, given), **close)


def moments_are_those_of_the_density(kind):
    p = square_of(kind, d=3)
    x, w = domain(kind[1], 3)
    mass = p.log_prob(x).exp() * w
    mean = mass @ x
    covariance = (mass[:, None] * x).T @ x - torch.outer(mean, mean)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(p.mean(), mean, **close)
    torch.testing.assert_close(p.variance(), covariance.diagonal(), **close)
    torch.testing.assert_close(p.covariance(), covariance, **close)


def materialised_square_is_the_square(kind):
    p, x = square_of(kind), points(kind[1], 6, 4)
    squared = sub.materialise_square(p.circuit)
    plain = p.circuit(x).abs().square().sum(1)
    written_out = squared(x)[:, 0]
    written_out = written_out.real if written_out.is_complex() else written_out
    torch.testing.assert_close(written_out, plain, rtol=1e-9, atol=0)
    log_partition = log_plain_partition(squared)
    torch.testing.assert_close(log_partition, p.log_partition(), rtol=0, atol=1e-9)
    assert squared.num_outputs == 1


def fused_layers_equal_the_reference_path(kind):
    circuit, x = square_of(kind).circuit, points(kind[1], 4, 4)
    for observed in ([True] * 4, [True, False, True, False], [False] * 4):
        evidence = make_evidence(x, torch.tensor(observed), circuit.families, circuit.device)
        schedule = circuit.refold(labels(circuit, evidence))
        leaves = square_leaves(Stack.of([circuit]), evidence)
        fused = evaluate(schedule, circuit.sum_layers, leaves)
        sign, log_abs = reference(schedule, circuit.sum_layers, leaves)
        scale = fused.log_scale[(..., *(None,) * (log_abs.dim() - 2))]
        expected = sign * (log_abs - scale).exp()
        torch.testing.assert_close(fused.mantissa, expected, rtol=1e-10, atol=1e-10)


def one_mask_per_row_equals_one_row_at_a_time(kind):
    p, x = square_of(kind), points(kind[1], 6, 4)
    observed = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    together = p.log_marginal(x, observed)
    alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)
    with_gaps = p.log_prob(torch.where(observed, x, torch.nan))
    torch.testing.assert_close(with_gaps, alone, rtol=0, atol=1e-10)


LAWS = [
    probabilities_sum_to_one,
    fast_values_equal_naive_ones,
    marginal_is_the_integral_of_the_joint,
    marginal_times_conditional_is_the_joint,
    moments_are_those_of_the_density,
    materialised_square_is_the_square,
    fused_layers_equal_the_reference_path,
    one_mask_per_row_equals_one_row_at_a_time,
]
