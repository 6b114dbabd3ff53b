"""Exact samples of |c|² and of c, given any evidence (paper: App. A.2, done top-down).

The paper draws one variable after the other and evaluates the whole square each time. Here one
pass integrates, and one back draws: a region is drawn from its environment, and what was
drawn becomes part of the environment of the regions visited later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from subtractive.circuits.circuit import Circuit, Stack
from subtractive.circuits.evaluation import ForwardPass, leaves_of
from subtractive.circuits.reference_path import ReferencePath
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import blocks, plain_leaf, plain_leaves, square_leaf
from subtractive.inference.outside import descend, inside, numbers_per_row
from subtractive.inference.vector_descent import (
    descend_by_vectors,
    has_shared_grams,
    has_vectors,
)
from subtractive.inputs.outer_forms import OuterForm, draw_outer
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.inputs.window_sampling import Form, draw_in_window
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.messages import LeafMessage, Message, Scaled
from subtractive.numerics.signed_log import SignedLog, signed_log
from subtractive.numerics.transforms import full_precision
from subtractive.regions.folding import FoldedSchedule, divide_leaves, root_of, traverse

# Numbers that one block of rows may hold, where a row holds a few vectors.
BLOCK = 2**25


@torch.no_grad()
def sample_square(
    circuit: Circuit, evidence: Evidence, generator: torch.Generator | None
) -> Tensor:
    """Rows (n, d) from Σ_s |c_s|², each given the observed values of its row of evidence."""
    x = evidence.x.double()
    for rows, schedule in _square_blocks(circuit, evidence):
        x = x.index_copy(0, rows, _draw_block(circuit, evidence.rows(rows), schedule, generator))
    return x


def _square_blocks(
    circuit: Circuit, evidence: Evidence
) -> Iterator[tuple[Tensor, FoldedSchedule]]:
    """Rows to draw together. Where all are given the same, few numbers for each are enough."""
    shared, more = evidence.shared(), numbers_per_row(circuit)
    if len(shared) == len(evidence):
        yield from blocks(circuit, evidence, square_leaf, more_per_row=more)
    elif not has_vectors(circuit):
        yield from blocks(circuit, evidence, square_leaf, more_per_row=more // 6)
    else:
        _, schedule = next(iter(blocks(circuit, shared, square_leaf)))
        step = max(1, BLOCK // (more // 6))
        yield from ((rows, schedule) for rows in torch.arange(len(evidence)).split(step))


def _draw_block(
    circuit: Circuit,
    evidence: Evidence,
    schedule: FoldedSchedule,
    generator: torch.Generator | None,
) -> Tensor:
    drawn, restricted = evidence.x.double().clone(), evidence.restricted()

    def draw(region: int, environment: Tensor | OuterForm) -> LeafMessage:
        layer, place = circuit.input_of(region)
        scope = list(layer.scopes[place.start])
        p = layer.tensors(place, torch.float64)
        columns, seen = drawn[:, scope], evidence.observed[:, scope]  # (n, s)
        _check_mass(_diagonal(environment))
        if not restricted.isdisjoint(scope):
            window, form = evidence.window(layer.variables[place]), _matrix(environment)
            fresh = draw_in_window(Form(layer.family, p, form), window, generator)[:, None]
        elif isinstance(environment, OuterForm) and isinstance(layer.family, UnivariateFamily):
            fresh = draw_outer(layer.family, p, environment, generator)[:, None]
        else:
            form, pattern = _matrix(environment), evidence.pattern(scope)
            fresh = layer.family.sample_square(p, form, columns, pattern, generator)
        drawn[:, scope] = torch.where(seen, columns, fresh)
        return layer.family.values(p, drawn[None][..., scope])

    messages = inside(circuit, schedule, evidence)
    if has_shared_grams(messages):
        descend_by_vectors(messages, draw, generator)
    else:
        descend(messages, draw)
    return drawn


def _matrix(environment: Tensor | OuterForm) -> Tensor:
    """The real part of an environment, (n, i, j)."""
    if isinstance(environment, OuterForm):
        return environment.matrix()
    return environment.real if environment.is_complex() else environment


def _diagonal(environment: Tensor | OuterForm) -> Tensor:
    """That of an environment, (n, i)."""
    if isinstance(environment, OuterForm):
        return environment.diagonal()
    return _matrix(environment).diagonal(dim1=-2, dim2=-1)


@torch.no_grad()
@full_precision
def sample_plain(
    circuit: Circuit, evidence: Evidence, generator: torch.Generator | None
) -> Tensor:
    """Rows (n, d) from a monotonic circuit: latent units from the root down, then values."""
    x = evidence.x.double()
    widest = max(layer.weights().shape[2] for layer in circuit.sum_layers)
    more = 4 * widest * circuit.num_variables
    for rows, schedule in blocks(circuit, evidence, plain_leaf, more_per_row=more):
        part = evidence.rows(rows)
        leaves = leaves_of(schedule, plain_leaves(Stack.of([circuit]), part.shared()))
        units = _draw_units(circuit, schedule, leaves, len(rows), generator)
        x = x.index_copy(0, rows, _draw_values(circuit, part, schedule, units, generator))
    return x


class _Products(NamedTuple):
    """What sums choose from: the product units of each call, and the widths of its children."""

    masses: list[Tensor]  # (f, n or 1, i) each; their logarithms where the graph is no tree
    widths: list[list[int]]
    root: Tensor  # (1, n or 1, s)


def _draw_units(
    circuit: Circuit,
    schedule: FoldedSchedule,
    leaves: list[LeafMessage],
    num_rows: int,
    generator: torch.Generator | None,
) -> list[Tensor]:
    """Which unit of each input region a row comes from: (f, n) for each input tensor.

    Where a region has several partitions, a row comes from one of them: regions that it does not
    come through have the unit -1.
    """
    found = (_products if schedule.is_tree else _products_of_graph)(circuit, schedule, leaves)
    regions = [call.regions for calls in (schedule.leaves, schedule.calls) for call in calls]
    chosen = [torch.full((len(some), num_rows), -1) for some in regions]
    chosen[-1] = _choose(found.root.double().expand(-1, num_rows, -1), generator)
    for number in reversed(range(len(schedule.calls))):
        call, above = schedule.calls[number], chosen[len(leaves) + number]  # (f, n)
        layer, widths = circuit.sum_layers[call.layer], found.widths[number]
        weight = layer.expanded(layer.weight(call.folds), widths, call.folds).double()
        every = torch.arange(len(weight))[:, None]
        shares, masses = weight[every, above.clamp(min=0)], found.masses[number].double()
        if schedule.is_tree:
            masses = shares * masses  # (f, n, i)
        else:
            masses = torch.where(above[..., None] < 0, 1.0, _relative(shares.log() + masses))
        parts = layer.units_of_children(_choose(masses, generator), widths)
        for source, places, part in zip(call.sources, call.places, parts, strict=True):
            # Of all readers of a region, a row comes through one.
            units = torch.where(above < 0, -1, part)
            at = torch.arange(len(chosen[source]))[places][:, None].expand_as(units)
            chosen[source].scatter_reduce_(0, at, units, "amax")
    return chosen[: len(leaves)]


def _products(circuit: Circuit, schedule: FoldedSchedule, leaves: list[LeafMessage]) -> _Products:
    rule = ForwardPass(schedule, circuit.sum_layers)
    masses: list[Tensor] = []
    widths: list[list[int]] = []

    def rule_that_keeps(number: int, children: Sequence[Message]) -> Message:
        masses.append(circuit.sum_layers[schedule.calls[number].layer].latent(children))
        widths.append([child.shape[2] for child in children])
        return rule(number, children)

    root = root_of(schedule, traverse(schedule, rule.scale_leaves(leaves), rule_that_keeps))
    assert isinstance(root, Scaled)
    return _Products(masses, widths, root.mantissa)


def _products_of_graph(
    circuit: Circuit, schedule: FoldedSchedule, leaves: list[LeafMessage]
) -> _Products:
    rule = ReferencePath(schedule, circuit.sum_layers)
    masses: list[Tensor] = []
    widths: list[list[int]] = []

    def rule_that_keeps(number: int, children: Sequence[SignedLog]) -> SignedLog:
        product = circuit.sum_layers[schedule.calls[number].layer].reference(children)
        masses.append(product.log_abs)
        widths.append([child.shape[2] for child in children])
        return rule(number, children)

    messages = divide_leaves(schedule, [signed_log(leaf) for leaf in leaves])
    root = root_of(schedule, traverse(schedule, messages, rule_that_keeps))
    return _Products(masses, widths, _relative(root.log_abs))


def _relative(logs: Tensor) -> Tensor:
    """Numbers in units of the largest of each row."""
    return (logs - logs.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()


def _draw_values(
    circuit: Circuit,
    evidence: Evidence,
    schedule: FoldedSchedule,
    units: list[Tensor],
    generator: torch.Generator | None,
) -> Tensor:
    drawn, restricted = evidence.x.double().clone(), evidence.restricted()
    for call, unit in zip(schedule.leaves, units, strict=True):
        layer = circuit.input_layers[call.layer]
        variables = layer.variables[call.folds]  # (f, s)
        columns = drawn[:, variables].movedim(0, 1)  # (f, n, s)
        seen = evidence.observed[:, variables].movedim(0, 1)
        p = layer.tensors(call.folds, torch.float64)
        pattern = evidence.pattern(variables[0].tolist())
        fresh = layer.family.sample_units(p, unit, columns, pattern, generator)
        for fold, scope in enumerate(variables.tolist()):
            if not restricted.isdisjoint(scope):
                one = {name: tensor[fold : fold + 1] for name, tensor in p.items()}
                hot = functional.one_hot(unit[fold], layer.num_units).double()
                window = evidence.window(variables[fold : fold + 1])
                drawn_inside = draw_in_window(Form(layer.family, one, hot), window, generator)
                fresh[fold] = drawn_inside[:, None]
        drawn[:, variables] = torch.where(seen, columns, fresh).movedim(0, 1)
    return drawn


def _choose(masses: Tensor, generator: torch.Generator | None) -> Tensor:
    """An index (f, n) with probability proportional to its mass (f, n, i)."""
    flat = masses.flatten(0, 1)
    _check_mass(flat)
    return choose_cell(flat, uniforms(len(flat), generator))[0].reshape(masses.shape[:2])


def _check_mass(masses: Tensor) -> None:
    """Raise if all masses of some row of (n, i) are zero."""
    if not bool((masses.amax(-1) > 0).all()):
        raise ArithmeticError(
            "the given values are so unlikely that nothing can be drawn given them: their "
            "probabilities underflow. Leave out the most unlikely of them."
        )
