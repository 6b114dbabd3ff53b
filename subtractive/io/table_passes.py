"""Passes over a table in files that is too large for memory, as training wants them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, final

import pandas as pd

from subtractive.io.table_reading import (
    MISSING,
    is_parquet,
    parquet_row_groups,
    read_pieces,
    read_row_group,
    table_files,
)


@final
class TablePasses:
    """A file, or a folder of files, whose rows can be read again and again, in one order.

    Row groups of Parquet files come in a random order, which is the same in every pass: tables are
    often sorted, and training should not see one end of them last. ``weights`` names a column
    that holds the weights of rows; then pieces are pairs (frame, weights).
    """

    def __init__(
        self, path: str, *, missing: Sequence[str] = MISSING, weights: str | None = None
    ) -> None:
        self._files, self._missing, self._weights = table_files(path), missing, weights
        self._texts: set[str] = set()
        self.num_rows: int | None = None  # known after a whole pass
        if not is_parquet(self._files[0]):
            self._texts = self._text_columns()

    def __call__(self) -> Iterator[Any]:
        num_rows = 0
        for piece in self._pieces():
            num_rows += len(piece)
            if self._weights is None:
                yield piece
            elif self._weights in piece:
                yield piece.drop(columns=self._weights), piece[self._weights].to_numpy()
            else:
                raise ValueError(f"there is no column {self._weights!r} to take the weights from.")
        self.num_rows = num_rows

    def _pieces(self) -> Iterator[pd.DataFrame]:
        if not is_parquet(self._files[0]):
            for path in self._files:
                yield from read_pieces(path, texts=self._texts, missing=self._missing)
            return
        groups = [group for path in self._files for group in parquet_row_groups(path)]
        random.Random(0).shuffle(groups)
        for path, number in groups:
            yield from read_row_group(path, number)

    def _text_columns(self) -> set[str]:
        """Columns that hold text in any piece: then their numbers are text, too."""
        texts: set[str] = set()
        for path in self._files:
            for piece in read_pieces(path, missing=self._missing):
                kinds = {name: pd.api.types.infer_dtype(piece[name]) for name in piece}
                texts |= {name for name, kind in kinds.items() if kind in ("string", "mixed")}
        return texts
