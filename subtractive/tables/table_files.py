"""Tables in files: CSV and Parquet, and standard input and output."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from subtractive.io.files import write_atomically

PARQUET = (".parquet", ".pq")
NO_PARQUET = "Parquet files need pyarrow: pip install subtractive[parquet], or use CSV."


def read_frame(path: str) -> pd.DataFrame:
    """The table in a file; ``-`` is standard input, as CSV."""
    if path != "-" and not Path(path).is_file():
        raise FileNotFoundError(f"there is no table at {path}.")
    try:
        if path.lower().endswith(PARQUET):
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(sys.stdin if path == "-" else path)
    except ImportError:
        raise ImportError(NO_PARQUET) from None
    except (ValueError, OSError) as error:  # what pandas and pyarrow raise for broken files
        raise ValueError(f"{path} is not a readable table: {error}") from None
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows.")
    return frame


def write_frame(frame: pd.DataFrame, path: str) -> None:
    """Write a table to a file, at once or not at all; ``-`` is standard output, as CSV."""
    if path == "-":
        frame.to_csv(sys.stdout, index=False)
    elif path.lower().endswith(PARQUET):
        write_atomically(path, lambda partial: _write_parquet(frame, partial))
    else:
        write_atomically(path, lambda partial: frame.to_csv(partial, index=False))


def _write_parquet(frame: pd.DataFrame, path: str) -> None:
    try:
        frame.to_parquet(path, index=False)
    except ImportError:
        raise ImportError(NO_PARQUET) from None
