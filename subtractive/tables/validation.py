"""Tables and weights as they come to the door."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from subtractive.numerics import validation
from subtractive.tables.containers import AnyTable
from subtractive.tables.reading import (
    LARGEST_WHOLE,
    TOO_LARGE,
    Floats,
    Table,
    is_frame,
    is_large_whole,
    read_array,
    read_frame,
)


def read_table(given: AnyTable, estimator: object = None) -> Table:
    """A data frame, or anything that is an array of numbers (n, d)."""
    if is_frame(given):
        table = read_frame(given)
        if table.num_rows == 0 or not table.columns:
            raise ValueError(
                f"Found a data frame with {table.num_rows} sample(s) and {len(table.columns)} "
                "feature(s) while a minimum of 1 is required."
            )
        return table
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    if isinstance(given, np.ndarray) and given.dtype.kind in "USMm":
        raise ValueError(
            f"an array of numbers was expected, got one of {given.dtype}. For text and dates pass "
            "a data frame, whose columns have types of their own."
        )
    from sklearn.utils import check_array  # which takes long to import

    if isinstance(given, np.ma.MaskedArray):  # what is masked is missing
        is_numeric = given.dtype.kind in "biuf"
        given = np.ma.filled(given.astype(np.float64), np.nan) if is_numeric else given
    array = check_array(given, dtype=np.float64, ensure_all_finite=False, estimator=estimator)
    original = np.asarray(given)  # a list of whole numbers is an array of them
    _check_whole_numbers(original)
    dtype = original.dtype if original.dtype.kind in "biuf" else np.dtype(np.float64)
    return read_array(array, dtype)


def _check_whole_numbers(array: npt.NDArray[Any]) -> None:
    """Refuse an array (n, d) with whole numbers that could not be told apart."""
    if array.dtype.kind in "iu":
        large = (array > LARGEST_WHOLE) | (array < -LARGEST_WHOLE)
    elif array.dtype == object:
        large = np.frompyfunc(is_large_whole, 1, 1)(array).astype(bool)
    else:
        return
    columns = np.flatnonzero(large.any(0))
    if columns.size:
        raise ValueError(
            f"column {columns[0]} cannot be modelled: {TOO_LARGE}. Drop it if it is an "
            "identifier, or subtract what its numbers have in common."
        )


def check_weights(weights: object | None, num_rows: int) -> Floats:
    """One non-negative number per row, (n,), not all of them zero; ones if none are given."""
    given: Floats = validation.check_weights(weights, num_rows, "sample_weight").numpy()
    if not given.any():
        raise ValueError("sample_weight must be positive for some row, not all of it zero.")
    return given


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a fit; ``partial`` is an estimator with the best model so far, or None."""

    def __init__(self, partial: Any) -> None:  # noqa: ANN401 - any estimator
        super().__init__("the fit was interrupted.")
        self.partial = partial


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:  # noqa: ANN401
    """Put an estimator back as it was if what is done with it fails or is interrupted."""
    before = dict(estimator.__dict__)
    try:
        yield
    except KeyboardInterrupt:
        has_learned = getattr(estimator, "density_", None) is not before.get("density_")
        partial = copy.copy(estimator) if has_learned else None
        estimator.__dict__ = before
        raise FitInterrupted(partial) from None
    except BaseException:
        estimator.__dict__ = before
        raise
