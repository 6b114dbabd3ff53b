"""Teachers: language models that give the probability of the next token, whoever made them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from studies.distillation.llama import Llama, LlamaReading, read_llama

# Rows that are read together: the memory of keys and values grows with them.
_ROWS_AT_ONCE = 1000


class Reader(ABC):
    """Several texts that a teacher reads side by side, token by token."""

    @property
    @abstractmethod
    def log_next(self) -> Tensor:
        """log-probabilities (n, v) of the next token of each text, in float64."""

    @abstractmethod
    def read(self, tokens: Tensor) -> None:
        """Go on by one token (n,) in each text."""


class Teacher(ABC):
    """A causal language model."""

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """The size v of its vocabulary."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What tells this teacher from others, as plain data."""

    @abstractmethod
    def begin(self, num_rows: int, length: int) -> Reader:
        """Start reading texts of up to ``length`` tokens."""

    def next_token(self, num_rows: int, length: int) -> Callable[[Tensor], Tensor]:
        """log-probabilities (n, v) of the next token, for texts (n, t) that grow."""
        reader = self.begin(num_rows, length)

        def log_next(beginning: Tensor) -> Tensor:
            if beginning.shape[1]:
                reader.read(beginning[:, -1])
            return reader.log_next

        return log_next

    @torch.no_grad()
    def log_prob(self, rows: Tensor) -> Tensor:
        """log p(x), (n,) in float64, of sequences (n, d)."""
        check_tokens(rows, self.num_tokens)
        return torch.cat([self._log_prob(block) for block in rows.long().split(_ROWS_AT_ONCE)])

    def _log_prob(self, rows: Tensor) -> Tensor:
        reader = self.begin(len(rows), rows.shape[1])
        total = torch.zeros(len(rows), dtype=torch.float64)
        for position in range(rows.shape[1]):
            total += reader.log_next.gather(1, rows[:, position, None])[:, 0]
            if position + 1 < rows.shape[1]:
                reader.read(rows[:, position])
        return total


@final
class LlamaTeacher(Teacher):
    """A llama2.c checkpoint; texts begin after its token 1."""

    def __init__(self, model: Llama) -> None:
        self.model = model

    @property
    def num_tokens(self) -> int:
        return self.model.shape.vocabulary

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "llama2.c", "sha256": self.model.digest}

    def begin(self, num_rows: int, length: int) -> Reader:
        return _LlamaReader(LlamaReading(self.model, num_rows, length))


@final
class _LlamaReader(Reader):
    def __init__(self, reading: LlamaReading) -> None:
        self._reading = reading
        self._next = reading.read(torch.ones(reading.num_rows, dtype=torch.long))

    @property
    def log_next(self) -> Tensor:
        return self._next.double().log_softmax(-1)

    def read(self, tokens: Tensor) -> None:
        self._next = self._reading.read(tokens)


@final
class TransformersTeacher(Teacher):
    """A causal language model of ``transformers``; texts begin after its first special token."""

    def __init__(self, model: Any, name: str) -> None:  # noqa: ANN401 - of an optional package
        self.model, self.name = model.eval(), name
        config = model.config
        start = config.bos_token_id if config.bos_token_id is not None else config.eos_token_id
        if not isinstance(start, int):
            raise ValueError(f"{name} names no token with which a text begins (bos_token_id).")
        self.start = start

    @property
    def num_tokens(self) -> int:
        return int(self.model.config.vocab_size)

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "kind": "transformers",
            "name": self.name,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def begin(self, num_rows: int, length: int) -> Reader:
        return _TransformersReader(self.model, torch.full((num_rows,), self.start))


@final
class _TransformersReader(Reader):
    def __init__(self, model: Any, start: Tensor) -> None:  # noqa: ANN401
        self._model, self._past = model, None
        self.read(start)

    @property
    def log_next(self) -> Tensor:
        return self._logits.double().log_softmax(-1)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> None:
        answer = self._model(input_ids=tokens[:, None], past_key_values=self._past, use_cache=True)
        self._past = answer.past_key_values
        self._logits: Tensor = answer.logits[:, -1]


def load_teacher(path: str | os.PathLike[str]) -> Teacher:
    """A teacher from disk: a llama2.c ``.bin``, a ``.gguf`` file, or a folder of transformers.

    Nothing is ever downloaded.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no teacher at {place}.")
    if place.is_file() and place.suffix == ".bin":
        return LlamaTeacher(read_llama(place))
    if place.is_file() and place.suffix != ".gguf":
        raise ValueError(
            f"{place} is no teacher: expected a llama2.c checkpoint (.bin), a .gguf file, or a "
            "folder that transformers can load."
        )
    library = import_transformers()
    if place.is_dir():
        model = library.AutoModelForCausalLM.from_pretrained(str(place), local_files_only=True)
    else:
        model = _read_gguf(place, library)
    return TransformersTeacher(model, place.name)


def _read_gguf(path: Path, library: Any) -> Any:  # noqa: ANN401 - of an optional package
    """A model in a ``.gguf`` file, its weights made into float32.

    ``from_pretrained`` does the same, but asks for one package more.
    """
    config = library.AutoConfig.from_pretrained(
        str(path.parent), gguf_file=path.name, local_files_only=True
    )
    model = library.AutoModelForCausalLM.from_config(config)
    reading = import_module("transformers.modeling_gguf_pytorch_utils")
    found = reading.load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    weights = {name: tensor.float() for name, tensor in found["tensors"].items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise ValueError(
            f"{path} does not fit its own description: it lacks {sorted(set(missing) - tied)[:3]} "
            f"and has {unexpected[:3]} besides."
        )
    model.tie_weights()
    return model


def import_transformers() -> Any:  # noqa: ANN401 - a module
    """The optional package, or a word on how to get it."""
    try:
        import transformers
    except ImportError:
        raise ImportError(
            "this teacher or tokenizer needs the package transformers: "
            "pip install 'subtractive[distill]'"
        ) from None
    return transformers


def check_tokens(rows: Tensor, num_tokens: int) -> None:
    """Raise ``ValueError`` unless a table (n, d) holds tokens of a vocabulary."""
    if rows.dim() != 2 or rows.is_floating_point() or rows.is_complex():
        raise ValueError(
            "sequences must be a table (rows, positions) of whole numbers, got shape "
            f"{tuple(rows.shape)} of {rows.dtype}."
        )
    if rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < num_tokens):
        raise ValueError(
            f"tokens must be in 0..{num_tokens - 1}, got {int(rows.min())}..{int(rows.max())}."
        )
