"""What processes that train together must have in common, each fact in a line of text."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from subtractive.densities.base import Density
from subtractive.learning.batches import Batches
from subtractive.learning.settings import Settings


def shared_facts(
    density: Density,
    data: Sequence[Batches | None],
    settings: Settings,
    steps: Mapping[str, object],
    saved: str | os.PathLike[str] | None,
) -> dict[str, str]:
    """The data, settings, model, checkpoint and versions; streams are not read for it."""
    train, valid = (None if part is None else part.fingerprint for part in data)
    tensors = [(name, tuple(t.shape), t.dtype) for name, t in density.state_dict().items()]
    lasting = {name: value for name, value in vars(settings).items() if name != "callbacks"}
    return {
        "the version of subtractive": str(sys.modules["subtractive"].__version__),
        "the version of torch": torch.__version__,
        "the training data": str(train),
        "the validation data": str(valid),
        "the model": _digest(repr((type(density).__name__, tensors)).encode()),
        "the settings": str(lasting | {name: _in_words(value) for name, value in steps.items()}),
        "the checkpoint": "none" if saved is None else _digest(Path(saved).read_bytes()),
    }


def _in_words(value: object) -> object:
    """An optimiser by its numbers, a scheduler by its name, anything else as it is."""
    if isinstance(value, Optimizer):
        groups = [
            {k: v for k, v in group.items() if k != "params"} for group in value.param_groups
        ]
        return f"{type(value).__name__} {groups}"
    return type(value).__name__ if isinstance(value, LRScheduler) else value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
