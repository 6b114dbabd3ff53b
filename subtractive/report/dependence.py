"""Which columns depend on each other most: mutual information of their ranks or states."""

from __future__ import annotations

import numpy as np

from subtractive.report.view import View
from subtractive.tables.reading import Floats

BINS = 8
MOST_ROWS, MOST_VARIABLES = 5000, 200


def mutual_information(view: View) -> Floats:
    """Estimates for all pairs of variables (d, d), in nats, zero on the diagonal.

    Each variable is cut into at most eight cells with about as many rows; the bias of so coarse
    an estimate, (cells - 1)² / 2n, is subtracted. Beyond 200 variables nothing is looked at.
    """
    codes = view.codes[view.some_rows(MOST_ROWS)]
    size = codes.shape[1]
    looked = min(size, MOST_VARIABLES)
    cells = np.stack([_cells(codes[:, i]) for i in range(looked)])  # (d, n, b)
    counts = np.einsum("inb,jnc->ijbc", cells, cells, optimize=True)
    total = np.maximum(counts.sum((2, 3), keepdims=True), 1)
    joint = counts / total
    left, right = joint.sum(3, keepdims=True), joint.sum(2, keepdims=True)
    apart = left * right
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / apart), 0.0)
    free = ((left > 0).sum((2, 3)) - 1) * ((right > 0).sum((2, 3)) - 1)
    found = np.zeros((size, size))
    found[:looked, :looked] = terms.sum((2, 3)) - free / (2 * total[:, :, 0, 0])
    np.fill_diagonal(found, 0.0)
    return np.maximum(found, 0.0)


def strongest(information: Floats, among: list[int], most: int) -> list[int]:
    """At most so many variables: the most dependent two, then who depends most on one of them."""
    if len(among) <= 2:
        return among[:most]
    part = information[np.ix_(among, among)]
    first, second = np.unravel_index(int(part.argmax()), part.shape)
    chosen = [int(first), int(second)] if first != second else [0, 1]
    while len(chosen) < min(most, len(among)):
        reach = part[chosen].max(0)
        reach[chosen] = -1.0
        chosen.append(int(reach.argmax()))
    return [among[i] for i in chosen]


def strongest_pair(
    information: Floats, left: list[int], right: list[int]
) -> tuple[int, int] | None:
    """The most dependent pair of one variable of each list, none if nothing depends."""
    if not left or not right:
        return None
    part = information[np.ix_(left, right)]
    i, j = np.unravel_index(int(part.argmax()), part.shape)
    return (left[int(i)], right[int(j)]) if part[i, j] > 0 else None


def _cells(codes: Floats) -> Floats:
    """Which cell each row falls into, as indicators (n, b); no cell if it is missing."""
    known = ~np.isnan(codes)
    cells = np.zeros((len(codes), BINS))
    if not known.any():
        return cells
    edges = np.unique(np.quantile(codes[known], np.arange(1, BINS) / BINS))
    place = np.searchsorted(edges, codes[known], side="left")
    cells[np.flatnonzero(known), place] = 1.0
    return cells
