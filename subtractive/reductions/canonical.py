"""Cores of matrix-product states as sums of products: the CP form (paper: Sec. 4, App. B.4).

``A[i, x, j] = Σ_s left[i, s] table[s, x] right[s, j]`` holds with as many terms as the product of
any two axes of the core has entries, the two that are smallest being the best choice. Hadamard
layers are made of such terms. Kronecker layers take a core as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """The k terms of a core (left, v, right)."""

    left: Tensor  # (left, k)
    table: Tensor  # (k, v)
    right: Tensor  # (k, right)


class Chain(NamedTuple):
    """Tables (i, v), one per variable, and matrices (o, i), one fewer but for one variable."""

    tables: list[Tensor]
    weights: list[Tensor]


def hadamard_chain(cores: Sequence[Tensor]) -> Chain:
    """The chain of Hadamard products that computes a state; its tables are real."""
    *inner, last = [*cores[:-1], cores[-1][..., 0]]  # the last one (left, v)
    if not inner:
        return kronecker_chain(cores)
    if torch.is_complex(last) or last.shape[0] > last.shape[1]:
        inner[-1], last = inner[-1] @ last, identity(last.shape[1])
    terms = [canonical(core) for core in inner[:-1]]
    terms.append(by_right(inner[-1]) if torch.is_complex(inner[-1]) else canonical(inner[-1]))
    tables = [*(term.table for term in terms), terms[-1].right @ last]
    dtype = cores[0].dtype
    weights = [terms[0].left.to(dtype)]
    for before, after in pairwise(terms):
        weights.append(before.right.to(dtype) @ after.left.to(dtype))
    width = max(len(table) for table in tables)
    return Chain(
        [padded(table, width, table.shape[1]) for table in tables],
        [padded(weight, 1 if t == 0 else width, width) for t, weight in enumerate(weights)],
    )


def kronecker_chain(cores: Sequence[Tensor]) -> Chain:
    """The chain of Kronecker products: cores are the weights, and tables tell states apart."""
    tables = [identity(core.shape[1]) for core in cores]
    if len(cores) == 1:
        return Chain(tables, [cores[0][..., 0]])
    inner = [*cores[:-2], cores[-2] @ cores[-1][..., 0]]
    return Chain(tables, [core.flatten(1) for core in inner])


def canonical(core: Tensor) -> Terms:
    """The fewest terms that need no search; complex cores get real tables."""
    left, states, right = core.shape
    choices = {by_left: left * states, by_right: states * right}
    if not torch.is_complex(core):
        choices[by_both] = left * right
    return min(choices, key=lambda choice: choices[choice])(core)


def by_left(core: Tensor) -> Terms:
    """One term for each index on the left and each state."""
    left, states, _ = core.shape
    return Terms(
        identity(left).repeat_interleave(states, 1),
        identity(states).repeat(left, 1),
        core.flatten(0, 1),
    )


def by_right(core: Tensor) -> Terms:
    """One term for each state and each index on the right."""
    _, states, right = core.shape
    return Terms(
        core.flatten(1),
        identity(states).repeat_interleave(right, 0),
        identity(right).repeat(states, 1),
    )


def by_both(core: Tensor) -> Terms:
    """One term for each index on the left and each on the right."""
    left, _, right = core.shape
    return Terms(
        identity(left).repeat_interleave(right, 1),
        core.mT.flatten(0, 1),
        identity(right).repeat(left, 1),
    )


def identity(size: int) -> Tensor:
    """The identity in float64."""
    return torch.eye(size, dtype=torch.float64)


def padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """A matrix with zeros below and to the right."""
    result = matrix.new_zeros(rows, columns)
    result[: matrix.shape[0], : matrix.shape[1]] = matrix
    return result
