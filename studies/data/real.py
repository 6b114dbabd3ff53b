"""All continuous real sets by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from studies.data import partial, uci
from studies.data.splits import Splits

SETS = (*uci.READERS, *partial.READERS)


@cache
def load_real(name: str, folder: str) -> Splits:
    """A set from a folder, read once per process."""
    if not folder:
        raise ValueError("which folder holds the data? Name it with --data DIR.")
    if name in uci.READERS:
        return uci.load_uci(name, folder)
    if name in partial.READERS:
        return partial.READERS[name](Path(folder))
    raise ValueError(f"there is no set {name!r}: choose from {', '.join(SETS)}.")
