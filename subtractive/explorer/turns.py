"""Who computes first: a picture that somebody waits for, and slower answers in its pauses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode

LONGEST_PAUSE = 2.0  # seconds; a slower answer is late, but it comes


class Stale(Exception):  # noqa: N818 - nothing went wrong
    """Nobody waits for this answer any more."""


class Turns:
    """Urgent computations have the processor to themselves; others wait between their steps.

    Threads of one process share its processor, however many wait for a picture.
    """

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0
        self._is_free = threading.Event()
        self._is_free.set()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Within it, computations that are :meth:`patient` pause."""
        with self._lock:
            self._count += 1
            self._is_free.clear()
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if self._count == 0:
                    self._is_free.set()

    def patient(self, stale: threading.Event) -> TorchFunctionMode:
        """A context whose every call of torch waits its turn, or raises :class:`Stale`."""
        return _Patient(self._is_free, stale)


class _Patient(TorchFunctionMode):
    """Nearly all the time of an answer passes in calls of torch, each of them a short one."""

    def __init__(self, is_free: threading.Event, stale: threading.Event) -> None:
        super().__init__()
        self.is_free, self.stale = is_free, stale

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever torch gives
        """Call torch when nothing urgent is computed, and not at all for nobody."""
        if not self.is_free.is_set():
            self.is_free.wait(LONGEST_PAUSE)
        if self.stale.is_set():
            raise Stale
        return func(*args, **(kwargs or {}))
