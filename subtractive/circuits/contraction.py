"""The contraction of messages where they meet: a product summed over all units of a region."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subtractive.circuits.layers import mix
from subtractive.numerics.leaf_message import double
from subtractive.numerics.scaled import Message, Product, added, multiply


def contract(children: Sequence[Message]) -> Product:
    r"""The product of all messages that meet at a region, summed over its units, (1, n, 1).

    .. math:: \sum_{ij} v_i v_j^* G_{ij}

    with v the product of all vectors, and G that of all grams. Grams for all rows are multiplied
    before those of single rows.
    """
    grams = [child for child in children if child.dim() == 4]
    vectors = [child for child in children if child.dim() == 3]
    by_row = [gram for gram in grams if gram.shape[1] > 1]
    shared = [gram for gram in grams if gram.shape[1] == 1]
    products = [multiply(some) for some in (shared, by_row) if some]
    gram = products[0] if products else None
    if len(products) > 1:
        one, other = products
        gram = Product(
            one.mantissa * other.mantissa,
            added(one.log_scale, other.log_scale),
            one.num_errors + other.num_errors + 1.0,
        )
    if not vectors:
        assert gram is not None
        total = gram.mantissa.sum((2, 3))
        return gram._replace(mantissa=(total.real if total.is_complex() else total)[..., None])
    vector = multiply(vectors)
    wide = vector.mantissa.to(double(vector.mantissa.dtype))  # (1, n, i)
    log_scale = None if vector.log_scale is None else 2 * vector.log_scale
    if gram is None:
        total = wide.sum(-1).abs().square()
        return Product(total[..., None], log_scale, 2.0 * vector.num_errors + 1.0)
    if gram.mantissa.shape[1] == 1:
        total = (mix(gram.mantissa[:, 0].mT, wide) * wide.conj()).sum(-1)
    else:
        wide = wide.to(torch.promote_types(wide.dtype, gram.mantissa.dtype))
        total = ((wide[..., None, :] @ gram.mantissa.to(wide.dtype))[..., 0, :] * wide.conj()).sum(
            -1
        )
    total = total.real if total.is_complex() else total
    errors = gram.num_errors + 2.0 * vector.num_errors + 1.0
    return Product(total[..., None], added(log_scale, gram.log_scale), errors)
