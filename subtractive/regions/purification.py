"""Region trees with a purifier at every split: sums of squares at every region.

A locally purified circuit sums squares not only at its root but at every region: its grams are
``Σ_a W_a P W_aᴴ``. That is a squared circuit over more variables, one purifier a for each split,
that are always summed out. So it needs no layers and no queries of its own.
"""

from __future__ import annotations

from subtractive.regions.graph import Region, RegionGraph


def purified(graph: RegionGraph) -> RegionGraph:
    """The tree with one more variable, a purifier, among the children of every split.

    Purifiers are numbered d, d + 1, ... from the leaves to the root. Give them
    ``Embedding(num_terms)`` as inputs and take the marginal of the others::

        families = [Gaussian()] * d + [Embedding(3)] * (larger.num_variables - d)
        p = SquaredCircuit(Circuit(larger, families, num_units=16)).marginal(range(d))

    >>> purified(RegionGraph.from_nested(((0, 1), 2))).to_nested()
    ((0, 1, 3), 2, 4)
    """
    if not graph.is_tree:
        raise ValueError("only a region tree can be purified: one partition per region.")
    regions: list[Region] = []
    number: dict[int, int] = {}  # region of the graph -> its number in the result
    next_variable = graph.num_variables
    for old, region in enumerate(graph.regions):
        if region.partitions:
            children = [number[child] for child in region.partitions[0].children]
            regions.append(Region([next_variable]))
            next_variable += 1
            regions.append(Region.joining([*children, len(regions) - 1], regions))
        else:
            regions.append(region)
        number[old] = len(regions) - 1
    return RegionGraph(tuple(regions))
