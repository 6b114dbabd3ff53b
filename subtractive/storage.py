"""Densities from files: what a description names is built, and its numbers are filled in.

Only names in the tables below can be built, nothing is executed, and nothing is allocated that
is larger than the numbers in the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subtractive.circuits.building import family_of_region, fold_labels
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights, Weights
from subtractive.densities.base import Density, Restriction
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily
from subtractive.inputs.binomial import Binomial
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.inputs.rbf import RBF
from subtractive.inputs.spline import Spline
from subtractive.inputs.tied_gaussian import TiedGaussian
from subtractive.io.files import FileFormatError, read_tensors
from subtractive.regions.graph import RegionGraph
from subtractive.regions.schedule import Schedule, fold

FAMILIES: dict[str, type[InputFamily]] = {
    family.__name__: family
    for family in (
        Binomial,
        Categorical,
        Embedding,
        Gaussian,
        MultivariateGaussian,
        RBF,
        Spline,
        TiedGaussian,
        WithAtoms,
    )
}
LAYERS: dict[str, type[Layer]] = {
    layer.__name__: layer for layer in (HadamardLayer, KroneckerLayer, SumLayer)
}
# The name of the parameter, and the weights that have it in a given shape.
WEIGHTS: dict[str, tuple[str, Callable[[Sequence[int]], Weights]]] = {
    "RealWeights": ("value", lambda shape: RealWeights(torch.ones(*shape))),
    "PositiveWeights": ("log_value", lambda shape: PositiveWeights(torch.ones(*shape))),
    "ComplexWeights": (
        "parts",
        lambda shape: ComplexWeights(torch.ones(*shape[:-1], dtype=torch.complex64)),
    ),
}
# Parameters that are logarithms of numbers that may be zero.
LOGARITHMS = {"log_value", "logits", "log_coefficient", "log_atom"}
# Whole numbers in a description may exceed the count of numbers in the file by this much.
_MOST_STATES = 2**16


class Stored(NamedTuple):
    """Part of a file's tensors: those whose names start with ``prefix``."""

    tensors: Mapping[str, Tensor]
    prefix: str = ""

    def below(self, name: str) -> Stored:
        """The tensors of a part."""
        return Stored(self.tensors, f"{self.prefix}{name}.")

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self.tensors[self.prefix + name].shape)

    @property
    def size(self) -> int:
        """How many numbers the file holds."""
        return sum(tensor.numel() for tensor in self.tensors.values())


def read_density(path: str | os.PathLike[str]) -> tuple[Density, dict[str, Any]]:
    """The density in a file, and the whole description beside it."""
    tensors, description = read_tensors(path, "model")
    try:
        density = _density(description["density"], Stored(tensors))
        # Assigned, not copied: every tensor keeps the precision that it was saved in.
        density.load_state_dict(tensors, assign=True)
        _check_finite(density)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise FileFormatError(
            f"{os.fspath(path)} does not describe a model ({reason}). It was not written by "
            "save(), or by a program that is broken."
        ) from None
    except (OverflowError, MemoryError, RecursionError) as error:
        raise FileFormatError(
            f"{os.fspath(path)} does not describe a model: {type(error).__name__}."
        ) from None
    return density, description


def _density(data: Mapping[str, Any], stored: Stored) -> Density:
    kind = data["kind"]
    if kind == "squared":
        return SquaredCircuit(_circuit(data["circuit"], stored.below("circuit")))
    if kind == "monotonic":
        return MonotonicCircuit(_circuit(data["circuit"], stored.below("circuit")))
    if kind == "mixture":
        members = [
            _density(member, stored.below(f"members.{number}"))
            for number, member in enumerate(data["members"])
        ]
        return Mixture(members)
    if kind == "restriction":
        density = _density(data["of"], stored.below("density"))
        fixed = stored.tensors[stored.prefix + "fixed"]
        if fixed.shape != (1, density.num_variables):
            raise ValueError("the given values do not fit the variables.")
        whole = density.marginal(data["keep"])  # checks the variables
        assert isinstance(whole, Restriction)
        whole.fixed = fixed
        return whole
    raise ValueError(f"unknown kind of density {str(kind)[:40]!r}.")


