"""Unique disjointness: small as a square, exponentially large as a sum (paper: App. B.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.separation.bounds import expander_table, separation_table
from studies.separation.disjointness import (
    UndirectedGraph,
    communication_matrix,
    matching_graph,
    random_regular_graph,
    unique_disjointness,
)
from subtractive.plots.style import MODEL, OTHER, quiet

MATCHING, EXPANDER = "matching", "expander"


@final
@dataclass(frozen=True)
class Separation(Experiment):
    """Matchings of growing size, and random regular graphs, which are expanders.

    Functions of up to ``enumerated`` variables are checked for every assignment.
    """

    name: ClassVar[str] = "separation"
    title: ClassVar[str] = "An exponential separation: squares against sums"

    edges: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
    vertices: tuple[int, ...] = (12, 20, 40, 80, 160, 320, 640)
    degree: int = 6
    enumerated: int = 12
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        matchings = [{"graph": MATCHING, "size": number} for number in self.edges]
        return [*matchings, *({"graph": EXPANDER, "size": number} for number in self.vertices)]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        if run["graph"] == MATCHING:
            graph = matching_graph(run["size"])
            facts: dict[str, Any] = separation_table([run["size"]])[0]._asdict()
        else:
            graph = random_regular_graph(run["size"], self.degree, self.seed)
            facts = expander_table([graph])[0]._asdict()
        if graph.num_vertices > self.enumerated:
            return facts
        matrix = communication_matrix(graph, range(graph.num_vertices // 2))
        checked = {"error": largest_error(graph), "found_rank": int(np.linalg.matrix_rank(matrix))}
        return facts | checked

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        matchings = [record for record in records if record.run["graph"] == MATCHING]
        graphs = [record for record in records if record.run["graph"] == EXPANDER]
        outputs.table(
            "matchings",
            "UDISJ on matchings of n edges, the split cutting all of them: sizes of the circuit "
            "and of its square, the rank of the communication matrix by formula and, where it is "
            "small enough, by enumeration, what monotonic circuits need (the non-negative rank "
            "is at least (3/2)ⁿ), and the largest error of the circuit over all assignments.",
            ["n", "|c|", "|c²|", "rank", "rank found", "non-negative rank ≥", "error"],
            [
                [r.run["size"], r.result["circuit_size"], r.result["square_size"]]
                + [r.result["rank"], r.result.get("found_rank")]
                + [r.result["least_nonnegative_rank"], r.result.get("error")]
                for r in matchings
            ],
        )
        outputs.table(
            "expanders",
            f"UDISJ on random graphs of degree {self.degree}: what a monotonic circuit over the "
            "split into two halves needs, and any structured-decomposable monotonic circuit.",
            ["vertices", "edges", "spectral gap", "|c|", "|c²|", "one split ≥", "every split ≥"]
            + ["error"],
            [
                [r.result[name] for name in ("num_variables", "num_edges", "spectral_gap")]
                + [r.result[name] for name in ("circuit_size", "square_size")]
                + [r.result["split_bound"], r.result["every_bound"], r.result.get("error")]
                for r in graphs
            ],
        )
        outputs.figure(
            "separation",
            "Sizes on a logarithmic scale. Left: matchings. Right: random regular graphs; the "
            "bound for one split is that of an induced matching across it.",
            _draw(matchings, graphs),
        )


@torch.no_grad()
def largest_error(graph: UndirectedGraph) -> float:
    """The largest difference between the squared circuit and UDISJ over all assignments."""
    density = unique_disjointness(graph, dtype=torch.float64)
    states = torch.tensor(list(product((0.0, 1.0), repeat=graph.num_vertices))).double()
    edges = torch.tensor(graph.edges)
    truth = (1 - (states[:, edges[:, 0]] * states[:, edges[:, 1]]).sum(1)).square()
    return float((density.log_square(states).exp() - truth).abs().max())


def _draw(matchings: Sequence[Record], graphs: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = [record.run["size"] for record in matchings]
    lines = {
        "circuit_size": (MODEL, "o-", "size of c"),
        "square_size": (MODEL, "o--", "size of c²"),
        "rank": ("#3b7d8c", "o-", "rank"),
        "least_nonnegative_rank": (OTHER, "o-", "non-negative rank, at least"),
    }
    _draw_lines(left, sizes, matchings, lines)
    left.set_xlabel("edges of the matching", fontsize=9)
    left.set_ylabel("size or rank", fontsize=9)
    lines = {
        "circuit_size": (MODEL, "o-", "size of c"),
        "square_size": (MODEL, "o--", "size of c²"),
        "split_bound": (OTHER, "o-", "monotonic, one split, at least"),
        "every_bound": (OTHER, "o--", "monotonic, every split, at least"),
    }
    _draw_lines(right, [record.run["size"] for record in graphs], graphs, lines)
    right.set_xlabel("vertices of the expander", fontsize=9)
    return figure


def _draw_lines(
    axes: Axes,
    sizes: Sequence[int],
    records: Sequence[Record],
    lines: Mapping[str, tuple[str, str, str]],
) -> None:
    quiet(axes)
    for name, (colour, style, label) in lines.items():
        values = [float(record.result[name]) for record in records]
        axes.plot(sizes, values, style, color=colour, ms=3.5, lw=1.3, label=label)
    axes.set_yscale("log")
    axes.legend(fontsize=8, frameon=False)


FULL = Separation()
QUICK = Separation(edges=(1, 2, 4, 8, 16), vertices=(12, 40, 160), enumerated=10)
