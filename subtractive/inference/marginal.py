"""Integrals of c and of |c|² given evidence: one forward pass with other leaves (paper: Prop. 1).

Regions that are observed throughout stay vectors, regions without evidence are integrated once
for all rows, and an n x K x K message exists only where both meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit, Stack, values_at
from subtractive.circuits.evaluation import LeafSource, evaluate
from subtractive.inference.contraction_schedule import contraction_schedule
from subtractive.inference.evidence import Evidence, rows_by_pattern
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_operations import choose
from subtractive.numerics.messages import LeafMessage, Scaled, log_sum, log_sum_of_squares
from subtractive.numerics.transforms import listed
from subtractive.regions.folding import ABOVE_ROOT, CONTRACTION, FoldedSchedule, LeafCall

# How many numbers the messages of one block of rows may hold, which bounds the memory of a query.
_BLOCK = 2**24

OBSERVED, MISSING, BY_ROW = "observed", "missing", "by row"


def log_square_integral(circuit: Circuit, evidence: Evidence) -> Tensor:
    """log Σ_s ∫|c_s(x)|² over what is not observed, (n,)."""
    return log_square_integrals(Stack.of([circuit]), evidence)[0]


def log_integral(circuit: Circuit, evidence: Evidence) -> Tensor:
    """log Σ_s ∫c_s(x) over what is not observed, (n,), for a circuit that is never negative."""
    return log_integrals(Stack.of([circuit]), evidence)[0]


def log_square_integrals(stack: Stack, evidence: Evidence) -> Tensor:
    """log Σ_s ∫|c_s(x)|² over what is not observed, of each circuit of a stack, (m, n)."""
    if _is_one_block(stack, evidence):
        return log_sum_of_squares(_of_complete_rows(stack, evidence))

    def log_roots(rows: Evidence, schedule: FoldedSchedule) -> Tensor:
        schedule = contraction_schedule(
            stack.circuit, schedule, observed=OBSERVED, missing=MISSING
        )
        leaves = square_leaves(stack, rows)
        root = evaluate(schedule.repeated(stack.size), stack.sum_layers, leaves)
        is_contracted = schedule.calls[-1].kind is CONTRACTION
        return (log_sum if is_contracted else log_sum_of_squares)(root)

    return _by_blocks(stack, evidence, square_leaf, log_roots)


def log_integrals(stack: Stack, evidence: Evidence) -> Tensor:
    """log Σ_s ∫c_s(x) over what is not observed, of each circuit of a stack, (m, n)."""
    if _is_one_block(stack, evidence):
        return log_sum(_of_complete_rows(stack, evidence))

    def log_roots(rows: Evidence, schedule: FoldedSchedule) -> Tensor:
        leaves = plain_leaves(stack, rows)
        return log_sum(evaluate(schedule.repeated(stack.size), stack.sum_layers, leaves))

    return _by_blocks(stack, evidence, plain_leaf, log_roots)


def _of_complete_rows(stack: Stack, evidence: Evidence) -> Scaled:
    """The roots at rows of which everything is observed."""
    schedule = stack.circuit.schedule.repeated(stack.size)
    return evaluate(schedule, stack.sum_layers, values_at(stack.input_layers, evidence.x))


Leaf = Callable[[InputLayer, LeafCall, Evidence, torch.dtype | None], LeafMessage]


def square_leaf(
    layer: InputLayer, call: LeafCall, evidence: Evidence, dtype: torch.dtype | None = None
) -> LeafMessage:
    """The message of some input regions for |c|²: f(x) where observed, ∫ f fᵀ where not."""
    if call.label == OBSERVED:
        return layer.values(evidence.x, call.folds, dtype)
    window = evidence.window(layer.variables[call.folds])  # refuses boxes without a closed form
    if isinstance(call.label, tuple):
        return layer.partial_gram(evidence.x, call.label, call.folds)
    gram = layer.gram(call.folds, window)
    if call.label == MISSING:
        return gram
    values = layer.values(evidence.x, call.folds, dtype)
    return choose(_observed(layer, call, evidence), values.outer(), gram)


def plain_leaf(
    layer: InputLayer, call: LeafCall, evidence: Evidence, dtype: torch.dtype | None = None
) -> LeafMessage:
    """The message of some input regions for c: f(x) where observed, ∫ f where not."""
    if call.label == OBSERVED:
        return layer.values(evidence.x, call.folds, dtype)
    window = evidence.window(layer.variables[call.folds])
    if isinstance(call.label, tuple):
        return layer.partial_integral(evidence.x, call.label, call.folds, dtype)
    integral = layer.integral(call.folds, window, dtype)
    if call.label == MISSING:
        return integral
    values = layer.values(evidence.x, call.folds, dtype)
    return choose(_observed(layer, call, evidence), values, integral)


def _observed(layer: InputLayer, call: LeafCall, evidence: Evidence) -> Tensor:
    """Which rows of regions of one variable are observed, (f, n)."""
    return evidence.observed[:, layer.variables[call.folds][:, 0]].T


def square_leaves(stack: Stack, evidence: Evidence) -> LeafSource:
    """The leaves of |c|² given evidence."""
    return _leaves(stack, evidence, square_leaf)


def plain_leaves(stack: Stack, evidence: Evidence) -> LeafSource:
    """The leaves of c given evidence."""
    return _leaves(stack, evidence, plain_leaf)


def _leaves(stack: Stack, evidence: Evidence, leaf: Leaf) -> LeafSource:
    def source(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        if call.label == ABOVE_ROOT:
            return _above_root(stack)
        some = evidence if rows is None else evidence.rows(rows)
        return leaf(stack.input_layers[call.layer], call, some, dtype)

    return source


def _above_root(stack: Stack) -> LeafMessage:
    """Σ_s |c_s|² as a form of the outputs: their identity; of a single one, a vector of one."""
    count, outputs = stack.size, stack.circuit.num_outputs
    weight = stack.sum_layers[-1].weights()
    if outputs == 1:
        return LeafMessage(weight.new_ones(count, 1, 1), None)
    eye = torch.eye(outputs, dtype=torch.float64, device=weight.device)
    return LeafMessage(eye.expand(count, 1, -1, -1), None)


def labels(circuit: Circuit, evidence: Evidence) -> dict[int, Hashable]:
    """What is known of each input region in all rows."""
    every, some = listed(evidence.observed.all(0)), listed(evidence.observed.any(0))
    if all(every):
        return dict.fromkeys(circuit.graph.input_regions, OBSERVED)
    result: dict[int, Hashable] = {}
    for region in circuit.graph.input_regions:
        scope = sorted(circuit.graph.regions[region].scope)
        if all(every[variable] for variable in scope):
            result[region] = OBSERVED
        elif not any(some[variable] for variable in scope):
            result[region] = MISSING
        elif len(scope) == 1:
            result[region] = BY_ROW
        else:
            result[region] = tuple(every[variable] for variable in scope)
    return result


def _by_blocks(
    stack: Stack,
    evidence: Evidence,
    leaf: Leaf,
    log_roots: Callable[[Evidence, FoldedSchedule], Tensor],
) -> Tensor:
    if len(evidence) == 0:
        return torch.zeros(stack.size, 0, dtype=torch.float64, device=stack.circuit.device)
    results, order = [], []
    for rows, schedule in blocks(stack.circuit, evidence, leaf, copies=stack.size):
        results.append(log_roots(_block(evidence, rows), schedule).expand(-1, len(rows)))
        order.append(rows)
    if len(results) == 1:
        return results[0]
    back = torch.empty(len(evidence), dtype=torch.long)
    back[torch.cat(order)] = torch.arange(len(evidence))
    return torch.cat(results, 1)[:, back]


def _is_one_block(stack: Stack, evidence: Evidence) -> bool:
    """Whether all rows are complete and few enough to be evaluated together."""
    numbers = len(evidence) * stack.size * row_width(stack.circuit)
    return 0 < numbers <= _BLOCK and evidence.is_complete


def row_width(circuit: Circuit) -> int:
    """How many numbers the messages of one complete row hold, and their products."""
    inputs = sum(len(layer.scopes) * layer.num_units for layer in circuit.input_layers)
    return inputs + sum(f * (o + i) for f, o, i in circuit.weight_shapes)


def _block(evidence: Evidence, rows: Tensor) -> Evidence:
    """The evidence of some rows; a block of all rows keeps their order, and copies nothing."""
    return evidence if len(rows) == len(evidence) else evidence.rows(rows)


def blocks(
    circuit: Circuit,
    evidence: Evidence,
    leaf: Leaf,
    *,
    more_per_row: int = 0,
    copies: int = 1,
    few_rows: int = 4,
) -> Iterator[tuple[Tensor, FoldedSchedule]]:
    """Rows to evaluate together and their schedule, few enough to bound the memory.

    A stack holds ``copies`` of all messages. Where patterns have fewer than ``few_rows`` rows on
    average, they are not told apart.
    """
    if len(evidence) == 0:
        return
    for rows in _same_pattern(circuit, evidence, leaf, few_rows):
        schedule = circuit.refold(labels(circuit, _block(evidence, rows)))
        per_row = copies * _numbers_per_row(circuit, schedule, evidence) + more_per_row
        # Where nothing is differentiated, most messages are gone before the last is there.
        numbers = _BLOCK if torch.is_grad_enabled() else 2 * _BLOCK
        for piece in rows.split(max(1, numbers // max(1, per_row))):
            yield piece, schedule


def _same_pattern(
    circuit: Circuit, evidence: Evidence, leaf: Leaf, few_rows: int
) -> Iterator[Tensor]:
    """Rows to evaluate together: those with the same variables observed, where that pays."""
    observed = evidence.observed
    groups = rows_by_pattern(observed)
    single = all(layer.variables.shape[1] == 1 for layer in circuit.input_layers)
    if single and leaf is plain_leaf:  # vectors do not grow when rows differ
        yield torch.cat(groups)
        return
    # Grams do; but a forward pass per pattern costs more than larger messages once there are
    # only a few rows in each. Complete rows stay vectors: where c is small, a gram has half of
    # their digits.
    if len(groups) > 1 and single and few_rows * len(groups) > len(observed):
        order = torch.cat(groups)
        complete = observed[order].all(1)
        yield from (rows for rows in (order[complete], order[~complete]) if len(rows))
        return
    yield from groups


def _numbers_per_row(circuit: Circuit, schedule: FoldedSchedule, evidence: Evidence) -> int:
    """How many numbers the messages of one row hold, and the products on the way to them."""
    layers = circuit.input_layers
    widths = [layers[call.layer].num_units for call in schedule.leaves]
    squared = [call.label != OBSERVED for call in schedule.leaves]
    boxes = [bound is not None and len(bound) > 1 for bound in (evidence.lower, evidence.upper)]
    shared = [call.label == MISSING and not any(boxes) for call in schedule.leaves]
    per_row = sum(
        len(call.regions) * width ** (2 if square else 1)
        for call, width, square, once in zip(schedule.leaves, widths, squared, shared, strict=True)
        if not once
    )
    for call in schedule.calls:
        _, width, products = circuit.weight_shapes[call.layer]
        squared.append(any(squared[source] for source in call.sources))
        shared.append(all(shared[source] for source in call.sources))
        widest = max(width, *(widths[source] for source in call.sources))
        widths.append(width)
        if not shared[-1]:
            numbers = width**2 + products * widest if squared[-1] else width + products
            per_row += len(call.regions) * numbers
    return per_row
