"""Filling gaps with conditional means, or with the modes of discrete variables."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import Expectations
from subtractive.inputs.base import InputFamily, TestFunctions
from subtractive.inputs.test_functions import DensityAt, Moments


def gap_functions(
    evidence: Evidence, families: Sequence[InputFamily]
) -> list[TestFunctions | None]:
    """What must be known of each variable to fill its gaps; nothing if it has none."""
    functions: list[TestFunctions | None] = []
    for variable, family in enumerate(families):
        if bool(evidence.observed[:, variable].all()):
            functions.append(None)
        elif family.num_states is None:
            functions.append(Moments())
        else:
            functions.append(DensityAt(torch.arange(family.num_states, dtype=torch.float64)))
    return functions


def fill_gaps(
    evidence: Evidence, families: Sequence[InputFamily], answers: Expectations
) -> Tensor:
    """The table (n, d) with its gaps filled by the answers to :func:`gap_functions`."""
    columns = []
    for variable, (family, answer) in enumerate(zip(families, answers, strict=True)):
        column = evidence.x[:, variable].double()
        if answer is not None:
            best = answer[:, 0] if family.num_states is None else answer.argmax(1).double()
            column = torch.where(evidence.observed[:, variable], column, best)
        columns.append(column)
    return torch.stack(columns, 1)
