"""Tokenizers: text to tokens and back, in the words of the teacher."""

from __future__ import annotations

import os
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from studies.distillation.teachers import import_transformers


class Tokenizer(ABC):
    """Text to tokens and back."""

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """The size of the vocabulary."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text in the middle of a sentence: after a space."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""


@final
class LlamaTokenizer(Tokenizer):
    """The ``tok*.bin`` of llama2.c: pieces with scores, merged greedily.

    What has no piece is written in bytes, or as token 0 where there are none for them.
    """

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        self.pieces, self.scores = tuple(pieces), tuple(scores)
        self._number = {piece: number for number, piece in reversed(list(enumerate(pieces)))}

    @property
    def num_tokens(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text after a space.

        The pair whose union has the highest score is merged first, the leftmost of equals.
        """
        tokens: list[int] = []
        for character in f" {text.strip()}":
            piece = character.encode()
            if piece in self._number:
                tokens.append(self._number[piece])
            else:
                tokens.extend(self._number.get(b"<0x%02X>" % byte, 0) for byte in piece)
        while True:
            pairs = [
                (-self.scores[merged], at, merged)
                for at, pair in enumerate(zip(tokens, tokens[1:], strict=False))
                if (merged := self._number.get(b"".join(self.pieces[t] for t in pair))) is not None
            ]
            if not pairs:
                return tokens
            _, at, merged = min(pairs)
            tokens[at : at + 2] = [merged]

    def decode(self, tokens: Sequence[int]) -> str:
        parts = []
        for token in tokens:
            byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", self.pieces[token])
            parts.append(bytes.fromhex(byte[1].decode()) if byte else self.pieces[token])
        return b"".join(parts).decode(errors="replace")


@final
class TransformersTokenizer(Tokenizer):
    """A tokenizer of ``transformers``."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - of an optional package
        self._inner = inner

    @property
    def num_tokens(self) -> int:
        return len(self._inner)

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(f" {text.strip()}", add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._inner.decode(list(tokens), clean_up_tokenization_spaces=False))


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """A tokenizer from disk.

    A llama2.c ``tok*.bin``, a folder of transformers, a ``.gguf`` file, or a folder with GPT-2's
    ``encoder.json`` and ``vocab.bpe``.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no tokenizer at {place}.")
    if place.is_file() and place.suffix == ".bin":
        return read_llama_tokenizer(place)
    library = import_transformers()
    if (place / "encoder.json").is_file() and (place / "vocab.bpe").is_file():
        files = {"vocab": str(place / "encoder.json"), "merges": str(place / "vocab.bpe")}
        return TransformersTokenizer(library.GPT2Tokenizer(**files))
    if place.is_dir():
        return TransformersTokenizer(
            library.AutoTokenizer.from_pretrained(str(place), local_files_only=True)
        )
    if place.suffix == ".gguf":
        return TransformersTokenizer(
            library.AutoTokenizer.from_pretrained(
                str(place.parent), gguf_file=place.name, local_files_only=True
            )
        )
    raise ValueError(
        f"{place} is no tokenizer: expected a llama2.c tok*.bin, a .gguf file, or a folder."
    )


def read_llama_tokenizer(path: str | os.PathLike[str]) -> LlamaTokenizer:
    """The pieces and scores of a ``tok*.bin``."""
    data = Path(path).read_bytes()
    pieces, scores, at = [], [], 4
    while at + 8 <= len(data):
        score, size = struct.unpack_from("<fi", data, at)
        if size < 0 or at + 8 + size > len(data):
            break
        scores.append(score)
        pieces.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    if not pieces or at != len(data):
        raise ValueError(f"{os.fspath(path)} is no tokenizer of llama2.c, or was cut off.")
    return LlamaTokenizer(pieces, scores)
