"""Scores, probabilities, samples, imputations and predictions of the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from subtractive.densities.queries import check_memory
from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.containers import AnyTable
from subtractive.tables.expectations import (
    box_log_weights,
    heights,
    integration_points,
    one_box,
)
from subtractive.tables.joint_boxes import (
    IMPROBABLE,
    ImprobableError,
    sample_box,
    samples_inside,
)
from subtractive.tables.reading import (
    Floats,
    RandomState,
    Table,
    read_mapping,
)
from subtractive.tables.schema import LEFT_OUT, NEAREST, RARE, Encoded
from subtractive.tables.set_weights import log_weights_of_sets
from subtractive.tables.validation import check_weights
from subtractive.tables.view import View

# Rows that are encoded and scored at a time, which bounds the memory of a long table.
ROWS_AT_ONCE = 2**16
FEWEST = 100  # samples from which something is counted
# Below it a share is rounding.
LEAST_SHARE = 1e-12


def score_rows(view: View, table: Table) -> Floats:
    """The log-density of each row of a table that has been read, some rows at a time."""
    total = log_total(view)
    parts = [np.zeros(0)]
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        rows = encode(view, table.rows(slice(start, start + ROWS_AT_ONCE)), RARE)
        logs = log_weights(view, rows.x)
        some = sorted(rows.censored)
        logs[some] = log_weights_of_sets(view.density, [row_sets(view, rows, n) for n in some])
        scores = logs - total + rows.log_abs_det_jacobian + _unseen_scores(view, rows)
        parts.append(np.where(rows.possible, scores, -np.inf))
    return np.concatenate(parts)


def _unseen_scores(view: View, rows: Encoded) -> Floats:
    """log-probabilities (n,) of numbers that no row of training had, in columns of few numbers.

    Each has that of the rarest number of its column, divided by how many numbers there are.
    """
    scores = np.zeros(len(rows.x))
    none = torch.zeros(1, len(view.schema.variables), dtype=torch.float64)
    nothing = Evidence(none, none.bool())
    for variable, codes in rows.unseen.items():
        column = view.schema.variables[variable]
        numbers = integration_points(column).codes
        shares = heights(view.density, nothing, {variable: numbers})[variable]
        rarest = max(float(shares.min()), LEAST_SHARE) / len(numbers)
        scores += np.where(np.isnan(codes), 0.0, math.log(rarest))
    return scores


def row_sets(view: View, rows: Encoded, row: int) -> Sets | None:
    """What is known of a row with censored cells, and what is given."""
    x = rows.x[row].tolist()
    points = {v: CodeSet(code) for v, code in enumerate(x) if code == code}
    return both(view.sets, {**points, **rows.censored[row]})


def mean_score(view: View, table: Table, sample_weight: object) -> float:
    """The weighted mean log-density of a table that has been read."""
    weights = check_weights(sample_weight, table.num_rows)
    counts = weights > 0
    return float(np.average(score_rows(view, table.rows(counts)), weights=weights[counts]))


@torch.no_grad()
def log_total(view: View) -> float:
    """log of the weight of what is given."""
    if not view.sets:
        return float(view.density.log_partition())
    return float(np.logaddexp.reduce(box_log_weights(view.density, view.evidence)))


@torch.no_grad()
def log_weights(view: View, x: torch.Tensor) -> Floats:
    """log of the weights (n,) of rows of codes (n, d), NaN being anything that is given."""
    boxes = view.evidence
    parts = []
    for box in range(len(boxes)):
        evidence, inside = with_rows(one_box(boxes, box), x)
        scores = box_log_weights(view.density, evidence)
        parts.append(np.where(inside, scores, -np.inf))
    return np.asarray(np.logaddexp.reduce(parts))


def with_rows(box: Evidence, x: torch.Tensor) -> tuple[Evidence, Any]:
    """A box of one row with the observed codes of rows (n, d), and which rows are inside it."""
    seen = ~x.isnan()
    inside = torch.ones(len(x), dtype=torch.bool)
    if box.lower is not None and box.upper is not None:
        values = x.nan_to_num(0.0)
        inside = ((~seen) | ((values > box.lower) & (values <= box.upper))).all(1)
    for variable, mask in box.states.items():
        state = x[:, variable].nan_to_num(0.0).long()
        inside = inside & (~seen[:, variable] | mask[state])
    observed = seen | box.observed
    joined = torch.where(seen, x.nan_to_num(0.0), box.x.expand_as(x))
    return replace(box, x=torch.where(observed, joined, 0.0), observed=observed), inside.numpy()


def encode(view: View, table: Table, of_unseen_numbers: str = LEFT_OUT) -> Encoded:
    """A table with the columns of a view, as codes (n, d) of all variables."""
    renamed = [
        replace(raw, name=name) for raw, name in zip(table.columns, view.names, strict=True)
    ]
    view.schema.report_unknown(renamed, of_unseen_numbers)
    return view.schema.encode(renamed, table.num_rows)


def encode_evidence(view: View, table: Table) -> Encoded:
    """The same as what is known of rows: the nearest numbers stand for unseen ones of few."""
    return encode(view, table, NEAREST).as_evidence


def probability(view: View, event: Mapping[Any, object]) -> float:
    """P(event | what is given)."""
    evidence = view.event(event)
    if evidence is None:
        return 0.0
    inside = np.logaddexp.reduce(box_log_weights(view.density, evidence))
    return float(min(1.0, np.exp(inside - log_total(view))))


def sample(
    view: View,
    n_samples: int | None,
    random_state: RandomState,
    names: Sequence[Hashable] | None = None,
) -> AnyTable:
    """Exact samples given sets of values, of the columns of a view or of those named."""
    count = sample_count(1 if n_samples is None else n_samples)
    check_memory(count, len(view.schema.variables))
    x = draw(view, count, as_generator(random_state))
    values = view.schema.decode(x)
    for raw in read_mapping(view.values):  # as given, not as encoded and back
        values[raw.name] = np.repeat(raw.values, count)
    return view.schema.build({name: values[name] for name in names or view.names})


@torch.no_grad()
def draw(view: View, count: int, generator: torch.Generator) -> torch.Tensor:
    """Codes (n, d) of samples given sets of values."""
    boxes = view.evidence
    log_shares = box_log_weights(view.density, boxes)
    shares = torch.from_numpy(np.exp(log_shares - log_shares.max()))
    if len(boxes) == 1:
        chosen = torch.zeros(count, dtype=torch.long)
    else:
        chosen = torch.multinomial(shares, max(count, 1), replacement=True, generator=generator)
    drawn = torch.zeros(count, boxes.x.shape[1], dtype=torch.float64)
    for box in chosen[:count].unique().tolist():
        rows = (chosen[:count] == box).nonzero()[:, 0]
        part = one_box(boxes, box).rows(torch.zeros(len(rows), dtype=torch.long))
        drawn[rows] = sample_box(view.density, part, generator)
    return drawn


@torch.no_grad()
def draw_inside(view: View, count: int) -> torch.Tensor:
    """Codes (n, d) of samples given sets of values, always the same ones.

    They are about so many, but fewer where hardly any sample is inside.
    """
    boxes = view.evidence
    log_shares = box_log_weights(view.density, boxes)
    counts = np.ceil(count * np.exp(log_shares - np.logaddexp.reduce(log_shares)))
    some = np.flatnonzero(counts).tolist()
    drawn = [samples_inside(view.density, one_box(boxes, b), int(counts[b])) for b in some]
    # Where a box falls short of its samples, the others must not outweigh it.
    least = min(len(rows) / counts[b] for b, rows in zip(some, drawn, strict=True))
    kept = [rows[: math.ceil(least * counts[b])] for b, rows in zip(some, drawn, strict=True)]
    if sum(map(len, kept)) < FEWEST:
        raise ImprobableError(IMPROBABLE)
    return torch.cat(kept)


def check_count(n_samples: int | None, table: Table) -> None:
    """A table of given values yields a sample for each row, and no other number."""
    if n_samples not in (None, table.num_rows):
        raise ValueError(
            f"a table of given values yields one sample for each of its {table.num_rows} "
            f"rows, got n_samples={n_samples}. Leave n_samples out."
        )


def as_generator(random_state: RandomState) -> torch.Generator:
    """A generator from an int, a ``RandomState``, or ``None`` for numpy's own."""
    return torch.Generator().manual_seed(draw_seed(random_state))


def draw_seed(random_state: RandomState) -> int:
    """A seed drawn as scikit-learn does from an int, a ``RandomState`` or ``None``."""
    from sklearn.utils import check_random_state  # which takes long to import

    return int(check_random_state(random_state).randint(2**31 - 1))


def sample_count(n_samples: object) -> int:
    """A number of samples, checked."""
    if not isinstance(n_samples, int | np.integer) or isinstance(n_samples, bool) or n_samples < 0:
        raise ValueError(f"n_samples must be a whole number of at least 0, got {n_samples!r}.")
    return int(n_samples)


def check_rows(rows: Encoded) -> None:
    """Refuse rows that have probability zero."""
    for name, wrong in rows.impossible.items():
        raise ValueError(
            f"the value of column {name!r} in row {int(wrong.nonzero()[0][0])} has probability "
            "zero (it is outside the bounds, or differs from a constant or from its copy): "
            "nothing can be conditioned on it."
        )
