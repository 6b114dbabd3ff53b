"""Time and memory of a function, measured alike for us and for others; needs only torch."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

Function = Callable[[], object]


def cpu_seconds(function: Function, budget: float) -> float:
    """CPU time of one thread, which survives a busy machine: the best of a few calls."""
    torch.set_num_threads(1)
    return _best(function, budget, time.process_time)


def wall_seconds(function: Function, budget: float) -> float:
    """Wall-clock time on all cores: the best of a few calls."""
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        return _best(function, budget, time.perf_counter)
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
    return max(accumulate((event.nbytes() for event in events), initial=0)) / 2**20


def _best(function: Function, budget: float, clock: Callable[[], float]) -> float:
    end = time.perf_counter() + budget
    best = math.inf
    calls = 0
    function()  # the first call allocates what later ones reuse
    while calls < 2 or time.perf_counter() < end:
        start = clock()
        function()
        best = min(best, clock() - start)
        calls += 1
    return best
