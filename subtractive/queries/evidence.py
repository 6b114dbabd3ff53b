"""Evidence: the values of some variables, row by row, and where the others are integrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Window


@dataclass(frozen=True)
class Evidence:
    """Observed values, and the box over which unobserved variables are integrated.

    ``x`` and ``observed`` are (n, d), with a zero where nothing is observed; ``lower`` and
    ``upper`` are (1, d) or (n, d), or ``None`` for the whole domain.
    """

    x: Tensor
    observed: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, rows: Tensor) -> Evidence:
        """The evidence of some rows."""
        return Evidence(
            self.x[rows], self.observed[rows], _rows(self.lower, rows), _rows(self.upper, rows)
        )

    def window(self, variables: Tensor) -> Window:
        """Where the variables (f, 1) of single-variable regions are integrated."""
        return Window(_columns(self.lower, variables), _columns(self.upper, variables))


def as_table(x: object, num_variables: int, device: torch.device) -> Tensor:
    """Whatever the user calls a table of numbers, as a tensor (n, d) of a real floating dtype."""
    try:
        table = torch.as_tensor(x, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"x must be a table of numbers, got {type(x).__name__} ({error}). Pass a tensor or an "
            "array of shape (rows, variables)."
        ) from None
    if table.is_complex():
        raise ValueError("x must be real, got complex numbers.")
    if table.dim() != 2 or table.shape[1] != num_variables:
        hint = " For a single row pass x[None]." if table.dim() == 1 else ""
        raise ValueError(
            f"x must have shape (rows, {num_variables}), one column per variable, got "
            f"{tuple(table.shape)}.{hint}"
        )
    return table if table.is_floating_point() else table.to(torch.float64)


def as_mask(mask: object, name: str, like: Tensor) -> Tensor:
    """A mask over variables (d,) or over entries (n, d), as (n, d)."""
    flags = torch.as_tensor(mask, device=like.device)
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
    """Check a table and a mask at the door; NaN entries are not observed."""
    table = as_table(x, len(families), device)
    seen = ~table.isnan()
    if observed is not None:
        seen = seen & as_mask(observed, "observed", table)
    table = torch.where(seen, table, 0.0)
    for variable, family in enumerate(families):
        family.check(table[seen[:, variable], variable], variable)
    return Evidence(table, seen)


def check_variables(variables: Sequence[int], num_variables: int) -> tuple[int, ...]:
    """Variable numbers as given by the user: known, and none twice."""
    for variable in variables:
        whole = isinstance(variable, int) and not isinstance(variable, bool)
        if not whole or not 0 <= variable < num_variables:
            raise ValueError(
                f"unknown variable {variable!r}: expected integers from 0 to {num_variables - 1}."
            )
    if len(set(variables)) != len(variables):
        raise ValueError(f"variables must be distinct, got {list(variables)}.")
    return tuple(variables)


def _rows(bounds: Tensor | None, rows: Tensor) -> Tensor | None:
    return bounds if bounds is None or len(bounds) == 1 else bounds[rows]


def _columns(bounds: Tensor | None, variables: Tensor) -> Tensor | None:
    return None if bounds is None else bounds[:, variables[:, 0]].T  # (f, m)
