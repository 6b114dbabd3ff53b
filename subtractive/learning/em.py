"""Expectation maximisation of monotonic circuits and their mixtures, over any region tree."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from tqdm import tqdm

from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.learning.batches import Batch, Batches, Stream, Table, as_batches
from subtractive.learning.checkpoint import copied
from subtractive.learning.distributed import Group
from subtractive.learning.expected_flows import Flows, ForwardPass, own_flows, update
from subtractive.learning.history import Epoch, History
from subtractive.learning.objective import RowScores, row_scores
from subtractive.learning.settings import Callback, Settings
from subtractive.learning.sufficient_statistics import is_known
from subtractive.numerics.denormals import flushed_denormals
from subtractive.numerics.messages import log_sum_exp

_EVALUATED_TOGETHER = 2**14


def fit_em(
    density: Density,
    train: Table | Stream,
    valid: Table | Stream | None = None,
    *,
    weights: object | None = None,
    valid_weights: object | None = None,
    batch_size: int = 1024,
    batches_per_step: float = 1,
    step_size: float | Callable[[int], float] = 0.3,
    pseudocount: float = 0.0,
    max_epochs: int = 100,
    max_seconds: float = math.inf,
    patience: int = 3,
    after_step: Callable[[Density], object] | None = None,
    callbacks: Sequence[Callback] = (),
    seed: int = 0,
    progress: bool = True,
) -> History:
    r"""Train a monotonic circuit, or a mixture of them, by expectation maximisation.

    Statistics s, expected flows and moments, move towards those of every batch, and parameters
    are the most likely ones for them:

    .. math:: s ← (1 - η_t) s + η_t s_{batch}, \qquad θ = \arg\max_θ \log p(s | θ)

    A step sees ``batches_per_step`` batches; with ``math.inf`` it sees all rows, η is one, and
    this is classical EM, whose likelihood never falls. Otherwise η is ``step_size``, halved after
    ``patience / 2`` epochs without a better score, or ``step_size(t)`` of a function such as
    :func:`decaying_steps`.
    ``pseudocount`` rows are added to every sum and unit. Inputs may be Gaussian, Categorical,
    Binomial or Gaussian with atoms, in any mix; NaN is integrated out exactly, and a row
    of weight two counts as two rows. The best parameters on ``valid`` (without it, on ``train``)
    are restored, and no single row decides which are better. ``after_step`` may change
    parameters after each step, for instance to limit them.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4,
    ...     weights=sub.positive_weights, seed=0)
    >>> density = sub.MonotonicCircuit(circuit)
    >>> history = sub.learning.fit_em(density, torch.randn(100, 2), max_epochs=3, progress=False)
    >>> history.train[-1] > history.train[0]
    True
    """
    sizes = _step_sizes(step_size, batches_per_step, patience)
    if isinstance(sizes, HalvedSteps):
        callbacks = [sizes.end_epoch, *callbacks]
    settings = Settings(batch_size, max_epochs, max_seconds, patience, None, tuple(callbacks))
    if not pseudocount >= 0:
        raise ValueError(f"pseudocount must not be negative, got {pseudocount!r}.")
    group = Group(0, 1)
    rows = as_batches(train, weights, density, group)
    if not rows.can_be_read_again and max_epochs > 1:
        raise ValueError(
            "train is an iterator, which can be read once. Pass a table, a list, or a function "
            "that makes iterators, or max_epochs=1."
        )
    held = rows if valid is None else as_batches(valid, valid_weights, density, group)
    steps = Steps(sizes, batches_per_step, pseudocount, after_step)
    run = Run(density, torch.Generator().manual_seed(seed), steps)
    return run.train(rows, held, settings, progress=progress)


def _step_sizes(
    step_size: float | Callable[[int], float], batches_per_step: float, patience: int
) -> Callable[[int], float]:
    if not batches_per_step >= 1:
        raise ValueError(f"a step needs at least one batch, got {batches_per_step!r} per step.")
    if callable(step_size):
        return step_size
    if not 0 < step_size <= 1:
        raise ValueError(f"step_size must be above 0 and at most 1, got {step_size!r}.")
    if batches_per_step == math.inf:
        return lambda step: 1.0
    return HalvedSteps(step_size, max(1, patience // 2))


@final
class HalvedSteps:
    """A step size that is halved after some epochs without a better score."""

    def __init__(self, size: float, patience: int) -> None:
        self.size, self.patience = size, patience
        self._changed = 0

    def __call__(self, step: int) -> float:
        return self.size

    def end_epoch(self, _: Density, history: History) -> None:
        """Look at the scores of an epoch that has ended."""
        epoch = len(history.epochs)
        if epoch - max(history.best_epoch, self._changed) >= self.patience:
            self.size, self._changed = self.size / 2, epoch


def decaying_steps(start: float = 1.0, power: float = 0.55) -> Callable[[int], float]:
    """``η_t = start (1 + t)^-power``: large steps at first, and a limit for power above a half.

    >>> [round(sub.learning.decaying_steps()(step), 2) for step in range(3)]
    [1.0, 0.68, 0.55]
    """
    return lambda step: start * (1 + step) ** -power


class Steps(NamedTuple):
    """How statistics and parameters change from step to step."""

    sizes: Callable[[int], float]
    batches_per_step: float
    pseudocount: float
    after: Callable[[Density], object] | None


class Expected(NamedTuple):
    """What some rows say about the members of a mixture, per row."""

    flows: list[Flows]
    shares: Tensor  # (m,)
    log_likelihood: float  # the mean
    weight: float

    def joined(self, other: Expected) -> Expected:
        """What both say together; this one is changed."""
        share = other.weight / (self.weight + other.weight)
        for own, new in zip(self.flows, other.flows, strict=True):
            own.move(new, share)
        return Expected(
            self.flows,
            self.shares.lerp(other.shares, share),
            self.log_likelihood + share * (other.log_likelihood - self.log_likelihood),
            self.weight + other.weight,
        )


@final
class Parts:
    """The circuits of a density, and the weights with which they are mixed."""

    def __init__(self, density: Density) -> None:
        if isinstance(density, MonotonicCircuit):
            self.members, self.logits = [density], None
        elif isinstance(density, Mixture) and all(
            isinstance(member, MonotonicCircuit) for member in density.members
        ):
            self.members = [m for m in density.members if isinstance(m, MonotonicCircuit)]
            self.logits = density.logits
        else:
            raise ValueError(
                "EM takes a MonotonicCircuit or a Mixture of them, got "
                f"{type(density).__name__}. Train it by gradients, with fit()."
            )
        for family in {family for member in self.members for family in member.families}:
            if not is_known(family):
                raise ValueError(
                    f"EM does not know the input family {family}. Use Gaussian(), Categorical(v), "
                    "Binomial(n), or WithAtoms(Gaussian(), ..., non_negative=True), or train by "
                    "gradients, with fit()."
                )

    @property
    def shares(self) -> Tensor:
        """The weights of the members, (m,)."""
        if self.logits is None:
            return torch.ones(1, dtype=torch.float64)
        return self.logits.detach().double().softmax(0)

    def own(self) -> tuple[list[Flows], Tensor]:
        """What the density expects of its own rows, after its sums were normalised: Z is one."""
        flows = [own_flows(member.circuit) for member in self.members]
        for member, own in zip(self.members, flows, strict=True):
            update(member.circuit, own, 0.0)
        for own, share in zip(flows, self.shares.tolist(), strict=True):
            own.multiply_by(share)
        return flows, self.shares.clone()

    def expected(self, batch: Batch) -> Expected:
        """Flows and shares of the members per row, and the mean log-likelihood of a batch."""
        passes = [ForwardPass(member.circuit, batch.evidence) for member in self.members]
        joint = torch.stack([one.log_values for one in passes], -1) + self.shares.log()
        log_prob = log_sum_exp(joint)  # (n,)
        weights = batch.weights / batch.total
        watched = [tensor for one in passes for tensor in one.watched]
        gradients = list(torch.autograd.grad((weights * log_prob).sum(), watched))
        flows = []
        for one in passes:
            count = len(one.watched)
            flows.append(one.flows(gradients[:count]))
            gradients = gradients[count:]
        responsibilities = (joint - log_prob[:, None]).detach().exp()
        score = float((weights * log_prob.detach()).sum())
        return Expected(flows, weights @ responsibilities, score, batch.total)


@final
class Run:
    """EM from epoch to epoch: the statistics, and the best parameters so far."""

    def __init__(self, density: Density, generator: torch.Generator, steps: Steps) -> None:
        self.density, self.parts = density, Parts(density)
        self.generator, self.steps = generator, steps
        self.flows, self.shares = self.parts.own()
        self.history, self.best = History(), copied(density.state_dict())
        self.best_scores: RowScores | None = None
        self.num_steps, self.num_rows = 0, 0.0
        self._start = time.monotonic()

    def train(
        self,
        rows: Batches,
        held: Batches,
        settings: Settings,
        *,
        progress: bool,
    ) -> History:
        """Go on until there is a reason to stop, and leave the best parameters in the density."""
        bar: tqdm[Any] = tqdm(
            total=settings.max_epochs, unit="epoch", disable=None if progress else True
        )
        self.num_rows = sum(batch.total for batch in rows.in_order(_EVALUATED_TOGETHER))
        try:
            self._keep_if_best(self._row_scores(held), 0)
            while not settings.end(self.history, is_time_up=self._is_time_up(settings)):
                seen = self._epoch(rows, settings)
                self._end_epoch(seen, held, settings)
                bar.update()
        except KeyboardInterrupt:
            self.history.stopped = "interrupted"
        finally:
            bar.close()
            self.density.load_state_dict(self.best)
        return self.history

    def _epoch(self, rows: Batches, settings: Settings) -> float:
        """One pass over the rows; the mean log-likelihood seen on the way."""
        total, weight, waiting, count = 0.0, 0.0, None, 0
        for batch in rows.shuffled(settings.batch_size, self.generator):
            with flushed_denormals():
                found = self.parts.expected(batch)
            if math.isfinite(found.log_likelihood):
                total, weight = total + batch.total * found.log_likelihood, weight + batch.total
                waiting = found if waiting is None else waiting.joined(found)
                count += 1
            if waiting is not None and count >= self.steps.batches_per_step:
                self.step(waiting)
                waiting, count = None, 0
            if self._elapsed() >= settings.max_seconds:
                break
        if waiting is not None:
            self.step(waiting)
        return total / weight if weight else -math.inf

    def step(self, found: Expected) -> None:
        """Move to the statistics of some rows, and to the parameters that they ask for."""
        size = self.steps.sizes(self.num_steps)
        self.num_steps += 1
        self.shares.lerp_(found.shares, size)
        for own, new, member in zip(self.flows, found.flows, self.parts.members, strict=True):
            own.move(new, size)
            update(member.circuit, own, self.steps.pseudocount / self.num_rows)
        if self.parts.logits is not None:
            with torch.no_grad():
                self.parts.logits.copy_(self.shares.log())
        if self.steps.after is not None:
            self.steps.after(self.density)

    def _end_epoch(self, seen: float, held: Batches, settings: Settings) -> None:
        number = len(self.history.epochs) + 1
        score = self._keep_if_best(self._row_scores(held), number)
        size = self.steps.sizes(self.num_steps)
        self.history.epochs.append(Epoch(number, seen, score, size, 0, self._elapsed()))
        if any([callback(self.density, self.history) is True for callback in settings.callbacks]):
            self.history.stopped = "callback"

    def _row_scores(self, held: Batches) -> RowScores:
        with flushed_denormals():
            return row_scores(self.density, held.in_order(_EVALUATED_TOGETHER))

    def _keep_if_best(self, found: RowScores, epoch: int) -> float:
        """Keep the parameters if the held-out rows prefer them; the mean score of these rows."""
        score, best = found.mean(Group(0, 1)), self.best_scores
        # A stream may have other rows the next time.
        is_paired = best is not None and len(best.scores) == len(found.scores)
        gain = found.gain(best) if best is not None and is_paired else None
        if self.history.offer(score, epoch, gain=gain):
            self.best, self.best_scores = copied(self.density.state_dict()), found
        return score

    def _is_time_up(self, settings: Settings) -> bool:
        return self._elapsed() >= settings.max_seconds

    def _elapsed(self) -> float:
        return time.monotonic() - self._start
