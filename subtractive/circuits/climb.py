"""All messages on the quick way up a circuit: see :mod:`subtractive.circuits.ascent`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subtractive.circuits.congruence import from_left, from_right
from subtractive.circuits.planning import Parts, Plan, Step
from subtractive.numerics.leaf_message import double

_NOTHING = torch.empty(0)

# Weights up to so large and down to so small leave slopes of grams in the range of float32.
_MODERATE = 1e3

Disturb = Callable[[Tensor], Tensor]


class Climb:
    """All messages from the leaves to the root, and what their slopes need if it ``keeps`` it."""

    def __init__(
        self,
        plan: Plan,
        leaves: Sequence[Tensor],
        weights: Sequence[Tensor],
        *,
        keeps: bool,
        disturb: Disturb | None = None,
    ) -> None:
        self.disturb = disturb
        self.plan, self.num_leaves, self.leaves = plan, len(leaves), leaves
        self.messages = list(leaves)
        self.parts = Parts(self.messages, plan.sizes)
        self.leaf_parts = Parts(leaves, plan.sizes)  # before they are settled
        self.weights: list[Tensor] = []  # of each step, in the dtype of its message
        self.products: list[Tensor] = []  # of each step
        self.halves: dict[int, Tensor] = {}  # ``G Wᵀ`` of each step of grams
        self.peaks: list[Tensor | None] = []  # of each step, (f, n, 1) or (f, n, 1, 1)
        self.least: list[Tensor] = []  # of each scaled step and the root, their smallest sums
        self.leaf_peaks = [_NOTHING] * self.num_leaves
        self.peak_parts = Parts(self.leaf_peaks, plan.sizes)
        self._logs: list[Tensor] = []  # what exponents were reduced by
        self._scales: list[Tensor] = []  # what sums and leaves were divided by
        self.log_total = torch.zeros(1, dtype=torch.float64)  # until the root is read
        for number in plan.settled:
            self._settle(number)
        for step, weight in zip(plan.steps, weights, strict=True):
            product = self._product(step)
            self._sum(step, product, weight, keeps=keeps)
            for tensor in () if keeps else step.ends:
                self.messages[tensor] = _NOTHING
                self.parts.forget(tensor)

    def _settle(self, number: int) -> None:
        leaf = self.messages[number]
        if self.plan.is_exponent[number]:
            peak = leaf.amax(_units(leaf), keepdim=True)
            self.messages[number] = (leaf - peak).exp_()
        else:
            peak = leaf.abs().amax(_units(leaf), keepdim=True)
            self.messages[number] = leaf / peak
        self.leaf_peaks[number] = peak

    def _product(self, step: Step) -> Tensor:
        if step.adds:
            first, *others = (self.leaf_parts[child] for child in step.children)
            for other in others:
                first = first + other
            peak = first.amax(_units(first), keepdim=True)
            self._logs.append(peak)
            return (first - peak).exp_()
        for child in step.children:
            if child.tensor < self.num_leaves:
                peak = self.peak_parts[child]
                (self._logs if self.plan.is_exponent[child.tensor] else self._scales).append(peak)
        return multiplied([self.parts[child] for child in step.children])

    def _sum(self, step: Step, product: Tensor, weight: Tensor, *, keeps: bool) -> None:
        if keeps:
            # Of a product that is no exponential its factors say enough.
            self.products.append(product if step.adds or not step.is_gram else _NOTHING)
        if step.is_gram:
            dtype = double(product.dtype)
            weight = weight.to(dtype)
            half = from_right(product.to(dtype), weight.mT)
            mixed = from_left(weight, half)
            if keeps:
                self.halves[len(self.peaks)] = half
        else:
            mixed = torch.bmm(product, weight.mT)
        if self.disturb is not None:
            mixed = self.disturb(mixed)
        peak = None
        if step.is_scaled:
            size = mixed.abs()
            self.least.append(size.amin(_units(size)))
            peak = size.amax(_units(size), keepdim=True)
            self._scales.append(peak)
            mixed.div_(peak)
        self.weights.append(weight)
        self.peaks.append(peak)
        self.messages.append(mixed)

    def read_root(self) -> None:
        """Take the logarithm of what is at the root."""
        root = self.messages[-1][0]
        self.least.append(root.abs().flatten(1).amin(1)[None])
        if root.dim() == 3:
            self.total = root.diagonal(dim1=-2, dim2=-1).sum(-1)
        else:
            wide = root.double()
            self.total = (wide.square() if self.plan.squares else wide).sum(-1)
        self.log_total = self.total.log() + self.log_scale()

    def log_scale(self) -> Tensor:
        """What all messages were divided by, (n,) or (1,); of vectors that are squared, twice."""
        log_scale = torch.zeros(1, dtype=torch.float64, device=self.leaves[0].device)
        for numbers, function in ((self._scales, torch.log_), (self._logs, None)):
            for dim, times in ((3, 2 if self.plan.squares else 1), (4, 1)):
                some = [number for number in numbers if number.dim() == dim]
                if some:
                    added = _below_each_other(some)
                    log = (function(added) if function else added).sum(0)
                    log_scale = log_scale.add(log.flatten(), alpha=times)
        return log_scale

    def lost_rows(self) -> Tensor | None:
        """Where digits may have been lost, (n,), or ``None`` if nowhere."""
        floors = self._floors()[: len(self.least)]
        least = torch.stack([sums.amin() for sums in self.least]).tolist()
        is_safe = all(number >= floor for number, floor in zip(least, floors, strict=True))
        if is_safe and math.isfinite(self.log_total.sum().item()):
            return None
        safe = self.log_total.isfinite()
        for sums, floor in zip(self.least, floors, strict=True):
            safe = safe & (sums >= floor).all(0)
        return ~safe

    def _floors(self) -> list[float]:
        """What sums must exceed for underflow to have taken no digit, of scaled steps and root."""
        bounds = [bound for weight in self.weights for bound in torch.aminmax(weight)]
        units = torch.stack(bounds).abs_().view(-1, 2).amax(1).tolist()
        self.is_moderate = all(1 / _MODERATE < unit < _MODERATE for unit in units)
        return self.plan.floors(units, self.weights)


def multiplied(factors: Sequence[Tensor]) -> Tensor:
    """The product of one or two messages; a vector beside a gram counts twice."""
    if len(factors) == 1:
        return factors[0]
    one, other = factors
    if one.dim() == other.dim():
        return one * other
    vector, gram = (one, other) if one.dim() < other.dim() else (other, one)
    return outer(vector).mul_(gram)


def outer(vector: Tensor) -> Tensor:
    """The gram ``v vᵀ``, in double precision."""
    wide = vector.to(double(vector.dtype))
    return wide[..., :, None] * wide[..., None, :]


def _below_each_other(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers of all regions (f, n, ...) or (f, 1, ...) as one tensor in float64."""
    rows = max(number.shape[1] for number in numbers)
    if any(number.shape[1] != rows for number in numbers):
        numbers = [n.expand(-1, rows, *n.shape[2:]) for n in numbers]
    return (torch.cat(list(numbers)) if len(numbers) > 1 else numbers[0].clone()).double()


def _units(message: Tensor) -> tuple[int, ...]:
    return (2, 3) if message.dim() == 4 else (2,)
