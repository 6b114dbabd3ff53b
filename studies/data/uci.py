"""The five continuous sets of the paper, from files as Papamakarios et al. (2017) lay them out.

The files are those of the archive that most papers use (zenodo.org, record 1161203). Which
columns go, where noise is added, how rows are cut and by what they are scaled follows the
published preprocessing step by step, so that numbers compare with published tables.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from studies.data.splits import (
    Array,
    Splits,
    as_splits,
    cut_tail,
    existing,
    standardised,
)

Parts = tuple[Array, Array, Array]

# Rows for training, validation and test, and columns (paper: App. H.3).
SHAPES = {
    "power": (1_659_917, 184_435, 204_928, 6),
    "gas": (852_174, 94_685, 105_206, 8),
    "hepmass": (315_123, 35_013, 174_987, 21),
    "miniboone": (29_556, 3_284, 3_648, 43),
    "bsds300": (1_000_000, 50_000, 250_000, 63),
}
# Two columns of the gas sensors that agree better than this are one.
SAME = 0.98
# A column of hepmass whose least value occurs more often than this is not continuous.
MOST_OFTEN = 5


def load_uci(name: str, folder: str | Path) -> Splits:
    """One of the five sets, its shapes checked against the published ones."""
    splits = as_splits(READERS[name](Path(folder)), f"{name}, the official split")
    check_shapes(name, splits)
    return splits


def check_shapes(name: str, splits: Splits) -> None:
    """``ValueError`` if the sizes are not those of the published set."""
    *counts, columns = SHAPES[name]
    expected = tuple((count, columns) for count in counts)
    if splits.shapes != expected:
        raise ValueError(
            f"{name} should have the shapes {expected} for training, validation and test, got "
            f"{splits.shapes}: these are not the files of the usual archive."
        )


def read_power(folder: Path) -> Parts:
    """Household power: shuffled by a fixed seed, less two columns, dequantised, standardised."""
    path = existing(folder, ("power/data.npy", "power.npy"), "POWER")
    raw: Array = np.load(path).astype(np.float64)
    # The legacy generator and the order of its calls decide the official split.
    random = np.random.RandomState(42)
    random.shuffle(raw)
    raw = np.delete(raw, (1, 3), axis=1)
    voltage = 0.01 * random.rand(len(raw), 1)
    gap = 0.001 * random.rand(len(raw), 1)
    meters = random.rand(len(raw), 3)
    raw = raw + np.hstack((gap, voltage, meters, np.zeros((len(raw), 1))))
    return _cut_and_standardise(raw)


def read_gas(folder: Path) -> Parts:
    """Gas sensors: less concentrations and time, less columns that repeat others."""
    names = ("gas/ethylene_CO.parquet", "gas/ethylene_CO.csv", "ethylene_CO.parquet")
    pickled = Path(folder) / "gas" / "ethylene_CO.pickle"
    if pickled.is_file() and not any((Path(folder) / name).is_file() for name in names):
        raise ValueError(
            f"{pickled} is a pickle, which may run any program when it is read. If you trust it, "
            f"convert it once: pandas.read_pickle(...).to_parquet({names[0]!r})."
        )
    path = existing(folder, names, "GAS")
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    frame = frame.drop(columns=[name for name in ("Meth", "Eth", "Time") if name in frame])
    while (repeated := _first_repeated(frame)) is not None:
        frame = frame.drop(columns=repeated)
    rows: Array = ((frame - frame.mean()) / frame.std()).to_numpy()
    train, test = cut_tail(rows)
    train, valid = cut_tail(train)
    return train, valid, test


def read_hepmass(folder: Path) -> Parts:
    """Collisions with a particle of mass 1000: the signal, less columns with few values."""
    frames = []
    for part in ("train", "test"):
        names = (f"hepmass/1000_{part}.csv", f"1000_{part}.csv")
        frame = pd.read_csv(existing(folder, names, "HEPMASS"), index_col=False)
        frames.append(frame[frame.iloc[:, 0] == 1].iloc[:, 1:])
    train, test = frames
    test = test.iloc[:, : train.shape[1]]  # the test file has a column too many
    centre, scale = train.mean().to_numpy(), train.std().to_numpy()
    rows, held = ((part.to_numpy() - centre) / scale for part in (train, test))
    kept = [_count_of_least(column) <= MOST_OFTEN for column in rows.T]
    rest, valid = cut_tail(rows[:, kept])
    return rest, valid, held[:, kept]


def read_miniboone(folder: Path) -> Parts:
    """Neutrino events, already cleaned in the archive, standardised."""
    path = existing(folder, ("miniboone/data.npy", "miniboone.npy"), "MINIBOONE")
    return _cut_and_standardise(np.load(path).astype(np.float64))


def read_bsds300(folder: Path) -> Parts:
    """Patches of natural images, as they are."""
    names = ("BSDS300/BSDS300.hdf5", "BSDS300.hdf5", "BSDS300/BSDS300.npz", "bsds300.npz")
    path = existing(folder, names, "BSDS300")
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["train"], arrays["validation"], arrays["test"]
    try:
        reader = import_module("h5py")
    except ImportError:
        raise ImportError(
            f"{path} needs h5py: pip install h5py, or convert it to {names[2]} with the arrays "
            "train, validation and test."
        ) from None
    with reader.File(path, "r") as file:
        train, valid, test = (np.asarray(file[part]) for part in ("train", "validation", "test"))
    return train, valid, test


READERS: dict[str, Callable[[Path], Parts]] = {
    "power": read_power,
    "gas": read_gas,
    "hepmass": read_hepmass,
    "miniboone": read_miniboone,
    "bsds300": read_bsds300,
}


def _cut_and_standardise(rows: Array) -> Parts:
    """A tenth for the test, a tenth of the rest for validation, scaled by all but the test."""
    rest, test = cut_tail(rows)
    train, valid = cut_tail(rest)
    return standardised((train, valid, test), by=rest)


def _first_repeated(frame: pd.DataFrame) -> str | None:
    """The first column that agrees with another one."""
    alike = (frame.corr() > SAME).sum(axis=1)
    return next((str(name) for name in frame.columns if alike[name] > 1), None)


def _count_of_least(column: Array) -> int:
    # Published code looks at the least value only; the official columns follow from that.
    return int(np.count_nonzero(column == column.min()))
