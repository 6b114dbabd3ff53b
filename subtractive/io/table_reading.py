"""Tables in files, whole or in pieces: CSV, Parquet, and standard input as CSV."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from subtractive.io.csv_parts import Part, open_part

PARQUET = (".parquet", ".pq")
NO_PARQUET = "Parquet files need pyarrow: pip install subtractive[parquet], or use CSV."
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ROWS_AT_ONCE = 2**16
# Numbers are read to the last bit: of itself by pandas 3.1 and later, where the option is gone.
_IS_EXACT = tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
EXACT = {} if _IS_EXACT else {"float_precision": "round_trip"}
# Words that stand for a missing value in the cells of a CSV file, as an empty cell does.
MISSING = tuple(
    "NA,N/A,n/a,#N/A,#N/A N/A,#NA,<NA>,NaN,nan,-NaN,-nan,1.#IND,-1.#IND,1.#QNAN,-1.#QNAN,"
    "NULL,null,None".split(",")
)


def read_frame(path: str, missing: Sequence[str] = MISSING) -> pd.DataFrame:
    """The whole table in a file; ``-`` is standard input, as CSV.

    Words for missing values that stand in columns of text are told of in a warning.
    """
    with _readable(path):
        if is_parquet(path):
            _check_there(path)
            frame = pd.read_parquet(path)
        else:
            with _open_text(path) as opened:
                # Read twice: from memory, if it comes from a pipe.
                file = opened if opened.seekable() else io.StringIO(opened.read(), newline="")
                frame = _read_whole_csv(file, missing)
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows.")
    return frame


def read_pieces(
    path: str,
    *,
    numbers: Collection[str] | None = None,
    texts: Collection[str] = (),
    part: Part | None = None,
    missing: Sequence[str] = MISSING,
) -> Iterator[pd.DataFrame]:
    """The rows of a table, some at a time, in constant memory.

    In a CSV file, types of ``numbers`` are inferred for each piece, ``texts`` stay texts, and
    all other columns are left as they are written; without ``numbers`` there are no others. A
    part without rows is an empty frame. The files of a folder follow each other by their names.
    """
    files = table_files(path)
    if part is not None and files != [path]:
        raise ValueError(f"{path} is a folder, of which there are no parts: name its files.")
    for file in files:
        yield from _pieces_of_file(file, numbers, texts, part, missing)


def _pieces_of_file(
    path: str,
    numbers: Collection[str] | None,
    texts: Collection[str],
    part: Part | None,
    missing: Sequence[str],
) -> Iterator[pd.DataFrame]:
    if is_parquet(path):
        pieces = _parquet_pieces(path, part)
    else:
        pieces = _csv_pieces(path, numbers, texts, part, missing)
    is_empty = True
    for piece in pieces:
        if len(piece):
            is_empty = False
            yield piece
    if is_empty and part is None:
        raise ValueError(f"{path} has no rows.")
    if is_empty:
        yield piece


def table_files(path: str) -> list[str]:
    """The files of a table: those of a folder, by their names, or the file itself."""
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    kinds = [PARQUET, *((suffix,) for suffix in (".csv", *(f".csv{z}" for z in COMPRESSED)))]
    for endings in kinds:
        found = sorted(str(f) for f in folder.iterdir() if f.name.lower().endswith(endings))
        if found:
            return found
    raise ValueError(f"there are neither Parquet nor CSV files in the folder {path}.")


def is_parquet(path: str) -> bool:
    """Whether a file is Parquet, by its ending."""
    return path.lower().endswith(PARQUET)


def _read_whole_csv(file: TextIO, missing: Sequence[str]) -> pd.DataFrame:
    header = _header(file)
    start = file.tell()
    with _strict():
        frame = pd.read_csv(file, **_format(header), na_values=["", *missing], low_memory=False)
    texts = [name for name in header if pd.api.types.infer_dtype(frame[name]) == "string"]
    file.seek(start)
    found: Counter[tuple[str, str]] = Counter()
    for piece in _chunks(file, header, usecols=texts, dtype=str) if texts else []:
        _without_words(piece, texts, missing, found)
    _warn_of_words(found)
    return frame


def _csv_pieces(
    path: str,
    numbers: Collection[str] | None,
    texts: Collection[str],
    part: Part | None,
    missing: Sequence[str],
) -> Iterator[pd.DataFrame]:
    found: Counter[tuple[str, str]] = Counter()
    with _readable(path), _open_text(path) as file:
        rows = file if part is None else open_part(path, part)
        header = _header(file)
        yield pd.DataFrame(columns=header)
        if numbers is None:
            numbers = {*header}.difference(texts)
        known = {name: ["", *missing] for name in header if name in numbers}
        known |= {name: [""] for name in header if name in texts}
        types = {name: str for name in header if name not in numbers}
        for piece in _chunks(rows, header, na_values=known, dtype=types):
            yield _without_words(piece, [n for n in header if n in texts], missing, found)
    _warn_of_words(found)


def _format(header: Sequence[str]) -> dict[str, Any]:
    """A file of comma-separated values after its header; only named words are missing values."""
    fixed = {"header": None, "index_col": False, "keep_default_na": False, **EXACT}
    return {"names": header, **fixed}


def _chunks(file: TextIO, header: Sequence[str], **options: Any) -> Iterator[pd.DataFrame]:  # noqa: ANN401
    try:
        chunks = pd.read_csv(file, **_format(header), chunksize=ROWS_AT_ONCE, **options)
    except pd.errors.EmptyDataError:
        return
    while True:
        with _strict():
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk


@contextmanager
def _strict() -> Iterator[None]:
    """Rows with more cells than the header are errors, not warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        yield


