"""Messages that meet anywhere in a tree against the root, enumeration and fifty digits."""

import math

import pytest
import torch
from oracles import all_states, mp_log_partition, mp_log_square_integral
from registry import every_kind

import subtractive as sub
from subtractive.circuits.circuit import Stack
from subtractive.circuits.evaluation import ForwardPass, evaluate, leaves_of
from subtractive.inference.contraction_schedule import contraction_schedule, reroot
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import MISSING, OBSERVED, labels, square_leaves
from subtractive.numerics.messages import log_sum, log_sum_of_squares
from subtractive.regions.folding import CONTRACTION, fold, traverse

REAL = torch.float64
TREES = {
    "binary": sub.random_binary_tree(7, seed=1),
    "linear": sub.linear_tree(7),
    "nested": sub.RegionGraph.from_nested((((0, 1), (2, 3)), (4, (5, 6)))),
    "three children": sub.RegionGraph.from_nested(((0, 1, (2, 3)), 4, (5, 6))),
}
FAMILIES = {"gaussian": sub.Gaussian(), "embedding": sub.Embedding(2)}
WEIGHTS = {"real": sub.real_weights, "complex": sub.complex_weights}
PRECISION = {torch.float32: 1e-5, REAL: 1e-11}


def make(tree, family="gaussian", **options):
    settings = {
        "num_units": 4,
        "seed": 0,
        "dtype": REAL,
        "initialise": sub.init.normal(),
    } | options
    return sub.SquaredCircuit(sub.Circuit(TREES[tree], FAMILIES[family], **settings))


def rows(family="gaussian", count=6):
    generator = torch.Generator().manual_seed(2)
    if family == "embedding":
        return torch.randint(2, (count, 7), generator=generator).double()
    return torch.randn((count, 7), generator=generator, dtype=REAL)


def patterns():
    generator = torch.Generator().manual_seed(3)
    some = torch.rand(3, 7, generator=generator) < 0.5
    every = torch.arange(7)
    return [*some, every < 3, every >= 3, every % 2 == 0, every % 2 == 1, every == 2, every != 2]


def evidence_of(p, x, observed):
    return make_evidence(x, observed, p.families, p.device)


@torch.no_grad()
def at_root(p, x, observed):
    """log ∫|c|² with all messages sent to the root."""
    evidence = evidence_of(p, x, observed)
    schedule = p.circuit.refold(labels(p.circuit, evidence))
    root = evaluate(schedule, p.circuit.sum_layers, square_leaves(Stack.of([p.circuit]), evidence))
    return log_sum_of_squares(root)[0].expand(len(x))


@torch.no_grad()
def at_centre(p, x, observed, centre):
    """The same with all messages sent to one node."""
    evidence = evidence_of(p, x, observed)
    nodes = reroot(p.circuit.nodes(labels(p.circuit, evidence)), centre)
    schedule = fold(nodes, p.circuit.places)
    leaves = square_leaves(Stack.of([p.circuit]), evidence)
    return log_sum(evaluate(schedule, p.circuit.sum_layers, leaves))[0].expand(len(x))


def centres(p):
    """The nodes with a sum, at which messages can meet."""
    nodes = p.circuit.nodes(dict.fromkeys(p.circuit.graph.input_regions, OBSERVED))
    return [number for number, node in enumerate(nodes) if node.children]


KINDS = [
    (tree, family, weights, outputs, inputs)
    for tree in TREES
    for family in FAMILIES
    for weights in WEIGHTS
    for outputs in (1, 3)
    for inputs in (4, 2)
]


