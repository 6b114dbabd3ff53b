"""Environments against their definition: the derivative of the root by the gram of a region."""

import itertools
import math

import pytest
import torch
from registry import GRAPHS, LAYERS, build, every_kind, points
from torch.utils.flop_counter import FlopCounterMode

import subtractive as sub
from subtractive.circuits.circuit import Stack
from subtractive.circuits.environment import Environment, below_hadamard, below_kronecker
from subtractive.circuits.evaluation import reference
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import labels, square_leaves
from subtractive.inference.outside import descend, inside
from subtractive.numerics.messages import LeafMessage, Scaled

ROWS, DOUBLE = 3, torch.float64


def random(*shape, dtype=DOUBLE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def gram_of(*shape, dtype=DOUBLE, seed=0):
    """Random positive semi-definite matrices (n, i, j)."""
    root = random(*shape, dtype=dtype, seed=seed)
    return root @ root.mH


def message(units):
    """Vectors (n, i) or grams (n, i, j) of one region, their scale being one."""
    return Scaled(units[None], torch.zeros(1, len(units), dtype=DOUBLE))


def level(form):
    return form / form.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]


def assert_same_up_to_scale(found, expected):
    torch.testing.assert_close(
        level(found), level(expected).expand_as(found), rtol=1e-9, atol=1e-12
    )


every_dtype = pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128])
ranks = pytest.mark.parametrize("rank", [1, 2, 4, 6])


def above_of(rank, units, dtype):
    """An environment of given rank above ``units`` units, and E itself."""
    weight = random(rank, units, dtype=dtype, seed=1)
    root = Environment.of_root(rank, dtype)
    return root.below_sum(weight), (weight.mT @ weight.conj())[None]


@every_dtype
@ranks
def test_below_a_root_and_its_sum_is_the_square_of_the_weights(rank, dtype):
    found, expected = above_of(rank, 4, dtype)
    assert_same_up_to_scale(found.matrix(), expected)


@every_dtype
@ranks
def test_a_sum_wraps_the_environment_in_its_weights(rank, dtype):
    above, form = above_of(rank, 4, dtype)
    weight = random(4, 5, dtype=dtype, seed=2)
    expected = weight.mT @ form @ weight.conj()
    assert_same_up_to_scale(above.below_sum(weight).matrix(), expected)


@every_dtype
@ranks
def test_hadamard_siblings_multiply_entry_by_entry(rank, dtype):
    above, form = above_of(rank, 4, dtype)
    first, second = (random(ROWS, 4, dtype=dtype, seed=s) for s in (3, 4))
    third, fourth = (gram_of(n, 4, 4, dtype=dtype, seed=s) for n, s in ((ROWS, 5), (1, 6)))
    outer = [v[:, :, None] * v[:, None, :].conj() for v in (first, second)]
    siblings = [message(units) for units in (first, second, third, fourth)]
    factors = [*outer, third, fourth]
    for some in itertools.chain.from_iterable(
        itertools.combinations(range(4), r) for r in range(1, 5)
    ):
        expected = form.expand(ROWS, -1, -1)
        for k in some:
            expected = expected * factors[k]
        found = below_hadamard(above, [siblings[k] for k in some]).matrix()
        assert_same_up_to_scale(found.expand(ROWS, -1, -1), expected)


