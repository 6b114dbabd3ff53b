"""What happened in training: a table with one row per epoch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from subtractive.io.html import html_table


class Epoch(NamedTuple):
    """One row of the history."""

    epoch: int
    train: float  # mean log-likelihood of the training rows, seen on the way
    valid: float  # mean log-likelihood afterwards: of the validation rows, or of all training rows
    learning_rate: float
    skipped_steps: int
    seconds: float  # since the start of training


@dataclass
class History:
    """The epochs of a training run, why it ended, and what went wrong on the way.

    ``pandas.DataFrame(history.epochs)`` makes a data frame of it.

    >>> print(History([Epoch(1, -2.5, -2.25, 0.01, 0, 1.0)], best_epoch=1, stopped="max_epochs"))
     epoch      train      valid      rate  skipped  seconds
         1    -2.5000    -2.2500      0.01        0      1.0  best
    stopped: max_epochs
    """

    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    best_score: float = -math.inf
    restarts: int = 0
    stopped: str = ""
    agreement: float | None = None  # of answers about a table with its validation rows, as a share
    # Nats per validation row by which squares are better than the sums that they began from, where
    # they were tried, and how many sums they have replaced.
    gain_of_squares: float | None = None
    num_squared: int = 0

    @property
    def train(self) -> list[float]:
        """The mean training log-likelihood of each epoch."""
        return [row.train for row in self.epochs]

    @property
    def valid(self) -> list[float]:
        """The score of each epoch: the mean validation log-likelihood."""
        return [row.valid for row in self.epochs]

    @property
    def skipped_steps(self) -> int:
        """How many steps were left out because they were not finite."""
        return sum(row.skipped_steps for row in self.epochs)

    @property
    def seconds(self) -> float:
        """How long training took."""
        return self.epochs[-1].seconds if self.epochs else 0.0

    @property
    def squares_against_sums(self) -> str:
        """What came of squares that began where sums had ended; empty if none were tried."""
        if self.gain_of_squares is None:
            return ""
        kept = f"{self.num_squared} kept" if self.num_squared else "not kept"
        return f"{self.gain_of_squares:+.4f} nats, {kept}"

    def offer(self, score: float, epoch: int, *, gain: float | None = None) -> bool:
        """Whether the score of an epoch is the best so far, and is kept.

        ``gain`` over the best so far decides, if scores are not to be compared as they are.
        """
        is_better = score > self.best_score if gain is None else gain > 0
        # As long as some row is impossible there is nothing to compare: later is better.
        if is_better or self.best_score == -math.inf:
            self.best_score, self.best_epoch = score, epoch
            return True
        return False

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for a file."""
        return {**asdict(self), "epochs": [list(row) for row in self.epochs]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> History:
        """The inverse of :meth:`to_dict`."""
        return cls(**{**data, "epochs": [Epoch(*row) for row in data["epochs"]]})

    def _repr_html_(self) -> str:
        """How training went, in one row."""
        facts = {
            "epochs": len(self.epochs),
            "best epoch": self.best_epoch,
            "best validation score": f"{self.best_score:.4f}",
            "seconds": f"{self.seconds:.1f}",
            "stopped": self.stopped,
        }
        if self.agreement is not None:
            facts["answers within chance"] = f"{100 * self.agreement:.0f} %"
        if self.gain_of_squares is not None:
            facts["squares against sums"] = self.squares_against_sums
        return html_table("History", list(facts), [list(facts.values())])

    def __str__(self) -> str:
        lines = [" epoch      train      valid      rate  skipped  seconds"]
        lines += [
            f"{row.epoch:6d} {row.train:10.4f} {row.valid:10.4f} {row.learning_rate:9.3g} "
            f"{row.skipped_steps:8d} {row.seconds:8.1f}"
            + ("  best" if row.epoch == self.best_epoch else "")
            for row in self.epochs
        ]
        if self.agreement is not None:
            share = f"{100 * self.agreement:.0f} %"
            lines.append(f"answers within chance of the validation rows: {share}")
        if self.gain_of_squares is not None:
            lines.append(f"squares against sums: {self.squares_against_sums}")
        return "\n".join([*lines, f"stopped: {self.stopped}"])
