"""What a marginal costs, which way it takes, and that neither changes the answer."""

import math

import pytest
import torch
from oracles import all_states, naive_log_square
from registry import LAYERS, build, points
from torch.utils._python_dispatch import TorchDispatchMode

import subtractive as sub
from subtractive.circuits.circuit import Stack
from subtractive.circuits.evaluation import evaluate, leaves_of
from subtractive.inference import marginal as marginal_module
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import (
    BY_ROW,
    MISSING,
    OBSERVED,
    labels,
    log_square_integral,
    plain_leaf,
    square_leaves,
)
from subtractive.inference.outside import inside
from subtractive.numerics.messages import log_sum_of_squares
from subtractive.numerics.transforms import keep_freed_memory
from subtractive.regions.folding import ABOVE_ROOT

keep_freed_memory()  # once per process, and not part of what is measured below


class Largest(TorchDispatchMode):
    """Records the largest tensor that any operation returns in memory of its own."""

    def __init__(self):
        super().__init__()
        self.numel = 0
        self.shape = None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                numel = tensor.untyped_storage().nbytes() // tensor.element_size()
                if numel > self.numel:
                    self.numel, self.shape = numel, tuple(tensor.shape)
        return result


def balanced(leaves):
    half = len(leaves) // 2
    return leaves[0] if half == 0 else (balanced(leaves[:half]), balanced(leaves[half:]))


TREES = {
    "balanced": sub.RegionGraph.from_nested(balanced(list(range(32)))),
    "linear": sub.linear_tree(32),
    "random": sub.random_binary_tree(32, seed=3),
}
ROWS, UNITS = 512, 16


def wide(graph, *, weights=sub.real_weights, layer="hadamard", units=UNITS):
    circuit = sub.Circuit(
        graph,
        sub.Gaussian(),
        num_units=units,
        product=LAYERS[layer],
        weights=weights,
        seed=0,
        dtype=torch.float64,
    )
    return (
        sub.MonotonicCircuit(circuit)
        if weights is sub.positive_weights
        else sub.SquaredCircuit(circuit)
    )


def some_rows(n=ROWS, d=32):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


PATTERNS = {
    "first half": torch.arange(32) < 16,
    "second half": torch.arange(32) >= 16,
    "every other": torch.arange(32) % 2 == 0,
    "half at random": torch.randperm(32, generator=torch.Generator().manual_seed(1)) < 16,
    "one": torch.arange(32) == 5,
    "all but one": torch.arange(32) != 5,
}


@pytest.mark.parametrize("pattern", ["first half", "every other", "half at random", "all but one"])
@pytest.mark.parametrize("graph", TREES)
@torch.no_grad()
def test_a_partly_observed_table_never_needs_a_gram_per_row_and_variable(graph, pattern):
    p, x, observed = wide(TREES[graph]), some_rows(), PATTERNS[pattern]
    with Largest() as largest:
        p.log_marginal(x, observed)
    mixed = mixed_regions(p.circuit, observed)
    assert largest.numel <= ROWS * max(mixed * UNITS**2, 32 * UNITS), largest.shape
    assert largest.numel <= ROWS * 32 * UNITS**2 // 2, largest.shape


def mixed_regions(circuit, observed):
    """The most regions in one layer where observed and integrated variables meet."""
    counts = []
    for step in circuit.schedule.calls:
        flags = [
            {bool(observed[v]) for v in circuit.graph.regions[region].scope}
            for region in step.regions
        ]
        counts.append(sum(len(seen) == 2 for seen in flags))
    return max(counts)


@torch.no_grad()
def test_grams_per_row_exist_only_where_observed_and_integrated_variables_meet():
    p, x = wide(TREES["balanced"]), some_rows()
    with Largest() as largest:
        p.log_marginal(x, PATTERNS["first half"])
    assert largest.numel == ROWS * UNITS**2  # the root alone


@pytest.mark.parametrize("weights", [sub.real_weights, sub.positive_weights])
@torch.no_grad()
def test_complete_rows_and_additive_circuits_never_need_grams(weights):
    p, x = wide(TREES["random"], weights=weights), some_rows()
    limit = ROWS * 32 * UNITS
    with Largest() as largest:
        p.log_prob(x)
    assert largest.numel <= limit
    if weights is sub.positive_weights:
        x[torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5] = torch.nan
        with Largest() as largest:
            p.log_prob(x)
        assert largest.numel <= limit