@every_dtype
@ranks
@pytest.mark.parametrize("kinds", list(itertools.product("vg", repeat=2)), ids="".join)
@pytest.mark.parametrize("slot", [0, 1, 2])
def test_kronecker_siblings_are_contracted_in_their_order(slot, kinds, rank, dtype):
    widths = [2, 3, 2]
    above, form = above_of(rank, math.prod(widths), dtype)
    siblings, factors = [], []
    for k, kind in zip([k for k in range(3) if k != slot], kinds, strict=True):
        units = random(ROWS, widths[k], dtype=dtype, seed=7 + k)
        form_k = gram_of(ROWS, widths[k], widths[k], dtype=dtype, seed=7 + k)
        siblings.append(message(units if kind == "v" else form_k))
        factors.append(units[:, :, None] * units[:, None, :].conj() if kind == "v" else form_k)
    axes = ["ad", "be", "cf"]
    own = axes.pop(slot)
    terms = ",".join(f"n{axis}" for axis in axes)
    form = form.expand(ROWS, -1, -1).reshape(ROWS, *widths, *widths)
    expected = torch.einsum(f"nabcdef,{terms}->n{own}", form, *factors)
    found = below_kronecker(above, siblings, slot).matrix()
    assert_same_up_to_scale(found, expected)


def test_rank_stays_low_below_known_siblings_and_is_given_up_below_unknown_ones():
    above = Environment.of_root(2, DOUBLE).below_sum(random(2, 8))
    for seed in range(3):
        below = below_hadamard(above, [message(random(ROWS, 8, seed=seed))])
        above = below.below_sum(random(8, 8, seed=seed))
        assert above.left.shape == (ROWS, 2, 8)
        assert above.right.shape == (ROWS, 2, 8)
    assert below_hadamard(above, [message(gram_of(1, 8, 8))]).right is None
    assert above.matrix().shape == (ROWS, 8, 8)


def test_siblings_that_disagree_by_more_than_a_float_holds_leave_what_they_agree_on():
    above = Environment.of_root(1, DOUBLE).below_sum(torch.ones(1, 2))
    exponents = torch.tensor([[0.0, -2000.0]], dtype=DOUBLE)
    one, other = (LeafMessage(None, e[None]) for e in (exponents, exponents.flip(1)))
    found = below_hadamard(above, [one, other]).matrix()
    torch.testing.assert_close(found, torch.ones(1, 2, 2, dtype=DOUBLE), rtol=0, atol=0)
    both = [message.outer() for message in (one, other)]
    found = below_hadamard(above, both).matrix()
    torch.testing.assert_close(found, torch.ones(1, 2, 2, dtype=DOUBLE), rtol=0, atol=0)


@pytest.mark.parametrize("full", [False, True])
def test_a_unit_that_is_small_above_and_large_beside_is_not_lost(full):
    weight = torch.tensor([[1.0, 1e-250]], dtype=DOUBLE)
    above = Environment.of_root(1, DOUBLE).below_sum(weight)
    above = Environment(above.matrix(), None) if full else above
    found = below_hadamard(above, [message(torch.tensor([[0.0, 1.0]], dtype=DOUBLE))]).matrix()
    if not full:  # a full matrix has squared the small number away already
        expected = torch.tensor([[[0.0, 0.0], [0.0, 1.0]]], dtype=DOUBLE)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert found.isfinite().all()


PATTERNS = {
    "nothing known": [[False] * 4] * ROWS,
    "two known": [[True, False, False, True]] * ROWS,
    "other things in each row": [
        [True, False, False, True],
        [False] * 4,
        [True, True, True, False],
    ],
}
CASES = list(itertools.product(GRAPHS, LAYERS, ["real", "complex"], [1, 3], PATTERNS))


@every_kind(("graph", "layer", "weights", "outputs", "pattern"), CASES)
@torch.no_grad()
def test_environments_are_derivatives_of_the_root(graph, layer, weights, outputs, pattern):
    circuit = build(graph, "gaussian", layer=layer, weights=weights, outputs=outputs)
    observed = torch.tensor(PATTERNS[pattern])
    evidence = make_evidence(
        points("gaussian", ROWS, 4), observed, circuit.families, circuit.device
    )
    schedule = circuit.refold(labels(circuit, evidence))
    visited = []

    def look(region, environment):
        visited.append(region)
        expected = derivative(circuit, evidence, region)
        assert_same_up_to_scale(environment, expected)

    descend(inside(circuit, schedule, evidence), look)
    hidden = [not all(row[v] for row in PATTERNS[pattern]) for v in range(4)]
    scopes = [circuit.graph.regions[region].scope for region in visited]
    assert frozenset().union(*scopes) == {v for v in range(4) if hidden[v]}


