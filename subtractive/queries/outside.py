"""The way down: the environments of all inputs of |c|² given evidence, in one pass.

Sampling and univariate marginals are the same descent. It asks what to do at each input region:
whoever draws a value answers with it, and the regions visited later see that value; whoever only
looks answers nothing, and they see the region integrated out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.environment import Environment
from subtractive.circuits.route import Route
from subtractive.numerics.scaled import Scaled, Unscaled, double, normalise_rows, settle
from subtractive.queries.evidence import Evidence
from subtractive.queries.marginal import OBSERVED, square_leaf

AtInput = Callable[[int, Tensor], Tensor | None]


class Inside(NamedTuple):
    """The messages of a climb for |c|², by region: vectors (n, i) or grams (n, i, j)."""

    circuit: Circuit
    num_rows: int
    messages: dict[int, Tensor]
    observed: frozenset[int]  # regions observed in all rows


def inside(circuit: Circuit, evidence: Evidence, route: Route) -> Inside:
    """Climb once and keep every message."""
    leaves = [square_leaf(circuit.input_layer(e.layer), e, evidence) for e in route.entries]
    return gather_inside(circuit, route, leaves, len(evidence))


def gather_inside(circuit: Circuit, route: Route, leaves: list[Unscaled], num_rows: int) -> Inside:
    """Climb from given leaves and keep every message by its region."""
    steps = circuit.messages(route, leaves, circuit.scaled)
    schedule = route.schedule
    messages: dict[int, Tensor] = {}
    tensors: list[tuple[tuple[int, ...], Scaled]] = [
        *zip(schedule.inputs, (settle(leaf) for leaf in leaves), strict=True),
        *zip((step.regions for step in schedule.steps), steps, strict=True),
    ]
    for regions, message in tensors:  # a region with a sum of its own keeps that
        for place, region in enumerate(regions):
            messages[region] = message.mantissa[place].to(double(message.mantissa.dtype))
    known = {
        region
        for regions, entry in zip(schedule.inputs, route.entries, strict=True)
        for region in regions
        if entry.label == OBSERVED
    }
    for region, node in enumerate(circuit.graph.regions):
        if node.partitions and all(child in known for child in node.partitions[0].children):
            known.add(region)
    return Inside(circuit, num_rows, messages, frozenset(known))


def descend(inside: Inside, at_input: AtInput) -> None:
    """Visit every input region that is not observed, with its environment (n, i, j).

    ``at_input(region, environment)`` may return the values f(x) (n, i) of the region's functions
    at values it has drawn.
    """
    circuit = inside.circuit
    dtype = inside.messages[circuit.graph.root].dtype
    known = {region: inside.messages[region] for region in inside.observed}
    products: dict[int, Environment] = {}  # of the product units below each region's sum
    for region, parent, entering in _walk(circuit, inside.observed):
        children = _children(circuit, region)
        if not entering:
            del products[region]
            if all(child in known for child in children):
                known[region] = _mixed(circuit, region, [known.pop(c) for c in children])
            continue
        if parent is None:
            environment = Environment.of_root(inside.num_rows, circuit.num_outputs, dtype)
        else:
            siblings = [c for c in _children(circuit, parent) if c != region]
            environment = circuit.layer_of(parent).environment(
                products[parent],
                [known.get(c, inside.messages[c]).to(dtype) for c in siblings],
                _children(circuit, parent).index(region),
            )
        if circuit.has_sum(region):
            environment = environment.below_sum(circuit.weight_of(region))
        if children:
            products[region] = environment
            continue
        values = at_input(region, environment.matrix())
        if values is not None:
            known[region] = _mixed(circuit, region, [values])


def _walk(circuit: Circuit, skip: frozenset[int]) -> Iterator[tuple[int, int | None, bool]]:
    """(region, parent, entering or leaving), depth first, without recursion: trees may be deep."""
    stack: list[tuple[int, int | None, bool]] = [(circuit.graph.root, None, True)]
    while stack:
        region, parent, entering = stack.pop()
        if region in skip:
            continue
        yield region, parent, entering
        children = _children(circuit, region)
        if entering and children:
            stack.append((region, parent, False))
            stack.extend((child, region, True) for child in reversed(children))


def _children(circuit: Circuit, region: int) -> tuple[int, ...]:
    partitions = circuit.graph.regions[region].partitions
    return partitions[0].children if partitions else ()


def _mixed(circuit: Circuit, region: int, vectors: list[Tensor]) -> Tensor:
    """The vector (n, o) of a region from those of its children, or of its input functions."""
    if not circuit.has_sum(region):
        return normalise_rows(vectors[0])
    scale = torch.zeros(1, len(vectors[0]), dtype=torch.float64)
    children = [Scaled(vector[None], scale) for vector in vectors]
    layer, place = circuit.layer_of(region), circuit.place_of(region)
    return layer.scaled(children, slice(place, place + 1)).mantissa[0]
