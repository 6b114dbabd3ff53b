"""A circuit drawn layer by layer: inputs, products and sums, with their widths (paper: Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from subtractive.circuits.circuit import Circuit
from subtractive.plots.labels import label
from subtractive.plots.style import DATA, MODEL, OTHER, SOFT, axes_for

INPUT, PRODUCT, SUM = "input", "product", "sum"
MOST_INPUTS = 16
COLUMN, LEVEL = 1.35, 0.72  # the room of an input and of a layer, in inches


class LayerNode(NamedTuple):
    """One layer over one region, and how many units it has."""

    kind: str
    region: int
    text: str
    num_units: int


Edge = tuple[int, int]  # from a node to the one above it, by their numbers


def layer_nodes(
    circuit: Circuit, names: Sequence[str] | None = None
) -> tuple[list[LayerNode], list[Edge]]:
    """The layers of a circuit, each after those that it reads, and which read which."""
    shown = [str(v) for v in range(circuit.num_variables)] if names is None else names
    nodes: list[LayerNode] = []
    edges: list[Edge] = []
    top: dict[int, int] = {}  # the last node of each region

    def add(node: LayerNode, below: Sequence[int]) -> None:
        edges.extend((number, len(nodes)) for number in below)
        top[node.region] = len(nodes)
        nodes.append(node)

    for region, children in _children_first(circuit):
        if not children:
            layer, _ = circuit.input_of(region)
            scope = ", ".join(shown[v] for v in sorted(circuit.graph.regions[region].scope))
            add(LayerNode(INPUT, region, label(scope), layer.num_units), [])
        if region not in circuit.places.sums:
            continue
        layer_above, place = circuit.sum_of(region)
        outputs, inputs = layer_above.weight(place)[0].shape
        if children:
            sign = "⊙" if layer_above.is_elementwise else "⊗"
            add(LayerNode(PRODUCT, region, sign, inputs), [top[child] for child in children])
        add(LayerNode(SUM, region, f"{outputs} × {inputs}", outputs), [top[region]])
    return nodes, edges


def circuit(
    circuit: Circuit, *, names: Sequence[object] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a circuit layer by layer, from inputs at the bottom to the root.

    Boxes are input functions of a variable, ⊙ and ⊗ Hadamard and Kronecker products, and
    rectangles sums with the shape of their weights; a number says how many units a layer has. Draw
    :func:`subtractive.materialise_square` of a circuit to see its square.

    >>> tree = sub.RegionGraph.from_nested(((0, 1), 2))
    >>> ax = sub.plots.circuit(sub.Circuit(tree, sub.Gaussian(), num_units=3), names=list("abc"))
    >>> [text.get_text() for text in ax.texts if "×" in text.get_text()]
    ['3 × 3', '1 × 3']
    """
    if names is not None and len(names) != circuit.num_variables:
        raise ValueError(
            f"names needs one name per variable: expected {circuit.num_variables}, got "
            f"{len(names)}."
        )
    if not circuit.graph.is_tree:
        raise ValueError(
            "a drawing of a circuit needs a region tree; print(graph) shows other graphs."
        )
    inputs = len(circuit.graph.input_regions)
    if inputs > MOST_INPUTS:
        raise ValueError(
            f"a circuit of {inputs} input regions is too wide to be drawn layer by layer; at "
            f"most {MOST_INPUTS} are. Draw circuit.graph with region_graph instead."
        )
    given = None if names is None else [str(name) for name in names]
    nodes, edges = layer_nodes(circuit, given)
    places = _places(nodes, edges)
    height = max(y for _, y in places)
    ax = axes_for(ax, (COLUMN * inputs + 0.3, LEVEL * (height + 1)))
    ax.set_axis_off()
    ax.set_xlim(-0.6, inputs - 0.4)
    ax.set_ylim(-0.6, height + 0.6)
    for below, above in edges:
        ax.plot(*zip(places[below], places[above], strict=True), color=SOFT, lw=0.9, zorder=1)
    for node, place in zip(nodes, places, strict=True):
        _draw(ax, node, place)
    return ax


def _draw(ax: Axes, node: LayerNode, place: tuple[float, float]) -> None:
    colour = {INPUT: OTHER, PRODUCT: DATA, SUM: MODEL}[node.kind]
    shape = {INPUT: "square", PRODUCT: "circle", SUM: "round"}[node.kind]
    ax.text(
        *place,
        node.text,
        ha="center",
        va="center",
        fontsize=9,
        color="black" if node.kind == PRODUCT else "white",
        bbox={"boxstyle": f"{shape},pad=0.3", "facecolor": colour, "edgecolor": "none"},
        zorder=2,
    )
    ax.annotate(
        str(node.num_units),
        place,
        (3, 9),
        textcoords="offset points",
        fontsize=7,
        color=SOFT,
        ha="left",
    )


def _children_first(circuit: Circuit) -> list[tuple[int, tuple[int, ...]]]:
    """Every region with its children, after them; from left to right."""
    regions = circuit.graph.regions
    order: list[tuple[int, tuple[int, ...]]] = []
    stack = [circuit.graph.root]
    while stack:
        region = stack.pop()
        partitions = regions[region].partitions
        children = partitions[0].children if partitions else ()
        order.append((region, children))
        stack.extend(children)
    return order[::-1]


def _places(nodes: Sequence[LayerNode], edges: Sequence[Edge]) -> list[tuple[float, float]]:
    """Where each node is drawn: inputs side by side, all others above the middle of theirs."""
    below: dict[int, list[int]] = {number: [] for number in range(len(nodes))}
    for lower, upper in edges:
        below[upper].append(lower)
    places: list[tuple[float, float]] = []
    column = 0
    for number, node in enumerate(nodes):
        if node.kind == INPUT:
            places.append((float(column), 0.0))
            column += 1
            continue
        sides = [places[lower] for lower in below[number]]
        across = (min(x for x, _ in sides) + max(x for x, _ in sides)) / 2
        places.append((across, 1 + max(y for _, y in sides)))
    return places