@pytest.mark.parametrize("observed", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("graph", TREES)
def test_observed_regions_are_vectors_and_integrated_regions_have_one_row(graph, observed):
    circuit = wide(TREES[graph], units=2).circuit
    evidence = make_evidence(some_rows(7), observed, circuit.families, circuit.device)
    schedule = circuit.refold(labels(circuit, evidence))
    shapes = {
        region: message.shape[1:]
        for region, message in inside(circuit, schedule, evidence).messages.items()
        if circuit.graph.regions[region].partitions
    }
    for region, shape in shapes.items():
        units = (1 if region == circuit.graph.root else 2,)
        seen = {bool(observed[v]) for v in circuit.graph.regions[region].scope}
        expected = {(True,): (7, *units), (False,): (1, *units, *units)}
        assert tuple(shape) == expected.get(tuple(seen), (7, *units, *units))
    assert len(shapes) == 31


def test_labels_say_what_is_known_of_a_region():
    graph = sub.RegionGraph.from_nested((({0, 1}, 2), {3, 4}))
    circuit = sub.Circuit(graph, sub.MultivariateGaussian(), num_units=2)
    x = torch.zeros(2, 5)

    def label(observed):
        evidence = make_evidence(x, torch.tensor(observed), circuit.families, circuit.device)
        found = labels(circuit, evidence)
        scopes = {tuple(sorted(circuit.graph.regions[r].scope)): at for r, at in found.items()}
        return [scopes[scope] for scope in ((0, 1), (2,), (3, 4))]

    assert label([True, True, False, True, True]) == [OBSERVED, MISSING, OBSERVED]
    assert label([True, False, True, False, True]) == [(True, False), OBSERVED, (False, True)]
    assert label([[True] * 5, [True, True, False, True, True]]) == [OBSERVED, BY_ROW, OBSERVED]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("block", [2**14])
@pytest.mark.parametrize("masks", ["complete", "one", "per row"])
@torch.no_grad()
def test_blocks_bound_the_memory_and_change_nothing(layer, block, masks, monkeypatch):
    graph = sub.random_binary_tree(16, seed=0)
    p, x = wide(graph, layer=layer, units=6), some_rows(120, 16)
    if masks == "one":
        x[:, ::3] = torch.nan
    elif masks == "per row":
        x[torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5] = torch.nan
    whole = p.log_prob(x)
    monkeypatch.setattr(marginal_module, "_BLOCK", block)
    with Largest() as largest:
        blocks = p.log_prob(x)
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-11)
    one_row = 16 * 6**3  # a single row is not split
    assert largest.numel <= max(block, x.numel(), one_row), largest.shape


def test_gradients_pass_through_blocks(monkeypatch):
    p = sub.SquaredCircuit(build("binary", "gaussian"))
    x = points("gaussian", 9, 4)
    x[torch.rand(9, 4, generator=torch.Generator().manual_seed(0)) < 0.4] = torch.nan
    weights = torch.arange(9.0, dtype=torch.float64)
    whole = torch.autograd.grad(p.log_prob(x) @ weights, list(p.parameters()))
    monkeypatch.setattr(marginal_module, "_BLOCK", 1)
    pieces = torch.autograd.grad(p.log_prob(x) @ weights, list(p.parameters()))
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 40, 400])
@torch.no_grad()
def test_few_and_many_patterns_give_the_same_answers(n):
    """Rows by pattern, or all at once: 16 patterns among n rows take either way."""
    p = sub.SquaredCircuit(build("nested", "embedding", outputs=2))
    x = points("embedding", n, 4)
    x[torch.rand(n, 4, generator=torch.Generator().manual_seed(1)) < 0.5] = torch.nan
    together = p.log_prob(x)
    states = all_states([3] * 4)
    joint = p.log_prob(states).exp()
    for row, log_prob in zip(x[:40], together[:40], strict=True):
        fits = ((states == row) | row.isnan()).all(1)
        torch.testing.assert_close(log_prob.exp(), joint[fits].sum(), rtol=1e-10, atol=1e-14)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(p.log_prob(x[order]), together[order], rtol=0, atol=1e-11)


