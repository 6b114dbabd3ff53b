"""Sufficient statistics of input families: what EM must count, and the parameters it follows.

A family can be trained by EM if it is registered here with three functions: what rows say that
belong to units by shares, what a model expects of itself, and the most likely parameters.
Statistics are sums over rows, by name, each (f, i, ...) in float64.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor

from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily, Tensors
from subtractive.inputs.binomial import Binomial
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.inputs.normals import cholesky_factor

Statistics = dict[str, Tensor]

# A unit to which fewer rows belong keeps its parameters: there is nothing to learn from.
LEAST_MASS = 1e-12
# The smallest probability, and the smallest variance in units of the square of the mean.
LEAST_PROBABILITY, LEAST_VARIANCE = 1e-30, 1e-12
# What is added to the variances of full covariances, as a share of those of all rows.
LEAST_SHARE = 1e-6


@singledispatch
def count(family: InputFamily, x: Tensor, shares: Tensor) -> Statistics:
    """What rows x (f, n) say about units to which they belong by ``shares`` (f, n, i).

    Of regions of several variables x is (f, n, s).
    """
    raise _unknown(family)


@singledispatch
def expect(family: InputFamily, p: Tensors, mass: Tensor) -> Statistics:
    """What rows of total ``mass`` (f, i), drawn from the units themselves, would say."""
    raise _unknown(family)


@singledispatch
def maximise(
    family: InputFamily, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    """The most likely parameters, as if ``pseudocount`` rows more had been seen in each unit.

    These rows are spread as those of all units together are.
    """
    raise _unknown(family)


def _unknown(family: InputFamily) -> ValueError:
    known = ", ".join(sorted(kind.__name__ for kind in count.registry if kind is not object))
    return ValueError(
        f"EM does not know {type(family).__name__}, only {known}. Train it by gradients, with "
        "fit(), or register count, expect and maximise for it."
    )


@count.register
def _(family: Categorical, x: Tensor, shares: Tensor) -> Statistics:
    states = torch.arange(family.num_states, dtype=x.dtype, device=x.device)
    one_hot = (x[..., None] == states).to(shares.dtype)  # (f, n, v)
    return {"counts": (shares.mT @ one_hot).double()}


@expect.register
def _(family: Categorical, p: Tensors, mass: Tensor) -> Statistics:
    return {"counts": mass.double()[..., None] * p["logits"].double().softmax(-1)}


@maximise.register
def _(
    family: Categorical, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    counts = statistics["counts"]
    return {"logits": _log_table(counts, before["logits"].log_softmax(-1), pseudocount)}


@count.register
def _(family: Binomial, x: Tensor, shares: Tensor) -> Statistics:
    first = shares.mT @ x.to(shares.dtype)[..., None]
    return {"mass": shares.sum(1).double(), "first": first[..., 0].double()}


@expect.register
def _(family: Binomial, p: Tensors, mass: Tensor) -> Statistics:
    wide = mass.double()
    return {"mass": wide, "first": wide * family.total * p["logit"].double().sigmoid()}


@maximise.register
def _(
    family: Binomial, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    mass, first = statistics["mass"], statistics["first"]
    share = pseudocount * first.sum(1, keepdim=True) / mass.sum(1, keepdim=True)
    rate = (first + share) / (family.total * (mass + pseudocount)).clamp(min=LEAST_MASS)
    logit = rate.clamp(LEAST_PROBABILITY, 1 - 1e-15).logit()
    return {"logit": torch.where(mass + pseudocount < LEAST_MASS, before["logit"], logit)}


@count.register
def _(family: Gaussian, x: Tensor, shares: Tensor) -> Statistics:
    wide = x.double()
    powers = torch.stack([torch.ones_like(wide), wide, wide.square()], -1)  # (f, n, 3)
    mass, first, second = (shares.double().mT @ powers).unbind(-1)
    return {"mass": mass, "first": first, "second": second}


@expect.register
def _(family: Gaussian, p: Tensors, mass: Tensor) -> Statistics:
    wide, mean = mass.double(), p["mean"].double()
    second = mean.square() + (2 * p["log_scale"].double()).exp()
    return {"mass": wide, "first": wide * mean, "second": wide * second}


@maximise.register
def _(
    family: Gaussian, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    mass, first, second = (statistics[name] for name in ("mass", "first", "second"))
    whole = mass.sum(1, keepdim=True).clamp(min=LEAST_MASS)
    centre = first.sum(1, keepdim=True) / whole
    variance_of_all = second.sum(1, keepdim=True) / whole - centre.square()
    safe = mass.clamp(min=LEAST_MASS)
    mean = first / safe
    scatter = second - mass * mean.square() + pseudocount * variance_of_all.clamp(min=0)
    least = LEAST_VARIANCE * (mean.square() + variance_of_all).clamp(min=LEAST_VARIANCE)
    variance = torch.maximum(scatter / (safe + pseudocount), least)
    kept = mass < LEAST_MASS
    return {
        "mean": torch.where(kept, before["mean"], mean),
        "log_scale": torch.where(kept, before["log_scale"], 0.5 * variance.log()),
    }


@count.register
def _(family: MultivariateGaussian, x: Tensor, shares: Tensor) -> Statistics:
    wide, weight = x.double(), shares.double()
    # Zero times what is missing would be NaN.
    wide = torch.where((weight > 0).any(-1, keepdim=True), wide, 0.0)
    weighted = weight.mT[..., None] * wide[:, None]  # (f, i, n, s)
    second = weighted.mT @ wide[:, None]
    return {"mass": weight.sum(1), "first": weighted.sum(2), "second": second}


@expect.register
def _(family: MultivariateGaussian, p: Tensors, mass: Tensor) -> Statistics:
    p = {name: tensor.double() for name, tensor in p.items()}
    wide, mean, factor = mass.double(), p["mean"], cholesky_factor(p)
    second = factor @ factor.mT + mean[..., :, None] * mean[..., None, :]
    return {
        "mass": wide,
        "first": wide[..., None] * mean,
        "second": wide[..., None, None] * second,
    }


@maximise.register
def _(
    family: MultivariateGaussian, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    mass, first, second = (statistics[name] for name in ("mass", "first", "second"))
    whole = mass.sum(1).clamp(min=LEAST_MASS)[:, None, None]
    safe = mass.clamp(min=LEAST_MASS)
    mean = first / safe[..., None]
    scatter = second - first[..., :, None] * mean[..., None, :]  # (f, i, s, s)
    # Rows in proportion to the variables: a covariance has as many numbers for each of them.
    rows = pseudocount * mean.shape[-1]
    within = scatter.sum(1) / whole
    centre = first.sum(1) / whole[..., 0]
    total = second.sum(1) / whole - centre[..., :, None] * centre[..., None, :]
    spread = total.diagonal(dim1=-2, dim2=-1).clamp(min=LEAST_VARIANCE)  # (f, s)
    covariance = scatter + (rows * within)[:, None]
    covariance = covariance / (safe + rows)[..., None, None]
    covariance = covariance + (LEAST_SHARE * spread).diag_embed()[:, None]
    factor, wrong = torch.linalg.cholesky_ex(covariance)
    kept = ((mass < LEAST_MASS) | (wrong > 0))[..., None]
    learned = {"log_diagonal": factor.diagonal(dim1=-2, dim2=-1).log(), "mean": mean}
    return {
        "lower": torch.where(kept[..., None], before["lower"], factor.tril(-1)),
        **{name: torch.where(kept, before[name], value) for name, value in learned.items()},
    }


@count.register
def _(family: WithAtoms, x: Tensor, shares: Tensor) -> Statistics:
    is_atom = family.is_atom(x)  # (f, n, v)
    elsewhere = ~is_atom.any(-1)
    cells = torch.cat([is_atom, elsewhere[..., None]], -1).to(shares.dtype)
    base = count(family.base, torch.where(elsewhere, x, 0.0), shares * elsewhere[..., None])
    return {"cells": (shares.mT @ cells).double(), **base}


@expect.register
def _(family: WithAtoms, p: Tensors, mass: Tensor) -> Statistics:
    table = _table_of_cells(family, p)
    return {
        "cells": mass.double()[..., None] * table,
        **expect(family.base, p, mass.double() * table[..., -1]),
    }


@maximise.register
def _(
    family: WithAtoms, statistics: Statistics, before: Tensors, pseudocount: float
) -> dict[str, Tensor]:
    table = _log_table(statistics["cells"], _table_of_cells(family, before).log(), pseudocount)
    learned = maximise(family.base, statistics, before, pseudocount)
    # What is between the atoms is one by convention: atoms are relative to it.
    return learned | {"log_atom": table[..., :-1] - table[..., -1:]}


def _table_of_cells(family: WithAtoms, p: Tensors) -> Tensor:
    """The probabilities of each atom and of what is between them, (f, i, v + 1)."""
    if not family.non_negative or family.base != Gaussian():
        raise _unknown(family)
    relative = torch.nn.functional.pad(p["log_atom"].double(), (0, 1))
    return relative.softmax(-1)


def _log_table(counts: Tensor, before: Tensor, pseudocount: float) -> Tensor:
    """Logarithms of relative frequencies (f, i, v), smoothed by those of all units together."""
    together = counts.sum(1, keepdim=True)
    together = together / together.sum(-1, keepdim=True).clamp(min=LEAST_MASS)
    smooth = counts + pseudocount * together
    total = smooth.sum(-1, keepdim=True)
    table = (smooth / total.clamp(min=LEAST_MASS)).clamp(min=LEAST_PROBABILITY)
    return torch.where(total < LEAST_MASS, before.double(), table.log())


def is_known(family: InputFamily) -> bool:
    """Whether EM can train a family."""
    if isinstance(family, WithAtoms):
        return family.non_negative and family.base == Gaussian()
    if isinstance(family, MultivariateGaussian):
        return family.norm == 1
    return count.dispatch(type(family)) is not count.dispatch(object)
