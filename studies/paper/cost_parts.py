"""The parts of a training step, c(x) on a batch and Z, and what each costs (paper: App. C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import subtractive as sub
from studies.models.kinds import MPC, NPC2
from studies.models.profiling import cpu_seconds, peak_megabytes
from subtractive.inference.evidence import make_evidence
from subtractive.plots.style import MODEL, OTHER

VALUE, PARTITION = "value", "partition"
COLOURS = {NPC2: MODEL, MPC: OTHER}
# What is measured, and its unit.
QUANTITIES = {"seconds": "seconds", "megabytes": "MiB"}


def step_parts(density: sub.Density, rows: Tensor) -> Mapping[str, Callable[[], Tensor]]:
    """For each of m members log c or log c² of rows, (n, m), and log Z, (m,)."""
    members = _members(density)
    evidence = make_evidence(rows, None, density.families, density.device)
    return {
        VALUE: lambda: torch.stack([one.log_weight(evidence) for one in members], -1),
        PARTITION: lambda: torch.stack([one.log_normaliser() for one in members]),
    }


def with_gradients(part: Callable[[], Tensor], density: sub.Density) -> Callable[[], object]:
    """A part with its backward pass to all parameters of the circuits."""
    parameters = [p for member in _members(density) for p in member.parameters()]
    # The gradients are returned, not kept: every call finds the memory as the first did.
    return lambda: torch.autograd.grad(part().sum(), parameters, allow_unused=True)


def measure(function: Callable[[], object], budget: float) -> dict[str, float]:
    """CPU seconds of one thread, and the most megabytes that tensors hold, of a call."""
    function()  # what happens only once shall not count
    seconds = cpu_seconds({"it": function}, budget)["it"]
    return {"seconds": seconds, "megabytes": peak_megabytes(function)}


def _members(density: sub.Density) -> list[sub.Density]:
    if not isinstance(density, sub.Mixture):
        return [density]
    return [member for member in density.members if isinstance(member, sub.Density)]
