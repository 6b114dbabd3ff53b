"""Patches of natural images, drawn anew from the images of BSDS300 (paper: App. H.3).

The set that most papers use is a fixed draw of 8 x 8 patches from these images. Whoever has the
images can draw as many: the distribution is the same, the patches are others. Which 20 of the 200
training images are for validation is not published, and left to a seed here.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from studies.data.splits import Array, Splits, as_splits, existing

SIDE = 8
# Images kept for validation, and patches for training, validation and test.
NUM_VALID_IMAGES = 20
NUM_PATCHES = (1_000_000, 50_000, 250_000)
# Patches and noise are the same in every program.
SEED = 0


def read_redrawn(folder: Path, num_patches: Sequence[int] = NUM_PATCHES) -> Splits:
    """As many patches as the official set has, from the 300 images in a tar file."""
    path = existing(folder, ("bsds300/images.tar", "images.tar"), "BSDS300 images")
    learned, unseen = read_images(path, "train"), read_images(path, "test")
    random = np.random.default_rng(SEED)
    order = random.permutation(len(learned))
    kept = [learned[k] for k in order[:NUM_VALID_IMAGES]]
    rest = [learned[k] for k in order[NUM_VALID_IMAGES:]]
    train, valid, test = (
        dequantised(draw_patches(images, count, random), SEED + number)
        for number, (images, count) in enumerate(
            zip((rest, kept, unseen), num_patches, strict=True)
        )
    )
    return as_splits((train, valid, test), "BSDS300 images, as many patches, drawn anew")


def read_images(path: Path, part: str) -> list[np.ndarray]:
    """The images of one part, ``train`` or ``test``, as grey levels, by name."""
    with tarfile.open(path) as archive:
        names = sorted(
            name
            for name in archive.getnames()
            if Path(name).parent.name == part and name.lower().endswith((".jpg", ".png"))
        )
        if len(names) <= (NUM_VALID_IMAGES if part == "train" else 0):
            raise ValueError(
                f"{path} must hold images in folders train and test, more than "
                f"{NUM_VALID_IMAGES} of them in train: it has {len(names)} in {part}."
            )
        images = []
        for name in names:
            file = archive.extractfile(name)
            assert file is not None
            images.append(np.asarray(Image.open(file).convert("L")))
    return images


def draw_patches(
    images: Sequence[np.ndarray], count: int, random: np.random.Generator
) -> np.ndarray:
    """Patches of bytes, (count, 64), from images and places at random."""
    patches = np.empty((count, SIDE * SIDE), np.uint8)
    owner = random.integers(len(images), size=count)
    for number, image in enumerate(images):
        rows = np.flatnonzero(owner == number)
        windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))
        place = [random.integers(size, size=len(rows)) for size in windows.shape[:2]]
        patches[rows] = windows[place[0], place[1]].reshape(len(rows), -1)
    return patches


def dequantised(grey: np.ndarray, seed: int) -> Array:
    """Patches of bytes (n, 64) as rows (n, 63) of single precision.

    Noise of one grey level makes them continuous; then each loses its mean, and the last pixel,
    which follows from the others.
    """
    noise = np.random.default_rng(seed).random(grey.shape, dtype=np.float32)
    patches: Array = (grey.astype(np.float32) + noise) / np.float32(256)
    patches -= patches.mean(1, keepdims=True)
    return patches[:, :-1]
