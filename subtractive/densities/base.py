"""What every density can be asked, and the densities that asking yields.

A density says only how it integrates its weight over what is not observed; marginals,
conditionals and restrictions follow from that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from subtractive.inputs.base import InputFamily
from subtractive.queries.evidence import (
    Evidence,
    as_mask,
    as_table,
    check_possible,
    check_variables,
    given_row,
    make_evidence,
)


class Density(nn.Module, ABC):
    """A normalised density with exact marginals and conditionals.

    Rows are samples, columns are variables; a NaN entry is integrated out. Everything is
    differentiable, and results are in float64.
    """

    @property
    @abstractmethod
    def families(self) -> tuple[InputFamily, ...]:
        """The input family of each variable."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the parameters are."""

    @abstractmethod
    def log_partition(self) -> Tensor:
        """log Z, a scalar: the integral of what :meth:`log_weight` computes."""

    @abstractmethod
    def log_weight(self, evidence: Evidence) -> Tensor:
        """log of the unnormalised density, (n,), integrated over what is not observed."""

    @abstractmethod
    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        """One row (n, d) for each row of evidence, given what is observed there."""

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return len(self.families)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), (n,), of rows x (n, d); NaN entries are integrated out exactly."""
        return self.log_marginal(x)

    def log_marginal(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p of the observed entries of x (n, d), (n,).

        ``observed`` is a mask over variables (d,) or over entries (n, d); an entry that is not
        observed, or is NaN, is integrated out.
        """
        return self._log_marginal(make_evidence(x, observed, self.families, self.device))

    def log_conditional(self, x: Tensor, query: Tensor, given: Tensor) -> Tensor:
        """log p(x_query | x_given), (n,); both are masks over variables (d,) or entries (n, d)."""
        table = as_table(x, self.num_variables, self.device)
        asked, known = as_mask(query, "query", table), as_mask(given, "given", table)
        if bool((asked & known).any()):
            raise ValueError("query and given must not share a variable: remove it from one.")
        if len(table) and not bool(asked.any(1).all()):
            raise ValueError(
                "query is empty: there is nothing whose probability could be asked. Mark at least "
                "one variable as True in every row."
            )
        condition = self.log_marginal(table, known)
        check_possible(condition.detach())
        return self.log_marginal(table, asked | known) - condition

    def marginal(self, variables: Sequence[int]) -> Density:
        """The density of some variables, in the order given, the others integrated out."""
        keep = check_variables(variables, self.num_variables)
        if not keep:
            raise ValueError("marginal needs at least one variable to keep, got none.")
        return Restriction(self, keep, given_row({}, self.num_variables))

    def condition(self, given: Mapping[int, float]) -> Density:
        """The density of the other variables given the values of some, ``{variable: value}``."""
        row = given_row(given, self.num_variables)
        keep = tuple(row[0].isnan().nonzero()[:, 0].tolist())
        if not keep:
            raise ValueError("condition needs at least one variable left free, got none.")
        return Restriction(self, keep, row)

    def sample(
        self,
        num_samples: int | None = None,
        *,
        given: Mapping[int, float] | Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Exact samples, (n, d), in float64.

        ``given`` fixes some variables: ``{variable: value}`` for all samples, or a table (n, d)
        with NaN where nothing is known, one sample for each of its rows.
        """
        table = self._given_table(num_samples, given)
        evidence = make_evidence(table, None, self.families, self.device)
        if given is not None:
            check_possible(self.log_weight(evidence).detach())
        return self.sample_given(evidence, generator)

    def _given_table(
        self, num_samples: int | None, given: Mapping[int, float] | Tensor | None
    ) -> Tensor:
        if given is None or isinstance(given, Mapping):
            if (
                isinstance(num_samples, bool)
                or not isinstance(num_samples, int)
                or num_samples < 0
            ):
                raise ValueError(
                    f"num_samples must be a whole number of at least 0, got {num_samples!r}."
                )
            row = given_row(given or {}, self.num_variables)
            return row.expand(num_samples, -1)
        table = as_table(given, self.num_variables, self.device)
        if num_samples not in (None, len(table)):
            raise ValueError(
                f"a table of given values yields one sample for each of its {len(table)} rows, "
                f"got num_samples={num_samples}. Leave num_samples out, or repeat the rows."
            )
        return table

    def _log_marginal(self, evidence: Evidence) -> Tensor:
        return self.log_weight(evidence) - self.log_partition()


@final
class Restriction(Density):
    """p(x_keep | x_given): some variables of a density kept, some fixed, the rest integrated.

    It shares the parameters of the density it was made from. Variables are numbered anew, in the
    order of ``keep``.
    """

    fixed: Tensor

    def __init__(self, density: Density, keep: tuple[int, ...], given: Tensor) -> None:
        super().__init__()
        self.density = density
        self.keep = keep
        self.register_buffer("fixed", given.to(density.device))  # (1, d), NaN where not given
        if not bool(given.isnan().all()):
            check_possible(self.log_partition().detach()[None])

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return tuple(self.density.families[variable] for variable in self.keep)

    @property
    def device(self) -> torch.device:
        return self.density.device

    def log_partition(self) -> Tensor:
        fixed = make_evidence(self.fixed, None, self.density.families, self.device)
        return self.density.log_weight(fixed)[0]

    def log_weight(self, evidence: Evidence) -> Tensor:
        return self.density.log_weight(self.lift(evidence))

    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        return self.density.sample_given(self.lift(evidence), generator)[:, self.keep]

    def lift(self, evidence: Evidence) -> Evidence:
        """Evidence on the kept variables as evidence on all of them."""
        fixed = self.fixed.expand(len(evidence), -1)
        return Evidence(
            self._insert(evidence.x, torch.nan_to_num(fixed)),
            self._insert(evidence.observed, ~fixed.isnan()),
            self._insert_bound(evidence.lower, -math.inf),
            self._insert_bound(evidence.upper, math.inf),
        )

    def _insert(self, columns: Tensor, among: Tensor) -> Tensor:
        at = torch.tensor(self.keep, device=among.device)
        # Rows of lower precision must not round the given values.
        dtype = torch.promote_types(among.dtype, columns.dtype)
        return among.to(dtype).index_copy(1, at, columns.to(dtype))

    def _insert_bound(self, bound: Tensor | None, open_end: float) -> Tensor | None:
        if bound is None:
            return None
        return self._insert(bound, bound.new_full((len(bound), self.fixed.shape[1]), open_end))
