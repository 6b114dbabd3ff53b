"""One model of a distillation: its start, its training, and what it scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.distillation.corpus import PARTS, EncodedCorpus
from studies.distillation.models import (
    Chained,
    log_probs,
    monotonic_chain,
    negative_share,
    square_root_chain,
    squared_chain,
)
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.learning.loop import fit
from subtractive.storage import read_density

KINDS = ("monotonic", "squared")
# Starts from what an additive run has learned: from its square root, or trained on as it is.
CONTINUED = ("root", "again")


@dataclass(frozen=True)
class ChainSettings:
    """A model and its training. ``start`` names an initialiser, or one of ``CONTINUED``."""

    kind: str
    num_units: int
    num_squares: int = 1
    start: str = "dirichlet"
    learning_rate: float = 0.05
    batch_size: int = 1024
    max_epochs: int = 200
    patience: int = 3
    seed: int = 0
    is_shared: bool = False  # whether all positions have the same tables


def train_chain(
    settings: ChainSettings,
    data: EncodedCorpus,
    *,
    checkpoint: Path,
    model_file: Path,
    additive_file: Path | None = None,
) -> dict[str, Any]:
    """Train a model and write its file; what it came to.

    An interrupted training goes on from its checkpoint. A continued start begins from the model
    in ``additive_file``.
    """
    model = start_chain(settings, data, additive_file)
    history = fit(
        model,
        data.states["train"].float(),
        data.states["valid"].float(),
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        max_epochs=settings.max_epochs,
        patience=settings.patience,
        checkpoint=checkpoint,
        resume=True,
        seed=settings.seed,
        progress=False,
    )
    if history.stopped == "interrupted":
        raise KeyboardInterrupt
    model.save(model_file)
    checkpoint.unlink(missing_ok=True)
    return {
        **{part: score(model, data, part) for part in PARTS},
        "teacher": data.teacher,
        "parameters": model.circuit.num_parameters,
        "negative_weights": negative_share(model),
        "epochs": len(history.epochs),
        "stopped": history.stopped,
        "valid_history": history.valid,
    }


def start_chain(
    settings: ChainSettings, data: EncodedCorpus, additive_file: Path | None
) -> Chained:
    """The model before its training."""
    if settings.kind not in KINDS:
        raise ValueError(f"unknown kind of model {settings.kind!r}: expected one of {KINDS}.")
    if settings.start in CONTINUED:
        if additive_file is None:
            raise ValueError(f"the start {settings.start!r} needs the file of an additive model.")
        additive = read_chain(additive_file)
        assert isinstance(additive, MonotonicCircuit)
        if settings.kind == "monotonic":
            return additive
        return square_root_chain(additive, num_squares=settings.num_squares)
    shape = data.states["train"].shape[1], data.vocabulary.num_states, settings.num_units
    shared, seed = settings.is_shared, settings.seed
    if settings.kind == "monotonic":
        return monotonic_chain(*shape, start=settings.start, is_shared=shared, seed=seed)
    squares = settings.num_squares
    return squared_chain(
        *shape, num_squares=squares, start=settings.start, is_shared=shared, seed=seed
    )


def score(model: Chained, data: EncodedCorpus, part: str) -> float:
    """The mean log-likelihood of the teacher's own tokens in a part."""
    states = data.states[part]
    return float((log_probs(model, states) + data.vocabulary.log_share(states)).mean())


def read_chain(file: Path) -> Chained:
    """A model file."""
    density, _ = read_density(file)
    if not isinstance(density, SquaredCircuit | MonotonicCircuit):
        raise ValueError(f"{file} holds another kind of density: expected one of distill.")
    return density
