"""All checks, entered by the files that they are in."""

from scorecard import (
    drift,
    estimators,
    files,
    interruption,
    load,
    normalisation,
    numerics,
    sampling,
    training,
)
from scorecard.check import CHECKS

__all__ = [
    "CHECKS",
    "drift",
    "estimators",
    "files",
    "interruption",
    "load",
    "normalisation",
    "numerics",
    "sampling",
    "training",
]
