"""Time and memory of a function, measured alike for us and for others; needs only torch."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

Function = Callable[[], object]


def cpu_seconds(functions: Mapping[str, Function], budget: float) -> dict[str, float]:
    """CPU times of one thread, which survive a busy machine: the best of a few rounds over all.

    ``budget`` is in seconds for each function.
    """
    torch.set_num_threads(1)
    return _best(functions, budget, time.process_time)


def wall_seconds(functions: Mapping[str, Function], budget: float) -> dict[str, float]:
    """Wall-clock times on all cores: the best of a few rounds over all functions."""
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        return _best(functions, budget, time.perf_counter)
    finally:
        torch.set_num_threads(1)


def peak_megabytes(function: Function) -> float:
    """The most that tensors hold at one time of a call beyond what they held before it."""
    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    results = profiler.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return float(max(accumulate((event.nbytes() for event in events), initial=0))) / 2**20


def _best(
    functions: Mapping[str, Function], budget: float, clock: Callable[[], float]
) -> dict[str, float]:
    best = dict.fromkeys(functions, math.inf)
    end = time.perf_counter() + budget * len(functions)
    rounds = 0
    while rounds < 2 or time.perf_counter() < end:
        for name, function in functions.items():
            start = clock()
            function()
            best[name] = min(best[name], clock() - start)
        rounds += 1
    return best
