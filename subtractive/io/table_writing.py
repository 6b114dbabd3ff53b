"""Tables to files, piece by piece: CSV, Parquet, and standard output as CSV."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias

import pandas as pd

from subtractive.io.table_reading import NO_PARQUET, is_parquet
from subtractive.io.writing import open_output, telling_where

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

Write: TypeAlias = Callable[[pd.DataFrame], None]
# Spreadsheets run cells that begin with these.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@contextmanager
def open_table(path: str) -> Iterator[Write]:
    """A function that writes one piece of a table after the other; ``-`` is standard output.

    A file is there at the end, or not at all; pipes and standard output get pieces as they come.
    """
    if path == "-":
        yield _csv_writer(sys.stdout)
        return
    with open_output(path) as file:
        if is_parquet(path):
            with _parquet_writer(file) as write:
                yield _told(write, path)
        else:
            text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
            yield _told(_csv_writer(text), path)
            text.detach()


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts that a spreadsheet would run as formulas, names among them, behind an apostrophe.

    >>> without_formulas(pd.DataFrame({"=a": ["=1+1", "b"], "n": [-1, 2]}))
         '=a  n
    0  '=1+1 -1
    1      b  2
    """
    changed = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column.dtype):
            changed[_harmless(name)] = column
        else:
            cells = [_harmless(cell) for cell in column.astype(object)]
            changed[_harmless(name)] = pd.Series(cells, column.index, object)
    return pd.DataFrame(changed)


def _harmless(cell: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULAS) else cell


def _csv_writer(file: TextIO) -> Write:
    is_first = True

    def write(frame: pd.DataFrame) -> None:
        nonlocal is_first
        frame.to_csv(file, index=False, header=is_first)
        is_first = False

    return write


@contextmanager
def _parquet_writer(file: BinaryIO) -> Iterator[Write]:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise ImportError(NO_PARQUET) from None
    writer: ParquetWriter | None = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        if writer is None:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = ParquetWriter(file, table.schema)
        else:
            table = pa.Table.from_pandas(frame, writer.schema, preserve_index=False)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _told(write: Write, path: str) -> Write:
    def told(frame: pd.DataFrame) -> None:
        with telling_where(path):
            write(frame)

    return told
