"""Files of named tensors and a description: safetensors + JSON + SHA-256, written atomically.

Nothing in such a file is ever executed, and a file that was changed, cut off or written by a newer
version is refused before anything of it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from subtractive.io.writing import partial_files as partial_files
from subtractive.io.writing import write_atomically as write_atomically

VERSION = 1


class FileFormatError(ValueError):
    """A file that is not what it should be: damaged, of another kind, or from a newer version.

    >>> file = os.path.join(tempfile.mkdtemp(), "no.model")
    >>> with open(file, "w") as text:
    ...     _ = text.write("not a model")
    >>> sub.load(file)
    Traceback (most recent call last):
    subtractive.io.files.FileFormatError: ...
    """


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
) -> None:
    """Write tensors and a JSON description to one file, or leave the old file as it was."""
    # Memory that tensors share, or that has gaps, is not what a file can hold.
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    header = {"format": f"subtractive {kind}", "version": str(VERSION), "description": text}
    header["sha256"] = _digest(header, stored)
    write_atomically(path, lambda partial: save_file(stored, partial, header))


def read_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file, all of it checked."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no {kind} file at {os.fspath(path)}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            _check_header(path, kind, header)
            mapped = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RuntimeError, OSError, MemoryError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            f"{os.fspath(path)} is not a readable {kind} file ({error}): it is damaged or was cut "
            "off. Copy it again, or go back to an older file."
        ) from None
    if header.get("sha256") != _digest(header, mapped):
        raise FileFormatError(
            f"{os.fspath(path)} is damaged: its checksum does not match its contents. Copy it "
            "again, or go back to an older file."
        )
    # Copies: memory of their own, aligned as any tensor's, and the file is free again.
    tensors = {name: tensor.clone() for name, tensor in mapped.items()}
    return tensors, _parsed(path, header["description"])


def plain(value: Any) -> Any:  # noqa: ANN401 - anything that JSON can nearly hold
    """The same as JSON gives it back: lists for tuples, ``None`` for NaN and infinities.

    >>> plain({"scores": (1.0, float("nan"))})
    {'scores': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, or leave the old file as it was."""
    write_atomically(path, lambda partial: _fill_text(partial, text))


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write an object as a JSON file in one stroke, with its folder."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file of a run."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} is damaged: remove it, and its run is done again.")
    return value


def _fill_text(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")


def _check_header(path: str | os.PathLike[str], kind: str, header: Mapping[str, str]) -> None:
    name = os.fspath(path)
    if header.get("format") != f"subtractive {kind}":
        found = header.get("format", "a safetensors file of another program")
        raise FileFormatError(f"{name} is not a {kind} file: it says that it is {found[:80]!r}.")
    version = header.get("version", "")
    if not version.isdecimal() or "description" not in header:
        raise FileFormatError(f"{name} is damaged: its header is incomplete. Copy it again.")
    if int(version[:9]) > VERSION:
        raise FileFormatError(
            f"{name} was written by a newer version of subtractive (file version {version[:9]}, "
            f"this one reads up to {VERSION}). Upgrade subtractive to read it."
        )


def _parsed(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    """A description with the right checksum: what was written, if it was written by us."""
    try:
        description = json.loads(text)
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise FileFormatError(f"{os.fspath(path)} is damaged: its description is not readable.")
    return description


def _digest(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the header and of the name, dtype, shape and bytes of every tensor."""
    words = [header[name] for name in ("format", "version", "description")]
    digest = hashlib.sha256(repr(words).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
