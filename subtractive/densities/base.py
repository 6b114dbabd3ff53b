"""What every density can be asked, and the densities that asking yields.

A density says only how it integrates its weight over what is not observed; marginals,
conditionals and restrictions follow from that.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from subtractive.densities.partition_cache import recall, remember
from subtractive.inference.box import Side, in_box
from subtractive.inference.covariance import cumulants
from subtractive.inference.divergence import Estimate, estimate
from subtractive.inference.evidence import (
    Evidence,
    as_mask,
    as_table,
    check_device,
    check_points,
    check_possible,
    check_variables,
    given_row,
    make_evidence,
)
from subtractive.inference.expectations import Expectations, as_row
from subtractive.inference.imputation import fill_gaps, gap_functions
from subtractive.inference.mode import ascend, best_rows
from subtractive.inference.quantile import quantiles, state_quantiles
from subtractive.inputs.base import InputFamily, TestFunctions
from subtractive.inputs.test_functions import CumulativeAt, DensityAt, Moments
from subtractive.io.files import write_tensors
from subtractive.numerics.transforms import is_transformed

Values = Mapping[int, float]  # variable -> value
Given = Values | Tensor | None


class Density(nn.Module, ABC):
    """A normalised density with exact marginals and conditionals.

    Rows are samples, columns are variables; a NaN entry is integrated out. Densities,
    probabilities, means and variances are differentiable, and results are in float64.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Gaussian(), num_units=3, seed=0)
    >>> p = sub.SquaredCircuit(circuit)
    >>> x = torch.tensor([[0.5, torch.nan, -0.2]])
    >>> known = torch.tensor([True, False, False])
    >>> [values.shape[0] for values in (p.log_prob(x), p.log_marginal(x, known), p(x))]
    [1, 1, 1]
    >>> p.log_conditional(x.nan_to_num(), ~known, known).shape, p.log_partition().shape
    (torch.Size([1]), torch.Size([]))
    >>> p.condition({0: 0.5}).marginal([1]).num_variables
    1
    >>> p.sample(4, given={0: 0.5}).shape, p.impute(x).isnan().any().item()
    (torch.Size([4, 3]), False)
    >>> [moment.shape[0] for moment in (p.mean(), p.variance(), p.covariance())]
    [3, 3, 3]
    >>> points = torch.tensor([-1.0, 1.0])
    >>> p.pdf(0, points).shape == p.cdf(0, points).shape == p.quantile(0, points * 0.4 + 0.5).shape
    True
    >>> bool(p.probability({0: (None, 1.0), 2: (0.0, None)}, given={1: 0.0}) < 1)
    True
    >>> p.mode().shape, p.entropy(100).value == p.kl(p, 100).value
    (torch.Size([3]), False)
    >>> p.save(os.path.join(tempfile.mkdtemp(), "p.safetensors"))
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
    def log_normaliser(self) -> Tensor:
        """log Z, a scalar: the integral of what :meth:`log_weight` computes, unchecked."""

    @abstractmethod
    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        """Whether log Z has its digits, so that it may be remembered; warns if it lost them."""

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

    @abstractmethod
    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        """log of the weight of one row of evidence, tilted to second order by exp(Σ_d θ_d x_d)."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the density is made of, without its numbers, as plain data for files."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density to one file, from which :func:`load` makes it again.

        The file (safetensors, with a JSON description and a checksum) is written atomically.
        """
        write_tensors(path, "model", self.state_dict(), {"density": self.describe()})

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return len(self.families)

    def log_partition(self) -> Tensor:
        """log Z, a scalar; warns when positive and negative parts nearly cancel.

        It is computed again only if a number of the density has changed, or to be differentiated.
        """
        check_device(self.device)
        known = None if is_transformed() else recall(self)
        if known is not None and not torch.is_grad_enabled():
            return known
        log_normaliser = self.log_normaliser()
        if known is None and not is_transformed():
            if self.check_normaliser(log_normaliser.detach()):
                remember(self, log_normaliser)
        return log_normaliser

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), (n,), of rows x (n, d); NaN entries are integrated out exactly."""
        return self.log_marginal(x)

    def forward(self, x: Tensor) -> Tensor:
        """The same as :meth:`log_prob`."""
        return self.log_prob(x)

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

    def condition(self, given: Values) -> Density:
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

    def entropy(
        self, num_samples: int = 10_000, *, generator: torch.Generator | None = None
    ) -> Estimate:
        """−E[log p(x)] in nats, by exact samples, with its standard error."""
        with torch.no_grad():
            return estimate(-self.log_prob(self.sample(num_samples, generator=generator)))

    def kl(
        self,
        other: Density,
        num_samples: int = 10_000,
        *,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        """KL(self ‖ other) in nats, by exact samples of ``self``, with its standard error.

        It is infinite if one of the samples is impossible under ``other``.
        """
        if not isinstance(other, Density):
            raise ValueError(f"kl compares with another density, got {type(other).__name__}.")
        with torch.no_grad():
            x = self.sample(num_samples, generator=generator)
            return estimate(self.log_prob(x) - other.log_prob(x))

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
            return given_row(given or {}, self.num_variables).expand(num_samples, -1)
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
            check_possible(self.log_normaliser().detach()[None])

    @property
    def families(self) -> tuple[InputFamily, ...]:
        return tuple(self.density.families[variable] for variable in self.keep)

    @property
    def device(self) -> torch.device:
        return self.density.device

    def log_normaliser(self) -> Tensor:
        fixed = make_evidence(self.fixed, None, self.density.families, self.device)
        return self.density.log_weight(fixed)[0]

    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        self.density.log_partition()
        return False  # whether that warned is not known here

    def log_weight(self, evidence: Evidence) -> Tensor:
        return self.density.log_weight(self.lift(evidence))

    def sample_given(self, evidence: Evidence, generator: torch.Generator | None) -> Tensor:
        return self.density.sample_given(self.lift(evidence), generator)[:, self.keep]

    def expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Expectations:
        asked = dict(zip(self.keep, functions, strict=True))
        whole = [asked.get(variable) for variable in range(self.density.num_variables)]
        answers = self.density.expectations(self.lift(evidence), whole)
        return [answers[variable] for variable in self.keep]

    def log_tilted(self, evidence: Evidence, tilt: Tensor) -> Tensor:
        at = torch.tensor(self.keep)
        whole = torch.zeros(self.density.num_variables, dtype=tilt.dtype).index_copy(0, at, tilt)
        return self.density.log_tilted(self.lift(evidence), whole)

    def describe(self) -> dict[str, Any]:
        return {"kind": "restriction", "of": self.density.describe(), "keep": list(self.keep)}

    def lift(self, evidence: Evidence) -> Evidence:
        """Evidence on the kept variables as evidence on all of them."""
        fixed = self.fixed.expand(len(evidence), -1)
        return Evidence(
            self._insert(evidence.x, torch.nan_to_num(fixed)),
            self._insert(evidence.observed, ~fixed.isnan()),
            self._insert_bound(evidence.lower, -math.inf),
            self._insert_bound(evidence.upper, math.inf),
            {self.keep[variable]: states for variable, states in evidence.states.items()},
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
