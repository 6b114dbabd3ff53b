"""One distillation run: a start, a training, a score; written down, so that it is done once."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from studies.distillation.corpus import PARTS, Corpus
from studies.distillation.models import (
    Chained,
    log_probs,
    monotonic_chain,
    negative_share,
    square_root_chain,
    squared_chain,
)
from studies.distillation.vocabulary import Vocabulary
from subtractive.io.files import read_json, write_json
from subtractive.learning.loop import fit
from subtractive.storage import read_density

KINDS = ("monotonic", "squared")
# Starts from what an additive run has learned: from its square root, or trained on as it is.
CONTINUED = ("root", "again")


@dataclass(frozen=True)
class Plan:
    """What a run does. ``start`` names an initialiser, or one of ``CONTINUED``."""

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

    @property
    def name(self) -> str:
        """A file name without ending."""
        squares = f"-s{self.num_squares}" if self.num_squares > 1 else ""
        recipe = f"{self.start}-{self.learning_rate:g}"
        return f"{self.kind}-k{self.num_units}{squares}-{recipe}-{self.seed}"


@dataclass(frozen=True)
class Data:
    """Sequences as states of a vocabulary, (n, d) for each part, and what the teacher scores."""

    vocabulary: Vocabulary
    states: dict[str, Tensor]
    teacher: dict[str, float]

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: Vocabulary) -> Data:
        """The parts of a corpus in the states of a vocabulary."""
        parts = zip(PARTS, corpus[:3], strict=True)
        return cls(vocabulary, {k: vocabulary.states(v) for k, v in parts}, corpus.teacher)


def run(
    plan: Plan,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    first: Plan | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train and score one model, or read what an earlier run has written; the record.

    An interrupted training goes on from its checkpoint. ``first`` is the additive run that a
    continued start begins from; it is done, if it was not yet.
    """
    place = Path(folder)
    file = place / f"{plan.name}.json"
    if file.exists():
        return read_record(file, plan)
    model = start_model(plan, data, place, first=first, progress=progress)
    checkpoint = place / f".{plan.name}.checkpoint"
    history = fit(
        model,
        data.states["train"].float(),
        data.states["valid"].float(),
        learning_rate=plan.learning_rate,
        batch_size=plan.batch_size,
        max_epochs=plan.max_epochs,
        patience=plan.patience,
        checkpoint=checkpoint,
        resume=True,
        seed=plan.seed,
        progress=progress,
    )
    if history.stopped == "interrupted":
        raise KeyboardInterrupt
    model.save(place / f"{plan.name}.model")
    record = {
        "plan": asdict(plan),
        "log_likelihood": {part: score(model, data, part) for part in PARTS},
        "teacher": data.teacher,
        "parameters": model.circuit.num_parameters,
        "negative_weights": negative_share(model),
        "epochs": len(history.epochs),
        "stopped": history.stopped,
        "seconds": history.seconds,
        "valid_history": history.valid,
    }
    write_json(file, record)
    checkpoint.unlink(missing_ok=True)
    return record


def start_model(
    plan: Plan, data: Data, folder: Path, *, first: Plan | None, progress: bool
) -> Chained:
    """The model of a plan before its training."""
    if plan.kind not in KINDS:
        raise ValueError(f"unknown kind of model {plan.kind!r}: expected one of {KINDS}.")
    if plan.start in CONTINUED:
        if first is None:
            raise ValueError(f"the start {plan.start!r} needs the plan of an additive run.")
        run(first, data, folder, progress=progress)
        additive = _additive(folder, first)
        if plan.kind == "monotonic":
            return additive
        return square_root_chain(additive, num_squares=plan.num_squares)
    shape = data.states["train"].shape[1], data.vocabulary.num_states, plan.num_units
    shared, seed = plan.is_shared, plan.seed
    if plan.kind == "monotonic":
        return monotonic_chain(*shape, start=plan.start, is_shared=shared, seed=seed)
    squares = plan.num_squares
    return squared_chain(
        *shape, num_squares=squares, start=plan.start, is_shared=shared, seed=seed
    )


def score(model: Chained, data: Data, part: str) -> float:
    """The mean log-likelihood of the teacher's own tokens in a part."""
    states = data.states[part]
    return float((log_probs(model, states) + data.vocabulary.log_share(states)).mean())


def load_model(folder: str | os.PathLike[str], plan: Plan) -> Chained:
    """The model that a run has left."""
    return read_chain(Path(folder) / f"{plan.name}.model")


def read_chain(file: Path) -> Chained:
    """A model file."""
    density, _ = read_density(file)
    if not isinstance(density, SquaredCircuit | MonotonicCircuit):
        raise ValueError(f"{file} holds another kind of density: expected one of distill.")
    return density


def read_record(file: Path, plan: Plan) -> dict[str, Any]:
    """What a run has written down, after making sure that it was the same run."""
    record = read_json(file)
    for name, value in asdict(plan).items():
        if record["plan"].get(name, getattr(Plan, name, None)) != value:
            raise ValueError(
                f"{file} is of another run: its {name} was {record['plan'].get(name)!r}, now it "
                f"is {value!r}. Choose another folder."
            )
    return record


def _additive(folder: Path, plan: Plan) -> MonotonicCircuit:
    model = load_model(folder, plan)
    assert isinstance(model, MonotonicCircuit)
    return model
