"""Answers with a receipt: what the model says beside what the rows of a table say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, final

import pandas as pd
import scipy

LEAST_ROWS = 30  # that match what is given, for a question to be compared with a table
LEVEL = 0.05  # of the binomial test


class Matches(NamedTuple):
    """The rows of a table that match what is given, and the share in which an event holds."""

    rows: float
    share: float
    source: str  # "the table", or "the training table" whose counts were remembered
    is_exact: bool = True  # counts of cells that an interval cuts are not


@final
@dataclass(frozen=True)
class Receipt:
    """An answer of a model, and what is known about how far it can be trusted."""

    question: str
    probability: float
    error: float = 0.0  # a bound, zero if the answer is exact
    num_columns: int = 0  # in the event and in what is given
    matches: Matches | None = None
    held_out: tuple[int, int] | None = None  # questions like it after the fit: agreed, asked
    off_support: tuple[str, ...] = ()  # given columns that are far from all training rows

    @property
    def rows(self) -> float | None:
        """How many rows match what is given."""
        return None if self.matches is None else self.matches.rows

    @property
    def share(self) -> float | None:
        """The share of these rows in which the event holds."""
        return None if self.matches is None else self.matches.share

    @property
    def p_value(self) -> float | None:
        """Of a two-sided binomial test that the share has this probability."""
        if self.matches is None or not self.matches.is_exact:
            return None
        rows = round(self.matches.rows)
        hits = round(rows * self.matches.share) if rows else 0
        return binomial_p_value(hits, rows, self.probability)

    @property
    def agrees(self) -> bool | None:
        """Whether model and table differ by chance only; not known without enough rows."""
        p_value = self.p_value
        if p_value is None or self.rows is None or self.rows < LEAST_ROWS:
            return None
        return p_value >= LEVEL

    def __str__(self) -> str:
        text = f"{self.question} {'≈' if self.error else '='} {self.probability:.4f}"
        text += f" ± {self.error:.4f}" if self.error else ""
        text += f"; {self._of_rows()}"
        if self.held_out is not None and self.held_out[1]:
            agreed, asked = self.held_out
            text += f"; {agreed} of {asked} held-out questions like it agreed within chance"
        if self.off_support:
            names = ", ".join(self.off_support)
            text += f"; a guess: what is given of {names} is far from all training rows"
        return text

    def _of_rows(self) -> str:
        if self.matches is None:
            return "no table to compare with"
        about = "" if self.matches.is_exact else "about "
        words = {True: "as chance allows", False: "more than by chance", None: "too few rows"}
        verdict = words[self.agrees] if self.matches.is_exact else "counts by cells"
        return (
            f"in {self.matches.source} {about}{self.matches.share:.4f} of {about}"
            f"{self.matches.rows:,.0f} rows ({verdict})"
        )

    __repr__ = __str__


@final
@dataclass(frozen=True)
class Check:
    """Random questions: the share of answers within chance of a table, and every one of them."""

    receipts: tuple[Receipt, ...] = field(repr=False)

    @property
    def share(self) -> float:
        """The share of the answers that agree with the table; NaN if there were no questions."""
        agreed, asked = self.counts()
        return agreed / asked if asked else math.nan

    def counts(self, num_columns: int | None = None) -> tuple[int, int]:
        """How many answers agree, and how many there are: of all, or with so many columns."""
        some = [r for r in self.receipts if num_columns in (None, r.num_columns)]
        return sum(bool(receipt.agrees) for receipt in some), len(some)

    def to_frame(self) -> pd.DataFrame:
        """One row per question, the worst first."""
        rows = [
            (r.question, r.probability, r.share, r.rows, r.p_value, r.agrees)
            for r in sorted(self.receipts, key=lambda receipt: receipt.p_value or 0.0)
        ]
        names = ["question", "probability", "share", "rows", "p_value", "agrees"]
        return pd.DataFrame(rows, columns=names)

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of {len(self.receipts)} answers agree with the table"

    __repr__ = __str__


def binomial_p_value(hits: int, rows: int, probability: float) -> float:
    """Of the two-sided binomial test that an event has this probability.

    >>> round(binomial_p_value(5, 10, 0.5), 3), round(binomial_p_value(10, 10, 0.5), 5)
    (1.0, 0.00195)
    """
    if rows == 0:
        return math.nan
    below = scipy.special.bdtr(hits, rows, probability)
    above = scipy.special.bdtrc(hits - 1, rows, probability)
    return float(min(1.0, 2 * min(below, above)))
