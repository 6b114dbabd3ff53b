"""How long a training run goes on, how it steps, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from subtractive.densities.base import Density
from subtractive.learning.history import History

Callback = Callable[[Density, History], object]


@dataclass(frozen=True)
class Settings:
    """What does not change in a run."""

    batch_size: int
    max_epochs: int
    max_seconds: float
    patience: int
    clip_norm: float | None
    callbacks: tuple[Callback, ...]

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
        for name in ("max_seconds", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}.")

    def end(self, history: History, *, is_time_up: bool) -> bool:
        """Whether there is a reason to stop, which the history then names."""
        done = len(history.epochs)
        if not history.stopped:
            if is_time_up:
                history.stopped = "max_seconds"
            elif done >= self.max_epochs:
                history.stopped = "max_epochs"
            elif done - history.best_epoch >= self.patience:
                history.stopped = "patience"
        return bool(history.stopped)
