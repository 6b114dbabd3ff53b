"""Densities from files: what a description names is built, and its numbers are filled in.

Only classes that are registered can be built (:mod:`subtractive.io.registry`): those of this
package, and those of others whose modules the user has imported. Nothing is imported or executed
because a file says so, and nothing is allocated that is larger than the numbers in the file.
"""

from __future__ import annotations

import math
import os
import pkgutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subtractive import inputs as inputs_package
from subtractive.circuits.building import family_of_region, fold_labels
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import LAYERS, Layer
from subtractive.circuits.weights import WEIGHTS, Weights
from subtractive.densities.base import Density, Restriction
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import FAMILIES, InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.io.files import FileFormatError, read_tensors
from subtractive.regions.folding import FoldedSchedule, fold, upward
from subtractive.regions.graph import RegionGraph

# Classes enter the registries when they are defined: those of this package are defined now.
for _module in pkgutil.iter_modules(inputs_package.__path__, "subtractive.inputs."):
    import_module(_module.name)

# Parameters that are logarithms of numbers that may be zero.
LOGARITHMS = {"log_value", "logits", "log_coefficient", "log_atom"}
# Whole numbers in a description may exceed the count of numbers in the file by this much.
_MOST_STATES = 2**16
# So many numbers need not be counted before they are made.
_SMALL = 2**20


class Stored(NamedTuple):
    """Part of a file's tensors: those whose names start with ``prefix``."""

    tensors: Mapping[str, Tensor]
    prefix: str = ""

    def below(self, name: str) -> Stored:
        """The tensors of a part."""
        return Stored(self.tensors, f"{self.prefix}{name}.")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors of this part, by name."""
        return {
            name.removeprefix(self.prefix): tuple(tensor.shape)
            for name, tensor in self.tensors.items()
            if name.startswith(self.prefix)
        }

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
    kinds = [LAYERS.find(name) for name in data["layers"]]
    labels = fold_labels(graph, families)
    summed = data.get("summed_inputs", _summed_inputs(graph, labels, len(kinds)))
    schedule = fold(upward(graph, labels, summed=summed))
    inputs = [
        _input_layer(
            [families[region] for region in leaf.regions],
            [sorted(graph.regions[region].scope) for region in leaf.regions],
            num_units,
            stored.below(f"inputs.{number}"),
        )
        for number, (leaf, num_units) in enumerate(
            zip(schedule.leaves, data["input_units"], strict=True)
        )
    ]
    layers = [
        kind(_weights(name, stored.below(f"layers.{number}.weights")))
        for number, (kind, name) in enumerate(zip(kinds, data["weights"], strict=True))
    ]
    _check_widths(schedule, inputs, layers)
    return Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers)


def _summed_inputs(graph: RegionGraph, labels: Mapping[int, Any], count: int) -> tuple[int, ...]:
    """The input regions with sums of their own, where it is all or none: more layers, if all."""
    has_sums = len(fold(upward(graph, labels)).calls) != count
    return graph.input_regions if has_sums else ()


def _family(data: Mapping[str, Any], stored: Stored) -> InputFamily:
    facts = dict(data)
    family = FAMILIES.find(facts.pop("family"))
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
    built = family(**facts)
    built.describe()  # raises for what save() would not have written
    return built


def _input_layer(
    families: Sequence[InputFamily],
    scopes: Sequence[Sequence[int]],
    num_units: int,
    stored: Stored,
) -> InputLayer:
    shapes = stored.shapes()
    is_shared = len(scopes) > 1 and all(shape[:1] == (1,) for shape in shapes.values())

    def build() -> InputLayer:
        return InputLayer(
            families, scopes, num_units=num_units, generator=None, is_shared=is_shared
        )

    # Shapes without memory take torch long to prepare: not for what is small for certain.
    is_small = num_units * sum(map(_most_numbers, families, scopes)) <= _SMALL
    with nullcontext() if is_small else torch.device("meta"):
        layer = build()
    expected = {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}
    if shapes != expected:
        raise ValueError(f"expected inputs of shapes {expected}, found {shapes}.")
    return layer if is_small else build()


def _most_numbers(family: InputFamily, scope: Sequence[int]) -> int:
    """How many numbers one unit over some variables may have, at most."""
    return max(len(scope) ** 2, _largest(family.describe()))


def _largest(fact: object) -> int:
    """The largest whole number in a description, or how many entries it has."""
    if isinstance(fact, Mapping | list | tuple):
        entries = list(fact.values()) if isinstance(fact, Mapping) else list(fact)
        return max([len(entries), *map(_largest, entries)])
    return fact if isinstance(fact, int) else 0


def _weights(name: str, stored: Stored) -> Weights:
    (shape,) = stored.shapes().values()
    return WEIGHTS.find(name).of_shape(shape)


def _check_widths(
    schedule: FoldedSchedule, inputs: Sequence[InputLayer], layers: Sequence[Layer]
) -> None:
    """Every layer must fit onto those below it."""
    widths = [layer.num_units for layer in inputs]
    for step, layer in zip(schedule.calls, layers, strict=True):
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
