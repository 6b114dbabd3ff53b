"""The tokens that occur, numbered anew, and one class for all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from studies.distillation.teachers import check_tokens


@dataclass(frozen=True)
class Vocabulary:
    """States 0 .. n - 1 are the tokens ``kept``; state n stands for every other token.

    Inside that class all tokens are equally likely: log-likelihoods are those of the teacher's
    own tokens, and can be compared with the teacher's.
    """

    kept: tuple[int, ...]
    num_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a file."""
        return {"kept": list(self.kept), "num_tokens": self.num_tokens}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Vocabulary:
        """The inverse of :meth:`to_dict`."""
        return cls(tuple(data["kept"]), data["num_tokens"])

    @property
    def unknown(self) -> int:
        """The state of all tokens that are not kept."""
        return len(self.kept)

    @property
    def num_states(self) -> int:
        """One for each token kept, and one for the others, if there are any."""
        return len(self.kept) + (len(self.kept) < self.num_tokens)

    def states(self, tokens: Tensor) -> Tensor:
        """The states of tokens (n, d)."""
        check_tokens(tokens, self.num_tokens)
        return self.table[tokens]

    def tokens(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The tokens of states (n, d); those of the unknown class are drawn."""
        kept = torch.tensor([*self.kept, -1])
        found = kept[states]
        hidden = found < 0
        if bool(hidden.any()):
            others = (self.table == self.unknown).nonzero()[:, 0]
            drawn = torch.randint(len(others), (int(hidden.sum()),), generator=generator)
            found[hidden] = others[drawn]
        return found

    def state(self, token: int) -> int:
        """The state of one token."""
        return int(self.table[token])

    def log_share(self, states: Tensor) -> Tensor:
        """log p(tokens | states), (n,), to be added to the log-likelihood of states (n, d)."""
        others = self.num_tokens - len(self.kept)
        return (states == self.unknown).sum(1).double() * -math.log(max(others, 1))

    def spread(self, log_states: Tensor) -> Tensor:
        """log-probabilities (n, v) of tokens from those (n, s) of states."""
        table = self.table
        logs = log_states[:, table]
        others = max(self.num_tokens - len(self.kept), 1)
        return logs - (table == self.unknown).double() * math.log(others)

    @cached_property
    def table(self) -> Tensor:
        """The state of every token, (v,)."""
        table = torch.full((self.num_tokens,), self.unknown)
        table[list(self.kept)] = torch.arange(len(self.kept))
        return table


def make_vocabulary(
    tokens: Tensor, num_tokens: int, *, min_count: int = 1, always: Sequence[int] = ()
) -> Vocabulary:
    """Keep the tokens that occur at least ``min_count`` times, and some others.

    With a count of two or more, rare tokens teach the unknown class how frequent it is.
    """
    check_tokens(tokens, num_tokens)
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}.")
    counts = torch.bincount(tokens.flatten(), minlength=num_tokens)
    kept = set((counts >= min_count).nonzero()[:, 0].tolist()) | set(always)
    return Vocabulary(tuple(sorted(kept)), num_tokens)