@every_kind(("graph", "layer", "weights", "outputs", "pattern"), CASES)
@torch.no_grad()
def test_values_that_were_drawn_become_evidence(graph, layer, weights, outputs, pattern):
    circuit = build(graph, "gaussian", layer=layer, weights=weights, outputs=outputs)
    observed, x = torch.tensor(PATTERNS[pattern]), points("gaussian", ROWS, 4)
    evidence = make_evidence(x, observed, circuit.families, circuit.device)
    schedule = circuit.refold(labels(circuit, evidence))
    known = observed.clone()

    def draw(region, environment):
        now = make_evidence(x, known, circuit.families, circuit.device)
        assert_same_up_to_scale(environment, derivative(circuit, now, region))
        layer, place = circuit.input_of(region)
        scope = list(layer.scopes[place.start])
        known[:, scope] = True
        return layer.values(x, place)

    descend(inside(circuit, schedule, evidence), draw)
    assert known.all()


def derivative(circuit, evidence, region):
    """E_ij, (n, i, j): the trace of the root where the region's gram has a single entry, one."""
    marks = dict(labels(circuit, evidence)) | {region: "free"}
    schedule = circuit.refold(marks)
    units = circuit.input_of(region)[0].num_units
    single = torch.eye(units * units, dtype=DOUBLE).reshape(-1, units, units)
    entries = single.repeat(len(evidence), 1, 1)[None]  # (1, n·i·j, i, j)
    each = evidence.rows(torch.arange(len(evidence)).repeat_interleave(len(single)))
    squares = square_leaves(Stack.of([circuit]), each)

    def source(call, rows, dtype):
        return LeafMessage(entries, None) if call.label == "free" else squares(call, rows, dtype)

    # Not by fused layers: such a gram is not positive semi-definite.
    sign, log_abs = reference(schedule, circuit.sum_layers, source)
    trace = (sign * log_abs.exp())[0].diagonal(dim1=-2, dim2=-1).sum(-1)
    return trace.reshape(-1, units, units)


ORIENTATIONS = {
    "leaf first": sub.linear_tree(8),
    "leaf last": sub.RegionGraph.from_nested((((((((0, 1), 2), 3), 4), 5), 6), 7)),
}


@pytest.mark.parametrize("graph", ORIENTATIONS.values(), ids=ORIENTATIONS)
@torch.no_grad()
def test_on_a_linear_tree_matrix_products_grow_with_the_square_of_the_units(graph):
    """Of either orientation: a row must not pay K³ anywhere."""
    counts = []
    for units in (16, 32, 64):
        circuit = sub.Circuit(graph, sub.Embedding(2), num_units=units, seed=0, dtype=DOUBLE)
        p = sub.SquaredCircuit(circuit)
        with FlopCounterMode(display=False) as few:
            p.sample(1)
        with FlopCounterMode(display=False) as many:
            p.sample(101)
        counts.append((many.get_total_flops() - few.get_total_flops()) / 100)
    assert counts[1] <= 4.2 * counts[0]
    assert counts[2] <= 4.2 * counts[1]


@torch.no_grad()
def test_gradients_flow_through_environments():
    circuit = build("binary", "gaussian", outputs=2)
    p = sub.SquaredCircuit(circuit)
    with torch.enable_grad():
        (grad,) = torch.autograd.grad(p.mean()[1], [circuit.sum_layers[-1].weights.value])
    step = 1e-6 * random(*grad.shape)
    value = circuit.sum_layers[-1].weights.value
    before = value.clone()
    value.copy_(before + step)
    up = p.mean()[1]
    value.copy_(before - step)
    down = p.mean()[1]
    torch.testing.assert_close((up - down) / 2, (grad * step).sum(), rtol=1e-4, atol=1e-12)
