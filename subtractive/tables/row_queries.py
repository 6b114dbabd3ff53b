"""One question to every row of a table: the probability of an event given what the row holds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from subtractive.tables.code_sets import both
from subtractive.tables.conditions import event_sets
from subtractive.tables.queries import check_rows, encode_evidence, log_weights, row_sets
from subtractive.tables.reading import Floats, Table
from subtractive.tables.schema import Encoded
from subtractive.tables.set_weights import log_weights_of_sets
from subtractive.tables.view import View


@torch.no_grad()
def row_probabilities(view: View, table: Table, event: Mapping[Any, object]) -> Floats:
    """P(event | row) for each row, (n,), rows being the values of columns outside the event.

    Missing values are integrated out. It is the weight of the event and the row, divided by that
    of the row; both are exact.
    """
    rows = _without(view, table, set(event))
    sets = both(view.sets, event_sets(view.schema, event))
    if sets is None:
        return np.zeros(len(rows.x))
    inside = _log_weights(replace(view, sets=sets), rows)
    return np.asarray(np.minimum(1.0, np.exp(inside - _log_weights(view, rows))))


def _log_weights(view: View, rows: Encoded) -> Floats:
    """log of the weights of rows, (n,), censored cells being the intervals that they are."""
    logs, some = log_weights(view, rows.x), sorted(rows.censored)
    logs[some] = log_weights_of_sets(view.density, [row_sets(view, rows, n) for n in some])
    return logs


def _without(view: View, table: Table, names: set[Hashable]) -> Encoded:
    """Codes (n, d) of rows in which these columns, and copies of them, are missing."""
    rows = encode_evidence(view, table)
    asked = {view.schema.place[name] for name in names if name in view.schema.place}
    x = rows.x.clone()
    x[:, sorted(asked)] = math.nan
    others = {n: w for n, w in rows.impossible.items() if view.schema.place.get(n) not in asked}
    censored = {
        row: {v: one for v, one in cells.items() if v not in asked}
        for row, cells in rows.censored.items()
    }
    rows = rows._replace(x=x, impossible=others, censored=censored)
    check_rows(rows)
    return rows
