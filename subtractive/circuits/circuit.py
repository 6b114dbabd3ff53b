"""Tensorized circuits c(x) over a region graph (paper: Defs. 1, 2 and A.6)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from subtractive.circuits.building import (
    as_generator,
    build_inputs,
    build_layers,
    check_layers,
    check_widths,
    family_of_region,
    fold_labels,
)
from subtractive.circuits.evaluation import LeafSource, evaluate, reference
from subtractive.circuits.layers import ElementwiseLayer, HadamardLayer, KroneckerLayer, Layer
from subtractive.circuits.weights import GivenWeights, WeightKind, Weights, real_weights
from subtractive.init import Initialiser, uniform
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.messages import LeafMessage
from subtractive.regions.folding import FoldedSchedule, LeafCall, Node, Places, fold, upward
from subtractive.regions.graph import RegionGraph


@final
class Circuit(nn.Module):
    """A deep sum of products of input functions, of any sign.

    ``num_input_units`` functions stand over every input region; every partition is a product
    layer followed by a sum layer of ``num_units`` units, ``num_outputs`` at the root. With
    ``shared_inputs``, regions of the same family have the same functions. Over a region tree c can
    be squared; regions with several partitions are for monotonic circuits.

    >>> circuit = sub.Circuit(sub.random_binary_tree(5, seed=0), sub.Gaussian(), num_units=4)
    >>> circuit(torch.zeros(3, 5)).shape
    torch.Size([3, 1])
    """

    graph: RegionGraph
    schedule: FoldedSchedule
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
        shared_inputs: bool = False,
        weights: WeightKind = real_weights,
        product: type[Layer] = HadamardLayer,
        initialise: Initialiser | None = None,
        seed: int | torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        families = family_of_region(graph, inputs)
        widths = check_widths(num_units, num_outputs, num_input_units)
        generator = as_generator(seed)
        if not graph.is_tree and product is not HadamardLayer:
            raise ValueError(
                "a region graph that is not a tree needs Hadamard products, got "
                f"product={product.__name__}."
            )
        # A Hadamard product cannot change the width, so a sum after each input region does.
        widen = product is HadamardLayer and widths.inputs != widths.inner
        summed = graph.input_regions if widen else ()
        schedule = fold(upward(graph, fold_labels(graph, families), summed=summed))
        input_layers = build_inputs(
            graph, schedule, families, widths, generator, is_shared=shared_inputs
        )

        def draw(shape: tuple[int, int, int]) -> Weights:
            return weights(shape, initialise or uniform(), generator)

        layers = build_layers(schedule, widths, product, draw)
        self._assemble(graph, schedule, input_layers, layers)
        self.to(dtype or torch.get_default_dtype())

    @classmethod
    def from_layers(
        cls,
        graph: RegionGraph,
        schedule: FoldedSchedule,
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
        schedule: FoldedSchedule,
        inputs: Sequence[InputLayer],
        layers: Sequence[Layer],
    ) -> None:
        self.graph, self.schedule = graph, schedule
        self.inputs, self.layers = nn.ModuleList(inputs), nn.ModuleList(layers)
        self.places = Places.of(schedule)
        shapes = check_layers(self.sum_layers, schedule, [layer.num_units for layer in inputs])
        self.weight_shapes = shapes  # (f, o, i) of each sum layer

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return self.graph.num_variables

    @property
    def num_outputs(self) -> int:
        """The number of outputs S of the root."""
        return self.weight_shapes[-1][1]

    @property
    def num_parameters(self) -> int:
        """The number of learnable real numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def size(self) -> int:
        """The number of connections into all product and sum units (paper: App. A.1.1).

        A Kronecker product of N children of K units has K^N product units of N inputs each: N K^N
        connections, where the paper's appendix writes K^(N + 1).
        """
        total = 0
        for layer, call in zip(self.sum_layers, self.schedule.calls, strict=True):
            weight = layer.weights()
            slots = len(call.sources) if len(call.sources) > 1 else 0
            total += weight.numel() + len(call.regions) * slots * weight.shape[2]
        return total

    @property
    def families(self) -> tuple[InputFamily, ...]:
        """The input family of each variable."""
        family = {
            variable: family
            for layer in self.input_layers
            for scope, family in zip(layer.scopes, layer.families, strict=True)
            for variable in scope
        }
        return tuple(family[variable] for variable in range(self.num_variables))

    @property
    def is_non_negative(self) -> bool:
        """Whether c(x) >= 0 whatever the parameters: positive weights, non-negative inputs."""
        return all(family.is_non_negative for family in self.families) and all(
            layer.is_non_negative for layer in self.sum_layers
        )

    @property
    def dtype(self) -> torch.dtype:
        """The real dtype in which values are computed."""
        return next(self.sum_layers[-1].parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.sum_layers[-1].parameters()).device

    @property
    def input_layers(self) -> list[InputLayer]:
        """The input layers, one for each leaf of the schedule."""
        return list(self.inputs)  # type: ignore[arg-type]

    @property
    def sum_layers(self) -> list[Layer]:
        """The product-and-sum layers, one for each call of the schedule, the root's last."""
        return list(self.layers)  # type: ignore[arg-type]

    def input_of(self, region: int) -> tuple[InputLayer, slice]:
        """The input layer of an input region, and its place there."""
        number, place = self.places.inputs[region]
        return self.input_layers[number], slice(place, place + 1)

    def sum_of(self, region: int) -> tuple[Layer, slice]:
        """The layer of the sum over a region, and its place there."""
        number, place = self.places.sums[region]
        return self.sum_layers[number], slice(place, place + 1)

    def weight_of(self, region: int) -> Tensor:
        """The weights (o, i) of the sum over a region."""
        layer, place = self.sum_of(region)
        return layer.weight(place)[0]

    @property
    def summed_inputs(self) -> list[int]:
        """The input regions that are followed by a sum of their own."""
        return [region for region in self.graph.input_regions if region in self.places.sums]

    def nodes(self, labels: Mapping[int, Hashable]) -> list[Node]:
        """The messages on the way to the root when input regions have these labels."""
        return upward(self.graph, labels, summed=self.summed_inputs)

    def refold(self, labels: Mapping[int, Hashable]) -> FoldedSchedule:
        """The schedule when input regions of different labels are kept apart."""
        if len(set(labels.values())) == 1:
            return self.schedule.with_label(next(iter(labels.values())))
        return fold(self.nodes(labels), self.places)

    def values_at(self, x: Tensor) -> LeafSource:
        """The leaves of c(x): all inputs at x (n, d)."""
        if x.dim() != 2 or x.shape[1] != self.num_variables:
            raise ValueError(
                f"x must have shape (rows, {self.num_variables}), one column per variable, got "
                f"{tuple(x.shape)}."
            )
        return values_at(self.input_layers, x)

    def forward(self, x: Tensor) -> Tensor:
        """c(x), (n, s), as plain numbers: beyond a few dozen variables use :meth:`log_abs`."""
        root = evaluate(self.schedule, self.sum_layers, self.values_at(x))
        return (root.mantissa * root.log_scale.exp()[..., None])[0]

    def log_abs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log|c(x)| and the sign (or phase) of c(x), both (n, s), by the signed log-sum-exp.

        -inf says that c(x) is exactly zero, however much the outputs of a row differ.
        """
        sign, log_abs = reference(self.schedule, self.sum_layers, self.values_at(x))
        return log_abs[0], sign[0]

    def describe(self) -> dict[str, Any]:
        """What the circuit is made of, without its numbers, as plain data for files."""
        summed = self.summed_inputs
        partly = (
            {"summed_inputs": summed} if 0 < len(summed) < len(self.graph.input_regions) else {}
        )
        return partly | {
            "graph": self.graph.describe(),
            "families": [family.describe() for family in self.families],
            "input_units": [layer.num_units for layer in self.input_layers],
            "layers": [layer.name_in_files for layer in self.sum_layers],
            "weights": [layer.weights.name_in_files for layer in self.sum_layers],
        }


def values_at(layers: Sequence[InputLayer], x: Tensor) -> LeafSource:
    """The leaves f(x) of input layers at complete rows x (n, d)."""

    def values(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        some = x if rows is None else x[rows]
        return layers[call.layer].values(some, call.folds, dtype)

    return values


class Stack(NamedTuple):
    """Circuits of equal structure, evaluated side by side as one circuit with several roots.

    Region ``f`` of circuit ``m`` is at ``f * size + m``. A mixture of eight trees then takes as
    many calls as one tree, each with eight times as many regions. The layers are computed from
    the parameters of the circuits, with their gradients.
    """

    circuit: Circuit  # the first one, which has the structure of all
    size: int
    input_layers: Sequence[InputLayer]
    sum_layers: Sequence[Layer]

    @classmethod
    def of(cls, circuits: Sequence[Circuit]) -> Stack:
        """The stack of circuits with the same :func:`structure`."""
        first = circuits[0]
        if len(circuits) == 1:
            return cls(first, 1, first.input_layers, first.sum_layers)
        inputs = zip(*(circuit.input_layers for circuit in circuits), strict=True)
        sums = zip(*(circuit.sum_layers for circuit in circuits), strict=True)
        return cls(
            first,
            len(circuits),
            [InputLayer.side_by_side(layers) for layers in inputs],
            [_side_by_side(layers) for layers in sums],
        )


def structure(circuit: Circuit) -> Hashable:
    """Circuits for which this is equal can be stacked; ``None`` if there is no stacking."""
    layers = circuit.sum_layers
    if not all(isinstance(layer, ElementwiseLayer | KroneckerLayer) for layer in layers):
        return None  # a product of a third party may have parameters of its own
    sums = [(type(layer), type(layer.weights)) for layer in layers]
    inputs = [(layer.families, layer.scopes, layer.num_units) for layer in circuit.input_layers]
    return circuit.graph, *sums, *circuit.weight_shapes, *inputs, circuit.dtype


def _side_by_side(layers: Sequence[Layer]) -> Layer:
    weights = torch.stack([layer.weights() for layer in layers], 1).flatten(0, 1)
    return type(layers[0])(GivenWeights(weights))
