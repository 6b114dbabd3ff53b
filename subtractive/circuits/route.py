"""The way of messages through the layers of a circuit, for one pattern of evidence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import torch

from subtractive.numerics.leaf_message import Index
from subtractive.regions.graph import RegionGraph
from subtractive.regions.schedule import Schedule, fold


class Visit(NamedTuple):
    """One step of a climb: which layer, which of its regions, and where their children are."""

    layer: int
    folds: Index
    sources: tuple[int, ...]
    places: tuple[slice, ...]


class Entry(NamedTuple):
    """One input tensor of a climb: which input layer, which of its regions, and their label."""

    layer: int
    folds: Index
    label: Hashable


class Route(NamedTuple):
    """A schedule in terms of a circuit's layers.

    In a tree every region has one parent: each tensor falls into the consecutive ``parts`` that
    its readers take.
    """

    schedule: Schedule
    entries: tuple[Entry, ...]
    visits: tuple[Visit, ...]
    parts: tuple[tuple[slice, ...], ...]

    def labelled(self, label: Hashable) -> Route:
        """The same way with one label for all inputs."""
        return self._replace(entries=tuple(e._replace(label=label) for e in self.entries))


class Map(NamedTuple):
    """Where the tensors of each region are: (number of the layer, place in it)."""

    graph: RegionGraph
    inputs: dict[int, tuple[int, int]]
    layers: dict[int, tuple[int, int]]
    sum_inputs: bool

    @classmethod
    def of(cls, graph: RegionGraph, schedule: Schedule) -> Map:
        """The map of a circuit whose layers follow a schedule."""
        return cls(
            graph,
            _places(schedule.inputs),
            _places([step.regions for step in schedule.steps]),
            sum_inputs=any(len(step.sources) == 1 for step in schedule.steps),
        )

    def route(self, labels: Mapping[int, Hashable]) -> Route:
        """The way through the layers when input regions of different labels are kept apart."""
        schedule = fold(
            self.graph,
            {r: (self.inputs[r][0], labels[r]) for r in self.graph.input_regions},
            sum_inputs=self.sum_inputs,
        )
        visits = tuple(
            Visit(
                *_located(self.layers, step.regions),
                step.sources,
                tuple(slice(places[0], places[-1] + 1) for places in step.places),
            )
            for step in schedule.steps
        )
        return Route(
            schedule,
            tuple(
                Entry(*_located(self.inputs, regions), labels[regions[0]])
                for regions in schedule.inputs
            ),
            visits,
            _parts(visits, len(schedule.inputs)),
        )


def _places(tensors: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    return {r: (k, at) for k, regions in enumerate(tensors) for at, r in enumerate(regions)}


def _located(place: Mapping[int, tuple[int, int]], regions: Sequence[int]) -> tuple[int, Index]:
    return place[regions[0]][0], _index([place[region][1] for region in regions])


def _parts(visits: Sequence[Visit], num_inputs: int) -> tuple[tuple[slice, ...], ...]:
    read: list[list[slice]] = [[] for _ in range(num_inputs + len(visits))]
    for visit in visits:
        for source, places in zip(visit.sources, visit.places, strict=True):
            read[source].append(places)
    return tuple(tuple(sorted(parts, key=lambda part: part.start)) for parts in read)


def _index(places: Sequence[int]) -> Index:
    """A slice where the places are consecutive, so that reading them is not a copy."""
    first, count = places[0], len(places)
    if list(places) == list(range(first, first + count)):
        return slice(first, first + count)
    return torch.tensor(places)
