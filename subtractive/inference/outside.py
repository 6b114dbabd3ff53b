"""The outside pass: the environments of all inputs of |c|² given evidence, from the root down.

Sampling and univariate marginals are the same pass. What is done at each input region is a
function: sampling returns the value it has drawn, and the regions visited later see that value;
expectations return nothing, and the others see the region integrated out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from torch import Tensor

from subtractive.circuits.circuit import Circuit, Stack
from subtractive.circuits.environment import Environment
from subtractive.circuits.evaluation import ForwardPass, leaves_of
from subtractive.circuits.sums import mix
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import OBSERVED, square_leaves
from subtractive.numerics.messages import LeafMessage, Message, divide, double
from subtractive.numerics.transforms import full_precision
from subtractive.regions.folding import FoldedSchedule, traverse

AtInput = Callable[[int, Tensor], LeafMessage | None]
Known = dict[int, Message]  # vectors of regions that are observed, or have been drawn
E = TypeVar("E")


class Inside(NamedTuple):
    """The messages of a forward pass for |c|², by region: (1, n, i) or (1, n, i, j)."""

    circuit: Circuit
    num_rows: int
    messages: dict[int, Message]
    observed: frozenset[int]  # regions observed in all rows


class Call(NamedTuple):
    """A region on the way down, before its children or after them."""

    region: int
    parent: int | None
    is_entering: bool
    is_last: bool  # of its parent's children
    is_read: bool  # whether regions visited later see its vector


@full_precision
def inside(circuit: Circuit, schedule: FoldedSchedule, evidence: Evidence) -> Inside:
    """Forward once and keep every message; rows that are alike have one for all of them."""
    leaves = leaves_of(schedule, square_leaves(Stack.of([circuit]), evidence.shared()))
    messages: dict[int, Message] = {}

    def keep(regions: Sequence[int], message: Message) -> None:
        for place, region in enumerate(regions):  # a region with a sum of its own keeps that
            messages[region] = message.take(slice(place, place + 1))

    rule = ForwardPass(schedule, circuit.sum_layers)

    def rule_that_keeps(number: int, children: Sequence[Message]) -> Message:
        message = rule(number, children)
        keep(schedule.calls[number].regions, message)
        return message

    for call, leaf in zip(schedule.leaves, leaves, strict=True):
        keep(call.regions, leaf)
    traverse(schedule, rule.scale_leaves(leaves), rule_that_keeps)
    known = {r for call in schedule.leaves if call.label == OBSERVED for r in call.regions}
    for region in range(len(circuit.graph.regions)):
        children = children_of(circuit, region)
        if children and all(child in known for child in children):
            known.add(region)
    return Inside(circuit, len(evidence), messages, frozenset(known))


def numbers_per_row(circuit: Circuit) -> int:
    """How many numbers one row of a descent may hold at a time: several environments.

    Moderately large ones count more, so that a block of rows fits into a processor's cache; but
    in blocks of few rows, the work done once for all rows would dominate, the more so for
    variables with many states.
    """
    sums = [int(layer.weights()[0].numel()) for layer in circuit.sum_layers]
    largest = max(sums + [layer.num_units**2 for layer in circuit.input_layers])
    has_many_states = any((family.num_states or 0) >= 64 for family in circuit.families)
    return max(8 * largest, min(48 * largest, 2**15 if has_many_states else 2**17))


@full_precision
def descend(inside: Inside, at_input: AtInput) -> None:
    """Visit every input region that is not observed, with its environment (n, i, j).

    ``at_input(region, environment)`` may return the message f(x), (1, n, i), of the region's
    functions at values it has drawn.
    """

    def below(call: Call, above: dict[int, Environment], known: Known) -> Environment:
        return _environment(inside, call, above, known)

    def visit(region: int, environment: Environment) -> LeafMessage | None:
        return at_input(region, environment.matrix().expand(inside.num_rows, -1, -1))

    visit_inputs(inside, below, visit)


def visit_inputs(
    inside: Inside,
    below: Callable[[Call, dict[int, E], Known], E],
    at_input: Callable[[int, E], LeafMessage | None],
) -> None:
    """Go down to every input region that is not observed, and see what is drawn there.

    ``below(call, products, known)`` makes the environment of what is below a region's sum of those
    above and the vectors known so far.
    """
    circuit = inside.circuit
    known: Known = {region: inside.messages[region] for region in inside.observed}
    products: dict[int, E] = {}  # of the product units below each region's sum
    for call in walk(circuit, inside.observed):
        region, children = call.region, children_of(circuit, call.region)
        if not call.is_entering:
            products.pop(region, None)
            vectors = [known.pop(child) for child in children if child in known]
            if call.is_read and len(vectors) == len(children):
                known[region] = mixed(circuit, region, vectors)
            continue
        environment = below(call, products, known)
        if children:
            products[region] = environment
            continue
        values = at_input(region, environment)
        if values is not None and call.is_read:
            known[region] = mixed(circuit, region, [values])


def _environment(
    inside: Inside, call: Call, products: dict[int, Environment], known: Known
) -> Environment:
    """The environment of what a region's sum is taken of, or of its input functions."""
    circuit = inside.circuit
    if call.parent is None:
        dtype = double(inside.messages[call.region].dtype)
        environment = Environment.of_root(circuit.num_outputs, dtype)
    else:
        family = children_of(circuit, call.parent)
        siblings = [known.get(c, inside.messages[c]) for c in family if c != call.region]
        # Deep trees would keep an environment for each level.
        above = products.pop(call.parent) if call.is_last else products[call.parent]
        layer, _ = circuit.sum_of(call.parent)
        environment = layer.environment(above, siblings, family.index(call.region))
    if call.region in circuit.places.sums:
        environment = environment.below_sum(_expanded_weight(inside, call.region))
    return environment


