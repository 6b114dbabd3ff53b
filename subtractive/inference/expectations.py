"""Univariate marginals of all variables at once, given evidence.

One forward and one outside pass give the environment of every variable that is not observed; the
expectations of test functions (:mod:`subtractive.inputs.test_functions`) are small contractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit, Stack
from subtractive.circuits.evaluation import evaluate, leaves_of
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import blocks, plain_leaf, plain_leaves, square_leaf
from subtractive.inference.outside import descend, inside
from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors, TestFunctions
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.test_functions import together
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.leaf_operations import relative_values
from subtractive.numerics.messages import LeafMessage, log_sum
from subtractive.regions.folding import FoldedSchedule, Index, LeafCall

Expectations = list[Tensor | None]

# A pass down and up for one pattern of gaps takes as long as so many multiplications, of which
# rows whose patterns are not told apart need the cube of the width for each region.
_PASS = 2**18


def square_expectations(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> Expectations:
    """Expectations (n, q) for each variable under |c|² given evidence.

    ``None`` skips a variable. Where a variable is observed its expectation is NaN.
    """
    result = _empty((len(evidence),), functions)
    widest = max(layer.weights().shape[2] for layer in circuit.sum_layers)
    few_rows = max(4, _PASS // widest**3)
    for rows, schedule in blocks(
        circuit, evidence, square_leaf, more_per_row=8 * widest**2, few_rows=few_rows
    ):
        part = evidence.rows(rows)

        def look(
            region: int, environment: Tensor, rows: Tensor = rows, part: Evidence = part
        ) -> None:
            layer, place = circuit.input_of(region)
            scope = list(layer.scopes[place.start])
            found = layer.family.expectations_square(
                layer.tensors(place, torch.float64),
                environment.real if environment.is_complex() else environment,
                part.x[:, scope].double(),
                part.pattern(scope),
                [functions[variable] for variable in scope],
            )
            _store(result, scope, found, rows, part)

        descend(inside(circuit, schedule, part), look)
    return result


def plain_expectations(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> Expectations:
    """The same under a monotonic circuit: posterior shares of units, by one backward pass."""
    return weigh_plain_expectations(circuit, evidence, functions)[1]


def weigh_plain_expectations(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> tuple[Tensor, Expectations]:
    """log ∫c given evidence, (n,), and :func:`plain_expectations`, from the same pass."""
    log_weights, found = weigh_stack_expectations(Stack.of([circuit]), evidence, functions)
    return log_weights[0], [None if answer is None else answer[0] for answer in found]


def weigh_stack_expectations(
    stack: Stack, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> tuple[Tensor, Expectations]:
    """The same of each circuit of a stack: (m, n), and for each variable (m, n, q)."""
    result = _empty((stack.size, len(evidence)), functions)
    size = (stack.size, len(evidence))
    log_weights = torch.zeros(size, dtype=torch.float64, device=stack.circuit.device)
    of_units: dict[tuple[InputLayer, int], Tensor] = {}
    for rows, schedule in blocks(stack.circuit, evidence, plain_leaf, copies=stack.size):
        part = evidence.rows(rows)
        logs, units = unit_shares(stack, part, schedule.repeated(stack.size))
        log_weights = log_weights.index_copy(1, rows, logs.expand(-1, len(rows)))
        for layer, folds, shares in units:
            p = layer.tensors(folds, torch.float64)
            scopes = layer.variables[folds].tolist()  # those of all circuits, region by region
            asked = [[functions[variable] for variable in scope] for scope in scopes]
            every = None
            if len(scopes[0]) == 1:
                every = _of_regions(layer.family, p, shares, [one for (one,) in asked])
            if every is None and isinstance(layer.family, UnivariateFamily):
                every = _by_units(LeafShares(layer, folds, shares), asked, of_units)
            if every is None:
                every = [
                    layer.family.expectations_units(
                        {name: tensor[fold : fold + 1] for name, tensor in p.items()},
                        shares[fold],
                        part.x[:, scope].double(),
                        part.pattern(scope),
                        asked[fold],
                    )
                    for fold, scope in enumerate(scopes)
                ]
            for fold in range(0, len(scopes), stack.size):
                answers = zip(*every[fold : fold + stack.size], strict=True)
                _store(result, scopes[fold], [_stacked(one) for one in answers], rows, part)
    return log_weights, result


def _stacked(answers: Sequence[Tensor | None]) -> Tensor | None:
    """What all circuits of a stack answer about a variable, (m, n, q)."""
    known = [answer for answer in answers if answer is not None]
    return torch.stack(known) if known else None


def _of_regions(
    family: InputFamily, p: Tensors, shares: Tensor, functions: Sequence[TestFunctions | None]
) -> list[Expectations] | None:
    """Expectations (n, q) for all regions of one variable each, given shares (f, n, i) of units.

    They are computed together if the functions are of one kind; otherwise ``None``.
    """
    asked = {region: one for region, one in enumerate(functions) if one is not None}
    points = together(list(asked.values()))
    if points is None:
        return None
    some = torch.tensor(list(asked))
    p = {name: tensor[some] for name, tensor in p.items()}
    mass = family.integral(p, EVERYWHERE)
    numbers = relative_values(points.of_functions(family, p), mass)  # (f, q, i)
    found = (shares[some] / relative_values(mass, mass)) @ numbers.mT  # (f, n, q)
    result: list[Expectations] = [[None] for _ in functions]
    for answer, (region, one) in zip(found, asked.items(), strict=True):
        result[region] = [answer[:, : one.count]]
    return result


def as_row(numbers: object, name: str) -> Tensor:
    """Whatever the user calls a row of numbers, as a tensor (q,) in float64 without NaN."""
    try:
        row = torch.as_tensor(numbers, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} must be one row of numbers, got {type(numbers).__name__}."
        ) from None
    if row.dim() != 1:
        hint = " For a single one pass [number]." if row.dim() == 0 else ""
        raise ValueError(f"{name} must be one row of numbers, got shape {tuple(row.shape)}.{hint}")
    if bool(row.isnan().any()):
        raise ValueError(f"{name} must be numbers, got NaN among them.")
    return row


def _by_units(
    leaves: LeafShares,
    functions: Sequence[Sequence[TestFunctions | None]],
    known: dict[tuple[InputLayer, int], Tensor],
) -> list[Expectations]:
    """The same for functions of any kind: those under each unit alone (i, q) are found once."""
    layer, folds, every = leaves
    result: list[Expectations] = []
    places = torch.arange(len(layer.scopes))[folds].tolist()
    for place, shares, (function,) in zip(places, every, functions, strict=True):
        if function is not None and (layer, place) not in known:
            p = layer.tensors(slice(place, place + 1), torch.float64)
            alone = torch.eye(shares.shape[1]).to(shares)
            found = layer.family.expectations_units(p, alone, alone[:, :1], [False], [function])[0]
            assert found is not None
            known[layer, place] = found
        result.append([None if function is None else shares @ known[layer, place]])
    return result


class LeafShares(NamedTuple):
    """The probability of each unit of some input regions."""

    layer: InputLayer
    folds: Index
    shares: Tensor  # (f, n, i)


def unit_shares(
    stack: Stack, evidence: Evidence, schedule: FoldedSchedule
) -> tuple[Tensor, list[LeafShares]]:
    """log ∫c of each circuit, (m, n), and the shares of all units: d log c / d log f_i.

    The schedule is that of the whole stack.
    """
    wanted = torch.is_grad_enabled()  # the shares depend on the parameters, too
    leaves = leaves_of(schedule, plain_leaves(stack, evidence))
    with torch.enable_grad():
        shapes = [(leaf.shape[0], len(evidence), leaf.shape[2]) for leaf in leaves]
        factors = [torch.ones(s, dtype=torch.float64, requires_grad=True) for s in shapes]
        scaled = {
            call.regions: LeafMessage(
                factor if leaf.mantissa is None else leaf.mantissa * factor, leaf.exponent
            )
            for call, leaf, factor in zip(schedule.leaves, leaves, factors, strict=True)
        }

        def source(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
            leaf = scaled[call.regions]
            return leaf if rows is None else leaf.rows(rows)

        roots = log_sum(evaluate(schedule, stack.sum_layers, source))
        every = torch.autograd.grad(roots.sum(), factors, create_graph=wanted)
    found = [
        LeafShares(stack.input_layers[call.layer], call.folds, shares)
        for call, shares in zip(schedule.leaves, every, strict=True)
    ]
    return roots if wanted else roots.detach(), found


def _empty(size: tuple[int, ...], functions: Sequence[TestFunctions | None]) -> Expectations:
    return [
        None
        if function is None
        else torch.full((*size, function.count), math.nan, dtype=torch.float64)
        for function in functions
    ]


def _store(
    result: Expectations, scope: Sequence[int], found: Expectations, rows: Tensor, part: Evidence
) -> None:
    """Answers (..., n, q) of some rows; NaN where a variable is observed."""
    for variable, answer in zip(scope, found, strict=True):
        before = result[variable]
        if before is not None and answer is not None:
            hidden = part.observed[:, variable, None]
            every = answer.expand(*answer.shape[:-2], len(rows), -1)
            result[variable] = before.index_copy(-2, rows, torch.where(hidden, math.nan, every))
