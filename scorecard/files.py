"""Checks 20, 22, 23 and 26: places that cannot be written, damaged, hostile and old files."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import subtractive as sub
from scorecard.check import Outcome, Size, check
from scorecard.damage import flip_bit, forge, spoil
from scorecard.models import squared
from scorecard.processes import ROOT, run_program
from scorecard.tables import random_table, small
from subtractive.io.files import read_tensors, write_tensors

GOLDEN = ROOT / "tests" / "golden"


def _density() -> sub.SquaredCircuit:
    families = [
        sub.Gaussian(),
        sub.Embedding(3),
        sub.Spline(5, domain=(0.0, 1.0)),
        sub.Binomial(4),
    ]
    return squared(sub.random_binary_tree(4, seed=0), families)


@check(
    20,
    "disk full, read-only folder, write torn by an error",
    "the old file intact, an error that names the file",
)
def bad_places(size: Size) -> Outcome:
    """Save onto a full disk and into a folder that is only read, and fail in the middle."""
    kept: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept["torn"] = _old_file_survives(folder, lambda path: _torn_save(path))
        for option, size_of in (("full", "size=24k"), ("read-only", "size=1m")):
            disk = folder / option
            disk.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", size_of, "tmpfs", str(disk)]
            if subprocess.run(mount, capture_output=True).returncode:
                return Outcome("not run: no right to mount a small disk", passed=False)
            try:
                kept[option] = _old_file_survives(disk, _fill if option == "full" else _lock)
            finally:
                subprocess.run(["umount", str(disk)], check=True)
    return Outcome(
        ", ".join(f"{k}: {'kept' if v else 'LOST'}" for k, v in kept.items()), all(kept.values())
    )


def _old_file_survives(folder: Path, spoil: Callable[[Path], None]) -> bool:
    path = folder / "model"
    _density().save(path)
    content = path.read_bytes()
    try:
        spoil(path)
        _wide().save(path)
    except (OSError, InterruptedError) as error:
        return path.read_bytes() == content and (str(path) in str(error) or "torn" in str(error))
    return False


def _wide() -> sub.SquaredCircuit:
    return squared(sub.random_binary_tree(4, seed=0), sub.Gaussian(), units=40)


def _torn_save(path: Path) -> None:
    from subtractive.io.writing import open_output

    with open_output(str(path)) as file:
        file.write(b"half of it")
        raise InterruptedError("torn")


def _fill(path: Path) -> None:
    try:
        (path.parent / "other").write_bytes(bytes(2**20))
    except OSError:
        return


def _lock(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(path.parent)], check=True)


@check(
    22,
    "corrupt model files: 10,000 mutated, 1,000 bit flips, 2,000 forged descriptions",
    "all refused, or another sound model; 0 raw errors",
)
def corrupt_files(size: Size) -> Outcome:
    """Load damaged files, and files with a right checksum whose description was changed."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model"
        generator = random.Random(0)
        _density().save(path)
        content = path.read_bytes()
        for number in range(size.of(11_000, 60)):
            damaged = (flip_bit if number % 11 == 0 else spoil)(content, generator)
            if damaged == content:
                continue
            path.write_bytes(damaged)
            found[_loaded(path, lambda model: None)] += 1
        damaged_accepted = found["accepted"]
        forged = _forged(path, size.of(1000, 10), size.of(1000, 6), generator)
    total = found.total() + forged.total()
    raw = found["raw error"] + forged["raw error"]
    figure = (
        f"{total} files: {found['refused'] + forged['refused']} refused, {forged['accepted']} "
        f"forged ones are other sound models, {damaged_accepted} damaged ones accepted, "
        f"{raw} raw errors"
    )
    return Outcome(figure, raw == 0 and damaged_accepted == 0)