@torch.no_grad()
def test_rows_are_evaluated_once_per_pattern(monkeypatch):
    p = sub.SquaredCircuit(build("binary", "gaussian"))
    x = points("gaussian", 90, 4)
    x[:30, 0] = x[60:, 2:] = torch.nan
    evaluated = []

    def counted(schedule, layers, source):
        known = {call.label for call in schedule.leaves} - {ABOVE_ROOT}
        evaluated.append(sorted(map(str, known)))
        return evaluate(schedule, layers, source)

    monkeypatch.setattr(marginal_module, "evaluate", counted)
    log_square_integral(p.circuit, make_evidence(x, None, p.families, p.device))
    assert sorted(evaluated) == [[MISSING, OBSERVED], [MISSING, OBSERVED], [OBSERVED]]


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-8, 1e-10, 0.0])
@torch.no_grad()
def test_a_complete_row_keeps_its_digits_beside_incomplete_ones(distance):
    """N(0, 1) N(0, 1) − N(1, 1) N(1, 1) is zero along a line, and a gram's digits end near it."""
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
    circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, 1.0]] * 2))
    circuit.input_layers[0].log_scale.zero_()
    circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
    p = sub.SquaredCircuit(circuit)
    x = torch.tensor([[0.5, 0.5 + distance], [torch.nan, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(p.log_prob(x)[:1], p.log_prob(x[:1]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_a_gram_of_points_is_the_square_of_their_value(layer):
    p = sub.SquaredCircuit(build("linear", "gaussian", layer=layer, weights="complex"))
    x = points("gaussian", 5, 4)
    evidence = make_evidence(x, None, p.families, p.device)
    by_row = {region: BY_ROW for region in p.circuit.graph.input_regions}
    schedule, leaves = p.circuit.refold(by_row), square_leaves(Stack.of([p.circuit]), evidence)
    assert all(leaf.is_gram for leaf in leaves_of(schedule, leaves))
    result = log_sum_of_squares(evaluate(schedule, p.circuit.sum_layers, leaves))[0]
    torch.testing.assert_close(result, naive_log_square(p.circuit, x), rtol=0, atol=1e-10)


@torch.no_grad()
def test_complete_rows_take_the_short_way_with_complex_weights_too():
    p = sub.SquaredCircuit(build("linear", "gaussian", weights="complex"))
    x = points("gaussian", 5, 4)
    expected = naive_log_square(p.circuit, x) - p.log_partition()
    torch.testing.assert_close(p.log_prob(x), expected, rtol=0, atol=1e-10)


def test_leaves_of_unobserved_rows_never_see_their_placeholders():
    """Zero lies outside the splines' domain and must not matter where nothing is observed."""
    family = sub.Spline(4, domain=(1.0, 2.0), non_negative=True)
    circuit = sub.Circuit(
        sub.flat(2),
        family,
        num_units=2,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    x = torch.tensor([[1.5, torch.nan], [torch.nan, 1.25], [1.5, 1.25]], dtype=torch.float64)
    for p in (sub.SquaredCircuit(circuit), sub.MonotonicCircuit(circuit)):
        result = p.log_prob(x)
        assert result.isfinite().all()
        result.sum().backward()
        assert all(t.grad.isfinite().all() for t in p.parameters())
        p.zero_grad()


@torch.no_grad()
def test_impossible_entries_do_not_spoil_other_rows():
    circuit = sub.Circuit(
        sub.random_binary_tree(4), sub.Embedding(3), num_units=3, seed=0, dtype=torch.float64
    )
    circuit.input_layers[0].table[..., 2] = 0.0  # state 2 is impossible everywhere
    p = sub.SquaredCircuit(circuit)
    x = torch.tensor(
        [[0, 1, 0, 1], [0, 2, 0, 1], [torch.nan, 2, 0, torch.nan], [1, torch.nan, 0, 1]]
    )
    result = p.log_prob(x.double())
    assert result.isneginf().tolist() == [False, True, True, False]
    alone = torch.cat([p.log_prob(row[None].double()) for row in x])
    torch.testing.assert_close(result, alone, rtol=0, atol=1e-12)


def test_an_empty_table_costs_nothing():
    p = sub.SquaredCircuit(build("binary", "gaussian"))
    evidence = make_evidence(torch.zeros(0, 4), None, p.families, p.device)
    with Largest() as largest:
        assert log_square_integral(p.circuit, evidence).shape == (0,)
    assert largest.numel == 0
    assert math.prod(p.log_prob(torch.zeros(0, 4)).shape) == 0


def test_plain_leaves_are_vectors_whatever_is_observed():
    circuit = build("binary", "gaussian", weights="positive")
    x = points("gaussian", 5, 4)
    x[0, 0] = x[:, 1] = torch.nan
    evidence = make_evidence(x, None, circuit.families, circuit.device)
    for call in circuit.refold(labels(circuit, evidence)).leaves:
        leaf = plain_leaf(circuit.input_layers[call.layer], call, evidence)
        assert not leaf.is_gram
        assert leaf.shape[1] == (1 if call.label == MISSING else 5)
