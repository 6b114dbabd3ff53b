"""Tensorized circuits c(x) over a region tree (paper: Defs. 1, 2 and A.6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from subtractive.circuits.ascent import Ascent, ascend, ascend_disturbed
from subtractive.circuits.building import (
    as_generator,
    build_inputs,
    build_layers,
    check_widths,
    family_of_region,
    fold_labels,
)
from subtractive.circuits.climb import Disturb
from subtractive.circuits.initialisers import Initialiser, uniform
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, summed_product
from subtractive.circuits.planning import NARROW_FROM, Kind, Plan, kinds_of, make_plan
from subtractive.circuits.route import Map, Route, Visit
from subtractive.circuits.trunk import meet_in_trunk
from subtractive.circuits.weights import WeightKind, Weights, real_weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.scaled import Scaled, log_magnitude, log_sum, settle
from subtractive.numerics.signed_log import SignedLog
from subtractive.regions.graph import RegionGraph
from subtractive.regions.schedule import Schedule, fold

Message = TypeVar("Message", Scaled, SignedLog, LeafMessage)


@final
class Circuit(nn.Module):
    """A deep sum of products of input functions, of any sign.

    ``num_input_units`` functions stand over every input region; every partition is a product
    layer followed by a sum layer of ``num_units`` units, ``num_outputs`` at the root. With
    ``shared_inputs``, regions of the same family have the same functions.

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
        # A Hadamard product cannot change the width, so a sum after each input region does.
        widen = product is HadamardLayer and widths.inputs != widths.inner
        schedule = fold(graph, fold_labels(graph, families), sum_inputs=widen)
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
        self._map = Map.of(graph, schedule)
        self.straight = self._map.route(dict.fromkeys(graph.input_regions))
        self._plans: dict[tuple[tuple[Kind, ...], bool, bool], Plan | None] = {}
        self._has_plans = not any(isinstance(layer, KroneckerLayer) for layer in self.layers)
        self._is_wide = max(layer.num_units for layer in self.input_layers()) >= NARROW_FROM

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
            variable: family
            for layer in self.input_layers()
            for scope, family in zip(layer.scopes, layer.families, strict=True)
            for variable in scope
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

    def all_layers(self) -> list[Layer]:
        """All product-and-sum layers, the root's last."""
        return list(self.layers)  # type: ignore[arg-type]

    def input_layer(self, number: int) -> InputLayer:
        """An input layer by its number."""
        layer = self.inputs[number]
        assert isinstance(layer, InputLayer)
        return layer

    def input_layers(self) -> list[InputLayer]:
        """All input layers."""
        return [self.input_layer(number) for number in range(len(self.inputs))]

    def has_sum(self, region: int) -> bool:
        """Whether a sum stands over a region: all but input regions read as they are."""
        return region in self._map.layers

    def layer_of(self, region: int) -> Layer:
        """The product-and-sum layer that a region belongs to."""
        return self.layer(self._map.layers[region][0])

    def place_of(self, region: int) -> int:
        """The region's place in its layer."""
        return self._map.layers[region][1]

    def weight_of(self, region: int) -> Tensor:
        """The weights (o, i) of the sum over a region."""
        return self.layer_of(region).weights()[self.place_of(region)]  # type: ignore[no-any-return]

    def input_of(self, region: int) -> tuple[InputLayer, slice]:
        """The input layer of an input region, and its place there."""
        layer, place = self._map.inputs[region]
        return self.input_layer(layer), slice(place, place + 1)

    def forward(self, x: Tensor) -> Tensor:
        """c(x), (n, s), as plain numbers: beyond a few dozen variables use :meth:`log_abs`."""
        root = self.root(self.straight, self.values(x))
        return (root.mantissa * root.log_scale.exp()[..., None])[0]

    def log_abs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log|c(x)| and the sign (or phase) of c(x), both (n, s), by the signed log-sum-exp.

        -inf says that c(x) is exactly zero, however much the outputs of a row differ.
        """
        sign, log_abs = self.climb(self.straight, self.values(x), self.signed_log)
        return log_abs[0], sign[0]

    def values(self, x: Tensor) -> list[LeafMessage]:
        """The messages of all inputs at x (n, d): the leaves of c(x)."""
        if x.dim() != 2 or x.shape[1] != self.num_variables:
            raise ValueError(
                f"x must have shape (rows, {self.num_variables}), one column per variable, got "
                f"{tuple(x.shape)}."
            )
        return [layer.values(x, slice(None)) for layer in self.input_layers()]

    def describe(self) -> dict[str, Any]:
        """What the circuit is made of, without its numbers, as plain data for files."""
        return {
            "graph": self.graph.describe(),
            "families": [family.describe() for family in self.families],
            "input_units": [layer.num_units for layer in self.input_layers()],
            "layers": [layer.name_in_files for layer in self.all_layers()],
            "weights": [layer.weights.name_in_files for layer in self.all_layers()],
        }

    def route(self, labels: Mapping[int, Hashable]) -> Route:
        """The way through the layers when input regions of different labels are kept apart."""
        if len(set(labels.values())) == 1:
            return self.straight.labelled(next(iter(labels.values())))
        return self._map.route(labels)

    def climb(
        self,
        route: Route,
        leaves: Sequence[LeafMessage],
        rule: Callable[[Visit, list[LeafMessage | Message]], Message],
    ) -> Message:
        """Send messages from the leaves to the root, and return the root's."""
        return self.messages(route, leaves, rule)[-1]

    def messages(
        self,
        route: Route,
        leaves: Sequence[LeafMessage],
        rule: Callable[[Visit, list[LeafMessage | Message]], Message],
    ) -> list[Message]:
        """The messages of all steps from the leaves to the root: the only way up a circuit."""
        waiting: dict[tuple[int, int], LeafMessage | Message] = {}  # by tensor and first place

        def send(tensor: int, message: LeafMessage | Message) -> None:
            # Split, not sliced: on the way back the parts are joined, not added to zeros.
            parts = route.parts[tensor]
            pieces: Sequence[LeafMessage | Message] = message.split(parts)
            for part, piece in zip(parts, pieces, strict=True):
                waiting[tensor, part.start] = piece

        for tensor, leaf in enumerate(leaves):
            send(tensor, leaf)
        steps: list[Message] = []
        for tensor, visit in enumerate(route.visits, len(leaves)):
            children = [
                waiting.pop((source, places.start))
                for source, places in zip(visit.sources, visit.places, strict=True)
            ]
            steps.append(rule(visit, children))
            send(tensor, steps[-1])
        return steps

    def scaled(self, visit: Visit, children: Sequence[LeafMessage | Scaled]) -> Scaled:
        """The rule of a climb in scaled arithmetic."""
        return self.layer(visit.layer).scaled(children, visit.folds)

    def signed_log(self, visit: Visit, children: Sequence[LeafMessage | SignedLog]) -> SignedLog:
        """The rule of a climb in the paper's signed log arithmetic."""
        return self.layer(visit.layer).signed_log(children, visit.folds)

    def log_root(self, route: Route, leaves: Sequence[LeafMessage], *, squares: bool) -> Tensor:
        """log Σ_s c_s, or log Σ_s |c_s|² of vectors or grams, (n,), the quick way where safe."""
        careful = log_magnitude if squares else log_sum
        quick = self.quick_log_root(route, leaves, squares=squares)
        if quick is None or (quick.lost is not None and bool(quick.lost.all())):
            return careful(self.root(route, leaves))
        if quick.lost is None:
            return quick.log_total
        parts, order = [], []
        for rows, is_quick in ((quick.lost, False), (~quick.lost, True)):
            fewer = [leaf if leaf.some.shape[1] == 1 else leaf.rows(rows) for leaf in leaves]
            again = self.quick_log_root(route, fewer, squares=squares) if is_quick else None
            if again is not None and again.lost is None:
                parts.append(again.log_total)
            else:
                parts.append(careful(self.root(route, fewer)))
            order.append(rows.nonzero()[:, 0])
        return torch.cat(parts)[torch.cat(order).argsort()]

    def quick_log_root(
        self, route: Route, leaves: Sequence[LeafMessage], *, squares: bool
    ) -> Ascent | None:
        """The same by :mod:`subtractive.circuits.ascent` alone, if this circuit allows it."""
        plan = self._plan(route, leaves, squares=squares)
        weights = self._real_weights(route)
        if plan is None or weights is None:
            return None

        def careful(tensors: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
            again = [
                LeafMessage(None, tensor) if is_exponent else LeafMessage(tensor, None)
                for tensor, is_exponent in zip(tensors, plan.is_exponent, strict=True)
            ]
            queue = iter(weights)
            root = self.climb(route, again, lambda _, some: summed_product(some, next(queue)))
            return (log_magnitude if squares else log_sum)(root)

        tensors = [leaf.some for leaf in leaves]
        met = meet_in_trunk(plan, tensors, weights) if squares else None
        return ascend(plan, tensors, weights, careful) if met is None else met

    def disturbed_log_root(self, leaves: Sequence[LeafMessage], disturb: Disturb) -> Ascent | None:
        """The same for |c|² if every sum is disturbed, and for no slopes."""
        plan = self._plan(self.straight, leaves, squares=True)
        weights = self._real_weights(self.straight)
        if plan is None or weights is None:
            return None
        return ascend_disturbed(plan, [leaf.some for leaf in leaves], weights, disturb)

    def _real_weights(self, route: Route) -> list[Tensor] | None:
        """The weights (f, o, i) of each visit, if they are real."""
        layers = self.all_layers()
        weights = [layers[visit.layer].weight(visit.folds) for visit in route.visits]
        return None if any(weight.is_complex() for weight in weights) else weights

    def _plan(self, route: Route, leaves: Sequence[LeafMessage], *, squares: bool) -> Plan | None:
        """The plan of a route, remembered for the straight one, which training takes."""
        kinds = kinds_of(leaves) if self._has_plans else None
        if kinds is None:
            return None
        is_narrow = self._is_wide and torch.is_grad_enabled() and self.dtype == torch.float32
        if route.visits is not self.straight.visits:
            return make_plan(route, kinds, squares=squares, is_narrow=is_narrow)
        key = kinds, squares, is_narrow
        if key not in self._plans:
            self._plans[key] = make_plan(route, kinds, squares=squares, is_narrow=is_narrow)
        return self._plans[key]

    def root(self, route: Route, leaves: Sequence[LeafMessage]) -> Scaled:
        """The root's message, (1, n, s) or (1, n, s, s); rows that underflow are done again."""
        root = self.climb(route, leaves, self.scaled)
        lost = root.log_scale.isnan()[0]
        if not lost.any():
            return root
        rows = lost.nonzero()[:, 0]
        fewer = [leaf if leaf.some.shape[1] == 1 else leaf.rows(rows) for leaf in leaves]
        again = settle(LeafMessage(*self.climb(route, fewer, self.signed_log)))
        return Scaled(
            root.mantissa.index_copy(1, rows, again.mantissa.to(root.mantissa.dtype)),
            root.log_scale.index_copy(1, rows, again.log_scale),
        )