@every_kind(("tree", "family", "weights", "outputs", "inputs"), KINDS, together=1)
def test_all_centres_agree_with_the_root(tree, family, weights, outputs, inputs):
    settings = {"weights": WEIGHTS[weights], "num_outputs": outputs, "num_input_units": inputs}
    p = make(tree, family, **settings)
    x = rows(family)
    for observed in patterns():
        expected = at_root(p, x, observed)
        for centre in centres(p):
            found = at_centre(p, x, observed, centre)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        chosen = p.log_marginal(x, observed) + p.log_partition()
        torch.testing.assert_close(chosen, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("tree", TREES)
@torch.no_grad()
def test_marginals_are_sums_over_all_states(tree, weights):
    p = make(tree, "embedding", weights=WEIGHTS[weights], num_outputs=2)
    states = all_states([2] * 7)
    joint = p.log_prob(states).exp()
    x = rows("embedding", 3)
    for observed in patterns():
        found = p.log_marginal(x, observed).exp()
        for row, probability in zip(x, found, strict=True):
            fits = ((states == row) | ~observed).all(1)
            torch.testing.assert_close(probability, joint[fits].sum(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("tree", TREES)
@torch.no_grad()
def test_marginals_are_those_of_fifty_digits(tree):
    p, x = make(tree), rows(count=2)
    # Functions nearly alike: grams of low rank, and much that cancels.
    for layer in p.circuit.input_layers:
        for parameter in layer.parameters():
            parameter.copy_(parameter[..., :1] + 0.1 * (parameter - parameter[..., :1]))
    x[:, [1, 3, 4]] = math.nan
    value = p.log_prob(x)
    for number in range(2):
        exact = mp_log_square_integral(p.circuit, x[number].tolist()) - mp_log_partition(p.circuit)
        torch.testing.assert_close(value[number].item(), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("tree", TREES)
def test_evidence_far_out_agrees(tree, dtype):
    p, x = make(tree, dtype=dtype), rows(count=10).to(dtype)
    x[3], x[5], x[7] = 300.0, -40.0, 1e4
    for observed in patterns()[::2]:
        value = p.log_marginal(x, observed)
        assert value.isfinite().all()
        expected = at_root(p, x, observed) - p.log_partition()
        torch.testing.assert_close(value, expected, rtol=PRECISION[dtype], atol=PRECISION[dtype])


@pytest.mark.parametrize("tree", TREES)
def test_gradients_are_those_of_the_root(tree, monkeypatch):
    p, x, observed = make(tree, num_outputs=2), rows(), patterns()[0]
    value = p.log_marginal(x, observed)
    grads = torch.autograd.grad(value.sum(), list(p.parameters()))
    monkeypatch.setattr(
        "subtractive.inference.marginal.contraction_schedule", lambda _, schedule, **__: schedule
    )
    standard = p.log_marginal(x, observed)
    torch.testing.assert_close(value, standard, rtol=0, atol=1e-10)
    expected = torch.autograd.grad(standard.sum(), list(p.parameters()))
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("tree", TREES)
def test_rows_that_differ_in_what_is_missing_agree(tree):
    p, x = make(tree), rows(count=30)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(4)) < 0.3] = math.nan
    x[3] = math.nan  # nothing is observed
    x[4] = 0.5  # everything is
    value = p.log_prob(x)
    alone = torch.cat([at_root(p, row[None].nan_to_num(), ~row.isnan()) for row in x])
    torch.testing.assert_close(value, alone - p.log_partition(), rtol=0, atol=1e-10)
    assert abs(value[3]) < 1e-12


def schedule_for(p, observed):
    evidence = evidence_of(p, rows(), observed)
    schedule = p.circuit.refold(labels(p.circuit, evidence))
    return contraction_schedule(p.circuit, schedule, observed=OBSERVED, missing=MISSING)


@pytest.mark.parametrize("known", range(1, 7))
def test_a_linear_tree_of_which_one_end_is_observed_makes_no_gram_for_a_row(known):
    p = make("linear")
    for observed in (torch.arange(7) < known, torch.arange(7) >= known):
        schedule = schedule_for(p, observed)
        assert schedule.calls[-1].kind == CONTRACTION
        rule = ForwardPass(schedule, p.circuit.sum_layers)
        leaves = leaves_of(
            schedule, square_leaves(Stack.of([p.circuit]), evidence_of(p, rows(), observed))
        )
        shapes = []

        def recorded(number, children, rule=rule, shapes=shapes):
            message = rule(number, children)
            shapes.append(tuple(message.shape))
            return message

        traverse(schedule, rule.scale_leaves(leaves), recorded)
        assert not any(len(shape) == 4 and shape[1] > 1 for shape in shapes)


def test_nothing_is_sent_elsewhere_where_that_gains_nothing():
    nothing = torch.zeros(7, dtype=torch.bool)
    for p in (make("nested"), make("nested", num_outputs=2)):
        for observed in (nothing, ~nothing):
            assert schedule_for(p, observed).calls == p.circuit.schedule.calls
    p = make("nested", num_units=2, product=sub.KroneckerLayer)
    assert all(call.kind == "sum" for call in schedule_for(p, patterns()[0]).calls)
