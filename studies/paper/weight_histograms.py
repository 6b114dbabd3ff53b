"""Histograms of the weights of a circuit and of its square, which are never written out.

The square of a sum with weights W has the weights W ⊗ W, one for each pair of weights of a region.
How many of these products lie below a bound follows from the sorted weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
# Quantiles between which a histogram lies, the number of its bars, and bisections of a quantile.
RANGE, BARS, STEPS = (0.005, 0.995), 60, 40


class Values(NamedTuple):
    """Many numbers: how many there are, how large, and how many lie below a bound."""

    total: int
    largest: float
    below: Callable[[float], int]


def normalised(layers: Sequence[Tensor]) -> list[Array]:
    """The weights (f, o, i) of layers region by region, sorted, of root mean square one."""
    regions = [weight.detach().double().flatten().numpy() for layer in layers for weight in layer]
    return [np.sort(region / np.sqrt(np.square(region).mean())) for region in regions]


def plain_values(regions: Sequence[Array]) -> Values:
    """The weights themselves.

    >>> plain_values([np.array([-3.0, 1.0]), np.array([2.0])]).below(1.5)
    2
    """
    return Values(
        sum(map(len, regions)),
        max(float(np.abs(region).max()) for region in regions),
        lambda bound: sum(int(np.searchsorted(region, bound)) for region in regions),
    )


def products(regions: Sequence[Array]) -> Values:
    """The products of all ordered pairs of weights of a region: the weights W ⊗ W.

    >>> products([np.array([-3.0, 1.0])]).below(1.0)  # 9, -3, -3, 1
    2
    """
    return Values(
        sum(len(region) ** 2 for region in regions),
        max(float(np.abs(region).max()) for region in regions) ** 2,
        lambda bound: sum(_products_below(region, bound) for region in regions),
    )


def histogram(values: Values) -> dict[str, Any]:
    """Counts between two quantiles, how many values there are, and the share below zero."""
    low, high = (_quantile(values, share) for share in RANGE)
    width = (high - low) / BARS
    edges = width * np.arange(np.floor(low / width), np.ceil(high / width) + 1)  # one is zero
    return {
        "counts": np.diff([values.below(edge) for edge in edges.tolist()]).tolist(),
        "edges": edges.tolist(),
        "negative": values.below(0.0) / values.total,
        "total": values.total,
    }


def _quantile(values: Values, share: float) -> float:
    low, high = -values.largest, values.largest
    for _ in range(STEPS):
        middle = (low + high) / 2
        if values.below(middle) < share * values.total:
            low = middle
        else:
            high = middle
    return high


def _products_below(region: Array, bound: float) -> int:
    """How many pairs of sorted numbers have a product below a bound."""
    negative, positive = region[region < 0], region[region > 0]
    # a b < t means b < t / a for positive a, and b > t / a for negative a.
    found = np.searchsorted(region, bound / positive).sum()
    found += (len(region) - np.searchsorted(region, bound / negative, side="right")).sum()
    zeros = len(region) - len(negative) - len(positive)
    return int(found) + (zeros * len(region) if bound > 0 else 0)
