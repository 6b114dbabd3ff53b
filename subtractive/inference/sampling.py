"""Exact samples of |c|² and of c, given any evidence (paper: App. A.2, done top-down).

The paper draws one variable after the other and evaluates the whole square each time. Here one
climb integrates, and one descent draws: a region is drawn from its environment, and what was
drawn becomes part of the environment of the regions visited later.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.route import Route
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import blocks, plain_leaf, square_leaf
from subtractive.inference.outside import descend, inside, numbers_per_row
from subtractive.inputs.drawing import uniforms
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.window_sampling import Form, draw_in_window
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.scaled import Scaled, settle


@torch.no_grad()
def sample_square(
    circuit: Circuit, evidence: Evidence, generator: torch.Generator | None
) -> Tensor:
    """Rows (n, d) from Σ_s |c_s|², each given the observed values of its row of evidence."""
    x = evidence.x.double()
    more = numbers_per_row(circuit)
    for rows, route in blocks(circuit, evidence, square_leaf, more_per_row=more):
        x = x.index_copy(0, rows, _draw_block(circuit, evidence.rows(rows), route, generator))
    return x


def _draw_block(
    circuit: Circuit, evidence: Evidence, route: Route, generator: torch.Generator | None
) -> Tensor:
    drawn = evidence.x.double().clone()

    def draw(region: int, environment: Tensor) -> LeafMessage:
        layer, place = circuit.input_of(region)
        scope = list(layer.scopes[place.start])
        p = layer.tensors(place, torch.float64)
        columns, seen = drawn[:, scope], evidence.observed[:, scope]  # (n, s)
        real = environment.real if environment.is_complex() else environment
        _check_mass(real.diagonal(dim1=-2, dim2=-1))
        if evidence.is_restricted(scope):
            window = evidence.window(layer.variables[place])
            fresh = draw_in_window(Form(layer.family, p, real), window, generator)[:, None]
        else:
            pattern = evidence.pattern(scope)
            fresh = layer.family.sample_square(p, real, columns, pattern, generator)
        drawn[:, scope] = torch.where(seen, columns, fresh)
        return layer.family.values(p, drawn[None][..., scope])

    descend(inside(circuit, evidence, route), draw)
    return drawn


@torch.no_grad()
def sample_plain(
    circuit: Circuit, evidence: Evidence, generator: torch.Generator | None
) -> Tensor:
    """Rows (n, d) from a monotonic circuit: latent units from the root down, then values."""
    x = evidence.x.double()
    widest = max(layer.weights().shape[2] for layer in circuit.all_layers())
    more = 4 * widest * circuit.num_variables
    for rows, route in blocks(circuit, evidence, plain_leaf, more_per_row=more):
        part = evidence.rows(rows)
        leaves = [plain_leaf(circuit.input_layer(e.layer), e, part) for e in route.entries]
        units = _draw_units(circuit, route, leaves, len(rows), generator)
        x = x.index_copy(0, rows, _draw_values(circuit, part, route, units, generator))
    return x


def _draw_units(
    circuit: Circuit,
    route: Route,
    leaves: list[LeafMessage],
    num_rows: int,
    generator: torch.Generator | None,
) -> list[Tensor]:
    """Which unit of each input region a row comes from: (f, n) for each input tensor."""
    messages: list[LeafMessage | Scaled] = list(leaves)
    messages.extend(circuit.messages(route, leaves, circuit.scaled))
    shapes = [(m.mantissa if isinstance(m, Scaled) else m.some).shape for m in messages]
    chosen = [torch.zeros(shape[0], num_rows, dtype=torch.long) for shape in shapes]
    root = settle(messages[-1]).mantissa.double().expand(-1, num_rows, -1)
    chosen[-1] = _choose(root, generator)
    for number, visit in reversed(list(enumerate(route.visits, len(leaves)))):
        layer = circuit.layer(visit.layer)
        children = [
            messages[source].take(places)
            for source, places in zip(visit.sources, visit.places, strict=True)
        ]
        weight = layer.weight(visit.folds).double()  # (f, o, i)
        regions = torch.arange(len(weight))[:, None]
        shares = weight[regions, chosen[number]]  # (f, n, i)
        unit = _choose(shares * layer.product(children).mantissa.double(), generator)
        parts = layer.units_of_children(unit, [shapes[source][-1] for source in visit.sources])
        for source, places, part in zip(visit.sources, visit.places, parts, strict=True):
            chosen[source][places] = part
    return chosen[: len(leaves)]


def _draw_values(
    circuit: Circuit,
    evidence: Evidence,
    route: Route,
    units: list[Tensor],
    generator: torch.Generator | None,
) -> Tensor:
    drawn = evidence.x.double().clone()
    for entry, unit in zip(route.entries, units, strict=True):
        layer: InputLayer = circuit.input_layer(entry.layer)
        variables = layer.variables[entry.folds]  # (f, s)
        columns = drawn[:, variables].movedim(0, 1)  # (f, n, s)
        seen = evidence.observed[:, variables].movedim(0, 1)
        p = layer.tensors(entry.folds, torch.float64)
        pattern = evidence.pattern(variables[0].tolist())
        fresh = layer.family.sample_units(p, unit, columns, pattern, generator)
        for fold, scope in enumerate(variables.tolist()):
            if evidence.is_restricted(scope):
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
    """Raise if nothing is left to draw from in some row of (n, i)."""
    if not bool((masses.amax(-1) > 0).all()):
        raise ArithmeticError(
            "the given values are so unlikely that nothing can be drawn given them: their "
            "probabilities underflow. Leave out the most unlikely of them."
        )
