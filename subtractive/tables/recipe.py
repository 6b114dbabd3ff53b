"""What a user asks of a fit, in the words of the estimator's parameters, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from subtractive.numerics.validation import whole_number
from subtractive.tables.effort import seconds_of

KINDS = ("squared", "monotonic", "squared-monotonic")
STRUCTURES = ("auto", "binary", "linear", "flat", "chow-liu")
COVARIANCES = ("full", "diagonal")


@final
@dataclass(frozen=True)
class Recipe:
    """How to build and train a density; all of it has been checked."""

    kind: str
    structure: str
    num_components: int | None
    num_squares: int | None
    num_structures: int
    covariance: str
    effort: str | float
    max_epochs: int
    validation_fraction: float
    progress: bool

    def __post_init__(self) -> None:
        for name, choices in (
            ("kind", KINDS),
            ("structure", STRUCTURES),
            ("covariance", COVARIANCES),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(map(repr, choices))}, got "
                    f"{getattr(self, name)!r}."
                )
        seconds_of(self.effort)
        if self.num_components is not None:
            whole_number("n_components", self.num_components, 1)
        whole_number("n_structures", self.num_structures, 1)
        whole_number("max_epochs", self.max_epochs, 1)
        squares = 1 if self.num_squares is None else whole_number("n_squares", self.num_squares, 1)
        if squares > 1 and self.kind == "monotonic":
            raise ValueError("a monotonic model has no squares to sum: leave n_squares out.")
        if self.num_structures > 1 and self.structure in ("flat", "chow-liu"):
            raise ValueError(
                f"there is only one {self.structure!r} structure: n_structures > 1 needs 'binary' "
                "or 'linear' ones, which are drawn at random."
            )
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and below 1, got "
                f"{self.validation_fraction!r}."
            )

    @classmethod
    def of(cls, estimator: Any) -> Recipe:  # noqa: ANN401 - a SubtractiveMixture
        """The settings of an estimator, checked."""
        return cls(
            estimator.kind,
            estimator.structure,
            estimator.n_components,
            estimator.n_squares,
            estimator.n_structures,
            estimator.covariance,
            estimator.effort,
            estimator.max_epochs,
            estimator.validation_fraction,
            bool(estimator.verbose),
        )

    @property
    def is_open(self) -> bool:
        """Whether structure and size are left open."""
        is_unsized = self.num_components is None and self.num_squares is None
        return is_unsized and self.structure == "auto" and self.num_structures == 1
