"""The marginals of single variables given one row of evidence, in terms of input functions.

A question about single variables needs the environments of their inputs, and nothing else of a
circuit. They are found once here, and can then be asked again and again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit, Stack
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import unit_shares
from subtractive.inference.marginal import blocks, plain_leaf, square_leaf
from subtractive.inference.outside import descend, inside
from subtractive.inputs.base import InputFamily, Tensors, TestFunctions
from subtractive.inputs.gaussian import Gaussian, pair_product
from subtractive.inputs.multivariate_gaussian import RegionGaussian
from subtractive.inputs.normals import conditional_normals
from subtractive.inputs.signed_mixture import pair_weights
from subtractive.inputs.univariate import UnivariateFamily


class UnitShares(NamedTuple):
    """The density of a variable: Σ_i r_i f_i / ∫ f_i."""

    family: InputFamily
    tensors: Tensors  # (1, i, ...) each
    shares: Tensor  # r, (n, i), which sum to one

    def expectations(self, function: TestFunctions) -> Tensor:
        """Expectations (n, q)."""
        if isinstance(self.family, Gaussian):  # plain numbers, without logarithms
            scale = self.tensors["log_scale"][0].exp()
            return function.of_gaussians(self.shares, self.tensors["mean"], scale)
        nowhere = self.shares.new_zeros(len(self.shares), 1)
        found = self.family.expectations_units(
            self.tensors, self.shares, nowhere, [False], [function]
        )[0]
        assert found is not None
        return found


class UnitForm(NamedTuple):
    """The density of a variable up to a factor: Σ_ij E_ij f_i f_j."""

    family: InputFamily
    tensors: Tensors  # (1, i, ...) each
    environment: Tensor  # E, (n, i, j)

    def expectations(self, function: TestFunctions) -> Tensor:
        """Expectations (n, q)."""
        nowhere = self.environment.new_zeros(len(self.environment), 1)
        found = self.family.expectations_square(
            self.tensors, self.environment, nowhere, [False], [function]
        )[0]
        assert found is not None
        return found


Marginal = UnitShares | UnitForm


@torch.no_grad()
def square_marginals(circuit: Circuit, evidence: Evidence) -> dict[int, Marginal] | None:
    """The marginals under |c|² of all variables that are not observed, given one row.

    Products of two Gaussians are units, too, whose shares may be negative. ``None`` where an
    input is of a family of others over several variables.
    """
    if not _has_known_regions(circuit):
        return None
    found: dict[int, Marginal] = {}

    def look(region: int, environment: Tensor) -> None:
        layer, place = circuit.input_of(region)
        scope = list(layer.scopes[place.start])
        p = layer.tensors(place, torch.float64)
        real = environment.real if environment.is_complex() else environment
        family = layer.family
        if not isinstance(family, RegionGaussian):
            is_plain = isinstance(family, Gaussian)
            form = UnitForm(family, p, real)
            found[scope[0]] = _products_of_gaussians(form) if is_plain else form
            return
        observed = evidence.pattern(scope)
        products = family.products(p, real, evidence.x[:, scope].double(), observed)
        shares = products.weights / products.weights.sum(-1, keepdim=True)
        scales = products.covariance.diagonal(dim1=-2, dim2=-1).sqrt()  # (P, u)
        rest = [variable for variable, seen in zip(scope, observed, strict=True) if not seen]
        for at, variable in enumerate(rest):
            found[variable] = _gaussians(products.mean[..., at], scales[:, at], shares)

    for _, schedule in blocks(circuit, evidence, square_leaf):
        descend(inside(circuit, schedule, evidence), look)
    return found


@torch.no_grad()
def plain_marginals(circuit: Circuit, evidence: Evidence) -> dict[int, Marginal] | None:
    """The same under a monotonic circuit."""
    if not _has_known_regions(circuit):
        return None
    found: dict[int, Marginal] = {}
    for _, schedule in blocks(circuit, evidence, plain_leaf):
        for layer, folds, shares in unit_shares(Stack.of([circuit]), evidence, schedule)[1]:
            tensors = layer.tensors(folds, torch.float64)
            for fold, scope in enumerate(layer.variables[folds].tolist()):
                p = {name: tensor[fold : fold + 1] for name, tensor in tensors.items()}
                if not isinstance(layer.family, RegionGaussian):
                    found[scope[0]] = UnitShares(layer.family, p, shares[fold])
                    continue
                x, observed = evidence.x[:, scope].double(), evidence.pattern(scope)
                mean, scales = conditional_normals(layer.family.full(p), x, observed)
                rest = [v for v, seen in zip(scope, observed, strict=True) if not seen]
                for at, variable in enumerate(rest):
                    found[variable] = _gaussians(mean[..., at], scales[:, at], shares[fold])
    return found


def _has_known_regions(circuit: Circuit) -> bool:
    known = UnivariateFamily | RegionGaussian
    return all(isinstance(layer.family, known) for layer in circuit.input_layers)


def _gaussians(mean: Tensor, scale: Tensor, shares: Tensor) -> UnitShares:
    """Gaussians of means (1, k) and standard deviations (k,), with shares (1, k)."""
    return UnitShares(Gaussian(), {"mean": mean, "log_scale": scale[None].log()}, shares)


def _products_of_gaussians(form: UnitForm) -> UnitShares:
    """A quadratic form of Gaussians (1, i, j) as a signed mixture of their products."""
    mean, log_scale, log_weight = (t[0, 0] for t in pair_product(form.tensors, form.tensors))
    entries, i, j = pair_weights(form.environment)
    weights = entries * (log_weight - log_weight.max()).exp()[i, j]
    tensors = {"mean": mean[None, i, j], "log_scale": log_scale[None, i, j]}
    return UnitShares(Gaussian(), tensors, weights / weights.sum(-1, keepdim=True))
