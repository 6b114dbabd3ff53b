"""The quick way up a circuit: one function of all leaves and weights, differentiated by hand.

Messages are scaled as in :mod:`subtractive.numerics.scaled`, but only every few layers; autograd
records nothing between the leaves and the root; and whether digits were lost to underflow is asked
once, at the root, for all layers together. Where that may be so, and where slopes shall be
differentiated again, the careful way must be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.circuits.climb import Climb, Disturb, outer
from subtractive.circuits.congruence import from_left, from_right
from subtractive.circuits.planning import Child, Parts, Plan, Step
from subtractive.numerics.memory import keep_freed_memory

Careful = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


class Ascent(NamedTuple):
    """What was found at the root."""

    log_total: Tensor  # (n,), float64
    lost: Tensor | None  # (n,), rows for which the careful way must be taken, if there are any


def ascend(
    plan: Plan, leaves: Sequence[Tensor], weights: Sequence[Tensor], careful: Careful
) -> Ascent:
    """The logarithm of the root: of its sum, of its sum of squares, or of its trace.

    ``weights`` (f, o, i) are those of each step; they and the leaves are real. ``careful`` makes
    the same of leaves and weights by operations that autograd records.
    """
    keeps = is_recorded(leaves, weights)
    climb, lost = _climb(plan, leaves, weights, keeps=keeps)
    if lost is not None or not keeps:
        return Ascent(climb.log_total, lost)
    return Ascent(_Ascent.apply(climb, careful, *leaves, *weights), None)  # type: ignore[no-untyped-call]


@torch.no_grad()
def _climb(
    plan: Plan, leaves: Sequence[Tensor], weights: Sequence[Tensor], *, keeps: bool
) -> tuple[Climb, Tensor | None]:
    """All messages up to the root, and the rows where they may have lost digits."""
    keep_freed_memory()
    climb = Climb(plan, leaves, weights, keeps=keeps)
    climb.read_root()
    return climb, climb.lost_rows()


def is_recorded(leaves: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether slopes may be asked for."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in (*leaves, *weights))


@torch.no_grad()
def ascend_disturbed(
    plan: Plan, leaves: Sequence[Tensor], weights: Sequence[Tensor], disturb: Disturb
) -> Ascent:
    """The same if every sum is disturbed, and for no slopes."""
    climb = Climb(plan, leaves, weights, keeps=False, disturb=disturb)
    climb.read_root()
    return Ascent(climb.log_total, climb.lost_rows())


class _Ascent(Function):
    @staticmethod
    def forward(ctx: Any, climb: Climb, careful: Careful, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        ctx.climb, ctx.careful = climb, careful
        ctx.plan, ctx.count = climb.plan, climb.num_leaves
        ctx.save_for_backward(*tensors)
        return climb.log_total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        needed = ctx.needs_input_grad[2:]
        tensors = ctx.saved_tensors
        leaves, weights = tensors[: ctx.count], tensors[ctx.count :]
        if not torch.is_grad_enabled() and not _is_batched(slope):
            # The way down uses the messages up: whoever comes again must climb again.
            climb, ctx.climb = ctx.climb or _climb(ctx.plan, leaves, weights, keeps=True)[0], None
            return None, None, *_Descent(climb, needed).slopes(slope)
        with torch.enable_grad():
            root = ctx.careful(leaves, weights)
        inputs = [tensor for tensor, is_needed in zip(tensors, needed, strict=True) if is_needed]
        found = iter(
            torch.autograd.grad(root, inputs, slope, create_graph=torch.is_grad_enabled())
        )
        return None, None, *(next(found) if is_needed else None for is_needed in needed)


def _is_batched(slope: Tensor) -> bool:
    """Whether this is several slopes at once, for which nothing may be written in place."""
    kinds = torch._C._functorch
    return bool(kinds.is_batchedtensor(slope) or kinds.is_legacy_batchedtensor(slope))


class _Descent:
    """The slopes of all leaves and weights, from the root down."""

    def __init__(self, climb: Climb, needed: Sequence[bool]) -> None:
        self.climb, self.needed = climb, needed
        self.to_messages: list[Tensor | None] = [None] * len(climb.messages)
        self.places = Parts(self.to_messages, climb.plan.sizes)

    def slopes(self, slope: Tensor) -> list[Tensor | None]:
        """The slopes of leaves and weights, in their order."""
        climb, count = self.climb, self.climb.num_leaves
        self.to_messages[-1] = self._to_root(slope)
        to_weights: list[Tensor | None] = []
        for number in reversed(range(len(climb.products))):
            above, peak = self.to_messages[count + number], climb.peaks[number]
            assert above is not None
            self.to_messages[count + number] = None
            self.places.forget(count + number)
            if peak is not None:
                above.div_(peak)
            weight, product = climb.weights[number], climb.products.pop()
            if number in climb.halves:
                to_weight, to_product = self._through_gram(weight, climb.halves.pop(number), above)
            else:
                to_weight, to_product = torch.bmm(above.mT, product), torch.bmm(above, weight)
            to_weights.append(to_weight)
            self._hand_down(climb.plan.steps[number], product, to_product)
        return [*self.to_messages[:count], *reversed(to_weights)]

    def _through_gram(self, weight: Tensor, half: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """``2 S (W G)`` and ``Wᵀ S W``, the slope S being its own adjoint.

        Where components cancel, they do so in W G, which is in double precision; what is left is
        as good in single precision as the slopes of vectors are.
        """
        if self.climb.plan.is_narrow and self.climb.is_moderate:
            weight, half, slope = weight.float(), half.float(), slope.float()
        regions, rows, outputs = slope.shape[:3]
        mixed = from_right(slope, weight)  # (f, n, o, j)
        beside = slope.movedim(1, 2).reshape(regions, outputs, rows * outputs)
        below = half.mT.reshape(regions, rows * outputs, half.shape[2])
        to_weight = torch.bmm(beside, below).mul_(2)
        return to_weight, from_left(weight.mT, mixed).double()

    def _to_root(self, slope: Tensor) -> Tensor:
        root = self.climb.messages[-1]
        share = (slope / self.climb.total)[None, :, None]  # (1, n, 1)
        if root.dim() == 4:
            return share.expand(-1, -1, root.shape[-1]).diag_embed()
        if self.climb.plan.squares:
            return (2 * share * root).to(root.dtype)
        return share.to(root.dtype).repeat(1, 1, root.shape[-1])

    def _hand_down(self, step: Step, product: Tensor, slope: Tensor) -> None:
        """Pass the slope of a product on to its factors."""
        climb = self.climb
        if step.adds:
            slope.mul_(product)
            for child in step.children:
                if self.needed[child.tensor]:
                    self._put(child, collected(slope, climb.leaves[child.tensor]))
            return
        factors = [climb.parts[child] for child in step.children]
        for slot, child in enumerate(step.children):
            if child.tensor >= climb.num_leaves:
                self._put_factor(child, slope, factors, slot)
            elif self.needed[child.tensor]:
                part = self._put_factor(child, slope, factors, slot)
                if climb.plan.is_exponent[child.tensor]:
                    part.mul_(factors[slot])
                else:
                    part.div_(climb.peak_parts[child])

    def _put_factor(
        self, child: Child, slope: Tensor, factors: Sequence[Tensor], slot: int
    ) -> Tensor:
        if child.is_all or len(factors) == 1 or factors[0].shape != factors[1].shape:
            return self._put(child, _to_factor(slope, factors, slot))
        return torch.mul(slope, factors[1 - slot], out=self._place(child))

    def _put(self, child: Child, part: Tensor) -> Tensor:
        if not child.is_all:
            return self._place(child).copy_(part)
        self.to_messages[child.tensor] = part
        return part

    def _place(self, child: Child) -> Tensor:
        """Where the slope of a child goes that is a part of its tensor."""
        if self.to_messages[child.tensor] is None:
            self.to_messages[child.tensor] = torch.empty_like(self.climb.messages[child.tensor])
        return self.places[child]


def _to_factor(slope: Tensor, factors: Sequence[Tensor], slot: int) -> Tensor:
    """The slope of one of the factors of :func:`multiplied`."""
    if len(factors) == 1:
        return slope
    factor, other = factors[slot], factors[1 - slot]
    if factor.dim() == other.dim():
        return collected(slope * other, factor)
    if factor.dim() == 4:
        return collected(outer(other).mul_(slope), factor)
    pull = (slope * other) @ factor.to(slope.dtype)[..., None]  # (f, n, i, 1), of both sides
    return (2 * pull[..., 0]).to(factor.dtype)


def collected(slope: Tensor, like: Tensor) -> Tensor:
    """The slope of a message of which one row may have stood for all rows."""
    if like.shape[1] == 1 < slope.shape[1]:
        slope = slope.sum(1, keepdim=True)
    return slope.to(like.dtype)
