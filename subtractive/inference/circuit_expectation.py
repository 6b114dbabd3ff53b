"""Expectations of one circuit under the square of another on the same region tree.

``E[c₂] = Σ_s ∫ |c₁ₛ|² c₂ / Z`` is the inner product of c₁ with c₁ c₂*, a circuit of K₁ K₂ units,
by cross grams. Its inputs are integrals of products of three functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from subtractive.circuits.building import require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import root_of_grams
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import GivenWeights
from subtractive.inference.evidence import Evidence
from subtractive.inference.integration_points import integration_points
from subtractive.inference.marginal import log_integral, log_square_integral
from subtractive.inputs.base import InputFamily, Tensors
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.gaussian_log_density import log_density
from subtractive.numerics.leaf_operations import side_by_side
from subtractive.numerics.messages import LeafMessage, to_scaled

Functions = tuple[InputFamily, Tensors]  # of one region of one variable, tensors (1, i, ...)


def square_expectation(first: Circuit, evidence: Evidence, second: Circuit) -> Tensor:
    """E[c₂(x)] under Σ_s |c₁ₛ|² given one row of evidence, (t,), one for each output of c₂."""
    check_same_tree(first, second)
    leaves = [
        side_by_side([_integrals(first, second, region, evidence, 2) for region in call.regions])
        for call in first.schedule.leaves
    ]
    layers = _product_layers(first, second)
    root = root_of_grams(first.schedule, first.sum_layers, leaves, others=layers)
    total = root.mantissa[0, 0].unflatten(1, (first.num_outputs, second.num_outputs))
    log_ratio = root.log_scale[0, 0] - log_square_integral(first, evidence)[0]
    over_outputs: Tensor = total.diagonal(dim1=0, dim2=1).sum(-1)  # (t,)
    return over_outputs * log_ratio.exp()


def plain_expectation(first: Circuit, evidence: Evidence, second: Circuit) -> Tensor:
    """The same under a monotonic circuit: ``Σ_s ∫ c₁ₛ c₂ / Z``."""
    check_same_tree(first, second)
    leaves = [
        side_by_side([_integrals(first, second, region, evidence, 1) for region in call.regions])
        for call in first.schedule.leaves
    ]
    layers = [
        type(layer)(GivenWeights(_weights_of(second, call.regions).conj()))
        for layer, call in zip(first.sum_layers, first.schedule.calls, strict=True)
    ]
    root = root_of_grams(first.schedule, first.sum_layers, leaves, others=layers)
    log_ratio = root.log_scale[0, 0] - log_integral(first, evidence)[0]
    return root.mantissa[0, 0].sum(0) * log_ratio.exp()


def check_same_tree(first: Circuit, second: Circuit) -> None:
    """Refuse circuits whose messages do not meet, region by region."""
    if first.graph != second.graph:
        raise ValueError(
            "the expectation of a circuit needs one on the region graph of the density: build "
            "both from one graph object."
        )
    require_tree(first.graph, "the expectation of a circuit")
    kinds = [
        {region: type(circuit.sum_of(region)[0]) for region in circuit.places.sums}
        for circuit in (first, second)
    ]
    known = {HadamardLayer, KroneckerLayer, SumLayer}
    if kinds[0] != kinds[1] or not known.issuperset(kinds[0].values()):
        raise ValueError(
            "the expectation of a circuit needs the same kind of product layer in both, "
            "HadamardLayer or KroneckerLayer; both or neither with as many input units as units."
        )


def _product_layers(first: Circuit, second: Circuit) -> list[Layer]:
    """The layers of c₁ c₂*, in the schedule of the first: ``W₁ ⊗ W₂*``."""
    layers: list[Layer] = []
    widths = [layer.num_units for layer in first.input_layers]
    others = [second.input_of(leaf.regions[0])[0].num_units for leaf in first.schedule.leaves]
    for layer, call in zip(first.sum_layers, first.schedule.calls, strict=True):
        weight, other = layer.weight(call.folds), _weights_of(second, call.regions).conj()
        dtype = torch.promote_types(weight.dtype, other.dtype)
        pair = weight.to(dtype)[:, :, None, :, None] * other.to(dtype)[:, None, :, None, :]
        if isinstance(layer, KroneckerLayer):
            # From (a b ..)(a' b' ..) to (a a')(b b') ..: units of a product of products.
            sides = ([w[source] for source in call.sources] for w in (widths, others))
            axes = pair.reshape(*pair.shape[:3], *(width for side in sides for width in side))
            count = len(call.sources)
            order = [3 + axis for h in range(count) for axis in (h, count + h)]
            pair = axes.permute(0, 1, 2, *order)
        pair = pair.flatten(3).flatten(1, 2)  # (f, o·p, i·j)
        layers.append(type(layer)(GivenWeights(pair)))
        widths.append(weight.shape[1])
        others.append(other.shape[1])
    return layers


def _weights_of(circuit: Circuit, regions: Sequence[int]) -> Tensor:
    return torch.stack([circuit.weight_of(region) for region in regions])


def _integrals(
    first: Circuit, second: Circuit, region: int, evidence: Evidence, power: int
) -> LeafMessage:
    """∫ f_i g_k or ∫ f_i f_j g_k of one region, (1, 1, i, k) or (1, 1, i, j·k).

    ``power`` says how often f occurs. Where the region is observed, the product itself.
    """
    scope = sorted(first.graph.regions[region].scope)
    if len(scope) > 1:
        raise ValueError(
            f"there is no closed form for the expectation of a circuit over the variables {scope} "
            "of one input region. Give each variable a region of its own."
        )
    factors: list[Functions] = []
    for circuit in [first] * power + [second]:
        layer, place = circuit.input_of(region)
        factors.append((layer.family, layer.tensors(place, torch.float64)))
    _check_comparable(factors, scope[0])
    if bool(evidence.observed[0, scope[0]]):
        x = evidence.x[:1, scope].double()[None]  # (1, 1, 1)
        values = [family.values(p, x) for family, p in factors]
        joint = reduce(_times, values[1:], values[0])
    elif all(isinstance(family, Gaussian) for family, _ in factors):
        joint = LeafMessage(None, _log_gaussian_integral([p for _, p in factors]))
    else:
        joint = _by_points(factors)
    return joint.map(lambda t: t.flatten(3))


def _check_comparable(factors: Sequence[Functions], variable: int) -> None:
    states = {family.num_states for family, _ in factors}
    atoms = {family.atoms for family, _ in factors}
    if len(states) > 1 or len(atoms) > 1:
        raise ValueError(
            f"variable {variable} must have the same states and atoms in the density and in the "
            f"circuit, got {factors[0][0]} and {factors[-1][0]}."
        )


def _times(left: LeafMessage, right: LeafMessage) -> LeafMessage:
    """All products of the entries (1, 1, ...) and (1, 1, k), (1, 1, ..., k)."""
    mantissa = exponent = None
    if left.mantissa is not None or right.mantissa is not None:
        ones = (
            torch.ones_like(m.some) if m.mantissa is None else m.mantissa for m in (left, right)
        )
        one, other = ones
        mantissa = one[..., None] * other.reshape(1, 1, *[1] * (one.dim() - 2), -1)
    if left.exponent is not None or right.exponent is not None:
        zeros = (
            torch.zeros_like(m.some) if m.exponent is None else m.exponent for m in (left, right)
        )
        one, other = zeros
        exponent = one[..., None] + other.reshape(1, 1, *[1] * (one.dim() - 2), -1)
    return LeafMessage(mantissa, exponent)


def _log_gaussian_integral(factors: Sequence[Tensors]) -> Tensor:
    """log ∫ of all products of Gaussian densities, one of each factor, (1, 1, i, j, ...)."""
    mean, log_scale = (factors[0][name][:, None] for name in ("mean", "log_scale"))  # (1, 1, i)
    log_weight = torch.zeros_like(mean)
    for factor in factors[1:]:
        mean, log_scale, log_weight = (t[..., None] for t in (mean, log_scale, log_weight))
        other_mean, other_scale = factor["mean"], factor["log_scale"]  # (1, k)
        log_total = 0.5 * torch.logaddexp(2 * log_scale, 2 * other_scale)
        odds = 2 * (other_scale - log_scale)
        log_weight = log_weight + log_density(mean, other_mean, log_total)
        mean = mean * torch.sigmoid(odds) + other_mean * torch.sigmoid(-odds)
        log_scale = log_scale + other_scale - log_total
    return log_weight


def _by_points(factors: Sequence[Functions]) -> LeafMessage:
    """The integral by points that suit every factor: exact for states, atoms and splines."""
    points, weights = integration_points(factors)
    x = points[None, :, None]
    values = [to_scaled(family.values(p, x)) for family, p in factors]  # (1, q, i) each
    log_scale = torch.stack([value.log_scale[0] for value in values]).sum(0)  # (q,)
    peak = log_scale.max()
    total = (weights * (log_scale - peak).exp())[:, None]
    joint = values[0].mantissa[0].double() * total
    for value in values[1:-1]:
        joint = (joint[:, :, None] * value.mantissa[0].double()[:, None]).flatten(1)
    sums = joint.mT @ values[-1].mantissa[0].double()  # (i·j, k)
    widths = [value.mantissa.shape[2] for value in values]
    joined = sums.reshape(1, 1, *widths)
    return LeafMessage(joined, peak.expand_as(joined))
