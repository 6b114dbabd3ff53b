"""Sequences of tokens for distillation: read from files, split, and the teacher's own score."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from studies.distillation.sampling import Samples

PARTS = ("train", "valid", "test")
SHARES = (0.85, 0.05, 0.10)  # the paper's (App. H)


class Corpus(NamedTuple):
    """Sequences (n, d) of tokens, and the teacher's mean log-likelihood of each part if known."""

    train: Tensor
    valid: Tensor
    test: Tensor
    teacher: dict[str, float]

    def head(self, rows: int) -> Corpus:
        """The first rows of the training part; the teacher's score stays that of all."""
        return self._replace(train=self.train[:rows])


def read_corpus(path: str | os.PathLike[str]) -> Corpus:
    """A folder with train, valid and test files, or one file.

    Files are ``.npz`` with ``x`` and perhaps ``logp``, or with ``train``, ``valid`` and ``test``;
    or ``.csv`` with one sequence of whole numbers per line. One table is split as the paper does.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there are no sequences at {place}.")
    if place.is_dir():
        return _from_parts({part: _read_table(_part_file(place, part)) for part in PARTS})
    if place.suffix == ".npz":
        with np.load(place, allow_pickle=False) as data:
            if all(part in data for part in PARTS):
                return _from_parts({part: (_as_tokens(data[part], place), None) for part in PARTS})
    tokens, log_prob = _read_table(place)
    return split(tokens, log_prob)


def split(tokens: Tensor, log_prob: Tensor | None = None) -> Corpus:
    """Sequences that come in random order, cut into training, validation and test parts."""
    counts = [max(1, round(share * len(tokens))) for share in SHARES[1:]]
    counts.insert(0, len(tokens) - sum(counts))
    if counts[0] < 1:
        raise ValueError(f"three parts need at least three sequences, got {len(tokens)}.")
    scores = [None] * 3 if log_prob is None else log_prob.split(counts)
    tables = zip(tokens.split(counts), scores, strict=True)
    return _from_parts(dict(zip(PARTS, tables, strict=True)))


def from_samples(samples: Samples) -> Corpus:
    """The parts of sequences that a teacher has drawn."""
    return split(samples.tokens, samples.log_prob)


def _from_parts(parts: dict[str, tuple[Tensor, Tensor | None]]) -> Corpus:
    lengths = {table.shape[1] for table, _ in parts.values()}
    if len(lengths) > 1:
        raise ValueError(f"all sequences need the same length, got {sorted(lengths)}.")
    for part, (table, log_prob) in parts.items():
        if len(table) == 0:
            raise ValueError(f"the {part} part holds no sequences.")
        if log_prob is not None and log_prob.shape != (len(table),):
            raise ValueError(f"the {part} part needs one logp for each of its sequences.")
    teacher = {
        part: float(log_prob.double().mean())
        for part, (_, log_prob) in parts.items()
        if log_prob is not None
    }
    train, valid, test = (parts[part][0] for part in PARTS)
    return Corpus(train, valid, test, teacher)


def _part_file(folder: Path, part: str) -> Path:
    for ending in (".npz", ".csv"):
        if (folder / f"{part}{ending}").is_file():
            return folder / f"{part}{ending}"
    raise FileNotFoundError(f"{folder} holds neither {part}.npz nor {part}.csv.")


def _read_table(path: Path) -> tuple[Tensor, Tensor | None]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as data:
            if "x" not in data:
                raise ValueError(f"{path} holds no array x of sequences, but {data.files}.")
            log_prob = torch.from_numpy(data["logp"]) if "logp" in data else None
            return _as_tokens(data["x"], path), log_prob
    if path.suffix != ".csv":
        raise ValueError(f"{path} is neither .npz nor .csv.")
    try:
        return _as_tokens(np.loadtxt(path, delimiter=",", dtype=np.int64, ndmin=2), path), None
    except ValueError as error:
        raise ValueError(
            f"{path} must hold whole numbers, one sequence per line: {error}"
        ) from None


def _as_tokens(array: np.ndarray[Any, Any], path: Path) -> Tensor:
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: sequences must be a table of whole numbers, got shape {array.shape} of "
            f"{array.dtype}."
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 2**31):
        raise ValueError(f"{path}: tokens must not be negative, got {int(array.min())}.")
    return torch.from_numpy(array.astype(np.int64))