def _loaded(path: Path, use: Callable[[Any], None]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sub.load(path)
        except sub.FileFormatError:
            return "refused"
        except Exception:
            return "raw error"
        try:
            use(model)
        except Exception:
            return "raw error"
    return "accepted"


def _forged(path: Path, densities: int, tables: int, generator: random.Random) -> Counter[str]:
    """Files with a right checksum, whose descriptions were changed somewhere."""
    found: Counter[str] = Counter()
    _density().save(path)
    tensors, description = read_tensors(path, "model")
    for _ in range(densities):
        write_tensors(path, "model", tensors, forge(description, generator))
        found[_loaded(path, _use_density)] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small().fit(random_table(3)).save(path)
    tensors, description = read_tensors(path, "model")
    for _ in range(tables):
        write_tensors(path, "model", tensors, forge(description, generator))
        found[_loaded(path, _use_any)] += 1
    return found


def _use_any(model: Any) -> None:  # noqa: ANN401 - whatever a file holds
    if isinstance(model, sub.SubtractiveMixture):
        own = model.sample(4, random_state=0)
        assert not np.isnan(model.score_samples(own)).any()
        model.mean()
    else:
        _use_density(model)


def _use_density(model: sub.Density) -> None:
    x = model.sample(3, generator=torch.Generator().manual_seed(0))
    assert not model.log_prob(x).isnan().any()
    x[:, 0] = float("nan")
    assert not model.impute(x).isnan().any()
    model.mean()


HOSTILE = """
import resource, sys, subtractive as sub
sub.load(sys.argv[2])  # a sound file first: what loading imports is not what it reads
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    sub.load(sys.argv[1])
    print("accepted", end=" ")
except sub.FileFormatError:
    print("refused", end=" ")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@check(
    23,
    "hostile files: pickles that run programs, huge headers, paths in names",
    "0 executions, all refused, memory < 2 × file (or 32 MB)",
)
def hostile_files(size: Size) -> Outcome:
    """Load each hostile file in a fresh process; what it would run leaves a trace."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = _hostile(folder)
        sound = next(iter(GOLDEN.glob("*.safetensors")))
        refused, most = 0, 0.0
        for path in files if not size.quick else files[:1]:
            word, grown = run_program(HOSTILE, str(path), str(sound), folder=name).split()
            refused += word == "refused"
            most = max(most, float(grown) / max(2 * path.stat().st_size, 2**25))
        tried = len(files) if not size.quick else 1
        executed = (folder / "trace").exists() or (folder.parent / "escaped").exists()
    figure = f"{refused} of {tried} refused, {int(executed)} executions, {most:.2f} of the memory"
    return Outcome(figure, refused == tried and not executed and most <= 1)


class _Exploit:
    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.trace}",))


def _hostile(folder: Path) -> list[Path]:
    """Pickles of three kinds, archives, headers that promise too much, names that are paths."""
    exploit = _Exploit(str(folder / "trace"))
    contents: dict[str, bytes] = {
        f"pickle-{protocol}": pickle.dumps(exploit, protocol) for protocol in range(6)
    }
    torch.save({"state": exploit}, folder / "torch")
    contents["torch-file"] = (folder / "torch").read_bytes()
    np.save(folder / "array.npy", np.array([exploit], dtype=object), allow_pickle=True)
    contents["numpy-file"] = (folder / "array.npy").read_bytes()
    contents["huge-header"] = struct.pack("<Q", 2**62) + b"{}"
    contents["large-header"] = struct.pack("<Q", 2**31) + b"{" + b" " * 1000
    contents["huge-tensor"] = _safetensors(
        {"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}
    )
    contents["path-in-name"] = _safetensors(
        {"../../escaped": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"x"
    )
    contents["zip-bomb-like"] = b"PK\x03\x04" + bytes(10_000)
    contents["empty"] = b""
    files = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        files.append(folder / name)
    return files


def _safetensors(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@check(26, "old files: golden files of earlier versions", "load, scores within 1e-12")
@torch.no_grad()
def old_files(size: Size) -> Outcome:
    """Compare scores of golden files with those that were written beside them."""
    errors = []
    for path in sorted(GOLDEN.glob("*.safetensors")):
        expected = json.loads(path.with_suffix(".json").read_text())
        rows = torch.tensor(expected["rows"], dtype=torch.float64)
        scores = torch.tensor(expected["log_prob"], dtype=torch.float64)
        errors += ((sub.load(path).log_prob(rows) - scores).abs() / scores.abs()).tolist()
    return Outcome(f"{max(errors):.1e} at worst of {len(errors)} rows", max(errors) <= 1e-12)
