"""Circuits unit by unit, and tensor networks in Penrose's notation (Figs. A.1, B.1, B.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INPUT, PRODUCT, SUM = "#f2c45a", "#d9785e", "#8d6cab"
Nested = Any  # a variable, or a tuple of nested trees
Point = tuple[float, float]


class Units(NamedTuple):
    """The units of a layer, side by side, and where the next layer may begin."""

    places: list[Point]
    end: float


def draw_units(axes: Axes, nested: Nested, num_units: int) -> None:
    """A circuit unit by unit: a frame around each layer, a line for each connection."""

    def layer(middle: float, height: float, count: int, colour: str, sign: str) -> list[Point]:
        places = [(middle + 0.5 * (k - (count - 1) / 2), height) for k in range(count)]
        for x, y in places:
            axes.text(x, y, sign, ha="center", va="center", fontsize=8, zorder=3)
            axes.plot(x, y, "o", ms=13, mfc=colour, mec="0.3", mew=0.8, zorder=2)
        left, right = places[0][0] - 0.3, places[-1][0] + 0.3
        low, high = height - 0.3, height + 0.3
        around = ([left, right, right, left, left], [low, low, high, high, low])
        axes.plot(*around, color="0.7", lw=0.8, ls=":", zorder=0)
        return places

    def connect(pairs: Sequence[tuple[Point, Point]]) -> None:
        for (x, y), (u, v) in pairs:
            axes.plot([x, u], [y, v], color="0.6", lw=0.7, zorder=1)

    def place(tree: Nested, left: float, num_sums: int) -> Units:
        if not isinstance(tree, list | tuple):
            middle = left + 0.25 * num_units
            axes.text(middle, -0.62, f"$X_{tree + 1}$", ha="center", va="center", fontsize=9)
            return Units(layer(middle, 0.0, num_units, INPUT, "f"), left + 0.5 * num_units + 0.6)
        children, start = [], left
        for child in tree:
            units = place(child, start, num_units)
            children.append(units.places)
            start = units.end
        ends = [x for units in children for x, _ in units]
        middle, height = (min(ends) + max(ends)) / 2, 1 + max(units[0][1] for units in children)
        products = layer(middle, height, num_units, PRODUCT, "×")
        connect([(above, units[k]) for units in children for k, above in enumerate(products)])
        sums = layer(middle, height + 1, num_sums, SUM, "+")
        connect([*product(sums, products)])
        return Units(sums, start)

    place(nested, 0.0, 1)
    axes.set_aspect("equal")
    axes.axis("off")


def draw_state(axes: Axes, length: int, rows: Sequence[str], *, is_closed: bool) -> None:
    """A matrix-product state: a tensor is a disc, a shared index a line, a free one ends loose.

    Two rows share the indices of their variables; if these are closed they are summed out.
    """
    heights = [1.2 * number for number in range(len(rows))]
    for name, height in zip(rows, heights, strict=True):
        axes.plot([0, length - 1], [height, height], color="0.4", lw=1.5, zorder=0)
        for d in range(length):
            axes.plot(d, height, "o", ms=24, mfc=SUM, mec="0.3", zorder=2)
            label = f"${name}_{d + 1}$"
            axes.text(d, height, label, ha="center", va="center", fontsize=9, zorder=3)
    for d in range(length):
        if is_closed:
            axes.plot([d, d], heights, color="0.4", lw=1.5, zorder=0)
            continue
        for height, side in zip(heights, (-1, 1), strict=False):
            axes.plot([d, d], [height, height + 0.45 * side], color="0.4", lw=1.5, zorder=0)
            place = (d, height + 0.6 * side)
            axes.text(*place, f"$x_{d + 1}$", ha="center", va="center", fontsize=9)
    axes.set_xlim(-0.6, length - 0.4)
    axes.set_ylim(-0.9, heights[-1] + 0.9)
    axes.set_aspect("equal")
    axes.axis("off")


def draw_networks(length: int) -> Figure:
    """A matrix-product state, its square, and its norm."""
    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    axes = figure.subplots(1, 3)
    panels = [
        ("ψ(x): a matrix-product state", ["A"], False),
        ("|ψ(x)|²: a Born machine", ["A", "A^*"], False),
        ("Z: all variables summed out", ["A", "A^*"], True),
    ]
    for panel, (title, rows, is_closed) in zip(axes, panels, strict=True):
        draw_state(panel, length, rows, is_closed=is_closed)
        panel.set_title(title, fontsize=10)
    return figure
