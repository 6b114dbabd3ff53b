"""How a model learned."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from subtractive.learning.history import History
from subtractive.plots.style import MODEL, OTHER, axes_for, legend


def training(history: History, *, ax: Axes | None = None) -> Axes:
    """Draw the mean log-likelihood of training and of validation rows per epoch.

    The first epochs may be cut off, where they are far below all others.

    >>> from subtractive.learning.history import Epoch
    >>> epochs = [Epoch(n, -2 / n, -2.1 / n, 0.01, 0, 1.0) for n in (1, 2, 3)]
    >>> ax = sub.plots.training(sub.History(epochs, best_epoch=3))
    >>> [line.get_label() for line in ax.lines]
    ['training', 'validation', 'best epoch']
    """
    if not history.epochs:
        raise ValueError("this history has no epochs: there is nothing to draw.")
    ax = axes_for(ax, (4.8, 2.6))
    epochs = [row.epoch for row in history.epochs]
    mark = "o" if len(epochs) < 3 else ""
    ax.plot(epochs, history.train, color=OTHER, lw=1.4, marker=mark, ms=4, label="training")
    ax.plot(epochs, history.valid, color=MODEL, lw=1.4, marker=mark, ms=4, label="validation")
    for row in history.epochs:
        if row.epoch == history.best_epoch:
            ax.plot(row.epoch, row.valid, "o", color=MODEL, ms=7, mfc="white", label="best epoch")
    ax.set_ylim(*_without_the_start([*history.train, *history.valid]))
    ax.set_xlabel("epoch", fontsize=9)
    ax.set_ylabel("mean log-likelihood", fontsize=9)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax, loc="best")
    return ax


def _without_the_start(scores: list[float]) -> tuple[float, float]:
    """Limits that show the end of training: its first steps may be far below."""
    finite = np.array([score for score in scores if np.isfinite(score)] or [0.0, 1.0])
    top, middle = float(finite.max()), float(np.median(finite))
    bottom = max(float(finite.min()), top - 8 * (top - middle)) if top > middle else finite.min()
    space = 0.06 * (top - float(bottom)) or 0.5
    return float(bottom) - space, top + space
