"""Sequences drawn from a teacher with their exact log-probabilities, kept on disk as they come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from studies.distillation.teachers import Teacher
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.io.files import read_json, write_atomically, write_json
from subtractive.numerics.inversion import choose_cell
from subtractive.sequences.guided import Samples

CHUNK = 1000


@torch.no_grad()
def draw_from_teacher(
    teacher: Teacher, num_samples: int, length: int, generator: torch.Generator | None
) -> Samples:
    """Ancestral sampling at temperature one, all sequences side by side."""
    reader = teacher.begin(num_samples, length)
    columns, total = [], torch.zeros(num_samples, dtype=torch.float64)
    for position in range(length):
        log_next = reader.log_next
        tokens = choose_cell(log_next.exp(), uniforms(num_samples, generator))[0]
        total += log_next.gather(1, tokens[:, None])[:, 0]
        columns.append(tokens)
        if position + 1 < length:
            reader.read(tokens)
    return Samples(torch.stack(columns, 1), total)


def sample_teacher(
    teacher: Teacher,
    num_samples: int,
    length: int,
    *,
    folder: str | os.PathLike[str],
    seed: int = 0,
    progress: bool = True,
) -> Samples:
    """Draw sequences in chunks, each kept in a file of its own; go on where a run has stopped.

    A chunk depends on the seed and its own number only: an interrupted run that goes on gives the
    same sequences, bit by bit, and a larger number begins with those of a smaller one.
    """
    if num_samples < 1 or length < 1:
        raise ValueError(
            f"expected at least one sequence of one token, got {num_samples} of {length}."
        )
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    _check_folder(
        place, {"teacher": teacher.identity, "length": length, "seed": seed, "chunk": CHUNK}
    )
    parts = []
    numbers = range(-(-num_samples // CHUNK))
    for number in tqdm(numbers, unit="chunk", desc="sampling", disable=not progress):
        file = place / f"chunk-{number:06d}.npz"
        if not file.exists():
            _write(file, _draw_chunk(teacher, length, seed, number))
        parts.append(_read(file, length))
    tokens = torch.cat([part.tokens for part in parts])[:num_samples]
    return Samples(tokens, torch.cat([part.log_prob for part in parts])[:num_samples])


def _draw_chunk(teacher: Teacher, length: int, seed: int, number: int) -> Samples:
    entropy = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(entropy[0] >> np.uint64(1)))
    return draw_from_teacher(teacher, CHUNK, length, generator)


def _check_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Make sure that a folder belongs to these samples, or mark it as theirs."""
    file = folder / "samples.json"
    if not file.exists():
        write_json(file, identity)
        return
    found = read_json(file)
    for name, value in identity.items():
        if found.get(name) != value:
            raise ValueError(
                f"{folder} holds other samples: their {name} is {found.get(name)!r}, now it is "
                f"{value!r}. Choose another folder."
            )


def _write(file: Path, samples: Samples) -> None:
    def write(partial: str) -> None:
        with open(partial, "wb") as stream:
            np.savez_compressed(
                stream,
                x=samples.tokens.numpy().astype(np.int32),
                logp=samples.log_prob.numpy(),
            )

    write_atomically(file, write)


def _read(file: Path, length: int) -> Samples:
    with np.load(file, allow_pickle=False) as data:
        tokens, log_prob = torch.from_numpy(data["x"]).long(), torch.from_numpy(data["logp"])
    if tokens.shape != (CHUNK, length) or log_prob.shape != (CHUNK,):
        raise ValueError(f"{file} does not hold {CHUNK} sequences of {length} tokens: delete it.")
    return Samples(tokens, log_prob)
