"""All ways in which a sequence may go on, under requirements: their masses, and draws from them.

Every mass is a sum of squares, or of non-negative terms, over accepted endings only: nothing is
subtracted, so that the rarest of events keeps its digits.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.quadratic_form_sampling import (
    by_chunks,
    draw_state_of_products,
    quadratic,
    uniforms,
)
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.messages import log_sum_exp, safe_log
from subtractive.sequences.chain import Before, Chain, Reading


@final
class Endings:
    """What may follow each beginning of a sequence, computed once for all beginnings.

    A beginning is told by what precedes a position, and by the state (n,) in which the automaton
    has arrived there.
    """

    def __init__(self, chain: Chain, reading: Reading) -> None:
        self.chain, self.reading = chain, reading
        self.step = reading.automaton.table()
        self.kinds = reading.kinds
        self.after = chain.after(reading)

    def start(self, num_rows: int) -> tuple[Before, Tensor]:
        """Before the first token."""
        return self.chain.start(num_rows), torch.zeros(num_rows, dtype=torch.long)

    def advance(
        self, before: Before, states: Tensor, position: int, tokens: Tensor
    ) -> tuple[Before, Tensor]:
        """After tokens (n,) at a position."""
        following = self.step[states, self.kinds[tokens]]
        return self.chain.advance(before, position, tokens), following

    @torch.no_grad()
    def log_kinds(self, before: Before, states: Tensor, position: int) -> Tensor:
        """log of the mass of each kind of token at a position, all that follows summed, (n, k)."""
        after = self.after[position + 1]
        leaf = self.chain.leaf(position, self.reading).value()[0].flatten(1)  # (kinds, i j)
        count = self.reading.automaton.num_kinds
        pairs = self.step[states] * count + torch.arange(count)  # (n, kinds)
        used, where = pairs.unique(return_inverse=True)
        targets, kinds = used // count, used % count
        products = after.mantissa[0].flatten(1)[targets] * leaf[kinds]  # (pairs, i j)
        masses = self._masses(before, products).clamp(min=0)  # (n, pairs)
        logs = safe_log(masses) + after.log_scale[0, targets]
        return logs.gather(1, where) + self._log_scale(before)[:, None]

    def log_total(self, before: Before, states: Tensor, position: int) -> Tensor:
        """log of the mass of all accepted endings from a position on, (n,)."""
        return log_sum_exp(self.log_kinds(before, states, position))

    @torch.no_grad()
    def log_tokens(self, before: Before, states: Tensor, position: int) -> Tensor:
        """log of the mass of each token at a position, all that follows summed, (n, v)."""
        automaton = self.reading.automaton
        logs = torch.full((len(states), self.chain.num_tokens), -math.inf, dtype=torch.float64)
        special = list(automaton.tokens)
        of_kinds = self.log_kinds(before, states, position)
        logs[:, special] = of_kinds[:, 1 : len(special) + 1]
        form = self._form(before)
        for kind in automaton.shared_kinds:
            tokens = (self.kinds == kind).nonzero()[:, 0]
            logs[:, tokens] = self._log_shared(
                before, form, self.step[states, kind], position, tokens
            )
        return logs.masked_fill(~self.reading.allowed[position], -math.inf)

    def _log_shared(
        self, before: Before, form: Tensor, targets: Tensor, position: int, tokens: Tensor
    ) -> Tensor:
        """log of the masses (n, t) of tokens (t,) that lead to the states (n,) ``targets``."""
        after = self.after[position + 1]
        values = self.chain.values(position, tokens)  # (t, i)

        def masses(rows: slice) -> Tensor:
            environment = form[rows] * after.mantissa[0][targets[rows]]  # (n, i[, j])
            if self.chain.is_squared:
                return quadratic(values[None], environment)
            return environment @ values.mT

        found = by_chunks(masses, len(targets), max(values.numel(), 1)).clamp(min=0)
        logs = safe_log(found) + after.log_scale[0, targets][:, None]
        return logs + self._log_scale(before)[:, None]

    @torch.no_grad()
    def draw(self, num_rows: int, generator: torch.Generator | None) -> Tensor:
        """Sequences (n, d) drawn exactly from the model given the requirements."""
        before, states = self.start(num_rows)
        columns = []
        for position in range(self.chain.length):
            tokens = self._draw_token(before, states, position, generator)
            columns.append(tokens)
            before, states = self.advance(before, states, position, tokens)
        return torch.stack(columns, 1)

    def _draw_token(
        self, before: Before, states: Tensor, position: int, generator: torch.Generator | None
    ) -> Tensor:
        """A kind first; then, where several tokens share it, one of them."""
        logs = self.log_kinds(before, states, position)
        peak = logs.amax(1, keepdim=True)
        if not bool((peak > -math.inf).all()):
            raise ArithmeticError("nothing can be drawn: the requirements have probability zero.")
        chosen = choose_cell((logs - peak).exp(), uniforms(len(states), generator))[0]
        automaton = self.reading.automaton
        own = torch.zeros(automaton.num_kinds, dtype=torch.long)
        own[1 : len(automaton.tokens) + 1] = torch.tensor(automaton.tokens, dtype=torch.long)
        tokens = own[chosen]
        for kind in automaton.shared_kinds:
            rows = (chosen == kind).nonzero()[:, 0]
            allowed = (self.reading.allowed[position] & (self.kinds == kind)).nonzero()[:, 0]
            targets = self.step[states[rows], kind]
            for target in targets.unique().tolist():  # rows that may go on in the same ways
                some = rows[targets == target]
                drawn = self._draw_shared(
                    before.vectors[some], position, target, allowed, generator
                )
                tokens = tokens.index_copy(0, some, drawn)
        return tokens

    def _draw_shared(
        self,
        vectors: Tensor,
        position: int,
        target: int,
        tokens: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """A token of (t,), all of which lead to one state, after each row of (n, s, i)."""
        after = self.after[position + 1].mantissa[0, target]
        table = self.chain.values(position, tokens).mT  # (i, t)
        if self.chain.is_squared:
            return tokens[draw_state_of_products(table, vectors, after, generator).long()]
        masses = (vectors[:, 0] * after) @ table
        return tokens[choose_cell(masses, uniforms(len(vectors), generator))[0]]

    def _masses(self, before: Before, products: Tensor) -> Tensor:
        """Σ_s h_sᵀ P h_s, or h P, (n, p), of products P (p, i j) or (p, i)."""
        if not self.chain.is_squared:
            return before.vectors[:, 0] @ products.mT
        units = before.vectors.shape[2]
        joined = products.unflatten(1, (units, units)).movedim(0, 1).flatten(1)  # (i, p j)

        def sums(rows: slice) -> Tensor:
            h = before.vectors[rows]  # (n, s, i)
            images: Tensor = torch.unflatten(h @ joined, -1, (-1, units))  # (n, s, p, j)
            return (images * h[:, :, None]).sum((1, 3))

        return by_chunks(sums, len(before.vectors), joined.shape[1] * before.vectors.shape[1])

    def _form(self, before: Before) -> Tensor:
        """h as a form of the units that follow: Σ_s h_s h_sᵀ (n, i, j), or h itself (n, i)."""
        if self.chain.is_squared:
            return before.vectors.mT @ before.vectors
        return before.vectors[:, 0]

    def _log_scale(self, before: Before) -> Tensor:
        return (2 if self.chain.is_squared else 1) * before.log_scale
