"""Tensorized circuits c(x) over a region tree (paper: Defs. 1, 2 and A.6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn

from subtractive.circuits.initialisers import Initialiser, uniform
from subtractive.circuits.layers import HadamardLayer, Layer, SumLayer
from subtractive.circuits.weights import WeightKind, real_weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.scaled import Index, Scaled, Unscaled, settle
from subtractive.numerics.signed_log import SignedLog
from subtractive.regions.graph import RegionGraph
from subtractive.regions.schedule import Schedule, fold

Message = TypeVar("Message", Scaled, SignedLog, Unscaled)


class Visit(NamedTuple):
    """One step of a climb: which layer, which of its regions, and where their children are."""

    layer: int
    folds: Index
    sources: tuple[int, ...]
    places: tuple[Index, ...]


class Entry(NamedTuple):
    """One input tensor of a climb: which input layer, which of its regions, and their label."""

    layer: int
    folds: Index
    label: Hashable


class Route(NamedTuple):
    """A schedule in terms of a circuit's layers."""

    entries: tuple[Entry, ...]
    visits: tuple[Visit, ...]


@final
class Circuit(nn.Module):
    """A deep sum of products of input functions, of any sign.

    ``num_input_units`` functions stand over every input region; every partition is a product
    layer followed by a sum layer of ``num_units`` units, ``num_outputs`` at the root.

    >>> circuit = sub.Circuit(sub.random_binary_tree(5, seed=0), sub.Gaussian(), num_units=4)
    >>> circuit(torch.zeros(3, 5)).shape
    torch.Size([3, 1])
    """

    graph: RegionGraph
    schedule: Schedule
    inputs: nn.ModuleList
    layers: nn.ModuleList

    def __init__(
        self,
        graph: RegionGraph,
        inputs: InputFamily | Sequence[InputFamily],
        *,
        num_units: int,
        num_outputs: int = 1,
        num_input_units: int | None = None,
        weights: WeightKind = real_weights,
        product: type[Layer] = HadamardLayer,
        initialise: Initialiser | None = None,
        seed: int | torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        families = family_of_region(graph, inputs)
        num_input_units = num_units if num_input_units is None else num_input_units
        for name, width in (
            ("num_units", num_units),
            ("num_outputs", num_outputs),
            ("num_input_units", num_input_units),
        ):
            if width < 1:
                raise ValueError(f"{name} must be at least 1, got {width}.")
        generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
        labels = {r: (f.fold_key, len(graph.regions[r].scope)) for r, f in families.items()}
        # A Hadamard product cannot change the width, so a sum after each input region does.
        widen = product is HadamardLayer and num_input_units != num_units
        schedule = fold(graph, labels, sum_inputs=widen)
        input_layers = [
            InputLayer(
                [families[region] for region in regions],
                [sorted(graph.regions[region].scope) for region in regions],
                num_units=num_input_units,
                generator=generator,
            )
            for regions in schedule.inputs
        ]
        layers: list[Layer] = []
        widths = [num_input_units] * len(input_layers)
        for step in schedule.steps:
            widths.append(num_units if step is not schedule.steps[-1] else num_outputs)
            kind = product if len(step.sources) > 1 else SumLayer
            num_inputs = kind.num_inputs([widths[source] for source in step.sources])
            shape = (len(step.regions), widths[-1], num_inputs)
            layers.append(kind(weights(shape, initialise or uniform(), generator)))
        self._assemble(graph, schedule, input_layers, layers)
        self.to(dtype or torch.get_default_dtype())

    @classmethod
    def from_layers(
        cls,
        graph: RegionGraph,
        schedule: Schedule,
        *,
        inputs: Sequence[InputLayer],
        layers: Sequence[Layer],
    ) -> Circuit:
        """A circuit of given layers, one input layer and one layer per tensor of the schedule."""
        circuit = cls.__new__(cls)
        nn.Module.__init__(circuit)
        circuit._assemble(graph, schedule, inputs, layers)
        return circuit

    def _assemble(
        self,
        graph: RegionGraph,
        schedule: Schedule,
        inputs: Sequence[InputLayer],
        layers: Sequence[Layer],
    ) -> None:
        self.graph, self.schedule = graph, schedule
        self.inputs, self.layers = nn.ModuleList(inputs), nn.ModuleList(layers)
        self._input_place = _places(schedule.inputs)
        self._layer_place = _places([step.regions for step in schedule.steps])
        self._sum_inputs = any(len(step.sources) == 1 for step in schedule.steps)
        self.straight = self.route({region: None for region in graph.input_regions})

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return self.graph.num_variables

    @property
    def num_outputs(self) -> int:
        """The number of outputs S of the root."""
        return int(self.layer(-1).weights().shape[1])

    @property
    def num_parameters(self) -> int:
        """The number of learnable real numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def size(self) -> int:
        """The paper's |c|: the number of connections into all product and sum units (App. A.1.1).

        A Kronecker product of N children of K units has K^N product units of N inputs each.
        """
        total = 0
        widths = [layer.num_units for layer in self.input_layers()]
        for k, step in enumerate(self.schedule.steps):
            layer = self.layer(k)
            weight = layer.weights()
            products = layer.num_connections([widths[source] for source in step.sources])
            total += weight.numel() + len(step.regions) * products
            widths.append(weight.shape[1])
        return total

    @property
    def families(self) -> tuple[InputFamily, ...]:
        """The input family of each variable."""
        family = {
            v: layer.family
            for layer in self.input_layers()
            for scope in layer.scopes
            for v in scope
        }
        return tuple(family[variable] for variable in range(self.num_variables))

    @property
    def is_non_negative(self) -> bool:
        """Whether c(x) >= 0 whatever the parameters: positive weights, non-negative inputs."""
        return all(family.is_non_negative for family in self.families) and all(
            self.layer(k).weights.is_non_negative for k in range(len(self.layers))
        )

    @property
    def dtype(self) -> torch.dtype:
        """The real dtype in which values are computed."""
        return next(self.layer(-1).parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.layer(-1).parameters()).device

    def layer(self, number: int) -> Layer:
        """A product-and-sum layer by its number."""
        layer = self.layers[number]
        assert isinstance(layer, Layer)
        return layer

    def input_layer(self, number: int) -> InputLayer:
        """An input layer by its number."""
        layer = self.inputs[number]
        assert isinstance(layer, InputLayer)
        return layer

    def input_layers(self) -> list[InputLayer]:
        """All input layers."""
        return [self.input_layer(number) for number in range(len(self.inputs))]

    def forward(self, x: Tensor) -> Tensor:
        """c(x), (n, s), as plain numbers: beyond a few dozen variables use :meth:`log_abs`."""
        root = self.root(self.straight, self.values(x))
        return (root.mantissa * root.log_scale.exp()[..., None])[0]

    def log_abs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log|c(x)| and the sign (or phase) of c(x), both (n, s)."""
        root = self.root(self.straight, self.values(x))
        magnitude = root.mantissa.abs().double().log() + root.log_scale[..., None]
        return magnitude[0], root.mantissa.sgn()[0]

    def values(self, x: Tensor) -> list[Unscaled]:
        """The messages of all inputs at x (n, d): the leaves of c(x)."""
        x = x.to(self.dtype)
        return [layer.values(x, slice(None)) for layer in self.input_layers()]

    def route(self, labels: Mapping[int, Hashable]) -> Route:
        """The way through the layers when input regions of different labels are kept apart."""
        schedule = fold(
            self.graph,
            {r: (self._input_place[r][0], labels[r]) for r in self.graph.input_regions},
            sum_inputs=self._sum_inputs,
        )
        return Route(
            tuple(
                Entry(*_located(self._input_place, regions), labels[regions[0]])
                for regions in schedule.inputs
            ),
            tuple(
                Visit(
                    *_located(self._layer_place, step.regions),
                    step.sources,
                    tuple(_index(places) for places in step.places),
                )
                for step in schedule.steps
            ),
        )

    def climb(
        self,
        route: Route,
        leaves: Sequence[Unscaled],
        rule: Callable[[Visit, list[Unscaled | Message]], Message],
    ) -> Message:
        """Send messages from the leaves to the root: the only traversal of a circuit."""
        messages: list[Unscaled | Message] = list(leaves)
        for visit in route.visits:
            children = [
                messages[source].take(places)
                for source, places in zip(visit.sources, visit.places, strict=True)
            ]
            message = rule(visit, children)
            messages.append(message)
        return message

    def scaled(self, visit: Visit, children: Sequence[Unscaled | Scaled]) -> Scaled:
        """The rule of a climb in scaled arithmetic."""
        return self.layer(visit.layer).scaled(children, visit.folds)

    def signed_log(self, visit: Visit, children: Sequence[Unscaled | SignedLog]) -> SignedLog:
        """The rule of a climb in the paper's signed log arithmetic."""
        return self.layer(visit.layer).signed_log(children, visit.folds)

    def root(self, route: Route, leaves: Sequence[Unscaled]) -> Scaled:
        """The root's message, (1, n, s) or (1, n, s, s); rows that underflow are done again."""
        root = self.climb(route, leaves, self.scaled)
        lost = root.log_scale.isnan()[0]
        if not lost.any():
            return root
        rows = lost.nonzero()[:, 0]
        fewer = [leaf if leaf.some.shape[1] == 1 else leaf.rows(rows) for leaf in leaves]
        again = settle(Unscaled(*self.climb(route, fewer, self.signed_log)))
        return Scaled(
            root.mantissa.index_copy(1, rows, again.mantissa.to(root.mantissa.dtype)),
            root.log_scale.index_copy(1, rows, again.log_scale),
        )


def family_of_region(
    graph: RegionGraph, inputs: InputFamily | Sequence[InputFamily]
) -> dict[int, InputFamily]:
    """The family of each input region from one family, or one per variable."""
    if not isinstance(graph, RegionGraph):
        raise ValueError(
            f"expected a RegionGraph, got {type(graph).__name__}. Build one with "
            "random_binary_tree(d), linear_tree(d), flat(d) or RegionGraph.from_nested(...)."
        )
    if not graph.is_tree:
        raise ValueError(
            "a circuit that can be squared needs a region tree: one partition per region and no "
            "shared regions. For several trees use a Mixture of densities, one per tree."
        )
    if isinstance(inputs, InputFamily):
        inputs = [inputs] * graph.num_variables
    if len(inputs) != graph.num_variables:
        raise ValueError(
            f"inputs needs one family, or one per variable: expected {graph.num_variables}, got "
            f"{len(inputs)}."
        )
    families = {}
    for region in graph.input_regions:
        scope = sorted(graph.regions[region].scope)
        family = inputs[scope[0]]
        if any(inputs[variable] != family for variable in scope):
            raise ValueError(f"the variables {scope} of one input region need the same family.")
        if not isinstance(family, InputFamily):
            raise ValueError(
                f"expected an input family such as Gaussian(), got {family!r} for variable "
                f"{scope[0]}."
            )
        family.check_scope(len(scope))
        families[region] = family
    return families


def _places(tensors: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    return {r: (k, at) for k, regions in enumerate(tensors) for at, r in enumerate(regions)}


def _located(place: Mapping[int, tuple[int, int]], regions: Sequence[int]) -> tuple[int, Index]:
    return place[regions[0]][0], _index([place[region][1] for region in regions])


def _index(places: Sequence[int]) -> Index:
    """A slice where the places are consecutive, so that reading them is not a copy."""
    first, count = places[0], len(places)
    if list(places) == list(range(first, first + count)):
        return slice(first, first + count)
    return torch.tensor(places)
