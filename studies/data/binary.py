"""The binary density-estimation sets that papers on probabilistic circuits report (DEBD)."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from studies.data.splits import Splits, existing

# By the number of variables.
SETS = (
    "nltcs",
    "msnbc",
    "kdd",
    "plants",
    "baudio",
    "bnetflix",
    "tretail",
    "dna",
    "kosarek",
    "msweb",
    "book",
    "tmovie",
    "cr52",
    "bbc",
)


@cache
def load_binary(name: str, folder: str) -> Splits:
    """A set of zeros and ones in its standard parts, from packed bits or from text.

    A file ``nltcs.npz`` holds packed bits and their number ``n_vars``; else the parts are the
    usual ``nltcs.train.data``, ``nltcs.valid.data`` and ``nltcs.test.data``.
    """
    if not folder:
        raise ValueError("which folder holds the data? Name it with --data DIR.")
    first = f"{name}.train.data"
    names = (f"debd/{name}.npz", f"{name}.npz", f"{name}/{first}", first)
    path = existing(folder, names, f"binary set {name!r}")
    note = f"{name}, the standard split"
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            count = int(arrays["n_vars"])
            parts = [
                np.unpackbits(arrays[part], axis=1)[:, :count]
                for part in ("train", "valid", "test")
            ]
    else:
        paths = [path.with_name(f"{name}.{part}.data") for part in ("train", "valid", "test")]
        parts = [np.loadtxt(path, delimiter=",", dtype=np.uint8, ndmin=2) for path in paths]
    train, valid, test = (torch.from_numpy(part.astype(np.int64)) for part in parts)
    return Splits(train, valid, test, note)
