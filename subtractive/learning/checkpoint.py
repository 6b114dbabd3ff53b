"""Checkpoints: the whole state of a training run in one file, written atomically."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subtractive.io.files import FileFormatError, read_tensors, write_tensors

KIND = "checkpoint"


class Checkpoint:
    """Where a run is saved, and when: at most every ``seconds``, by one process of a group."""

    def __init__(self, path: str | os.PathLike[str], seconds: float) -> None:
        self.path, self.seconds = Path(path), seconds
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, state: Mapping[str, Any]) -> None:
        """Put the state in the place of the one before."""
        save_state(self.path, state)
        self._last = time.monotonic()


def save_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write nested dictionaries, lists, numbers, texts and tensors to a file."""
    tensors: dict[str, Tensor] = {}
    write_tensors(path, KIND, tensors, {"state": _packed(dict(state), tensors)})


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The inverse of :func:`save_state`."""
    tensors, description = read_tensors(path, KIND)
    try:
        state = _unpacked(description["state"], tensors)
    except (LookupError, TypeError, ValueError) as error:
        raise _not_ours(path, error) from None
    if not isinstance(state, dict):
        raise _not_ours(path, TypeError(f"a {type(state).__name__} for a state"))
    return state


def load_run(path: str | os.PathLike[str], own: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a run in a file, whose parts are of the same kinds as its ``own``."""
    state = load_state(path)
    for name, part in own.items():
        given, kind = state.get(name), dict if isinstance(part, dict) else type(part)
        fits = isinstance(given, kind)
        if fits and name == "best":
            fits = set(state["density"]) == set(state["best"])
        elif fits and name in ("optimizer", "scheduler", "history"):
            fits = set(state[name]) <= set(part)
        elif fits and name == "progress":
            fits = len(state[name]) == len(part)
        if not fits:
            raise _not_ours(path, TypeError(f"{name!r} is not what a run has there"))
    return state


@contextmanager
def resuming(path: str | os.PathLike[str], density: nn.Module) -> Iterator[None]:
    """Refuse a state that is not that of a run, and put the density back as it was."""
    before = copied(density.state_dict())
    try:
        yield
    except Exception as error:
        density.load_state_dict(before)
        if isinstance(error, ValueError):  # which says what is wrong
            raise
        raise _not_ours(path, error) from None


def _not_ours(path: str | os.PathLike[str], error: Exception) -> FileFormatError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return FileFormatError(
        f"{os.fspath(path)} does not hold a training run ({reason}). It was not written by fit(), "
        "or by a program that is broken: start anew without resume."
    )


def _packed(value: object, tensors: dict[str, Tensor]) -> object:
    """JSON for a value, its tensors collected aside. Keys of any kind stay what they are."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_packed(entry, tensors) for entry in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"a checkpoint holds numbers, texts and tensors, but the optimiser or scheduler has a "
        f"{type(value).__name__} in its state. Train without checkpoint=, or with another one."
    )


def _unpacked(packed: Any, tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpacked(entry, tensors) for key, entry in content}
    entries = [_unpacked(entry, tensors) for entry in content]
    return entries if kind == "list" else tuple(entries)


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of a module's state that later steps do not change."""
    return {name: torch.clone(tensor.detach()) for name, tensor in state.items()}
