"""Square roots of monotonic circuits: where squares start from what sums have learned.

A monotonic circuit adds the products of weights and inputs along all hidden paths z, one unit for
each region. With the square root of every weight and of every input function,

    (Σ_z √path_z(x))² = Σ_z path_z(x) + Σ_{z ≠ z'} √(path_z(x) path_z'(x)),

the same circuit and cross terms. They vanish where no two paths overlap, and are few where a row
leaves little doubt about its path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce, singledispatch
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.building import fold_labels, require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import RealWeights
from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily, Tensors
from subtractive.inputs.binomial import Binomial, binomial_log_prob
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.learning.initialise import scale_to_one
from subtractive.numerics.validation import whole_number
from subtractive.regions.folding import fold, upward
from subtractive.regions.graph import RegionGraph
from subtractive.regions.purification import purified


class Root(NamedTuple):
    """√f_k of the functions of an input region: ``exp(log_factor_k)`` times others."""

    family: InputFamily
    tensors: Tensors  # (1, i, ...) each
    log_factor: Tensor  # (i,)


@torch.no_grad()
def square_root(density: MonotonicCircuit, *, num_squares: int = 1) -> SquaredCircuit:
    """The square of the square roots of all weights and inputs of a monotonic circuit.

    It has as many units and weights, and is the same density where hidden paths do not overlap
    (a deterministic circuit); elsewhere it has cross terms, too. With ``num_squares`` the units
    below the root are dealt out to so many squares, without cross terms between them.

    Tables become :class:`Embedding` inputs, Gaussians wider ones; the rest has no square root in
    closed form. Train it with small steps (``fit(..., learning_rate=...)``): it starts learned.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Gaussian(), num_units=4,
    ...     weights=sub.positive_weights, seed=0)
    >>> additive = sub.MonotonicCircuit(circuit)
    >>> squared = sub.learning.square_root(additive)
    >>> squared.circuit.num_parameters == circuit.num_parameters
    True
    """
    count = whole_number("num_squares", num_squares, 1)
    circuit = _circuit_of(density)
    roots = {region: _root_of_inputs(circuit, region) for region in circuit.graph.input_regions}
    weights = {region: _root_of_weights(circuit, region, roots) for region in circuit.places.sums}
    top = weights[circuit.graph.root]  # (o, i)
    share = torch.arange(top.shape[1]) % count == torch.arange(count)[:, None]  # (s, i)
    weights[circuit.graph.root] = (top[:, None] * share.to(top)).flatten(0, 1)
    return _assembled(circuit, circuit.graph, roots, weights)


@torch.no_grad()
def purified_square_root(density: MonotonicCircuit) -> Density:
    r"""The same density as a monotonic circuit, as sums of squares at every region.

    .. math:: \sum_z \mathrm{path}_z(x) = \sum_z \bigl(\sqrt{\mathrm{path}_z(x)}\bigr)^2

    Every split has a purifier (:func:`subtractive.regions.purified`) with one state for each
    unit, which tells the paths apart: its table starts as the identity. Training may mix the
    states, and so learns cross terms of either sign: squares begin where sums have ended.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Gaussian(), num_units=4,
    ...     weights=sub.positive_weights, seed=0)
    >>> additive = sub.MonotonicCircuit(circuit)
    >>> squared, x = sub.learning.purified_square_root(additive), torch.randn(5, 3)
    >>> torch.allclose(squared.log_prob(x), additive.log_prob(x), rtol=0, atol=1e-4)
    True
    """
    circuit = _circuit_of(density)
    if not all(isinstance(layer, HadamardLayer) for layer in circuit.sum_layers):
        raise ValueError(
            "a purified square root needs Hadamard products at all sums, and no sums over single "
            "inputs: leave num_input_units out, or use square_root()."
        )
    graph, size = purified(circuit.graph), circuit.num_variables
    number = _numbers_after_purification(circuit.graph)
    roots, weights = {}, {}
    for old, region in enumerate(circuit.graph.regions):
        if not region.partitions:
            roots[number[old]] = _root_of_inputs(circuit, old)
    below = {old: roots[number[old]] for old in circuit.graph.input_regions}
    for old in circuit.places.sums:
        weight = _root_of_weights(circuit, old, below)
        eye = torch.eye(weight.shape[1], dtype=weight.dtype)[None]
        purifier = Root(Embedding(len(eye[0])), {"table": eye}, weight.new_zeros(len(eye[0])))
        roots[number[old] - 1], weights[number[old]] = purifier, weight
    return _assembled(circuit, graph, roots, weights).marginal(range(size))


def _circuit_of(density: MonotonicCircuit) -> Circuit:
    if not isinstance(density, MonotonicCircuit):
        raise ValueError(
            f"a square root is taken of a MonotonicCircuit, got {type(density).__name__}."
        )
    require_tree(density.circuit.graph, "the square root of a circuit")
    known = HadamardLayer | KroneckerLayer | SumLayer
    if not all(isinstance(layer, known) for layer in density.circuit.sum_layers):
        raise ValueError("square roots are known of Hadamard, Kronecker and sum layers only.")
    return density.circuit


def _numbers_after_purification(graph: RegionGraph) -> dict[int, int]:
    """The number of each region in the purified tree: purifiers come right before their split."""
    number, last = {}, -1
    for old, region in enumerate(graph.regions):
        last += 2 if region.partitions else 1
        number[old] = last
    return number


def _root_of_inputs(circuit: Circuit, region: int) -> Root:
    layer, place = circuit.input_of(region)
    return root_of(layer.family, layer.tensors(place, torch.float64))


def _root_of_weights(circuit: Circuit, region: int, roots: Mapping[int, Root]) -> Tensor:
    """√w, times what the inputs that are multiplied there have as factors, (o, i)."""
    layer, _ = circuit.sum_of(region)
    logs = 0.5 * circuit.weight_of(region).double().log()
    partitions = circuit.graph.regions[region].partitions
    children = partitions[0].children if partitions else (region,)
    summed = () if not partitions else circuit.summed_inputs
    factors = [
        roots[child].log_factor
        if child in roots and child not in summed
        else logs.new_zeros(circuit.weight_of(child).shape[0])
        for child in children
    ]
    if isinstance(layer, KroneckerLayer):
        factor = reduce(lambda a, b: (a[:, None] + b).flatten(), factors)
    else:
        factor = torch.stack(factors).sum(0)
    logs = logs + factor
    return (logs - logs.max()).exp()  # one factor for all of c: it falls out of the density


def _assembled(
    circuit: Circuit,
    graph: RegionGraph,
    roots: Mapping[int, Root],
    weights: Mapping[int, Tensor],
) -> SquaredCircuit:
    """A squared circuit of given input functions and weights, by region of its graph."""
    labels = fold_labels(graph, {region: root.family for region, root in roots.items()})
    summed = [region for region in weights if not graph.regions[region].partitions]
    schedule = fold(upward(graph, labels, summed=summed))
    is_shared = circuit.input_layers[0].is_shared
    inputs = [
        _input_layer(graph, leaf.regions, roots, is_shared=is_shared) for leaf in schedule.leaves
    ]
    layers: list[Layer] = []
    kind = next((type(layer) for layer in circuit.sum_layers if type(layer) is not SumLayer), None)
    for call in schedule.calls:
        matrices = torch.stack([weights[region] for region in call.regions])
        layers.append(
            (SumLayer if len(call.sources) == 1 else kind or SumLayer)(RealWeights(matrices))
        )
    built = Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers)
    squared = SquaredCircuit(built)
    scale_to_one(built, float(squared.log_normaliser()) / 2)
    return squared.to(circuit.dtype)


def _input_layer(
    graph: RegionGraph, regions: Sequence[int], roots: Mapping[int, Root], *, is_shared: bool
) -> InputLayer:
    families = [roots[region].family for region in regions]
    first = roots[regions[0]]
    layer = InputLayer(
        families,
        [sorted(graph.regions[region].scope) for region in regions],
        num_units=len(first.log_factor),
        generator=None,
        is_shared=is_shared and len(regions) > 1,
    ).double()
    owners = regions[:1] if layer.is_shared else regions
    for name in first.tensors:
        tensors = [roots[region].tensors[name] for region in owners]
        layer.get_tensor(name).copy_(torch.cat(tensors))
    return layer


@singledispatch
def root_of(family: InputFamily, p: Tensors) -> Root:
    """The square roots of the functions of one region, whose tensors are (1, i, ...)."""
    known = ", ".join(sorted(kind.__name__ for kind in root_of.registry if kind is not object))
    raise ValueError(
        f"{type(family).__name__} functions have no square root in closed form, only {known} "
        "ones. Start the square with initialise() instead."
    )


def _table(log_values: Tensor) -> Root:
    """√f of functions of states, whose logarithms are (1, i, v)."""
    states = log_values.shape[2]
    factor = log_values.new_zeros(log_values.shape[1])
    return Root(Embedding(states), {"table": (0.5 * log_values).exp()}, factor)


@root_of.register
def _(family: Categorical, p: Tensors) -> Root:
    return _table(p["logits"].log_softmax(-1))


@root_of.register
def _(family: Binomial, p: Tensors) -> Root:
    states = torch.arange(family.total + 1)[None]
    return _table(binomial_log_prob(p["logit"], family.total, states).mT)


@root_of.register
def _(family: Gaussian, p: Tensors) -> Root:
    # √N(x; μ, σ) = (8π σ²)^¼ N(x; μ, √2 σ)
    log_scale = p["log_scale"] + 0.5 * math.log(2)
    log_factor = 0.25 * math.log(8 * math.pi) + 0.5 * p["log_scale"][0]
    return Root(family, {"mean": p["mean"], "log_scale": log_scale}, log_factor)


@root_of.register
def _(family: MultivariateGaussian, p: Tensors) -> Root:
    if family.norm != 1:
        raise ValueError(f"expected MultivariateGaussian densities, of norm 1, got {family}.")
    wider = {"log_diagonal": p["log_diagonal"] + 0.5 * math.log(2)}
    wider["lower"] = math.sqrt(2) * p["lower"]
    log_factor = p["mean"].new_zeros(p["mean"].shape[1])  # of norm 2: the integral of f² is one
    return Root(MultivariateGaussian(norm=2), {"mean": p["mean"], **wider}, log_factor)


@root_of.register
def _(family: WithAtoms, p: Tensors) -> Root:
    base = root_of(family.base, p)
    if not isinstance(base.family, Gaussian):
        raise ValueError(f"atoms have a square root beside Gaussians only, got {family}.")
    atoms = (0.5 * p["log_atom"] - base.log_factor[None, :, None]).exp()
    return Root(
        WithAtoms(base.family, family.atoms), {**base.tensors, "atom": atoms}, base.log_factor
    )
