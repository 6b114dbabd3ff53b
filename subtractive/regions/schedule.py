"""The order in which a circuit visits the regions of a tree, folded into few tensors.

Regions whose children live in the same tensors are evaluated together, as one tensor with a
region axis ``f``. Equally shaped subtrees therefore cost one matrix product per level.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from subtractive.regions.graph import RegionGraph


@dataclass(frozen=True)
class Step:
    """Regions evaluated together: for each child slot ``h``, the tensor and the places to read."""

    regions: tuple[int, ...]  # (f,)
    sources: tuple[int, ...]  # (h,): input tensors are numbered first, then the steps
    places: tuple[tuple[int, ...], ...]  # (h, f)


@dataclass(frozen=True)
class Schedule:
    """The regions in each input tensor, then the steps, children before parents."""

    inputs: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]


def fold(
    graph: RegionGraph, labels: Mapping[int, Hashable], *, sum_inputs: bool = False
) -> Schedule:
    """Group the regions of a tree into tensors.

    Input regions with the same label share a tensor. With ``sum_inputs``, or if the whole graph
    is one input region, a sum follows each input region: a step with a single child.
    """
    sum_inputs = sum_inputs or not graph.regions[graph.root].partitions
    names = list(dict.fromkeys(labels[region] for region in graph.input_regions))
    members: list[list[int]] = [[] for _ in names]
    children: dict[int, tuple[int, ...]] = {}
    home: dict[int, int] = {}  # region -> the tensor with its message
    below: list[tuple[int, ...]] = [() for _ in names]  # tensor -> the tensors it reads
    steps: dict[tuple[int, ...], int] = {}
    for region, node in enumerate(graph.regions):
        if node.partitions:
            children[region] = node.partitions[0].children
            key = tuple(home[child] for child in children[region])
        else:
            source = names.index(labels[region])
            members[source].append(region)
            home[region] = source
            if not sum_inputs:
                continue
            key = (source,)
        if key not in steps:
            steps[key] = len(members)
            members.append([])
            below.append(key)
        home[region] = steps[key]
        members[home[region]].append(region)
    ordered = _in_reading_order(members, below, children)
    return Schedule(
        inputs=tuple(tuple(regions) for regions in ordered[: len(names)]),
        steps=_steps(ordered, below, children)[len(names) :],
    )


def _steps(
    ordered: list[list[int]], below: list[tuple[int, ...]], children: dict[int, tuple[int, ...]]
) -> tuple[Step, ...]:
    """For each tensor, where its regions find the messages they read."""
    place = [{region: at for at, region in enumerate(regions)} for regions in ordered]
    return tuple(
        Step(
            regions=tuple(regions),
            sources=sources,
            places=tuple(
                tuple(place[source][children.get(region, (region,))[h]] for region in regions)
                for h, source in enumerate(sources)
            ),
        )
        for regions, sources in zip(ordered, below, strict=True)
    )


def _in_reading_order(
    members: list[list[int]], below: list[tuple[int, ...]], children: dict[int, tuple[int, ...]]
) -> list[list[int]]:
    """Order each tensor as its readers read it, so that reading is a slice and not a copy."""
    ordered: list[dict[int, None]] = [{} for _ in members]
    ordered[-1] = dict.fromkeys(members[-1])
    for tensor in reversed(range(len(members))):
        for h, source in enumerate(below[tensor]):
            for region in ordered[tensor]:
                ordered[source][children.get(region, (region,))[h]] = None
    return [list(regions) for regions in ordered]
