"""Sequences of tokens for distillation: read from files, split, and the teacher's own score."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from studies.distillation.vocabulary import Vocabulary
from subtractive.io.files import read_json, write_atomically, write_json
from subtractive.sequences.guided import Samples

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


@dataclass(frozen=True)
class EncodedCorpus:
    """Sequences as states of a vocabulary, (n, d) for each part, and what the teacher scores."""

    vocabulary: Vocabulary
    states: dict[str, Tensor]
    teacher: dict[str, float]

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: Vocabulary) -> EncodedCorpus:
        """The parts of a corpus in the states of a vocabulary."""
        parts = zip(PARTS, corpus[:3], strict=True)
        return cls(vocabulary, {k: vocabulary.states(v) for k, v in parts}, corpus.teacher)

    @classmethod
    def read(cls, folder: Path) -> EncodedCorpus:
        """What :meth:`write` has written."""
        with np.load(folder / "sequences.npz", allow_pickle=False) as arrays:
            states = {part: torch.from_numpy(arrays[part]).long() for part in PARTS}
            scores = zip(PARTS, arrays["teacher"].tolist(), strict=True)
        vocabulary = Vocabulary.from_dict(read_json(folder / "vocabulary.json"))
        return cls(vocabulary, states, {k: score for k, score in scores if score == score})

    def write(self, folder: Path) -> None:
        """Write ``sequences.npz`` and ``vocabulary.json``."""
        train, valid, test = (self.states[part].numpy().astype(np.int32) for part in PARTS)
        teacher = np.array([self.teacher.get(part, np.nan) for part in PARTS])

        def write(partial: str) -> None:
            with open(partial, "wb") as stream:
                np.savez_compressed(stream, train=train, valid=valid, test=test, teacher=teacher)

        write_json(folder / "vocabulary.json", self.vocabulary.to_dict())
        write_atomically(folder / "sequences.npz", write)

    @property
    def digest(self) -> str:
        """What tells these sequences from others."""
        digest = hashlib.sha256(repr(self.vocabulary).encode())
        for part in PARTS:
            digest.update(self.states[part].numpy().tobytes())
        return digest.hexdigest()[:16]


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
