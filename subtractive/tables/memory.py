"""What a model remembers of its fit: how held-out rows agreed, and counts of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from subtractive.tables.columns import Column
from subtractive.tables.receipts import Check, Matches, Receipt
from subtractive.tables.remembered_counts import RememberedCounts


class Memory(NamedTuple):
    """Random questions that held-out rows answered, and compact counts of all training rows."""

    check: Check | None = None
    counts: RememberedCounts | None = None


def describe_memory(memory: Memory) -> dict[str, Any]:
    """Plain lists, for a file."""
    check, counts = memory
    return {
        "check": None if check is None else [_describe(receipt) for receipt in check.receipts],
        "counts": None if counts is None else counts.describe(),
    }


def memory_from(data: Mapping[str, Any], columns: Sequence[Column]) -> Memory:
    """The inverse of :func:`describe_memory`."""
    rows, counts = data["check"], data["counts"]
    return Memory(
        None if rows is None else Check(tuple(_receipt(*row) for row in rows)),
        None if counts is None else RememberedCounts.from_description(counts, columns),
    )


def _describe(receipt: Receipt) -> list[Any]:
    assert receipt.matches is not None
    rows, share = receipt.matches[:2]
    return [receipt.question, receipt.probability, receipt.num_columns, rows, share]


def _receipt(
    question: str, probability: float, columns: int, rows: float, share: float
) -> Receipt:
    numbers = (probability, rows, share)
    are_right = all(isinstance(number, int | float) for number in numbers) and (
        0 <= probability <= 1 and 0 <= share <= 1 and 0 <= rows < math.inf
    )
    if not isinstance(question, str) or not isinstance(columns, int) or not are_right:
        raise ValueError("a remembered question is not as save() writes it.")
    matches = Matches(rows, share, "held-out rows")
    return Receipt(question, probability, 0.0, columns, matches)
