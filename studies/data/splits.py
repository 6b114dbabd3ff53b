"""Rows for training, validation and test, and how they are cut and scaled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating]


class Splits(NamedTuple):
    """Rows (n, d) for training, validation and test, and a sentence on what they are."""

    train: Tensor
    valid: Tensor
    test: Tensor
    note: str

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three tables."""
        return self.train, self.valid, self.test

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The sizes of the three tables."""
        return tuple((len(part), part.shape[1]) for part in self.rows)

    def to(self, device: str) -> Splits:
        """The same rows on a device."""
        train, valid, test = (part.to(device) for part in self.rows)
        return Splits(train, valid, test, self.note)

    def head(self, num_rows: int) -> Splits:
        """At most so many rows of each part; zero stands for all of them."""
        if num_rows == 0:
            return self
        train, valid, test = (part[:num_rows] for part in self.rows)
        return Splits(train, valid, test, self.note)


def as_splits(parts: tuple[Array, Array, Array], note: str) -> Splits:
    """Arrays as tensors in single precision, all finite."""
    for part in parts:
        if part.ndim != 2 or not np.isfinite(part).all():
            raise ValueError(
                f"data must be tables of finite numbers, got an array of shape {part.shape} "
                f"with {np.count_nonzero(~np.isfinite(part))} numbers that are not finite."
            )
    train, valid, test = (torch.from_numpy(part.astype(np.float32)) for part in parts)
    return Splits(train, valid, test, note)


def cut_tail(rows: Array, fraction: float = 0.1) -> tuple[Array, Array]:
    """The rows without their last tenth, and that tenth, rounded down.

    >>> [len(part) for part in cut_tail(np.zeros((25, 2)))]
    [23, 2]
    """
    count = int(fraction * len(rows))
    return rows[: len(rows) - count], rows[len(rows) - count :]


def standardised(parts: tuple[Array, Array, Array], by: Array) -> tuple[Array, Array, Array]:
    """Parts less the mean of the rows ``by``, over their deviation; constant columns stay."""
    centre, scale = by.mean(0, dtype=np.float64), by.std(0, dtype=np.float64)
    scale[scale == 0] = 1
    train, valid, test = ((part - centre) / scale for part in parts)
    return train, valid, test


def existing(folder: str | Path, names: tuple[str, ...], what: str) -> Path:
    """The first of several files that a set may be in; ``FileNotFoundError`` if none is there."""
    paths = [Path(folder) / name for name in names]
    found = next(filter(Path.is_file, paths), None)
    if found is None:
        places = " or ".join(str(path) for path in paths)
        raise FileNotFoundError(f"{what}: there is no file {places}. --data names the folder.")
    return found
