"""Integrals of c and of |c|² given evidence: one climb with other leaves (paper: Prop. 1).

Regions that are observed throughout stay vectors, regions without evidence are integrated once
for all rows, and an n x K x K message exists only where both meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.route import Entry, Route
from subtractive.inference.evidence import Evidence, rows_by_pattern
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_message import LeafMessage, choose

# How many numbers the messages of one block of rows may hold, which bounds the memory of a query.
_BLOCK = 2**24

OBSERVED, MISSING, BY_ROW = "observed", "missing", "by row"


def log_square_integral(circuit: Circuit, evidence: Evidence) -> Tensor:
    """log Σ_s ∫|c_s(x)|² over what is not observed, (n,)."""
    return _by_blocks(circuit, evidence, square_leaf, squares=True)


def log_integral(circuit: Circuit, evidence: Evidence) -> Tensor:
    """log Σ_s ∫c_s(x) over what is not observed, (n,), for a circuit that is never negative."""
    return _by_blocks(circuit, evidence, plain_leaf, squares=False)


def square_leaf(layer: InputLayer, entry: Entry, evidence: Evidence) -> LeafMessage:
    """The message of some input regions for |c|²: f(x) where observed, ∫ f fᵀ where not."""
    folds, label = entry.folds, entry.label
    variables = layer.variables[folds]
    if label == OBSERVED:
        return layer.values(evidence.x, folds)
    if label == MISSING:
        return layer.gram(folds, evidence.window(variables))
    if label == BY_ROW:
        observed = evidence.observed[:, variables[:, 0]].T  # (f, n)
        point = layer.values(evidence.x, folds).outer()
        return choose(observed, point, layer.gram(folds, evidence.window(variables)))
    assert isinstance(label, tuple)
    evidence.window(variables)  # refuses a box, for which there is no closed form
    return layer.partial_gram(evidence.x, label, folds)


def plain_leaf(layer: InputLayer, entry: Entry, evidence: Evidence) -> LeafMessage:
    """The message of some input regions for c: f(x) where observed, ∫ f where not."""
    folds, label = entry.folds, entry.label
    variables = layer.variables[folds]
    if label == OBSERVED:
        return layer.values(evidence.x, folds)
    if label == MISSING:
        return layer.integral(folds, evidence.window(variables))
    if label == BY_ROW:
        observed = evidence.observed[:, variables[:, 0]].T  # (f, n)
        point = layer.values(evidence.x, folds)
        return choose(observed, point, layer.integral(folds, evidence.window(variables)))
    assert isinstance(label, tuple)
    evidence.window(variables)  # refuses a box, for which there is no closed form
    return layer.partial_integral(evidence.x, label, folds)


def labels(circuit: Circuit, evidence: Evidence) -> dict[int, Hashable]:
    """What is known of each input region in all rows."""
    every, some = evidence.observed.all(0).tolist(), evidence.observed.any(0).tolist()
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


Leaf = Callable[[InputLayer, Entry, Evidence], LeafMessage]


def _by_blocks(circuit: Circuit, evidence: Evidence, leaf: Leaf, *, squares: bool) -> Tensor:
    if len(evidence) == 0:
        return torch.zeros(0, dtype=torch.float64, device=circuit.device)
    if bool(evidence.observed.all()) and len(evidence) * _width(circuit) <= _BLOCK:
        return circuit.log_root(circuit.straight, circuit.values(evidence.x), squares=squares)
    results, order = [], []
    for rows, route in blocks(circuit, evidence, leaf):
        part = _block(evidence, rows)
        leaves = [leaf(circuit.input_layer(e.layer), e, part) for e in route.entries]
        results.append(circuit.log_root(route, leaves, squares=squares).expand(len(rows)))
        order.append(rows)
    if len(results) == 1:
        return results[0]
    back = torch.empty(len(evidence), dtype=torch.long)
    back[torch.cat(order)] = torch.arange(len(evidence))
    return torch.cat(results)[back]


def _width(circuit: Circuit) -> int:
    """How many numbers the messages of one complete row hold, and their products."""
    inputs = sum(len(layer.scopes) * layer.num_units for layer in circuit.input_layers())
    shapes = [next(layer.weights.parameters()).shape for layer in circuit.all_layers()]
    return inputs + sum(f * (o + i) for f, o, i, *_ in shapes)  # complex ones come in pairs


def _block(evidence: Evidence, rows: Tensor) -> Evidence:
    """The evidence of some rows; a block of all rows keeps their order, and copies nothing."""
    return evidence if len(rows) == len(evidence) else evidence.rows(rows)


def blocks(
    circuit: Circuit, evidence: Evidence, leaf: Leaf, *, more_per_row: int = 0
) -> Iterator[tuple[Tensor, Route]]:
    """Rows to evaluate together and their route, few enough to bound the memory."""
    if len(evidence) == 0:
        return
    for rows in _same_pattern(circuit, evidence, leaf):
        route = circuit.route(labels(circuit, _block(evidence, rows)))
        per_row = _numbers_per_row(circuit, route, evidence) + more_per_row
        # Where nothing is differentiated, most messages are gone before the last is there.
        numbers = _BLOCK if torch.is_grad_enabled() else 2 * _BLOCK
        for piece in rows.split(max(1, numbers // max(1, per_row))):
            yield piece, route


def _same_pattern(circuit: Circuit, evidence: Evidence, leaf: Leaf) -> Iterator[Tensor]:
    """Rows to evaluate together: those with the same variables observed, where that pays."""
    observed = evidence.observed
    groups = rows_by_pattern(observed)
    single = all(layer.variables.shape[1] == 1 for layer in circuit.input_layers())
    if single and leaf is plain_leaf:  # vectors do not grow when rows differ
        yield torch.cat(groups)
        return
    # Grams do; but a climb per pattern costs more than larger messages once there are only a few
    # rows in each. Complete rows stay vectors: where c is small, a gram has half of their digits.
    if len(groups) > 1 and single and 4 * len(groups) > len(observed):
        order = torch.cat(groups)
        complete = observed[order].all(1)
        yield from (rows for rows in (order[complete], order[~complete]) if len(rows))
        return
    yield from groups


def _numbers_per_row(circuit: Circuit, route: Route, evidence: Evidence) -> int:
    """How many numbers the messages of one row hold, and the products on the way to them."""
    widths = [circuit.input_layer(entry.layer).num_units for entry in route.entries]
    squared = [entry.label != OBSERVED for entry in route.entries]
    boxes = [bound is not None and len(bound) > 1 for bound in (evidence.lower, evidence.upper)]
    shared = [entry.label == MISSING and not any(boxes) for entry in route.entries]
    per_row = sum(
        _fold_count(entry.folds) * width ** (2 if square else 1)
        for entry, width, square, once in zip(route.entries, widths, squared, shared, strict=True)
        if not once
    )
    for visit in route.visits:
        _, width, products = circuit.layer(visit.layer).weights().shape
        squared.append(any(squared[source] for source in visit.sources))
        shared.append(all(shared[source] for source in visit.sources))
        widest = max(width, *(widths[source] for source in visit.sources))
        widths.append(width)
        if not shared[-1]:
            numbers = width**2 + products * widest if squared[-1] else width + products
            per_row += _fold_count(visit.folds) * numbers
    return per_row


def _fold_count(folds: slice | Tensor) -> int:
    return len(folds) if isinstance(folds, Tensor) else int(folds.stop - folds.start)
