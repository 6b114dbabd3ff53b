"""The grids and the numbers of the paper's main table (App. H.3)."""

from __future__ import annotations

from dataclasses import dataclass

from studies.models.baselines import COUPLING, GAUSSIAN, MAF, NSF
from studies.models.kinds import MPC, MPC2, NPC2
from studies.models.tree_mixtures import BINARY, LINEAR

SETS = ("power", "gas", "hepmass", "miniboone", "bsds300")
# Random region graphs that are mixed, and bases of a spline.
NUM_TREES, NUM_BASES = 8, 512

# A value and what stands after ±, where the paper has them.
Number = tuple[float, float | None]


@dataclass(frozen=True)
class Grid:
    """What is tried for one set and one kind of tree."""

    rates: tuple[float, ...]
    units: tuple[int, ...]
    batches: tuple[int, ...] = (512, 1024, 2048)


def grid_of(name: str, tree: str) -> Grid:
    """The grid of a set; sets that the paper does not have get that of POWER.

    >>> grid_of("gas", "BT")
    Grid(rates=(0.01, 0.005), units=(32, 64, 128, 256, 512, 1024), batches=(512, 1024, 2048, 4096))
    """
    units = (32, 64, 128, 256, 512)
    if tree != BINARY:
        return Grid((0.005, 0.001), units)
    rates = (0.01, 0.005)
    if name == "gas":
        return Grid(rates, (*units, 1024), (512, 1024, 2048, 4096))
    return Grid(rates, units[:-1] if name == "bsds300" else units)


def _row(text: str, error: str = "") -> dict[str, Number]:
    values = [float(word) if word != "-" else None for word in text.split()]
    given: list[float | None] = [float(word) for word in error.split()]
    errors = given or [None] * len(values)
    return {
        name: (value, size)
        for name, value, size in zip(SETS, values, errors, strict=True)
        if value is not None
    }


# Test log-likelihoods and two standard errors, by model.
OTHERS: dict[str, dict[str, Number]] = {
    "MADE": _row("-3.08 3.56 -20.98 -15.59 148.85", "0.03 0.04 0.02 0.50 0.28"),
    COUPLING: _row("0.17 8.33 -18.71 -13.84 153.28", "0.01 0.14 0.02 0.52 1.78"),
    MAF: _row("0.24 10.08 -17.73 -12.24 154.93", "0.01 0.02 0.02 0.45 0.28"),
    NSF: _row("0.66 13.09 -14.01 -9.22 157.31", "0.01 0.02 0.03 0.48 0.28"),
    GAUSSIAN: _row("-7.74 -3.58 -27.93 -37.24 96.67", "0.02 0.75 0.02 1.07 0.25"),
    "EiNet-LRS": _row("0.36 4.79 -22.46 -34.21 -"),
    "TTDE": _row("0.46 8.93 -21.34 -28.77 143.30"),
}

# The same by model, tree and inputs.
BEST: dict[tuple[str, str, str], dict[str, Number]] = {
    (MPC, LINEAR, "Gaussian"): _row("0.51 6.73 -22.07 -32.48 123.15", "0.01 0.03 0.02 0.44 0.28"),
    (MPC, LINEAR, "spline"): _row("0.24 -2.05 -23.09 -37.53 116.90", "0.01 0.02 0.02 0.46 0.28"),
    (MPC2, LINEAR, "Gaussian"): _row("0.49 7.06 -21.42 -29.46 -", "0.01 0.03 0.02 0.44 0"),
    (MPC2, LINEAR, "spline"): _row("0.39 0.95 -22.24 -32.81 -", "0.01 0.01 0.02 0.47 0"),
    (NPC2, LINEAR, "Gaussian"): _row("0.53 9.00 -20.66 -26.68 112.99", "0.01 0.02 0.02 0.42 0.29"),
    (NPC2, LINEAR, "spline"): _row("0.43 3.03 -21.53 -29.36 120.11", "0.01 0.02 0.02 0.42 0.29"),
    (MPC, BINARY, "Gaussian"): _row("0.57 5.56 -22.45 -32.11 121.92", "0.01 0.03 0.02 0.43 0.29"),
    (MPC, BINARY, "spline"): _row("0.32 -2.55 -24.09 -37.56 123.30", "0.01 0.02 0.02 0.46 0.29"),
    (MPC2, BINARY, "Gaussian"): _row("0.57 8.24 -21.47 -29.46 125.56", "0.01 0.03 0.02 0.43 0.29"),
    (MPC2, BINARY, "spline"): _row("0.36 0.32 -23.38 -33.43 126.85", "0.01 0.02 0.02 0.47 0.29"),
    (NPC2, BINARY, "Gaussian"): _row(
        "0.63 10.98 -20.41 -26.92 114.47", "0.01 0.02 0.02 0.44 0.28"
    ),
    (NPC2, BINARY, "spline"): _row("0.45 3.12 -22.25 -30.81 128.38", "0.01 0.01 0.02 0.54 0.29"),
}

# Means and standard deviations over five repetitions with the best settings, by model and tree.
REPEATED: dict[tuple[str, str], dict[str, Number]] = {
    (MPC, LINEAR): _row("0.46 7.03 -22.07 -31.79 126.66", "0.03 0.18 0.02 0.39 5.46"),
    (MPC, BINARY): _row("0.53 6.16 -22.42 -33.30 122.77", "0.03 0.56 0.45 0.98 0.71"),
    (NPC2, LINEAR): _row("0.42 8.97 -20.67 -29.58 127.58", "0.11 0.08 0.05 0.29 4.66"),
    (NPC2, BINARY): _row("0.62 10.55 -20.48 -27.64 128.45", "0.01 0.39 0.11 0.44 0.52"),
}
