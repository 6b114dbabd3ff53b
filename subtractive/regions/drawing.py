"""Pictures of a region graph: text for the terminal, DOT for Graphviz (paper: region graphs).

Regions are seen through the two small protocols below, so that ``graph.py`` can import this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol


class Split(Protocol):
    """A partition, as far as a picture needs it."""

    @property
    def children(self) -> Sequence[int]:
        """Indices of the regions it splits into."""


class Node(Protocol):
    """A region, as far as a picture needs it."""

    @property
    def scope(self) -> frozenset[int]:
        """Its variables."""

    @property
    def partitions(self) -> Sequence[Split]:
        """The ways it is split."""


def scope_label(scope: frozenset[int], *, most: int = 8) -> str:
    """The variables of a region, abbreviated if there are more than ``most``.

    >>> scope_label(frozenset({2, 0, 1}))
    '{0, 1, 2}'
    >>> scope_label(frozenset(range(5000)), most=4)
    '{0, 1, 2, …, 4999: 5000 variables}'
    """
    variables = sorted(scope)
    if len(variables) <= most:
        return f"{{{', '.join(map(str, variables))}}}"
    first = ", ".join(map(str, variables[: most - 1]))
    return f"{{{first}, …, {variables[-1]}: {len(variables)} variables}}"


def text(regions: Sequence[Node], *, max_lines: int | None = 200) -> str:
    """The graph as an indented list, root first.

    A region with several partitions shows each of them as ``×``. If some region has several
    parents, all carry their index, and appearances after the first are marked ``(above)``.
    ``max_lines=None`` draws everything.
    """
    lines = _lines(regions)
    drawn = list(islice(lines, max_lines))
    if next(lines, None) is not None:
        drawn.append(f"… ({len(drawn)} lines drawn of a graph of {len(regions)} regions)")
    return "\n".join(drawn)


def _lines(regions: Sequence[Node]) -> Iterator[str]:
    numbered = _some_region_is_shared(regions)
    seen: set[int] = set()
    # A stack in place of recursion: a linear tree is as deep as it has variables.
    stack: list[tuple[str, str, int | Split]] = [("", "", len(regions) - 1)]
    while stack:
        head, indent, item = stack.pop()
        below: list[int | Split]
        if isinstance(item, int):
            region = regions[item]
            label = scope_label(region.scope) + (f" #{item}" if numbered else "")
            if item in seen:
                yield f"{head}{label} (above)"
                continue
            seen.add(item)
            yield head + label
            below = [*region.partitions]
            if len(region.partitions) == 1:
                below = [*region.partitions[0].children]
        else:
            yield f"{head}×"
            below = [*item.children]
        branch, trunk = "└── ", "    "  # the last child is drawn last and pushed first
        for child in reversed(below):
            stack.append((indent + branch, indent + trunk, child))
            branch, trunk = "├── ", "│   "


def _some_region_is_shared(regions: Sequence[Node]) -> bool:
    used = [c for region in regions for split in region.partitions for c in split.children]
    return len(used) > len(set(used))


def dot(regions: Sequence[Node]) -> str:
    """The graph in the DOT language: boxes are input regions, circles partitions."""
    lines = ["digraph RegionGraph {"]
    for index, region in enumerate(regions):
        shape = "ellipse" if region.partitions else "box"
        lines.append(f'  r{index} [label="{scope_label(region.scope)}", shape={shape}];')
        for number, partition in enumerate(region.partitions):
            name = f"p{index}_{number}"
            lines.append(f'  {name} [label="×", shape=circle];')
            lines.append(f"  r{index} -> {name};")
            lines.extend(f"  {name} -> r{child};" for child in partition.children)
    return "\n".join([*lines, "}"])