def _expanded_weight(inside: Inside, region: int) -> Tensor:
    """The weights (o, i) of the sum over a region, on the units that environments speak of."""
    circuit = inside.circuit
    layer, place = circuit.sum_of(region)
    children = children_of(circuit, region)
    if not children:  # a sum over an input region
        return layer.weight(place)[0]
    widths = [inside.messages[child].shape[2] for child in children]
    return layer.expanded(layer.weight(place), widths, place)[0]


def walk(circuit: Circuit, skip: frozenset[int]) -> Iterator[Call]:
    """Every region, depth first, without recursion: trees may be deep.

    Small regions come first: once they are known, the environment of a large sibling keeps its
    rank.
    """
    regions = circuit.graph.regions
    root = Call(circuit.graph.root, None, is_entering=True, is_last=True, is_read=False)
    stack = [] if root.region in skip else [root]
    while stack:
        call = stack.pop()
        yield call
        children = [child for child in children_of(circuit, call.region) if child not in skip]
        if call.is_entering and children:
            stack.append(call._replace(is_entering=False))
            children.sort(key=lambda child: regions[child].bits.bit_count())
            for child in reversed(children):
                is_last = child == children[-1]
                is_read = call.is_read or not is_last
                stack.append(
                    root._replace(
                        region=child, parent=call.region, is_last=is_last, is_read=is_read
                    )
                )


def children_of(circuit: Circuit, region: int) -> tuple[int, ...]:
    """The regions that a region is made of."""
    partitions = circuit.graph.regions[region].partitions
    return partitions[0].children if partitions else ()


def mixed(circuit: Circuit, region: int, vectors: Sequence[Message]) -> Message:
    """The vector (1, n, o) of a region from those of its children, or of its input functions."""
    if region not in circuit.places.sums:
        return vectors[0]
    layer, place = circuit.sum_of(region)
    sums = mix(layer.weight(place), layer.vector(vectors, place).mantissa)
    return divide(sums, sums.detach().abs().amax(-1))
