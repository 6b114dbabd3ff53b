"""The contraction of messages where they meet: a product summed over all units of a region."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from subtractive.circuits.layers import mix
from subtractive.numerics.leaf_message import double
from subtractive.numerics.scaled import Message, Scaled, multiply, times


def contract(children: Sequence[Message]) -> Scaled:
    r"""The product of all messages that meet at a region, summed over its units, (1, n, 1).

    .. math:: \sum_{ij} v_i v_j^* G_{ij}

    with v the product of all vectors, and G that of all grams. Grams for all rows are multiplied
    before those of single rows.
    """
    vectors = [child for child in children if not child.is_gram]
    grams = [child for child in children if child.is_gram]
    shared = [gram for gram in grams if gram.shape[1] == 1]
    by_row = [gram for gram in grams if gram.shape[1] > 1]
    gram = reduce(times, [multiply(some) for some in (shared, by_row) if some]) if grams else None
    if not vectors:
        assert gram is not None
        return gram._replace(mantissa=_real(gram.mantissa.sum((2, 3))))
    vector = multiply(vectors)
    wide = vector.mantissa.to(double(vector.dtype))  # (1, n, i)
    log_scale, errors = 2 * vector.log_scale, 2.0 * vector.num_errors + 1.0
    if gram is None:
        return Scaled(_real(wide.sum(-1).abs().square()), log_scale, errors)
    if gram.shape[1] == 1:
        image = mix(gram.mantissa[:, 0].mT, wide)
    else:
        wide = wide.to(torch.promote_types(wide.dtype, gram.dtype))
        image = (wide[..., None, :] @ gram.mantissa.to(wide.dtype))[..., 0, :]
    total = _real((image * wide.conj()).sum(-1))
    return Scaled(total, log_scale + gram.log_scale, errors + gram.num_errors)


def _real(total: Tensor) -> Tensor:
    """Numbers (1, n) that are real but for rounding, as (1, n, 1)."""
    return (total.real if total.is_complex() else total)[..., None]
