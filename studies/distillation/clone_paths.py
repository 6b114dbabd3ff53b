"""Forward and backward passes of homogeneous chains along single texts, compiled by numba.

A text touches one small block of the transitions at each position. What surrounds such a
product costs more than the product itself unless it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """A function in machine code, whose sums may be reordered; dividing by zero is infinite.

    Without numba it stays as it is: it gives the same, some hundred times slower.
    """
    try:
        numba = import_module("numba")
    except ImportError:
        return function
    fast = {"reassoc", "contract", "arcp", "nsz"}
    made = numba.njit(cache=True, error_model="numpy", fastmath=fast)(function)
    return cast(Function, made)


@compiled
def forward(
    text: Tokens, offsets: Tokens, initial: Numbers, transition: Numbers, messages: Numbers
) -> float:
    """What precedes each position, into ``messages`` (d, i) of absolute sum one; log |c(x)|."""
    total = 0.0
    before, clones = 0, 0
    for position in range(len(text)):
        here = offsets[text[position]]
        count = offsets[text[position] + 1] - here
        message = messages[position]
        if position == 0:
            message[:count] = initial[here : here + count]
        else:
            message[:count] = 0
            for i in range(clones):
                value = messages[position - 1, i]
                row = transition[before + i, here : here + count]
                for j in range(count):
                    message[j] += value * row[j]
        scale = np.float32(0)
        for j in range(count):
            scale += abs(message[j])
        total += np.log(scale)
        for j in range(count):
            message[j] /= scale
        before, clones = here, count
    rest = np.float32(0)
    for j in range(clones):
        rest += messages[-1, j]
    return float(total + np.log(abs(rest)))


@compiled
def backward(
    text: Tokens, offsets: Tokens, transition: Numbers, messages: Numbers, ratios: Numbers
) -> Numbers:
    """Add α β / c of every transition to ``ratios`` (k, k); β at the first position.

    β is scaled so that α β sums to one at every position.
    """
    after: Numbers = np.ones_like(messages[0])
    back = np.empty_like(after)
    for position in range(len(text) - 1, 0, -1):
        here, there = offsets[text[position - 1]], offsets[text[position]]
        clones = offsets[text[position - 1] + 1] - here
        count = offsets[text[position] + 1] - there
        scale = np.float32(0)
        for i in range(clones):
            row = transition[here + i, there : there + count]
            rest = np.float32(0)
            for j in range(count):
                rest += row[j] * after[j]
            back[i] = rest
            scale += rest * messages[position - 1, i]
        for i in range(clones):
            value = messages[position - 1, i] / scale
            ratio = ratios[here + i, there : there + count]
            for j in range(count):
                ratio[j] += value * after[j]
        after[:clones] = back[:clones] / scale
    return after


@compiled
def log_values_along(
    rows: Tokens, offsets: Tokens, initial: Numbers, transition: Numbers
) -> Scores:
    """log |c(x)|, (n,), of texts (n, d)."""
    widest = np.diff(offsets).max()
    messages = np.zeros((rows.shape[1], widest), np.float32)
    found = np.empty(len(rows))
    for number in range(len(rows)):
        found[number] = forward(rows[number], offsets, initial, transition, messages)
    return found


@compiled
def add_gradients(
    rows: Tokens,
    offsets: Tokens,
    initial: Numbers,
    transition: Numbers,
    gradients: tuple[Numbers, Numbers],
) -> float:
    """Σ log |c(x)| over texts (n, d); its gradients are added to those in π (k,) and A (k, k)."""
    first, ratios = gradients
    widest = np.diff(offsets).max()
    messages = np.zeros((rows.shape[1], widest), np.float32)
    total = 0.0
    for number in range(len(rows)):
        text = rows[number]
        total += forward(text, offsets, initial, transition, messages)
        after = backward(text, offsets, transition, messages, ratios)
        here = offsets[text[0]]
        count = offsets[text[0] + 1] - here
        scale = np.float32(0)
        for i in range(count):
            scale += initial[here + i] * after[i]
        for i in range(count):
            first[here + i] += after[i] / scale
    return total
