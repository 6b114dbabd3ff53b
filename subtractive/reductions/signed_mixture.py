"""Shallow squares written out as mixtures with negative weights (paper: Sec. 2, Eq. 2).

With A_ij = Σ_s w_si w_sj and G_ij = ∫ f_i f_j the square of K components is a mixture of
K (K + 1) / 2 products of two::

    Σ_s c_s(x)² / Z = Σ_{i <= j} a_ij g_ij(x),   g_ij = f_i f_j / G_ij,   Σ_{i <= j} a_ij = 1

where a_ii = A_ii G_ii / Z and a_ij = 2 A_ij G_ij / Z may be negative. Products of Gaussians are
Gaussians again.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.circuits.evaluation import leaves_of
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import as_table
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.inputs.normals import cholesky_factor
from subtractive.inputs.rbf import RBF
from subtractive.numerics.messages import safe_log
from subtractive.numerics.signed_log import SignedLog, mix_signed, signed_log
from subtractive.reductions.shallow import quadratic_form, shallow_weight


class GaussianProducts(NamedTuple):
    """The components of a signed mixture as Gaussians, in float64."""

    weights: Tensor  # (c,), of any sign
    means: Tensor  # (c, d)
    covariances: Tensor  # (c, d, d)


@final
class SignedMixture:
    """A mixture of densities g_ij whose weights sum to one, some of them being negative.

    ``weights`` are (c,) and ``pairs`` (c, 2): component c is the normalised product of the inputs
    i and j, i <= j.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> mixture = sub.reductions.signed_mixture(sub.SquaredCircuit(circuit))
    >>> mixture.weights.shape, round(mixture.weights.sum().item(), 6)
    (torch.Size([6]), 1.0)
    """

    def __init__(
        self, density: SquaredCircuit, weights: Tensor, pairs: Tensor, log_masses: Tensor
    ) -> None:
        self._density, self._log_masses = density, log_masses
        self.weights, self.pairs = weights, pairs

    def log_components(self, x: Tensor) -> Tensor:
        """log g_ij(x), (n, c), of rows x (n, d) without gaps."""
        circuit = self._density.circuit
        table = as_table(x, circuit.num_variables, circuit.device)
        if bool(table.isnan().any()):
            raise ValueError("components need rows without gaps. Ask the density for marginals.")
        leaves = leaves_of(circuit.schedule, circuit.values_at(table))
        log_inputs = sum(signed_log(values).log_abs.sum(0) for values in leaves)  # (n, i)
        assert isinstance(log_inputs, Tensor)
        first, second = self.pairs.unbind(1)
        both = log_inputs.detach().double()
        return both[:, first] + both[:, second] - self._log_masses

    def log_prob(self, x: Tensor) -> Tensor:
        """log Σ a_ij g_ij(x), (n,): what the squared circuit says of rows without gaps."""
        components = self.log_components(x)[None]
        terms = SignedLog((components > -math.inf).double(), components)
        return mix_signed(self.weights[None, None], terms).log_abs[0, :, 0]

    def gaussians(self) -> GaussianProducts:
        """The weights, means and covariances of Gaussian components.

        >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3)
        >>> mixture = sub.reductions.signed_mixture(sub.SquaredCircuit(circuit))
        >>> mixture.gaussians().means.shape
        torch.Size([6, 2])
        """
        means, covariances = _normals(self._density)
        first, second = self.pairs.unbind(1)
        total = covariances[first] + covariances[second]
        # Σ_i (Σ_i + Σ_j)⁻¹, and the same of j: the shares of the other one's mean.
        of_first = torch.linalg.solve(total, covariances[first]).mT
        of_second = torch.linalg.solve(total, covariances[second]).mT
        product = of_first @ covariances[second]
        mean = of_second @ means[first, :, None] + of_first @ means[second, :, None]
        return GaussianProducts(self.weights, mean[..., 0], (product + product.mT) / 2)


def signed_mixture(density: SquaredCircuit) -> SignedMixture:
    """A shallow squared circuit of K units as a mixture of K (K + 1) / 2 signed components.

    Products of inputs that never meet have no mass, and are left out.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, dtype=torch.float64)
    >>> mixture = sub.reductions.signed_mixture(sub.SquaredCircuit(circuit))
    >>> mixture.weights.shape, torch.allclose(mixture.weights.sum(), torch.ones(1).double())
    (torch.Size([6]), True)
    """
    form = quadratic_form(shallow_weight(density))
    for variable, family in enumerate(density.families):
        if not family.is_non_negative:
            raise ValueError(
                f"the inputs of variable {variable} ({type(family).__name__}) may be negative, so "
                "that their products are no densities to be mixed. Use a family that is never "
                "negative, such as Gaussian(), Categorical(v) or Spline(..., non_negative=True)."
            )
    log_gram = sum(
        signed_log(layer.gram(slice(None), EVERYWHERE)).log_abs.sum(0)[0]
        for layer in density.circuit.input_layers
    )  # (i, j)
    assert isinstance(log_gram, Tensor)
    first, second = torch.triu_indices(*form.shape)
    log_masses = log_gram.detach().double()[first, second]
    entries = form[first, second] * torch.where(first == second, 1.0, 2.0)
    # In logarithms: where inputs differ much in height, weights and masses do so inversely.
    log_shares = safe_log(entries) + log_masses
    shares = entries.sign() * (log_shares - log_shares.max()).exp()
    met = log_masses.isfinite()
    pairs = torch.stack([first, second], 1)
    return SignedMixture(density, (shares / shares.sum())[met], pairs[met], log_masses[met])


def _normals(density: SquaredCircuit) -> tuple[Tensor, Tensor]:
    """The means (i, d) and covariances (i, d, d) of all inputs together."""
    circuit, size = density.circuit, density.num_variables
    units = circuit.input_layers[0].num_units
    means = torch.zeros(units, size, dtype=torch.float64)
    covariances = torch.zeros(units, size, size, dtype=torch.float64)
    for layer in circuit.input_layers:
        p = {name: t.detach() for name, t in layer.tensors(slice(None), torch.float64).items()}
        if isinstance(layer.family, Gaussian | RBF):
            mean = p["mean" if "mean" in p else "centre"][..., None]  # (f, i, s)
            covariance = (2 * p["log_scale"]).exp()[..., None, None]
        elif isinstance(layer.family, MultivariateGaussian):
            mean, factor = p["mean"], cholesky_factor(p)
            covariance = factor @ factor.mT
        else:
            raise ValueError(
                f"products of {type(layer.family).__name__} inputs are no Gaussians. Use "
                "log_components(x)."
            )
        for scope, one, spread in zip(layer.variables, mean, covariance, strict=True):
            means[:, scope] = one
            covariances[:, scope[:, None], scope] = spread
    return means, covariances
