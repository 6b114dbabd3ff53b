"""Drawings of circuits, their squares, regions and tensor networks (Figs. 1, 2, A.1, B.1, F.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.paper.diagrams import INPUT, PRODUCT, SUM, Nested, draw_networks, draw_units


class Box(NamedTuple):
    """A layer of a drawing: where it stands, what it says, and its colour."""

    x: float
    y: float
    text: str
    colour: str


GRAPHS = {
    "mixture": lambda: sub.flat(1),
    "linear": lambda: sub.linear_tree(3),
    "binary": lambda: sub.random_binary_tree(5, seed=2),
}
TITLES = {"mixture": "a mixture", "linear": "linear tree", "binary": "binary tree"}


@final
@dataclass(frozen=True)
class Drawings(Experiment):
    """Circuits over small trees with ``num_units`` units per layer, and what squaring makes."""

    name: ClassVar[str] = "drawings"
    title: ClassVar[str] = "Circuits layer by layer, and their squares"

    graphs: tuple[str, ...] = ("mixture", "linear", "binary")
    num_units: int = 3

    def runs(self) -> Sequence[Run]:
        return [{"graph": name} for name in self.graphs]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        circuit = self._circuit(run["graph"])
        nested = circuit.graph.to_nested() if circuit.num_variables > 1 else 0
        square = sub.materialise_square(circuit)
        return {"nested": nested, "size": circuit.size, "squared_size": square.size}

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "sizes",
            f"Connections of circuits of K = {self.num_units} units per layer and of their "
            "squares, of K² units.",
            ["tree", "|c|", "|c²|"],
            [
                [TITLES[r.run["graph"]], r.result["size"], r.result["squared_size"]]
                for r in records
            ],
        )
        figure = Figure(figsize=(12.0, 2.9 * len(records)), layout="constrained")
        grid = figure.subplots(len(records), 3, squeeze=False, width_ratios=(0.8, 1, 1))
        for line, record in zip(grid, records, strict=True):
            nested, name = record.result["nested"], TITLES[record.run["graph"]]
            draw_regions(line[0], nested)
            line[0].set_title(f"regions: {name}", fontsize=10)
            draw_layers(line[1], nested, self.num_units, exponent="")
            line[1].set_title(f"c, {record.result['size']} connections", fontsize=10)
            draw_layers(line[2], nested, self.num_units, exponent="²")
            line[2].set_title(f"c², {record.result['squared_size']} connections", fontsize=10)
        outputs.figure(
            "drawings",
            "Left: region graphs. Middle: the layers of a circuit over them, inputs yellow, "
            "products red, sums purple; a sum is labelled by its matrix. Right: the square, in "
            "which every layer has the square of its units and a sum the matrix W ⊗ W.",
            figure,
        )
        self._draw_diagrams([r for r in records if r.run["graph"] != "mixture"], outputs)

    def _draw_diagrams(self, records: Sequence[Record], outputs: Page) -> None:
        figure = Figure(figsize=(11.0, 3.6), layout="constrained")
        panels = figure.subplots(1, len(records), squeeze=False)[0]
        for axes, record in zip(panels, records, strict=True):
            draw_units(axes, record.result["nested"], self.num_units)
            axes.set_title(f"{TITLES[record.run['graph']]}, unit by unit", fontsize=10)
        outputs.figure(
            "units",
            "Circuits unit by unit; a dotted frame is a layer. Unit k of a Hadamard product joins "
            "the units k of its regions, every sum all products.",
            figure,
        )
        outputs.figure(
            "networks",
            "Tensor networks in Penrose's notation: a disc is a tensor, a line an index that is "
            "summed over. The state is a circuit over the linear tree, a Born machine its square.",
            draw_networks(3),
        )

    def _circuit(self, name: str) -> sub.Circuit:
        return sub.Circuit(GRAPHS[name](), sub.Gaussian(), num_units=self.num_units, seed=0)


def draw_regions(axes: Axes, nested: Nested) -> None:
    """A region graph: variables in braces, a dot where a region is split."""
    boxes: list[Box] = []

    def place(tree: Nested, left: float) -> tuple[float, float, float]:
        """Draw a tree; its middle, its height, and where the next one begins."""
        if not isinstance(tree, list | tuple):
            boxes.append(Box(left, 0.0, f"X{tree + 1}", INPUT))
            return left, 0.0, left + 1
        ends, start = [], left
        for child in tree:
            x, y, start = place(child, start)
            ends.append((x, y))
        middle = sum(x for x, _ in ends) / len(ends)
        height = 1 + max(y for _, y in ends)
        for x, y in ends:
            axes.plot([middle, x], [height, y], color="0.6", lw=1, zorder=0)
        names = ", ".join(f"X{v + 1}" for v in _variables(tree))
        boxes.append(Box(middle, height, names, "white"))
        return middle, height, start

    place(nested, 0.0)
    _draw_boxes(axes, boxes)


def draw_layers(axes: Axes, nested: Nested, num_units: int, exponent: str) -> None:
    """The layers of a circuit, or with the exponent ``²`` of its square."""
    units = num_units**2 if exponent else num_units
    boxes: list[Box] = []

    def place(tree: Nested, left: float, rows: int) -> tuple[float, float, float]:
        if not isinstance(tree, list | tuple):
            name = "f ⊗ f" if exponent else "f"
            text = f"{name}(X{tree + 1}), {units}"
            boxes.append(Box(left, 0.0, text, INPUT))
            x, y, start = left, 0.0, left + 1.6
            return (x, _sum(x, y, rows), start) if tree == nested else (x, y, start)
        ends, start = [], left
        for child in tree:
            x, y, start = place(child, start, units)
            ends.append((x, y))
        middle, height = sum(x for x, _ in ends) / len(ends), 1 + max(y for _, y in ends)
        for x, y in ends:
            axes.plot([middle, x], [height, y], color="0.6", lw=1, zorder=0)
        boxes.append(Box(middle, height, f"⊙, {units}", PRODUCT))
        return middle, _sum(middle, height, rows), start

    def _sum(x: float, y: float, rows: int) -> float:
        axes.plot([x, x], [y, y + 1], color="0.6", lw=1, zorder=0)
        matrix = "W ⊗ W" if exponent else "W"
        boxes.append(Box(x, y + 1, f"{matrix}, {rows} × {units}", SUM))
        return y + 1

    place(nested, 0.0, 1)
    _draw_boxes(axes, boxes)


def _draw_boxes(axes: Axes, boxes: Sequence[Box]) -> None:
    for box in boxes:
        style = {"boxstyle": "round,pad=0.35", "fc": box.colour, "ec": "0.3", "lw": 0.8}
        axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=8, bbox=style)
    across, along = [box.x for box in boxes], [box.y for box in boxes]
    axes.set_xlim(min(across) - 1, max(across) + 1)
    axes.set_ylim(min(along) - 0.7, max(along) + 0.7)
    axes.axis("off")


def _variables(tree: Nested) -> list[int]:
    if not isinstance(tree, list | tuple):
        return [tree]
    return sorted(v for child in tree for v in _variables(child))


FULL = QUICK = Drawings()
