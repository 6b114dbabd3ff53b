"""The inside of a model: which columns meet when, and how large its weights are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from matplotlib.axes import Axes

from subtractive.circuits.circuit import Circuit
from subtractive.plots.labels import label
from subtractive.plots.style import MODEL, OTHER, SOFT, axes_for, legend
from subtractive.regions.graph import RegionGraph
from subtractive.tables.reading import Floats

MOST_LEAVES = 30
WIDTH, ROOM, ROW = 6.8, 2.3, 0.25  # of the figure, for the names, and of one leaf, in inches


@final
@dataclass
class Branch:
    """A region as it is drawn; one without children is a leaf of the drawing."""

    name: str
    size: int  # how many variables
    is_input: bool
    children: list[Branch] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """The longest way down."""
        return 1 + max(child.depth for child in self.children) if self.children else 0

    @property
    def num_leaves(self) -> int:
        """How many lines the drawing has."""
        return sum(child.num_leaves for child in self.children) or 1


def outline(graph: RegionGraph, names: Sequence[str], most: int = MOST_LEAVES) -> Branch:
    """The upper part of a region tree, unfolded level by level as long as there is room."""
    if not graph.is_tree:
        raise ValueError(
            "a drawing of regions needs a region tree; print(graph) shows other graphs."
        )
    root = _branch(graph, graph.root, names)
    if root.is_input and root.size > 1:  # one region for all: its columns in place of children
        root.children = [Branch(label(name), 1, is_input=True) for name in names[:most]]
        root.is_input = False
    leaves, waiting = 1, [(graph.root, root)]
    while waiting:
        region, branch = waiting.pop(0)
        partitions = graph.regions[region].partitions
        if not partitions:
            continue
        children, room = partitions[0].children, most - leaves + 1
        if len(children) > room and room < 3:
            continue
        shown = children if len(children) <= room else children[: room - 1]
        below = [(child, _branch(graph, child, names)) for child in shown]
        branch.children = [child for _, child in below]
        hidden = sum(len(graph.regions[child].scope) for child in children[len(shown) :])
        if hidden:
            branch.children.append(Branch(f"… {hidden} more columns", hidden, is_input=False))
        leaves += len(branch.children) - 1
        waiting.extend(below)
    return root


def _branch(graph: RegionGraph, region: int, names: Sequence[str]) -> Branch:
    scope = sorted(graph.regions[region].scope)
    is_input = not graph.regions[region].partitions
    if len(scope) == 1:
        name = label(names[scope[0]])
    elif is_input:
        some = ", ".join(label(names[v], 12) for v in scope[:2])
        name = f"{some}{', …' if len(scope) > 2 else ''} ({len(scope)})"
    else:
        name = f"{len(scope)} columns"
    return Branch(name, len(scope), is_input)


def region_graph(
    graph: RegionGraph, *, names: Sequence[object] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a region graph as a tree from left to right: dots with how many variables meet there.

    Of a large graph the upper part is drawn, in at most 30 branches.

    >>> ax = sub.plots.region_graph(sub.random_binary_tree(6, seed=0), names=list("abcdef"))
    >>> sorted(text.get_text() for text in ax.texts)[-6:]
    ['a', 'b', 'c', 'd', 'e', 'f']
    """
    shown = list(range(graph.num_variables)) if names is None else list(names)
    if len(shown) != graph.num_variables:
        raise ValueError(
            f"names needs one name per variable: expected {graph.num_variables}, got {len(shown)}."
        )
    root = outline(graph, [str(name) for name in shown])
    ax = axes_for(ax, tree_size(root))
    draw_tree(ax, root)
    return ax


def tree_size(root: Branch) -> tuple[float, float]:
    """How large a drawing of a tree is, in inches."""
    return WIDTH, ROW * (root.num_leaves + 1) + 0.1


def draw_tree(ax: Axes, root: Branch) -> None:
    """A tree from left to right: dots are regions, with how many columns meet in them."""
    ax.set_axis_off()
    step = (WIDTH - ROOM - 0.4) / max(root.depth, 3)
    ax.set_xlim(-0.3 / step, (WIDTH - 0.3) / step)
    ax.set_ylim(root.num_leaves, -1)
    _draw(ax, root, 0, 0)


def _draw(axes: Axes, branch: Branch, depth: int, first: int) -> float:
    """Draw a branch whose first leaf is on line ``first``; the line of its own dot."""
    lines, here = [], first
    for child in branch.children:
        lines.append(_draw(axes, child, depth + 1, here))
        here += child.num_leaves
    line = (lines[0] + lines[-1]) / 2 if lines else float(first)
    for below in lines:
        axes.plot([depth, depth, depth + 1], [line, below, below], color=SOFT, lw=0.9, zorder=1)
    colour = OTHER if branch.is_input else MODEL
    axes.plot(depth, line, "o", color=colour, ms=6 if branch.is_input else 11, zorder=2)
    if not branch.is_input:
        size = 6 if branch.size < 100 else 4
        axes.text(
            depth, line, str(branch.size), color="white", fontsize=size, ha="center", va="center"
        )
    if not branch.children:
        axes.annotate(
            branch.name, (depth, line), (8, 0), textcoords="offset points", va="center", fontsize=9
        )
    return line


def sum_weights(circuits: Sequence[Circuit]) -> Floats:
    """All weights of all sum layers, (w,); of complex ones their real parts."""
    parts = [layer.weights().detach() for c in circuits for layer in c.sum_layers]
    real = [part.real if part.is_complex() else part for part in parts]
    return np.concatenate([part.double().numpy().ravel() for part in real])


def draw_weights(axes: Axes, weights: Floats) -> None:
    """How many weights have which size, negative ones in another colour."""
    low, high = np.quantile(weights, [0.001, 0.999])
    reach = float(max(abs(low), abs(high))) or 1.0
    edges = np.linspace(-reach if weights.min() < 0 else 0.0, reach, 61)
    counts, _ = np.histogram(np.clip(weights, edges[0], edges[-1]), edges)
    for colour, name, side in (
        (OTHER, "negative", edges[1:] <= 0),
        (MODEL, "positive", edges[1:] > 0),
    ):
        if side.any() and counts[side].any():
            centres, widths = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
            axes.bar(centres[side], counts[side], 0.95 * widths[side], color=colour, label=name)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.6)
    axes.set_xlabel("weight", fontsize=9)
    axes.set_ylabel("count", fontsize=9)
    legend(axes, loc="upper right")
