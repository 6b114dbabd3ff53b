"""Evidence: the values of some variables, row by row, and where the others are integrated."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Window
from subtractive.numerics.transforms import is_batched, listed


@dataclass(frozen=True)
class Evidence:
    """Observed values, and the box over which unobserved variables are integrated.

    ``x`` and ``observed`` are (n, d), with a zero where nothing is observed; ``lower`` and
    ``upper`` are (1, d) or (n, d), or ``None`` for the whole domain. ``states`` holds the states
    (v,) of discrete variables that count, by variable.
    """

    x: Tensor
    observed: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    states: Mapping[int, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def is_complete(self) -> bool:
        """Whether every variable is observed in every row."""
        return bool(self.observed.all())

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known of any row."""
        if self.states or is_batched(self.observed) or bool(self.observed.any()):
            return False
        is_low = self.lower is None or bool(self.lower.isneginf().all())
        return is_low and (self.upper is None or bool(self.upper.isposinf().all()))

    def rows(self, rows: Tensor) -> Evidence:
        """The evidence of some rows."""
        return replace(
            self,
            x=self.x[rows],
            observed=self.observed[rows],
            lower=_rows(self.lower, rows),
            upper=_rows(self.upper, rows),
        )

    def shared(self) -> Evidence:
        """One row that stands for all of them where they are alike, else all rows."""
        tensors = [t for t in (self.x, self.observed, self.lower, self.upper) if t is not None]
        if len(self) > 1 and all(bool((t == t[:1]).all()) for t in tensors):
            return self.rows(torch.zeros(1, dtype=torch.long))
        return self

    def pattern(self, scope: Sequence[int]) -> list[bool]:
        """Which variables of an input region are observed; the same in all rows.

        For a region of one variable, where rows may differ, the answer is always False.
        """
        return [False] if len(scope) == 1 else listed(self.observed[0, list(scope)])

    def restricted(self) -> set[int]:
        """The variables that are integrated over a part of their domain."""
        found = set(self.states)
        for bound in (self.lower, self.upper):
            if bound is not None:
                found.update(bound.isfinite().any(0).nonzero()[:, 0].tolist())
        return found

    def window(self, variables: Tensor) -> Window:
        """Where the variables (f, s) of regions are integrated."""
        lower, upper = _columns(self.lower, variables), _columns(self.upper, variables)
        if variables.shape[1] == 1:
            return Window(lower, upper, states=self._states(variables))
        if any(bound is not None and bool(bound.isfinite().any()) for bound in (lower, upper)):
            raise ValueError(
                f"there is no closed form for a box on variables {variables.tolist()[0]}, which "
                "share one multivariate input region. Give each variable a region of its own."
            )
        return Window()

    def _states(self, variables: Tensor) -> Tensor | None:
        """The states (f, 1, v) that count, where some variable (f, 1) has a choice of them."""
        scope = listed(variables[:, 0])
        chosen = [self.states[v] for v in scope if v in self.states]
        if not chosen:
            return None
        every = torch.ones_like(chosen[0])
        return torch.stack([self.states.get(v, every) for v in scope])[:, None]


def as_table(x: object, num_variables: int, device: torch.device) -> Tensor:
    """Whatever the user calls a table of numbers, as a tensor (n, d) of a real floating dtype."""
    table = _as_numbers(x, device)
    if table.dim() != 2 or table.shape[1] != num_variables:
        hint = " For a single row pass x[None]." if table.dim() == 1 else ""
        raise ValueError(
            f"x must have shape (rows, {num_variables}), one column per variable, got "
            f"{tuple(table.shape)}.{hint}"
        )
    return table


def as_rows(x: object, num_variables: int, device: torch.device) -> tuple[Tensor, tuple[int, ...]]:
    """Rows x (..., d) as a table (n, d), and the shape (...) of one number for each row.

    A last axis of another size is left as it is, for :func:`as_table` to refuse.
    """
    rows = _as_numbers(x, device)
    if rows.shape[-1:] == (num_variables,):
        return rows.reshape(-1, num_variables), rows.shape[:-1]
    return rows, rows.shape[:-1]


def check_device(device: torch.device) -> None:
    """A density on the meta device has shapes, but no numbers."""
    if device.type == "meta":
        raise ValueError(
            "the density is on the meta device and has no numbers: move it with "
            "to_empty(device=...) and load its state_dict first."
        )


def as_mask(mask: object, name: str, like: Tensor) -> Tensor:
    """A mask over variables (d,) or over entries (n, d), as (n, d)."""
    flags = _as_tensor(
        mask,
        expected=f"{name} must be a boolean mask",
        advice="Pass a tensor that is True at the variables that count.",
        device=like.device,
    )
    if flags.dtype != torch.bool:
        raise ValueError(
            f"{name} must be boolean, got {flags.dtype}. For variable numbers pass "
            f"a mask that is True at those variables."
        )
    if flags.shape not in (like.shape, like.shape[1:]):
        raise ValueError(
            f"{name} needs one flag per variable or per entry of x: expected shape "
            f"{(like.shape[1],)} or {tuple(like.shape)}, got {tuple(flags.shape)}."
        )
    return flags.expand_as(like)


