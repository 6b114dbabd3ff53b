"""One of several parts of a table: rows that follow each other, none left out, none twice."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, final

_BLOCK = 2**20


@final
@dataclass(frozen=True)
class Part:
    """The part ``index`` of ``count``, from 1.

    >>> [Part(index, 3).cut(0, 10) for index in (1, 2, 3)]
    [(0, 3), (3, 6), (6, 10)]
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """From ``i/n``."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"a part is i/n, such as 2/8, with i from 1 to n, got {text!r}.")
        return cls(int(found[1]), int(found[2]))

    def cut(self, start: int, stop: int) -> tuple[int, int]:
        """Its share of the numbers from ``start`` to ``stop``, as equal as can be."""
        length = stop - start
        return (
            start + length * (self.index - 1) // self.count,
            start + length * self.index // self.count,
        )


def open_part(path: str, part: Part) -> TextIO:
    """The rows of a part of a CSV file, without its header: those that begin in its bytes."""
    if not Path(path).is_file() or Path(path).suffix in (".gz", ".bz2", ".xz"):
        raise ValueError("only parts of Parquet files and of CSV files that are not compressed.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = _next_row(file, 1)
        start, stop = part.cut(header, size)
        first = header if part.index == 1 else _next_row(file, start)
        last = size if part.index == part.count else _next_row(file, stop)
    return io.TextIOWrapper(io.BufferedReader(_Bytes(path, first, last)), "utf-8", newline="")


def _next_row(file: BinaryIO, place: int) -> int:
    """Where the first row begins at or after a byte: after a line with all its quotes closed."""
    file.seek(0)
    quotes = 0
    for start in range(0, place - 1, _BLOCK):
        quotes += file.read(min(_BLOCK, place - 1 - start)).count(b'"')
    position = max(place - 1, 0)
    while line := file.readline():
        quotes += line.count(b'"')
        position += len(line)
        if quotes % 2 == 0:
            break
    return position


@final
class _Bytes(io.RawIOBase):
    """Some bytes of a file, as if there were no others."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with this object
        self._file.seek(start)
        self._left = max(0, stop - start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)[: self._left]  # type: ignore[arg-type]
        count = self._file.readinto(view) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
