"""Hidden Markov models over a fixed number of steps as monotonic circuits (paper: App. B.4.1).

With hidden states z_t, which are summed out::

    p(x) = Σ_z π[z_0] e_0(x_0 | z_0) Π_t A_t[z_{t-1}, z_t] e_t(x_t | z_t)

is a circuit over the linear tree: inputs are emissions, weights of sums are transitions. Neither
need be the same at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor

from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import PositiveWeights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.numerics.validation import whole_number
from subtractive.reductions.arrays import Array, as_double
from subtractive.reductions.chain import Leaf, chain_circuit, table_leaf
from subtractive.reductions.gaussian_mixture import cholesky_factors

# Probabilities (k, v), or the means (k, s) and covariances (k, s, s) of Gaussians.
Emission: TypeAlias = "Array | tuple[Array, Array]"


def monotonic_hidden_markov_model(
    start: Array,
    transitions: Array,
    emissions: Sequence[Emission],
    *,
    dtype: torch.dtype | None = None,
) -> MonotonicCircuit:
    """A hidden Markov model of k hidden states, one variable (or several) per step.

    ``start`` is (k,), ``transitions`` (k, k) or one such matrix per pair of steps. An emission is
    a table (k, v) of probabilities, or a pair of means (k, s) and covariances (k, s, s) for
    s variables in one step.

    >>> table = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> stay = torch.tensor([[0.95, 0.05], [0.05, 0.95]])
    >>> p = sub.reductions.monotonic_hidden_markov_model(
    ...     torch.tensor([0.5, 0.5]), stay, [table] * 10
    ... )
    >>> p.log_marginal(torch.zeros(1, 10), torch.arange(10) == 0).exp().detach()
    tensor([0.5500], dtype=torch.float64)
    """
    leaves = [_leaf(emission, step) for step, emission in enumerate(emissions)]
    first, moves = _checked_chain(start, transitions, leaves)
    matrices = [first[None], *moves]  # (o, i), from the root down
    layers: list[Layer] = [
        HadamardLayer(PositiveWeights(matrix[None])) for matrix in matrices[:-1]
    ]
    if not moves:
        layers = [SumLayer(PositiveWeights(first[None, None]))]
    elif leaves[-1].family.num_states is not None:
        # A mixture of tables is a table again: the last step needs no sum of its own.
        table = moves[-1] @ leaves[-1].tensors["logits"].exp()
        leaves[-1] = table_leaf(leaves[-1].family, table)
    else:
        # Mixtures of Gaussians are none: the last two steps meet in all pairs of their states.
        pairs = matrices[-2][:, :, None] * matrices[-1][None]  # (o, z, z')
        layers[-1] = KroneckerLayer(PositiveWeights(pairs.flatten(1)[None]))
    return MonotonicCircuit(chain_circuit(leaves, layers).to(dtype or torch.get_default_dtype()))


def from_hmmlearn(
    model: Any,  # noqa: ANN401
    num_steps: int,
    *,
    dtype: torch.dtype | None = None,
) -> MonotonicCircuit:
    """A ``CategoricalHMM`` or ``GaussianHMM`` of hmmlearn over sequences of ``num_steps``.

    A row is a sequence: with s features, step t has the variables t s .. t s + s - 1. The
    log-density of ``X.reshape(1, -1)`` is ``model.score(X)``.

    >>> from hmmlearn.hmm import CategoricalHMM
    >>> model = CategoricalHMM(2, random_state=0).fit([[0], [1], [1], [0], [1], [0], [0]])
    >>> sub.reductions.from_hmmlearn(model, num_steps=5).num_variables
    5
    """
    try:
        hmm = import_module("hmmlearn.hmm")
    except ImportError:
        message = "hmmlearn is not installed: pip install 'subtractive[reductions]'"
        raise ImportError(message) from None
    steps = whole_number("num_steps", num_steps, 1)
    if not isinstance(model, hmm.CategoricalHMM | hmm.GaussianHMM):
        raise ValueError(
            f"expected a CategoricalHMM or a GaussianHMM, got {type(model).__name__}. For other "
            "emissions build the arrays and use monotonic_hidden_markov_model."
        )
    if not hasattr(model, "transmat_"):
        raise ValueError("the hidden Markov model has no parameters yet: call its fit first.")
    emission: Emission
    if isinstance(model, hmm.CategoricalHMM):
        emission = model.emissionprob_
    else:
        count, size = model.means_.shape
        # Fitted spherical models repeat the covariance of each state once per feature.
        emission = (model.means_, model.covars_.reshape(count, -1, size, size)[:, 0])
    return monotonic_hidden_markov_model(
        model.startprob_, model.transmat_, [emission] * steps, dtype=dtype
    )


def _leaf(emission: Emission, step: int) -> Leaf:
    if not isinstance(emission, tuple):
        table = as_double(emission)
        if table.dim() != 2 or 0 in table.shape:
            raise ValueError(
                f"the emission of step {step} must be a table (hidden states, states), or a pair "
                f"of means and covariances, got shape {tuple(table.shape)}."
            )
        check_probabilities(f"the emissions of step {step}", table)
        return table_leaf(Categorical(table.shape[1]), table)
    means, covariances = map(as_double, emission)
    if means.dim() != 2 or covariances.shape != (*means.shape, means.shape[-1]):
        raise ValueError(
            f"the Gaussians of step {step} need means (k, s) and covariances (k, s, s), got "
            f"shapes {tuple(means.shape)} and {tuple(covariances.shape)}."
        )
    factors = cholesky_factors(covariances)
    log_diagonal = factors.diagonal(dim1=-2, dim2=-1).log()
    if means.shape[1] == 1:
        return Leaf(Gaussian(), {"mean": means[:, 0], "log_scale": log_diagonal[:, 0]})
    tensors = {"mean": means, "log_diagonal": log_diagonal, "lower": factors.tril(-1)}
    return Leaf(MultivariateGaussian(), tensors, means.shape[1])


def _checked_chain(
    start: Array, transitions: Array, leaves: Sequence[Leaf]
) -> tuple[Tensor, list[Tensor]]:
    """The start (k,) and the transitions (k, k) before each step but the first."""
    if not leaves:
        raise ValueError("a hidden Markov model needs at least one step, got no emissions.")
    first, moves = as_double(start), as_double(transitions)
    if moves.dim() == 2:
        moves = moves.expand(len(leaves) - 1, *moves.shape)
    count = len(first) if first.dim() == 1 else 0
    widths = {len(next(iter(leaf.tensors.values()))) for leaf in leaves}
    if count == 0 or moves.shape != (len(leaves) - 1, count, count) or widths != {count}:
        raise ValueError(
            "the parts of a hidden Markov model do not fit: expected a start (k,), transitions "
            f"(k, k) or (steps - 1, k, k), and emissions of k hidden states; got {len(leaves)} "
            f"steps, start {tuple(first.shape)}, transitions {tuple(moves.shape)}, and emissions "
            f"of {sorted(widths)} hidden states."
        )
    check_probabilities("the start", first)
    check_probabilities("the transitions", moves)
    return first, list(moves)


def check_probabilities(name: str, rows: Tensor) -> None:
    """Raise ``ValueError`` unless all rows (..., v) are non-negative and sum to one."""
    sums = rows.sum(-1)
    # Probabilities that were computed in single precision may pass.
    if not bool((rows >= 0).all()) or not bool(((sums - 1).abs() < 1e-5).all()):
        raise ValueError(f"{name} must be probabilities, with rows that sum to one.")