def make_evidence(
    x: object,
    observed: object | None,
    families: Sequence[InputFamily],
    device: torch.device,
) -> Evidence:
    """Evidence from a table and a mask given by the user; NaN entries are not observed."""
    table = as_table(x, len(families), device)
    if is_batched(table):  # by vmap: what cannot be looked at is taken to be there and possible
        seen = torch.ones(table.shape, dtype=torch.bool, device=device)
        seen = seen if observed is None else as_mask(observed, "observed", seen)
        return Evidence(torch.where(seen, table, 0.0), seen)
    seen = ~table.isnan()
    if observed is not None:
        seen = seen & as_mask(observed, "observed", table)
    table = torch.where(seen, table, 0.0)
    _check_values(table, seen, families)
    return Evidence(table, seen)


def _check_values(table: Tensor, seen: Tensor, families: Sequence[InputFamily]) -> None:
    """Raise ``ValueError`` for an impossible value: all variables of a family at once."""
    columns: dict[InputFamily, list[int]] = {}
    for variable, family in enumerate(families):
        columns.setdefault(family, []).append(variable)
    for family, variables in columns.items():
        try:
            family.check(table[:, variables][seen[:, variables]], variables[0])
        except ValueError:
            for variable in variables:  # the first of them that is wrong is named
                family.check(table[seen[:, variable], variable], variable)
            raise


def check_variables(variables: object, num_variables: int) -> tuple[int, ...]:
    """Variable numbers as given by the user: known, and none twice."""
    listed = variables.tolist() if isinstance(variables, Tensor | np.ndarray) else variables
    if not isinstance(listed, Iterable):
        raise ValueError(
            f"expected a list of variables, got {variables!r}. For one variable pass [variable]."
        )
    numbers = tuple(_variable(variable, num_variables) for variable in listed)
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"variables must be distinct, got {list(numbers)}.")
    return numbers


def given_row(given: object, num_variables: int) -> Tensor:
    """Given values ``{variable: value}`` as a table of one row (1, d), NaN where nothing is."""
    if not isinstance(given, Mapping):
        raise ValueError(
            "given values must be a dictionary {variable: value} such as {2: 0.5}, got "
            f"{type(given).__name__}."
        )
    row = torch.full((1, num_variables), math.nan, dtype=torch.float64)
    numbers = check_variables(given, num_variables)
    for variable, value in zip(numbers, given.values(), strict=True):
        try:
            row[0, variable] = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"the given value of variable {variable} must be a number, got {value!r}."
            ) from None
        if row[0, variable].isnan():
            raise ValueError(f"the given value of variable {variable} is NaN: leave it out.")
    return row


def check_points(points: object, variable: int, families: Sequence[InputFamily]) -> None:
    """Points (q,) at which the density of a variable is asked must be possible values."""
    check_variables([variable], len(families))
    column = torch.as_tensor(points)
    if column.dim() != 1:
        raise ValueError(f"points must be one row of numbers, got shape {tuple(column.shape)}.")
    families[variable].check(column.double(), variable)


def check_possible(log_probability: Tensor) -> None:
    """Evidence (n,) that is to be conditioned on must not have probability zero."""
    rows = (log_probability == -math.inf).nonzero()[:, 0].tolist()
    if rows:
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        raise ValueError(
            f"the given values have probability zero in rows {rows[:5]}{more}: nothing can be "
            "conditioned on them."
        )


def _as_numbers(x: object, device: torch.device) -> Tensor:
    """Whatever the user calls numbers, as a tensor of a real floating dtype."""
    check_device(device)
    numbers = _as_tensor(
        x,
        expected="x must be a table of numbers",
        advice="Pass a tensor or an array of shape (rows, variables).",
        device=device,
    )
    if numbers.is_complex():
        raise ValueError("x must be real, got complex numbers.")
    return numbers if numbers.is_floating_point() else numbers.to(torch.float64)


def _as_tensor(given: object, *, expected: str, advice: str, device: torch.device) -> Tensor:
    """A tensor as it is; anything else is read by numpy, in double precision."""
    if isinstance(given, Tensor):
        return given.to(device)
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "iuf":
        given = np.ma.filled(given.astype(np.float64), np.nan)  # what is masked is missing
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{expected}, got {type(given).__name__} ({error}). {advice}") from None
    kinds = {"b": np.bool_, "c": np.complex128, "f": np.float64, "i": np.int64, "u": np.float64}
    if array.dtype.kind not in kinds:
        raise ValueError(f"{expected}, got {type(given).__name__} of {array.dtype}. {advice}")
    # A copy: torch takes neither arrays that are read-only or reversed nor foreign byte orders.
    return torch.from_numpy(array.astype(kinds[array.dtype.kind], order="C")).to(device)


def _variable(variable: object, num_variables: int) -> int:
    try:
        number = -1 if isinstance(variable, bool) else operator.index(variable)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < num_variables:
        raise ValueError(
            f"unknown variable {variable!r}: expected integers from 0 to {num_variables - 1}."
        )
    return number


def _rows(bounds: Tensor | None, rows: Tensor) -> Tensor | None:
    return bounds if bounds is None or len(bounds) == 1 else bounds[rows]


def _columns(bounds: Tensor | None, variables: Tensor) -> Tensor | None:
    return None if bounds is None else bounds[:, variables.flatten()].T  # (f·s, m)


def rows_by_pattern(observed: Tensor) -> list[Tensor]:
    """The numbers of the rows that have the same variables observed (n, d), pattern by pattern."""
    if bool((observed == observed[0]).all()):
        return [torch.arange(len(observed))]
    _, which = torch.unique(observed, dim=0, return_inverse=True)
    return list(which.argsort(stable=True).split(torch.bincount(which).tolist()))
