"""What a start from data needs to know about columns: quantiles, spreads, histograms, clusters.

Rows carry weights >= 0; a row of weight two counts as two equal rows. All is in float64.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

# Single precision keeps seven digits: narrower Gaussians would see rounding errors as outliers.
RESOLUTION = 2.0**-20
# Values further out than this many spreads count as if they were there: outliers, not clusters.
FAR = 10.0
MAX_LLOYD_STEPS = 50
# The width of a Gaussian unit at its start, see local_widths, and the least, in spreads.
WIDTH = 0.3
LEAST_WIDTH = 0.02


class Sample(NamedTuple):
    """Rows of the variables of one region, NaN where a value is missing, and their weights."""

    columns: Tensor  # (n, s)
    weights: Tensor  # (n,)

    def column(self, variable: int) -> tuple[Tensor, Tensor]:
        """The values of one variable that are known and count, and their weights."""
        counts = ~self.columns[:, variable].isnan() & (self.weights > 0)
        return self.columns[counts, variable].double(), self.weights[counts].double()


def quantiles(column: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """The smallest values that have at least the shares ``levels`` (q,) of the weight below them.

    >>> column, levels = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.1, 0.5, 0.9])
    >>> quantiles(column, torch.ones(3), levels)
    tensor([1., 2., 3.])
    """
    order = column.argsort()
    below = weights[order].cumsum(0)
    place = torch.searchsorted(below, levels.to(below.dtype) * below[-1])
    return column[order][place.clamp(max=len(column) - 1)]


def spread(column: Tensor, weights: Tensor) -> Tensor:
    """The standard deviation without the outer percent, (), and never zero.

    A column that is constant but for outliers gets the plain one, and a constant c gets
    max(|c|, 1) / 20.
    """
    lower, middle, upper = quantiles(column, weights, torch.tensor([0.005, 0.5, 0.995]))
    least = RESOLUTION * torch.stack([lower, upper]).abs().max()
    for values in (column.clamp(lower, upper), column):
        share = weights / weights.sum()
        deviation = values - middle  # first, so that a far offset takes no digits
        variance = (share * deviation.square()).sum() - (share * deviation).sum().square()
        scale: Tensor = variance.clamp(min=0).sqrt()
        if scale > least:
            return scale
    constant: Tensor = 0.05 * middle.abs().clamp(min=1)
    return constant


def shuffled_levels(count: int, generator: torch.Generator | None) -> Tensor:
    """One level in each of ``count`` equal parts of (0, 1), in random order, (count,)."""
    levels = torch.randperm(count, generator=generator).double()
    return levels.add(torch.rand(count, generator=generator, dtype=torch.float64)).div(count)


def histogram(states: Tensor, weights: Tensor, num_states: int) -> Tensor:
    """Relative frequencies of states (n,), (v,), as if each had been seen half a time more."""
    total = torch.full((num_states,), 0.5, dtype=torch.float64, device=states.device)
    total = total.index_add(0, states.long(), weights * (len(weights) / weights.sum()))
    return total / total.sum()


def local_widths(column: Tensor, weights: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """The quantiles at levels (k,), and how wide the column is spread around each of them.

    A width is what a tenth of the weight on either side spans (of few units, the share of one),
    times WIDTH: they are narrow where rows are dense, and in the tails wide enough for outliers.
    """
    reach = max(0.1, 1 / len(levels))
    upper, lower = (levels + reach).clamp(max=1), (levels - reach).clamp(min=0)
    span = quantiles(column, weights, upper) - quantiles(column, weights, lower)
    width = WIDTH * span * (2 * reach / (upper - lower))
    narrowest = LEAST_WIDTH * spread(column, weights)
    return quantiles(column, weights, levels), torch.maximum(width, narrowest)


class Clusters(NamedTuple):
    """Centres (k, s), and the number (n,) of the nearest one for each point."""

    centres: Tensor
    labels: Tensor


def cluster(
    points: Tensor, weights: Tensor, count: int, generator: torch.Generator | None
) -> Clusters:
    """K-means for points (n, s); of fewer points than centres, some centres are equal."""
    # Imported here: it takes longer than all of the rest.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    distinct = min(count, len(points))
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    means = KMeans(distinct, n_init=1, max_iter=MAX_LLOYD_STEPS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal points
        means.fit(points.numpy(), sample_weight=weights.numpy())
    centres = torch.from_numpy(means.cluster_centers_)[torch.arange(count) % distinct]
    return Clusters(centres, torch.from_numpy(means.labels_).long())


def cluster_covariances(points: Tensor, weights: Tensor, clusters: Clusters) -> Tensor:
    """The covariances of clusters, (k, s, s), small ones borrowing from the others."""
    (count, size), labels = clusters.centres.shape, clusters.labels
    root = (weights / weights.sum()).sqrt()[:, None] * (points - clusters.centres[labels])
    scatter = torch.stack([root[labels == k].mT @ root[labels == k] for k in range(count)])
    mass = weights.new_zeros(count).index_add(0, labels, weights / weights.sum())
    # As if every cluster had half an average share of the rows more, scattered as all are.
    extra = 0.5 / count
    borrowed = scatter.sum(0) + 0.01 * torch.eye(size, dtype=points.dtype)
    return (scatter + extra * borrowed) / (mass + extra)[:, None, None]


def location_and_spread(sample: Sample) -> tuple[Tensor, Tensor]:
    """The medians and spreads of all columns, (s,); zero and one if nothing is known."""
    centres, units = [], []
    for variable in range(sample.columns.shape[1]):
        column, weights = sample.column(variable)
        if len(column) > 0:
            centres.append(quantiles(column, weights, torch.tensor([0.5]))[0])
            units.append(spread(column, weights))
        else:
            centres.append(torch.zeros((), dtype=torch.float64))
            units.append(torch.ones((), dtype=torch.float64))
    return torch.stack(centres), torch.stack(units)
