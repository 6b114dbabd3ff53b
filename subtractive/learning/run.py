"""A training run: everything that changes while a model learns, from epoch to epoch."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from tqdm import tqdm

from subtractive.densities.base import Density
from subtractive.learning.batches import Batches
from subtractive.learning.checkpoint import Checkpoint, copied
from subtractive.learning.distributed import Group
from subtractive.learning.history import Epoch, History
from subtractive.learning.objective import row_scores
from subtractive.learning.settings import Settings
from subtractive.learning.step import try_step

_TOLERATED_FAILURES = 10
_MAX_RESTARTS = 6
_RESTART_RATE = 0.2
_EVALUATED_TOGETHER = 2**16


class TrainingWarning(UserWarning):
    """Training went on, but not as planned.

    >>> import warnings
    >>> warnings.simplefilter("error", sub.TrainingWarning)  # stop instead of going on
    """


@final
class Run:
    """The state of a training run: it can be saved at any step and go on elsewhere."""

    def __init__(
        self,
        density: Density,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        *,
        generator: torch.Generator,
        group: Group,
        identity: Mapping[str, Any],
    ) -> None:
        self.density, self.optimizer, self.scheduler = density, optimizer, scheduler
        self.generator, self.group, self.identity = generator, group, dict(identity)
        group.copy_from_first(list(density.parameters()))
        self.history = History()
        self.best = copied(density.state_dict())
        self.order = generator.get_state()  # of the epoch that is under way
        self.position = 0  # how many batches of it are done
        self.seen = (0.0, 0.0)  # its Σ w log p, and its Σ w
        self.skipped = 0
        self.failures = 0  # in a row
        self.seconds = 0.0  # of earlier processes
        self._start = time.monotonic()

    def train(
        self,
        rows: Batches,
        held: Batches | None,
        settings: Settings,
        *,
        checkpoint: Checkpoint | None,
        progress: bool,
    ) -> History:
        """Go on until there is a reason to stop, and leave the best weights in the density."""
        with (
            self._ending_with_the_best_weights(checkpoint),
            self._bar(settings, progress=progress) as bar,
        ):
            if held is not None and not self.history.epochs and self.position == 0:
                self._keep_if_best(self._score(held), 0)
            while not self._reason_to_stop(settings):
                self._epoch(rows, settings, checkpoint, bar)
                self._end_epoch(held, settings)
                self._show(bar)
                bar.update()
        return self.history

    def state_dict(self) -> dict[str, Any]:
        """All that a checkpoint has to hold."""
        return {
            "identity": self.identity,
            "density": self.density.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "history": self.history.to_dict(),
            "best": self.best,
            "order": self.order,
            "progress": [self.position, self.seen, self.skipped, self.failures, self._elapsed()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a run that was saved, after making sure that it is the same one."""
        for name, value in self.identity.items():
            if state["identity"].get(name) != value:
                raise ValueError(
                    f"the checkpoint belongs to another run: its {name} was "
                    f"{str(state['identity'].get(name))[:16]}, now it is {str(value)[:16]}. "
                    "Resume with the same data and settings, or start anew without resume."
                )
        own = {name: tensor.shape for name, tensor in self.density.state_dict().items()}
        if own != {name: tensor.shape for name, tensor in state["density"].items()}:
            raise ValueError(
                "the checkpoint belongs to another model: its tensors have other names or shapes. "
                "Build the density as it was, or start anew without resume."
            )
        self.density.load_state_dict(state["density"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.history = replace(History.from_dict(state["history"]), stopped="")
        self.best, self.order = dict(state["best"]), state["order"]
        self.generator.set_state(self.order)
        self.position, self.seen, self.skipped, self.failures, self.seconds = state["progress"]

    def _epoch(
        self, rows: Batches, settings: Settings, checkpoint: Checkpoint | None, bar: tqdm[Any]
    ) -> None:
        """One pass over the rows, or what an interruption has left of it."""
        shown = time.monotonic()
        for number, batch in enumerate(rows.shuffled(settings.batch_size, self.generator)):
            if number < self.position:
                continue
            score = try_step(
                self.density,
                batch,
                self.optimizer,
                group=self.group,
                clip_norm=settings.clip_norm,
            )
            self.position = number + 1
            self._count(score, batch.total)
            if checkpoint is not None and checkpoint.is_due:
                checkpoint.save(self.state_dict())
            if time.monotonic() - shown > 1:
                shown = time.monotonic()
                self._show(bar)
            if self._is_time_up(settings) or self.history.stopped:
                break

    def _count(self, score: float | None, weight: float) -> None:
        """Keep account of a step; too many failures in a row send the run back."""
        if score is not None:
            self.failures = 0
            self.seen = (self.seen[0] + weight * score, self.seen[1] + weight)
            return
        self.skipped += 1
        self.failures += 1
        if self.failures >= _TOLERATED_FAILURES:
            self._restart()

    def _restart(self) -> None:
        """Go back to the best weights, with an optimiser that has forgotten, and smaller steps."""
        self.failures = 0
        if self.history.restarts == _MAX_RESTARTS:
            self.history.stopped = "too many failures"
            warnings.warn(
                f"training was given up: after {_MAX_RESTARTS} restarts with smaller and smaller "
                "learning rates, steps still are not finite. The best weights are kept; look for "
                "rows that the model finds impossible, or start from other weights.",
                TrainingWarning,
                stacklevel=6,
            )
            return
        self.history.restarts += 1
        self.density.load_state_dict(self.best)
        self.optimizer.state.clear()
        for group in self.optimizer.param_groups:
            for name in ("lr", "initial_lr"):
                if name in group:
                    group[name] *= _RESTART_RATE
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.base_lrs = [rate * _RESTART_RATE for rate in self.scheduler.base_lrs]
        warnings.warn(
            f"{_TOLERATED_FAILURES} steps in a row were not finite: training goes on from the "
            f"best weights so far with a learning rate of {self._rate():.3g}.",
            TrainingWarning,
            stacklevel=6,
        )

    def _end_epoch(self, held: Batches | None, settings: Settings) -> None:
        train = self.seen[0] / self.seen[1] if self.seen[1] else -math.inf
        number, rate = len(self.history.epochs) + 1, self._rate()
        score = train if held is None else self._score(held)
        self._keep_if_best(score, number)
        self.history.epochs.append(
            Epoch(number, train, score, rate, self.skipped, self._elapsed())
        )
        self._change_rate(score)
        self.position, self.seen, self.skipped = 0, (0.0, 0.0), 0
        self.order = self.generator.get_state()
        if any([callback(self.density, self.history) is True for callback in settings.callbacks]):
            self.history.stopped = "callback"

    def _change_rate(self, score: float) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(score if self.scheduler.mode == "max" else -score)
            return
        with warnings.catch_warnings():
            # In a resumed run, the first epoch may end without a step of this very optimiser.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            self.scheduler.step()

    def _score(self, held: Batches) -> float:
        """The mean log-likelihood of the weights as they are; -inf if there is none."""
        return row_scores(self.density, held.in_order(_EVALUATED_TOGETHER)).mean(self.group)

    def _keep_if_best(self, score: float, epoch: int) -> None:
        if self.history.offer(score, epoch):
            self.best = copied(self.density.state_dict())

    def _reason_to_stop(self, settings: Settings) -> bool:
        if self.history.stopped or self.position > 0:
            return bool(self.history.stopped)
        return settings.end(self.history, is_time_up=self._is_time_up(settings))

    def _is_time_up(self, settings: Settings) -> bool:
        """Whether the first process, whose clock counts for all, has used up its time."""
        if settings.max_seconds == math.inf:
            return False
        is_up = self.group.rank == 0 and self._elapsed() >= settings.max_seconds
        votes = torch.tensor([float(is_up)], device=self.density.device)
        self.group.add([votes])
        return bool(votes > 0)

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._start

    def _rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @contextmanager
    def _ending_with_the_best_weights(self, checkpoint: Checkpoint | None) -> Iterator[None]:
        try:
            yield
            if checkpoint is not None:
                checkpoint.save(self.state_dict())
        except KeyboardInterrupt:
            self.history.stopped = "interrupted"
        except Exception as error:
            error.add_note("Training ended here; the density has the best weights so far.")
            raise
        finally:
            self.density.load_state_dict(self.best)
            self.optimizer.zero_grad()

    def _bar(self, settings: Settings, *, progress: bool) -> tqdm[Any]:
        return tqdm(
            total=settings.max_epochs,
            initial=len(self.history.epochs),
            unit="epoch",
            # None: only on a terminal. In a file, or in a pipe, a bar would be one long line.
            disable=None if progress and self.group.rank == 0 else True,
        )

    def _show(self, bar: tqdm[Any]) -> None:
        """The latest numbers, beside the bar."""
        last = self.history.epochs[-1] if self.history.epochs else None
        train = self.seen[0] / self.seen[1] if self.seen[1] else (last.train if last else math.nan)
        numbers = {"train": f"{train:.3f}"}
        if last is not None:
            numbers |= {"valid": f"{last.valid:.3f}", "best": f"{self.history.best_score:.3f}"}
        if self.position:
            numbers["step"] = str(self.position)
        bar.set_postfix(numbers)