def _circuit(data: Mapping[str, Any], stored: Stored) -> Circuit:
    graph = RegionGraph.from_description(data["graph"])
    families = family_of_region(graph, [_family(entry, stored) for entry in data["families"]])
    kinds = [LAYERS[name] for name in data["layers"]]
    labels = fold_labels(graph, families)
    schedule = fold(graph, labels, sum_inputs=_has_sums_of_inputs(graph, labels, len(kinds)))
    inputs = [
        _input_layer(
            [families[region] for region in regions],
            [sorted(graph.regions[region].scope) for region in regions],
            num_units,
            stored.below(f"inputs.{number}"),
        )
        for number, (regions, num_units) in enumerate(
            zip(schedule.inputs, data["input_units"], strict=True)
        )
    ]
    layers = [
        kind(_weights(name, stored.below(f"layers.{number}.weights")))
        for number, (kind, name) in enumerate(zip(kinds, data["weights"], strict=True))
    ]
    _check_widths(schedule, inputs, layers)
    return Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers)


def _has_sums_of_inputs(graph: RegionGraph, labels: Mapping[int, Any], count: int) -> bool:
    """Whether sums stand between inputs and products, which makes more layers."""
    return len(fold(graph, labels, sum_inputs=False).steps) != count


def _family(data: Mapping[str, Any], stored: Stored) -> InputFamily:
    facts = dict(data)
    family = FAMILIES[facts.pop("family")]
    # A fact may be missing where it has a default: the file is older than the fact.
    if not set(facts) <= {entry.name for entry in fields(family)}:  # type: ignore[arg-type]
        raise ValueError(f"{family.__name__} has other facts than {sorted(facts)}.")
    for name, value in facts.items():
        if isinstance(value, list):
            facts[name] = tuple(value)
        elif isinstance(value, dict):
            facts[name] = _family(value, stored)
        elif isinstance(value, int) and value > stored.size + _MOST_STATES:
            raise ValueError(f"{name} is {value}, more than the file has numbers.")
    return family(**facts)


def _input_layer(
    families: Sequence[InputFamily],
    scopes: Sequence[Sequence[int]],
    num_units: int,
    stored: Stored,
) -> InputLayer:
    shapes = {
        name.removeprefix(stored.prefix): tuple(tensor.shape)
        for name, tensor in stored.tensors.items()
        if name.startswith(stored.prefix)
    }

    is_shared = len(scopes) > 1 and all(shape[:1] == (1,) for shape in shapes.values())

    def build() -> InputLayer:
        return InputLayer(
            families, scopes, num_units=num_units, generator=None, is_shared=is_shared
        )

    with torch.device("meta"):  # shapes without memory
        expected = {name: tuple(t.shape) for name, t in build().state_dict().items()}
    if shapes != expected:
        raise ValueError(f"expected inputs of shapes {expected}, found {shapes}.")
    return build()


def _weights(name: str, stored: Stored) -> Weights:
    parameter, make = WEIGHTS[name]
    return make(stored.shape(parameter))


def _check_widths(
    schedule: Schedule, inputs: Sequence[InputLayer], layers: Sequence[Layer]
) -> None:
    """Every layer must fit onto those below it."""
    widths = [layer.num_units for layer in inputs]
    for step, layer in zip(schedule.steps, layers, strict=True):
        regions, outputs, width = layer.weights().shape
        below = [widths[source] for source in step.sources]
        if (regions, width) != (len(step.regions), layer.num_inputs(below)) or outputs == 0:
            raise ValueError("the shapes of weights do not fit onto one another.")
        widths.append(outputs)


def _check_finite(density: nn.Module) -> None:
    for name, parameter in density.named_parameters():
        possible = parameter.isfinite()
        if name.rpartition(".")[2] in LOGARITHMS:
            possible = possible | (parameter == -math.inf)
        if not bool(possible.all()):
            raise ValueError(f"{name} holds numbers that are not finite.")
