"""The queries of a density that follow from its weight, its samples and its expectations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from subtractive.circuits.circuit import Circuit
from subtractive.inference.box import Side, in_box
from subtractive.inference.covariance import cumulants
from subtractive.inference.evidence import (
    Evidence,
    as_table,
    check_points,
    check_possible,
    check_variables,
    given_row,
    make_evidence,
)
from subtractive.inference.expectations import Expectations, as_row
from subtractive.inference.imputation import fill_gaps, gap_functions
from subtractive.inference.mode import ascend, best_rows
from subtractive.inference.product_expectations import Product, Terms, as_summands
from subtractive.inference.quantile import quantiles, state_quantiles
from subtractive.inputs.base import InputFamily, TestFunctions
from subtractive.inputs.test_functions import CumulativeAt, DensityAt, Moments

Values = Mapping[int, float]  # variable -> value
Given = Values | Tensor | None
MOST_BYTES = 2**37


class Queries(nn.Module, ABC):
    """Samples, moments, univariate marginals, boxes, imputation and modes, given evidence.

    Nothing here needs the normalisation: all are ratios, or drawn from what is not normalised.
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
    def log_weight(self, evidence: Evidence) -> Tensor:
        """log of the unnormalised density, (n,), integrated over what is not observed."""

    @abstractmethod
    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        """One row (n, d) for each row of evidence, given what is observed there."""

    @abstractmethod
    def expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Expectations:
        """Expectations (n, q) of each variable's function given evidence; NaN where observed."""

    def weigh_and_expect(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> tuple[Tensor, Expectations]:
        """Both :meth:`log_weight` and :meth:`expectations`, in one pass where that is possible."""
        return self.log_weight(evidence), self.expectations(evidence, functions)

    @abstractmethod
    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        """log of the weight of one row of evidence, tilted to second order by exp(Σ_d θ_d x_d)."""

    @abstractmethod
    def product_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Tensor:
        """E[Π_d h_td(x_d)] given one row of evidence, (t,); ``None`` stands for h = 1."""

    @abstractmethod
    def circuit_expectation(self, evidence: Evidence, circuit: Circuit) -> Tensor:
        """E[c(x)] of another circuit on the same region graph given one row of evidence, (s,)."""

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return len(self.families)

    def sample(
        self,
        num_samples: int | None = None,
        *,
        given: Given = None,
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

    def mean(self, given: Given = None) -> Tensor:
        """E[x | given], (d,), or (n, d) for a table of given values."""
        return self._moments(given)[0]

    def variance(self, given: Given = None) -> Tensor:
        """The variances of all variables, (d,), or (n, d) for a table of given values."""
        return self._moments(given)[1]

    def expectation(self, f: Product | Terms | Circuit, given: Values | None = None) -> Tensor:
        """E[f(x) | given], exactly, for what changes only the inputs or is a circuit itself.

        ``{0: 2, 3: torch.sin}`` is the product x_0² sin(x_3) of functions of single variables:
        powers are in closed form, other functions by quadrature, and exact on states. A list of
        pairs (coefficient, product) is their sum, such as a polynomial. Both give a scalar. A
        :class:`Circuit` on the region graph of the density gives one number per output, (s,).
        """
        evidence = self._given_evidence(given)
        if isinstance(f, Circuit):
            return self.circuit_expectation(evidence, f)
        total = torch.zeros((), dtype=torch.float64)
        for some in as_summands(f, self.num_variables).split():
            means = self.product_expectations(evidence, some.functions(evidence))
            total = total + (some.values(evidence) * means).sum()
        return total

    def covariance(self, given: Values | None = None) -> Tensor:
        """The covariances of all variables, (d, d), zero where one is given; without gradient."""
        evidence = self._given_evidence(given)
        return cumulants(lambda tilt: self.log_tilted(evidence, tilt), self.num_variables)[1]

    def pdf(self, variable: int, points: Tensor, given: Values | None = None) -> Tensor:
        """The density (or probability) of one variable at points (q,), the others integrated."""
        row = as_row(points, "points")
        check_points(row, variable, self.families)
        return self._ask_one(variable, DensityAt(row), given).clamp(min=0)

    def cdf(self, variable: int, points: Tensor, given: Values | None = None) -> Tensor:
        """P(x_variable <= t | given) at points t (q,)."""
        row = as_row(points, "points")
        return self._ask_one(variable, CumulativeAt(row), given).clamp(0, 1)

    def quantile(self, variable: int, levels: Tensor, given: Values | None = None) -> Tensor:
        """Where the distribution function of one variable reaches levels (q,) in (0, 1)."""
        levels = as_row(levels, "levels")
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"levels must be numbers between 0 and 1, got {levels.tolist()}.")
        count = self.families[check_variables([variable], self.num_variables)[0]].num_states
        if count is not None:
            return state_quantiles(self.pdf(variable, torch.arange(count), given), levels)
        mean, variance = (moment[variable].item() for moment in self._moments(given))
        return quantiles(lambda t: self.cdf(variable, t, given), levels, mean, math.sqrt(variance))

    def probability(self, box: Mapping[int, Side], given: Values | None = None) -> Tensor:
        """P(box | given), a scalar: ``{variable: (low, high)}``, or a set of states.

        An interval includes both ends; ``None`` is an open end.
        """
        evidence = self._given_evidence(given)
        inside = in_box(evidence, box, self.families)
        share = self.log_weight(inside) - self.log_weight(evidence)
        return share[0].exp().clamp(max=1.0)

    def impute(
        self, x: Tensor, *, sample: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Fill NaN entries of x (n, d) with conditional means, or modes of discrete variables.

        With ``sample`` they are drawn from their joint conditional distribution instead.
        """
        table = as_table(x, self.num_variables, self.device)
        evidence = make_evidence(table, None, self.families, self.device)
        check_possible(self.log_weight(evidence).detach())
        if sample:
            return self.sample_given(evidence, generator)
        answers = self.expectations(evidence, gap_functions(evidence, self.families))
        return fill_gaps(evidence, self.families, answers).detach()

    def mode(
        self,
        given: Values | None = None,
        *,
        num_samples: int = 1000,
        num_starts: int = 10,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """A row (d,) of high density, found by a heuristic: it may miss the highest.

        The best of exact samples are improved by coordinate and gradient ascent.
        """
        evidence = self._given_evidence(given)
        draws = self.sample(num_samples, given=given, generator=generator)

        def log_weight(rows: Tensor) -> Tensor:
            return self.log_weight(Evidence(rows, torch.ones_like(rows, dtype=torch.bool)))

        free = (~evidence.observed[0]).nonzero()[:, 0].tolist()
        states = [family.num_states for family in self.families]
        return ascend(log_weight, best_rows(log_weight, draws, num_starts), free, states)

    def _moments(self, given: Given) -> tuple[Tensor, Tensor]:
        if given is None or isinstance(given, Mapping):
            evidence = self._given_evidence(given)
        else:
            evidence = make_evidence(given, None, self.families, self.device)
            check_possible(self.log_weight(evidence).detach())
        answers = self.expectations(evidence, [Moments()] * self.num_variables)
        moments = torch.stack([answer for answer in answers if answer is not None])  # (d, n, 2)
        first, second = moments[..., 0].T, moments[..., 1].T
        mean = torch.where(evidence.observed, evidence.x.double(), first)
        variance = torch.where(evidence.observed, 0.0, (second - first.square()).clamp(min=0))
        if given is None or isinstance(given, Mapping):
            return mean[0], variance[0]
        return mean, variance

    def _ask_one(self, variable: int, function: TestFunctions, given: Values | None) -> Tensor:
        check_variables([variable], self.num_variables)
        if given is not None and variable in given:
            raise ValueError(f"variable {variable} is given: it has no distribution left.")
        functions = [function if v == variable else None for v in range(self.num_variables)]
        answer = self.expectations(self._given_evidence(given), functions)[variable]
        assert answer is not None
        return answer[0]

    def _given_evidence(self, given: Values | None) -> Evidence:
        row = given_row({} if given is None else given, self.num_variables)
        evidence = make_evidence(row, None, self.families, self.device)
        if given:
            check_possible(self.log_weight(evidence).detach())
        return evidence

    def _given_table(self, num_samples: int | None, given: Given) -> Tensor:
        if given is None or isinstance(given, Mapping):
            is_count = isinstance(num_samples, int) and not isinstance(num_samples, bool)
            if num_samples is None or not is_count or num_samples < 0:
                raise ValueError(
                    f"num_samples must be a whole number of at least 0, got {num_samples!r}."
                )
            check_memory(num_samples, self.num_variables)
            return given_row(given or {}, self.num_variables).expand(num_samples, -1)
        table = as_table(given, self.num_variables, self.device)
        if num_samples not in (None, len(table)):
            raise ValueError(
                f"a table of given values yields one sample for each of its {len(table)} rows, "
                f"got num_samples={num_samples}. Leave num_samples out, or repeat the rows."
            )
        return table


def check_memory(num_samples: int, num_variables: int) -> None:
    """Refuse more samples than any machine holds at a time, before the memory runs out."""
    needed = 8 * num_samples * num_variables
    if needed > MOST_BYTES:
        raise ValueError(
            f"{num_samples} samples take {needed / 1e9:.0f} GB of memory at least. Draw fewer at "
            "a time; of tables, the command subtractive sample writes any number to a file."
        )
