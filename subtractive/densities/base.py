"""Densities: log-densities, marginals, conditionals, and the densities that result from them.

A density says only how it integrates its weight over what is not observed; marginals,
conditionals and restrictions follow from that.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.densities.distribution import DensityDistribution
from subtractive.densities.queries import Queries, Values
from subtractive.inference.divergence import Estimate, estimate
from subtractive.inference.evidence import (
    Evidence,
    as_mask,
    as_rows,
    as_table,
    check_device,
    check_possible,
    check_variables,
    given_row,
    make_evidence,
)
from subtractive.inference.expectations import Expectations
from subtractive.inference.information import conditional_entropy, mutual_information
from subtractive.inference.partition import recall, remember
from subtractive.inputs.base import InputFamily, TestFunctions
from subtractive.io.files import write_tensors
from subtractive.numerics.transforms import is_transformed


class Density(Queries):
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

    @abstractmethod
    def log_normaliser(self) -> Tensor:
        """log Z, a scalar: the integral of what :meth:`log_weight` computes, unchecked."""

    @abstractmethod
    def check_normaliser(self, log_normaliser: Tensor) -> bool:
        """Whether log Z has its digits, so that it may be remembered; warns if it lost them."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the density is made of, without its numbers, as plain data for files."""

    def as_distribution(self) -> DensityDistribution:
        """A ``torch.distributions.Distribution`` that shares the parameters of this density."""
        return DensityDistribution(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density to one file, from which :func:`load` makes it again.

        The file (safetensors, with a JSON description and a checksum) is written atomically.
        """
        write_tensors(path, "model", self.state_dict(), {"density": self.describe()})

    def log_partition(self) -> Tensor:
        """log Z, a scalar; warns when positive and negative parts nearly cancel.

        It is computed again only if a number of the density has changed, or for a gradient.
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
        """log p(x), (...), of rows x (..., d); NaN entries are integrated out exactly."""
        rows, batch_shape = as_rows(x, len(self.families), self.device)
        return self.log_marginal(rows).reshape(batch_shape)

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

    def entropy(
        self,
        num_samples: int = 10_000,
        *,
        given: Values | None = None,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        """−E[log p(x | given)] in nats, by exact samples, with its standard error."""
        p = self.condition(given) if given else self
        return p.conditional_entropy(
            range(p.num_variables), num_samples=num_samples, generator=generator
        )

    def conditional_entropy(
        self,
        variables: Sequence[int],
        known: Sequence[int] = (),
        *,
        num_samples: int = 10_000,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        """H(x_variables | x_known) in nats: what some variables leave open of others.

        By exact samples and exact marginals, all else being integrated out.
        """
        x = self.sample(num_samples, generator=generator)
        return conditional_entropy(self.log_marginal, x, variables, known)

    def mutual_information(
        self,
        first: Sequence[int],
        second: Sequence[int],
        *,
        given: Values | None = None,
        num_samples: int = 10_000,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        """I(x_first; x_second | given) in nats: what two sets of variables say about each other.

        By exact samples and exact marginals, all else being integrated out.
        """
        x = self.sample(num_samples, given=given, generator=generator)
        evidence = self._given_evidence(given)
        known, log_known = evidence.observed[0], self._log_marginal(evidence)

        def log_marginal(x: Tensor, observed: Tensor) -> Tensor:
            return self.log_marginal(x, observed | known) - log_known

        fixed = known.nonzero()[:, 0].tolist()
        return mutual_information(log_marginal, x, (first, second), fixed)

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
        return False  # it is not known here whether that warned

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

    def product_expectations(
        self, evidence: Evidence, functions: Sequence[TestFunctions | None]
    ) -> Tensor:
        asked = dict(zip(self.keep, functions, strict=True))
        whole = [asked.get(variable) for variable in range(self.density.num_variables)]
        return self.density.product_expectations(self.lift(evidence), whole)

    def circuit_expectation(self, evidence: Evidence, circuit: Circuit) -> Tensor:
        raise ValueError(
            "the expectation of a circuit needs a density over all of its variables. Ask the "
            "density that this one was made from, with given={variable: value}."
        )

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