def _header(file: TextIO) -> list[str]:
    """The names of the columns, from the first row."""
    lines = iter(file.readline, "")  # not the file itself: then its place would be lost
    names = [
        name or f"Unnamed: {number}" for number, name in enumerate(next(csv.reader(lines), []))
    ]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated or not names:
        reason = f"the column {repeated[0]!r} occurs twice" if repeated else "it has no header"
        raise ValueError(f"{reason}. Give every column a name of its own.")
    return names


def _without_words(
    piece: pd.DataFrame,
    texts: Sequence[str],
    missing: Sequence[str],
    found: Counter[tuple[str, str]],
) -> pd.DataFrame:
    """A piece in which words for missing values in columns of text are missing, and counted."""
    for name in texts:
        words = piece[name].isin(missing)
        if words.any():
            found.update((name, word) for word in piece[name][words])
            piece[name] = piece[name].mask(words)
    return piece


def _warn_of_words(found: Counter[tuple[str, str]]) -> None:
    for name in dict.fromkeys(name for name, _ in found):
        words = [f"{word!r} ({found[name, word]})" for at, word in found if at == name]
        warnings.warn(
            f"in the text column {name!r}, cells with {', '.join(words)} are taken as missing. "
            "Where they are values, say which words are not: --missing '' takes empty cells only.",
            stacklevel=2,
        )


def parquet_row_groups(path: str) -> list[tuple[str, int]]:
    """The row groups of a Parquet file, each with the file that it is in."""
    with _readable(path):
        _check_there(path)
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            return [(path, number) for number in range(file.num_row_groups)]


def read_row_group(path: str, number: int) -> Iterator[pd.DataFrame]:
    """The rows of a row group, some at a time."""
    with _readable(path):
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[number]):
                yield batch.to_pandas()


def _parquet_pieces(path: str, part: Part | None) -> Iterator[pd.DataFrame]:
    with _readable(path):
        _check_there(path)
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            total = file.metadata.num_rows
            start, stop = (0, total) if part is None else part.cut(0, total)
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            groups = [i for i, e in enumerate(ends) if e > start and e - sizes[i] < stop]
            row = ends[groups[0]] - sizes[groups[0]] if groups else 0
            yield file.schema_arrow.empty_table().to_pandas()
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups):
                inside = batch.slice(max(0, start - row), max(0, stop - max(row, start)))
                row += batch.num_rows
                yield inside.to_pandas()


@contextmanager
def _open_text(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdin
        return
    _check_there(path)
    opened = COMPRESSED.get(Path(path).suffix.lower(), open)
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:  # type: ignore[operator]
        yield file


def _check_there(path: str) -> None:
    if Path(path).is_dir() or not Path(path).exists():
        raise FileNotFoundError(f"there is no table at {path}.")


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Let errors of what reads the bytes name the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except ImportError:
        raise ImportError(NO_PARQUET) from None
    except (ValueError, OSError, EOFError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} is not a readable table: {error}") from None
