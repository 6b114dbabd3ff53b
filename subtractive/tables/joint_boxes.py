"""Boxes on columns that share a full covariance, for which there is no closed form.

One such column is exact, by its distribution function. Two are a one-dimensional integral of
exact conditionals. More are counted among exact samples, with an error bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.evidence import Evidence
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.test_functions import CumulativeAt
from subtractive.tables.reading import Floats

NUM_SAMPLES = 20_000
# Codes of columns with full covariances are integrated over this range, in so many panels.
REACH, PANELS, NODES = 24.0, 192, 4
LEAST_ACCEPTED = 1e-4
MOST_AT_ONCE = 50_000  # samples, of which those inside a box are kept
MOST_BATCHES = 20  # of so many, for a share of them
MOST_TRIES, MOST_PER_ROW = 1_000_000, 1000  # for rows that differ, and for each of them
IMPROBABLE = (
    "what is given is so improbable that nothing can be drawn given it: less than one of 10,000 "
    "samples is inside. An interval may contradict another value of its row. Give wider "
    "intervals, or fit with a tree, such as structure='chow-liu'."
)

Random: TypeAlias = torch.Generator | None
Fits: TypeAlias = Callable[[Tensor], Tensor]  # which rows of codes (n, d) are inside, (n,)


class ImprobableError(ValueError):
    """Hardly any sample is inside of a box; at most the share ``most``."""

    most = LEAST_ACCEPTED


class Weight(NamedTuple):
    """log of the weight of a box, and how far the weight may be off, as a share of all mass."""

    log_weight: float
    error: float


def joint_variables(density: Density, evidence: Evidence) -> list[int]:
    """The variables with windows that share an input region with others."""
    return sorted(variables_of_joint_regions(density) & evidence.restricted())


def variables_of_joint_regions(density: Density) -> set[int]:
    """The variables that share an input region with others."""
    found: set[int] = set()
    for layer in density.modules():
        if isinstance(layer, InputLayer) and layer.variables.shape[1] > 1:
            found.update(variable for scope in layer.scopes for variable in scope)
    return found


@torch.no_grad()
def box_weight(density: Density, evidence: Evidence) -> Weight:
    """The weight of one box (1, d), exact where there is a closed form."""
    joint = joint_variables(density, evidence)
    if not joint:
        return Weight(float(density.log_weight(evidence)[0]), 0.0)
    last = joint[-1]
    if len(joint) == 1:
        return Weight(float(one_window_weights(density, evidence, last)[0]), 0.0)
    if len(joint) == 2:
        return _by_quadrature(density, evidence, joint[0], last)
    free = without_windows(evidence, joint)
    rows = free.rows(torch.zeros(NUM_SAMPLES, dtype=torch.long))
    drawn = density.sample_given(rows, _generator())
    part = float(inside(drawn, evidence, joint).double().mean())
    error = counting_error(part, NUM_SAMPLES)
    whole = float(density.log_weight(free)[0])
    with np.errstate(divide="ignore"):
        return Weight(whole + float(np.log(part)), error)


@torch.no_grad()
def one_window_weights(density: Density, evidence: Evidence, variable: int) -> Floats:
    """log of the weight of rows (n, d) with the same window of one variable of a joint region."""
    free = without_windows(evidence, [variable])
    with np.errstate(divide="ignore"):
        log_shares = np.log(_shares(density, free, evidence, variable))
    return np.asarray(density.log_weight(free).numpy() + log_shares)


def have_the_same_window(evidence: Evidence, variable: int) -> bool:
    """Whether all rows have the same window of a variable."""
    bounds = [
        bound[:, variable] for bound in (evidence.lower, evidence.upper) if bound is not None
    ]
    return all(bool((bound == bound[0]).all()) for bound in bounds)


def counting_error(share: float, count: float) -> float:
    """A bound for a share among so many samples: three standard errors."""
    return 3 * math.sqrt(max(share * (1 - share), 1 / NUM_SAMPLES) / max(count, 1.0))


def without_windows(evidence: Evidence, variables: list[int]) -> Evidence:
    """The same evidence, but nothing known about some variables."""
    lower, upper = evidence.lower, evidence.upper
    if lower is not None and upper is not None:
        lower, upper = lower.clone(), upper.clone()
        lower[:, variables], upper[:, variables] = -math.inf, math.inf
    states = {v: mask for v, mask in evidence.states.items() if v not in variables}
    return replace(evidence, lower=lower, upper=upper, states=states)


def inside(x: Tensor, evidence: Evidence, variables: list[int]) -> Tensor:
    """Which rows of codes (n, d) are in the windows of some variables, (n,)."""
    assert evidence.lower is not None
    assert evidence.upper is not None
    columns = x[:, variables]
    above = columns > evidence.lower[:1, variables]
    return (above & (columns <= evidence.upper[:1, variables])).all(1)


@torch.no_grad()
def sample_box(density: Density, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
    """One row (n, d) for each row of evidence, whose windows are the same in all rows."""
    joint = joint_variables(density, evidence)
    if not joint:
        return density.sample_given(evidence, generator)
    free = without_windows(evidence, joint)
    draw = _draw_alike if len(evidence.shared()) == 1 else _draw_each
    return draw(density, free, partial(inside, evidence=evidence, variables=joint), generator)


def _draw_alike(density: Density, free: Evidence, fits: Fits, generator: Random) -> Tensor:
    """Rows of evidence that are all the same: whatever is inside is a row for any of them."""
    found, tries = [free.x[:0].double()], 0
    while (left := len(free) - sum(map(len, found))) > 0:
        # As many as will leave enough of them inside, with some more.
        rate = (len(free) - left + 1) / (tries + 1)
        count = left if tries == 0 else min(MOST_AT_ONCE, int(1.1 * left / rate) + 16)
        rows = torch.zeros(count, dtype=torch.long)
        fresh = density.sample_given(free.rows(rows), generator)
        found.append(fresh[fits(fresh)][:left])
        tries += count
        if len(free) - left + len(found[-1]) < LEAST_ACCEPTED * tries - 10:
            raise ImprobableError(IMPROBABLE)
    return torch.cat(found)


def _draw_each(density: Density, free: Evidence, fits: Fits, generator: Random) -> Tensor:
    """Rows of evidence that differ: the more for each of them, the longer none was inside."""
    drawn, left = torch.zeros_like(free.x.double()), torch.arange(len(free))
    tries, most, each = 0, MOST_TRIES + MOST_PER_ROW * len(free), 1
    while len(left):
        rows = left.repeat_interleave(max(1, min(each, MOST_AT_ONCE // len(left))))
        fresh = density.sample_given(free.rows(rows), generator)
        kept = fits(fresh).nonzero()[:, 0]
        kept = kept[torch.cat([torch.ones(1).bool(), rows[kept].diff() != 0])[: len(kept)]]
        drawn[rows[kept]] = fresh[kept]
        tries, each = tries + len(rows), 2 * each
        left = left[~torch.isin(left, rows[kept])]
        if len(left) and (each * LEAST_ACCEPTED > 20 or tries > most):
            raise ImprobableError(IMPROBABLE)
    return drawn


def samples_inside(density: Density, box: Evidence, count: int) -> Tensor:
    """Up to so many samples (n, d) inside a box (1, d), which may be fewer in a small one."""
    joint = joint_variables(density, box)
    if not joint:
        return density.sample_given(box.rows(torch.zeros(count, dtype=torch.long)), _generator())
    free, generator, found = without_windows(box, joint), _generator(), [box.x[:0].double()]
    for _ in range(MOST_BATCHES):
        rows = free.rows(torch.zeros(MOST_AT_ONCE, dtype=torch.long))
        fresh = density.sample_given(rows, generator)
        found.append(fresh[inside(fresh, box, joint)])
        if sum(map(len, found)) >= count:
            break
    return torch.cat(found)[:count]


def _by_quadrature(density: Density, evidence: Evidence, first: int, last: int) -> Weight:
    """∫ p(x_first) P(x_last in its window | x_first) over the window of the first."""
    assert evidence.lower is not None
    assert evidence.upper is not None
    low, high = float(evidence.lower[0, first]), float(evidence.upper[0, first])
    edges = np.linspace(max(low, -REACH), min(high, REACH), PANELS + 1)
    at, weight = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    # An atom has a probability, not a density: its node counts as it is.
    atoms = np.array([atom for atom in atoms_of(density, first) if low < atom <= high])
    nodes = torch.from_numpy(np.append((edges[:-1, None] + half * (at + 1)).ravel(), atoms))
    widths = np.append((half * weight).ravel(), np.ones(len(atoms)))
    free = without_windows(evidence, [first, last])
    rows = free.rows(torch.zeros(len(nodes), dtype=torch.long))
    x, observed = rows.x.clone(), rows.observed.clone()
    x[:, first], observed[:, first] = nodes, True
    rows = replace(rows, x=x, observed=observed)
    logs = density.log_weight(rows).numpy()
    kept = np.flatnonzero(logs > logs.max() - 50)
    shares = _shares(density, rows.rows(torch.from_numpy(kept)), evidence, last)
    terms = np.exp(logs[kept] - logs.max()) * widths[kept] * shares
    with np.errstate(divide="ignore"):
        return Weight(float(np.log(terms.sum()) + logs.max()), 0.0)


def atoms_of(density: Density, variable: int) -> set[float]:
    """The points of a variable that have a probability of their own in some part of a density."""
    return {
        atom
        for layer in density.modules()
        if isinstance(layer, InputLayer)
        for scope, family in zip(layer.scopes, layer.families, strict=True)
        if scope == (variable,)
        for atom in family.atoms
    }


def _shares(density: Density, free: Evidence, box: Evidence, variable: int) -> Floats:
    """P(the variable is in its window), (n,), given rows of evidence without it."""
    assert box.lower is not None
    assert box.upper is not None
    questions: list[TestFunctions | None] = [None] * density.num_variables
    ends = torch.stack([box.lower[0, variable], box.upper[0, variable]])
    questions[variable] = CumulativeAt(ends)
    answer = density.expectations(free, questions)[variable]
    assert answer is not None
    heights = answer.numpy()
    return np.asarray(np.clip(heights[:, 1] - heights[:, 0], 0.0, 1.0))


def _generator() -> torch.Generator:
    """Always the same: asking twice gives the same answer."""
    return torch.Generator().manual_seed(0)
