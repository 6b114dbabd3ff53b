"""Continuous sets of the benchmarks, in units of their training rows, and Gaussian mixtures."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.mixture import GaussianMixture

from studies.data.real import load_real
from studies.data.splits import Array, Splits, as_splits, standardised

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES = (4, 16, 64)
# Sets that come in the scale of rows which are not here.
SCALED_ELSEWHERE = {"power": "power-subset", "miniboone": "miniboone-valid"}
# Patches of natural images are many and wide.
IMAGES = "bsds300"


@dataclass(frozen=True)
class Result:
    valid: float
    test: float
    seconds: float
    note: str


def load(name: str, folder: Path, num_patches: int) -> Splits:
    """The parts of a set; of image patches so many to learn from."""
    synthetic = folder / "synthetic2d" / f"{name}_continuous.npz"
    if synthetic.exists():
        with np.load(synthetic) as file:
            return scaled((file["train"], file["valid"], file["test"]), name)
    if name == IMAGES:
        return patches(folder / "bsds300" / "bsds300_quarter_u8.npz", num_patches)
    if name in SCALED_ELSEWHERE:
        found = load_real(SCALED_ELSEWHERE[name], str(folder))
        first, second, third = (part.numpy() for part in found.rows)
        return scaled((first, second, third), found.note)
    return load_real(name, str(folder))


def scaled(parts: tuple[Array, Array, Array], note: str) -> Splits:
    """Rows in units of the training rows."""
    return as_splits(standardised(parts, by=parts[0]), note)


def patches(path: Path, num_train: int) -> Splits:
    """Image patches with noise of one grey level, less their mean and their last pixel.

    Not standardised: all pixels have the same unit, and published numbers are in it.
    """
    noise = np.random.default_rng(0)
    parts = []
    with np.load(path) as file:
        # Validation is a tenth of what there is for learning, as in the other sets.
        for name, most in (("train", num_train), ("valid", num_train // 9), ("test", 50_000)):
            pixels = file[name][:most]
            grey = (pixels + noise.random(pixels.shape)) / 256
            parts.append((grey - grey.mean(1, keepdims=True))[:, :-1])
    return as_splits((parts[0], parts[1], parts[2]), IMAGES)


def gmm(rows: Splits, covariance: str) -> Result:
    """scikit-learn's mixture of the size that is best on validation, and the time of all sizes."""
    train, *others = (part.double().numpy() for part in rows.rows)
    begin = time.process_time()
    fitted = [
        GaussianMixture(size, covariance_type=covariance, random_state=0).fit(train)
        for size in SIZES
    ]
    best = max(fitted, key=lambda mixture: mixture.score(others[0]))
    seconds = time.process_time() - begin
    valid, test = (float(best.score(part)) for part in others)
    result = Result(valid, test, seconds, f"{best.n_components} comp.")
    said = f"{test:.3f} on test, {seconds:.0f} s, {result.note}"
    print(f"{covariance} mixture: {said}", file=sys.stderr, flush=True)
    return result
