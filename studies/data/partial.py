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

# The share of rows that the most frequent value of a continuous column may have, and the
# correlation above which two columns are the same.
MOST_FREQUENT, SAME_COLUMN = 0.01, 0.9999


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
    parts = _cut_table(name, folder)
    note = f"{name}, all columns with the target, usual test rows"
    return as_splits(standardised(parts, by=parts[0]), note)


def read_continuous(name: str, folder: Path) -> Splits:
    """The columns of a regression table that have a density, cut like :func:`read_table`."""
    train, valid, test = _cut_table(name, folder)
    kept = continuous_columns(train)
    parts = standardised((train[:, kept], valid[:, kept], test[:, kept]), by=train[:, kept])
    return as_splits(parts, f"{name}, its {len(kept)} continuous columns, usual test rows")


def continuous_columns(rows: Array) -> list[int]:
    """The columns without a frequent value that do not repeat an earlier one in another unit.

    A value that returns, or a multiple of another column, makes likelihoods as large as one likes.

    >>> steps = np.linspace(0, 1, 1000)
    >>> continuous_columns(np.stack([steps, steps.round(1), 3 * steps + 1, steps**2], 1))
    [0, 3]
    """
    kept: list[int] = []
    for column, values in enumerate(rows.T.astype(np.float64)):
        most = np.unique(values, return_counts=True)[1].max()
        if most <= MOST_FREQUENT * len(values) and not any(
            abs(np.corrcoef(values, rows[:, other])[0, 1]) > SAME_COLUMN for other in kept
        ):
            kept.append(column)
    return kept


def _cut_table(name: str, folder: Path) -> tuple[Array, Array, Array]:
    path = existing(folder, (f"tabular/{name}.npz", f"{name}.npz"), name)
    with np.load(path) as arrays:
        is_test = arrays["test_mask_0"].astype(bool)
        train, valid = cut_tail(_shuffled(arrays["x"][~is_test]))
        return train, valid, arrays["x"][is_test]


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
    "parkinsons": partial(read_continuous, "parkinsons"),
    "sml": partial(read_continuous, "sml"),
}
