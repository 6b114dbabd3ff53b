"""Real sets beside the official five: parts of them, and regression tables taken as densities.

None of these compares with published tables but for BSDS300, whose patches are drawn anew from the
same images, and the test part of MiniBooNE, which is the official one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from studies.data.patches import SEED, dequantised, read_redrawn
from studies.data.splits import Array, Splits, as_splits, cut_tail, existing, standardised


def read_patches(folder: Path) -> Splits:
    """8 x 8 patches of the BSDS300 images, which come as bytes.

    Not standardised: all pixels have the same unit, and published numbers are in it.
    """
    name = "bsds300_quarter_u8.npz"
    path = existing(folder, (f"bsds300/{name}", name), "BSDS300 patches")
    with np.load(path) as arrays:
        train, valid, test = (
            dequantised(arrays[part], SEED + number)
            for number, part in enumerate(("train", "valid", "test"))
        )
    note = "BSDS300 images, patches drawn anew, a quarter of the official number"
    return as_splits((train, valid, test), note)


def read_miniboone_part(folder: Path) -> Splits:
    """MiniBooNE with the official test part, learned from nine tenths of the validation part.

    Scaled as they come, by the official training rows: likelihoods depend on the unit.
    """
    name = "miniboone_partial.npz"
    path = existing(folder, (f"miniboone/{name}", name), "MiniBooNE part")
    with np.load(path) as arrays:
        train, valid = cut_tail(_shuffled(arrays["valid"]))
        test = arrays["test"]
    note = (
        "MiniBooNE, official test part, learned from nine tenths of the official validation part"
    )
    return as_splits((train, valid, test), note)


def read_power_part(folder: Path) -> Splits:
    """Some weeks of household power, cut and scaled as they come."""
    path = existing(folder, ("power/power_subset.npz", "power_subset.npz"), "POWER subset")
    with np.load(path) as arrays:
        parts = (arrays["train"], arrays["valid"], arrays["test"])
    return as_splits(parts, "POWER, 1.8 % of the official rows")


def read_table(name: str, folder: Path) -> Splits:
    """A regression table as a joint density: its first test mask, a tenth of the rest held out."""
    path = existing(folder, (f"tabular/{name}.npz", f"{name}.npz"), name)
    with np.load(path) as arrays:
        is_test = arrays["test_mask_0"].astype(bool)
        train, valid = cut_tail(_shuffled(arrays["x"][~is_test]))
        parts = standardised((train, valid, arrays["x"][is_test]), by=train)
    return as_splits(parts, f"{name}, all columns with the target, usual test rows")


def _shuffled(rows: Array) -> Array:
    return rows[np.random.default_rng(SEED).permutation(len(rows))]


READERS: dict[str, Callable[[Path], Splits]] = {
    "bsds300-redrawn": read_redrawn,
    "bsds300-quarter": read_patches,
    "miniboone-valid": read_miniboone_part,
    "power-subset": read_power_part,
    "kin40k": partial(read_table, "kin40k"),
    "protein": partial(read_table, "protein"),
    "pumadyn32nm": partial(read_table, "pumadyn32nm"),
}
