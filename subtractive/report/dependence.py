"""Which columns depend on each other most: mutual information of their ranks or states."""

from __future__ import annotations

import numpy as np

from subtractive.regions.chow_liu import corrected_information, discretise, pairwise
from subtractive.report.context import Context
from subtractive.tables.reading import Floats

BINS = 8
MOST_ROWS, MOST_VARIABLES = 5000, 200


def mutual_information(context: Context) -> Floats:
    """Estimates from the rows of the table for all pairs of variables (d, d), in nats."""
    return information_of(context.codes[context.some_rows(MOST_ROWS)])


def information_of(codes: Floats) -> Floats:
    """Estimates from rows of codes (n, d) for all pairs of variables, zero on the diagonal.

    Beyond 200 variables nothing is looked at.
    """
    size = codes.shape[1]
    looked = min(size, MOST_VARIABLES)
    cells = np.stack([discretise(codes[:, i], BINS) for i in range(looked)], axis=1)
    found = np.zeros((size, size))
    found[:looked, :looked] = pairwise(corrected_information, cells)
    np.fill_diagonal(found, 0.0)
    return found


def strongest_pairs(information: Floats, most: int) -> list[tuple[int, int]]:
    """The most dependent pairs, the strongest first; none that does not depend."""
    above = np.triu(information, 1)
    order = np.argsort(-above, axis=None, kind="stable")[:most]
    places = zip(*np.unravel_index(order, above.shape), strict=True)
    return [(int(i), int(j)) for i, j in places if above[i, j] > 0]


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
