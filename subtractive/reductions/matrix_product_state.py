"""Matrix-product states as circuits over linear trees, and back (paper: Sec. 4, App. B.4).

A state of d variables with v states each is a chain of cores A_t (left, v, right)::

    ψ(x) = A_0[0, x_0, :] A_1[:, x_1, :] ... A_{d-1}[:, x_{d-1}, 0]

A Born machine is |ψ(x)|² / Z, a squared circuit; where nothing is negative, ψ(x) / Z is a hidden
Markov model, a monotonic one. With bonds of r both are exact in one of two forms:

======================  ==========================================  ==================
``HadamardLayer``       d k² weights, k = r · min(r, v) units       the paper's CP form
``KroneckerLayer``      d v r² weights, as many as the state has    v units per input
======================  ==========================================  ==================

A core may have a smaller CP rank than k, but to find it is a hard problem of its own; k needs no
search. (The tables of inputs are real, so that a complex state needs k = max(r, v) v.)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import PositiveWeights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import InputFamily
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.reductions.arrays import Array, as_double
from subtractive.reductions.canonical import Chain, hadamard_chain, kronecker_chain
from subtractive.reductions.chain import (
    chain_circuit,
    core_of,
    links_of,
    signed_weights,
    table_leaf,
    table_of,
)

Cores = Sequence[Array]


class MatrixProductState(NamedTuple):
    """Cores (left, v, right), and the variable that each of them belongs to."""

    cores: list[Tensor]
    order: list[int]


def squared_matrix_product_state(
    cores: Cores, *, product: type[Layer] = HadamardLayer, dtype: torch.dtype | None = None
) -> SquaredCircuit:
    """The Born machine |ψ(x)|² / Z of cores (left, v, right), real or complex.

    The ends may leave out their bond of one. Z is the squared norm of the state.

    >>> cores = [torch.eye(2), torch.eye(2)]  # ψ(x) = 1 where x_0 = x_1
    >>> p = sub.reductions.squared_matrix_product_state(cores)
    >>> p.log_prob(torch.tensor([[0, 0], [0, 1]])).exp().detach()
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    arrays = checked_cores(cores)
    families = [Embedding(core.shape[1]) for core in arrays]
    return squared_chain(arrays, families, product=product, dtype=dtype)


def squared_chain(
    cores: Sequence[Tensor],
    families: Sequence[InputFamily],
    *,
    product: type[Layer],
    dtype: torch.dtype | None,
) -> SquaredCircuit:
    """The square of a chain of cores whose middle axes number functions of the families."""
    tables, matrices = _chain(cores, product)
    leaves = [table_leaf(family, table) for family, table in zip(families, tables, strict=True)]
    kind = product if len(leaves) > 1 else SumLayer
    layers = [kind(signed_weights(matrix)) for matrix in matrices]
    return SquaredCircuit(chain_circuit(leaves, layers).to(dtype or torch.get_default_dtype()))


def monotonic_matrix_product_state(
    cores: Cores, *, product: type[Layer] = HadamardLayer, dtype: torch.dtype | None = None
) -> MonotonicCircuit:
    """The density ψ(x) / Z of cores (left, v, right) without negative entries.

    >>> p = sub.reductions.monotonic_matrix_product_state([torch.eye(2), torch.eye(2)])
    >>> p.log_partition().exp().detach()
    tensor(2., dtype=torch.float64)
    """
    arrays = checked_cores(cores)
    for number, core in enumerate(arrays):
        is_real = not torch.is_complex(core) or bool((core.imag == 0).all())
        if not is_real or not bool((core.real >= 0).all()):
            raise ValueError(
                f"a monotonic circuit needs cores without negative or complex entries, core "
                f"{number} has some. Its Born machine is squared_matrix_product_state(cores)."
            )
    tables, matrices = _normalised(_chain([core.real for core in arrays], product), product)
    leaves = [table_leaf(Categorical(table.shape[1]), table) for table in tables]
    kind = product if len(leaves) > 1 else SumLayer
    layers = [kind(PositiveWeights(matrix[None])) for matrix in matrices]
    return MonotonicCircuit(chain_circuit(leaves, layers).to(dtype or torch.get_default_dtype()))


def matrix_product_state(density: SquaredCircuit | MonotonicCircuit) -> MatrixProductState:
    """The matrix-product state ψ of a density |ψ|² / Z or ψ / Z over a linear tree, in float64.

    Bonds are as wide as the circuit's layers. The first core belongs to the variable that the
    tree splits off first. For spline inputs the middle axis numbers basis functions.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Embedding(2), num_units=4)
    >>> state = sub.reductions.matrix_product_state(sub.SquaredCircuit(circuit))
    >>> [tuple(core.shape) for core in state.cores], state.order
    ([(1, 2, 4), (4, 2, 4), (4, 2, 1)], [0, 1, 2])
    """
    circuit = density.circuit
    links = links_of(circuit.graph)
    if circuit.num_outputs != 1:
        raise ValueError(
            f"a matrix-product state is one function, but the circuit has {circuit.num_outputs} "
            "outputs, whose squares are added. Use num_outputs=1."
        )
    leaves = [*(link.leaf for link in links), links[-1].rest if links else circuit.graph.root]
    tables = [table_of(circuit, leaf) for leaf in leaves]
    cores = [core_of(circuit, link, table) for link, table in zip(links, tables[:-1], strict=True)]
    return MatrixProductState(
        [*cores, tables[-1][..., None]],
        [min(circuit.graph.regions[leaf].scope) for leaf in leaves],
    )


def from_quimb(
    state: Any,  # noqa: ANN401
    *,
    product: type[Layer] = HadamardLayer,
    dtype: torch.dtype | None = None,
) -> SquaredCircuit:
    """The Born machine of a ``quimb`` matrix-product state; its squared norm is Z.

    Variable t is the t-th site.

    >>> import quimb.tensor as qtn
    >>> state = qtn.MPS_rand_state(5, 3, phys_dim=2, seed=0)
    >>> p = sub.reductions.from_quimb(state, dtype=torch.float64)
    >>> bool(abs(p.log_partition().exp() - state.H @ state) < 1e-9)
    True
    """
    if not hasattr(state, "site_ind") or not hasattr(state, "bond"):
        raise ValueError(
            f"expected a quimb MatrixProductState, got {type(state).__name__}. For plain arrays "
            "use squared_matrix_product_state(cores)."
        )
    if state.cyclic:
        raise ValueError(
            "the chain is closed to a ring, which no linear tree can represent at its size. Use a "
            "state with open ends."
        )
    sites = list(state.sites)
    bonds = [state.bond(*pair) for pair in zip(sites, sites[1:], strict=False)]
    cores = []
    for number, site in enumerate(sites):
        names = [*bonds[max(number - 1, 0) : number], state.site_ind(site), *bonds[number:][:1]]
        array = as_double(state[site].transpose(*names).data)
        left = array.shape[0] if number > 0 else 1
        cores.append(array.reshape(left, state.phys_dim(site), -1))
    return squared_matrix_product_state(cores, product=product, dtype=dtype)


def to_quimb(density: SquaredCircuit | MonotonicCircuit) -> Any:  # noqa: ANN401
    """A density over a linear tree as a ``quimb`` matrix-product state, from its cores.

    Site t is the variable that the tree splits off after t others.

    >>> circuit = sub.Circuit(sub.linear_tree(4), sub.Embedding(2), num_units=3, seed=0)
    >>> sub.reductions.to_quimb(sub.SquaredCircuit(circuit)).L
    4
    """
    try:
        tensors = import_module("quimb.tensor")
    except ImportError:
        raise ImportError(
            "quimb is not installed: pip install 'subtractive[reductions]'"
        ) from None
    arrays = [core.numpy() for core in matrix_product_state(density).cores]
    if len(arrays) == 1:
        return tensors.MatrixProductState([arrays[0][0, :, 0]], shape="lpr")
    ends = [arrays[0][0], *arrays[1:-1], arrays[-1][..., 0]]
    return tensors.MatrixProductState(ends, shape="lpr")


def checked_cores(cores: Cores) -> list[Tensor]:
    """Cores (left, v, right) in double precision, whose bonds fit; ``ValueError`` otherwise."""
    arrays = [as_double(core) for core in cores]
    if not arrays:
        raise ValueError("a matrix-product state needs at least one core, got none.")
    if arrays[0].dim() == len(arrays[:2]):
        arrays[0] = arrays[0][None]
    if arrays[-1].dim() == 2:
        arrays[-1] = arrays[-1][..., None]
    shapes = [tuple(array.shape) for array in arrays]
    bonds = [1, *(shape[-1] for shape in shapes[:-1]), 1]
    for number, shape in enumerate(shapes):
        expected = (bonds[number], bonds[number + 1])
        if len(shape) != 3 or 0 in shape or (shape[0], shape[2]) != expected:
            raise ValueError(
                f"core {number} of a matrix-product state must have shape ({bonds[number]}, "
                f"states, {bonds[number + 1] if number == len(shapes) - 1 else 'right'}) to fit "
                f"the cores beside it, got {shape}."
            )
    dtype = torch.float64
    for array in arrays:
        dtype = torch.promote_types(dtype, array.dtype)
    for number, array in enumerate(arrays):
        if not bool(array.isfinite().all()):
            raise ValueError(f"core {number} holds numbers that are not finite.")
    return [array.to(dtype) for array in arrays]


def _chain(cores: Sequence[Tensor], product: type[Layer]) -> Chain:
    if product is HadamardLayer:
        return hadamard_chain(cores)
    if product is KroneckerLayer:
        return kronecker_chain(cores)
    raise ValueError(f"product must be HadamardLayer or KroneckerLayer, got {product!r}.")


def _normalised(chain: Chain, product: type[Layer]) -> Chain:
    """The same chain with tables whose rows sum to one, as those of Categorical inputs do."""
    sums = [table.sum(1) for table in chain.tables]  # (i,)
    tables = [
        torch.where(total[:, None] > 0, table / total[:, None], 1 / table.shape[1])
        for table, total in zip(chain.tables, sums, strict=True)
    ]
    if product is KroneckerLayer or len(tables) == 1:  # identities, whose rows sum to one
        return chain
    sums[-2:] = [sums[-2] * sums[-1]]
    weights = [weight * total for weight, total in zip(chain.weights, sums, strict=True)]
    return Chain(tables, weights)
