"""The sum over all units of a product of forms over a tree, for many rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.forms import (
    Form,
    Sandwich,
    inner,
    joint_inner,
    product,
    shared_form,
    summed,
)
from subtractive.circuits.survey import Survey, Tree
from subtractive.numerics.memory import keep_freed_memory

# How many numbers the largest tensor of a block of rows may hold to stay in a processor's cache,
# and how many rows are worth a block.
_BLOCK, _FEWEST_ROWS = 2**17, 16

# After how many sums in a row the numbers of a factor are brought back to one.
_LEVELS = 4


class Meeting(NamedTuple):
    """What was found."""

    log_total: Tensor  # (n,)
    is_safe: Tensor  # (n,), where underflow took no digit


def meet(tree: Tree, num_rows: int) -> Meeting:
    """Send all messages to where it is cheapest, a block of rows at a time.

    No number of a form may be larger than one, and no sum over one row of a weight.
    """
    keep_freed_memory()
    survey = Survey(tree)
    sizes = [size.numbers for size in survey.products.values()]
    step = max(_FEWEST_ROWS, _BLOCK // max(sizes, default=1))
    plan = _Plan(tree, survey, num_rows)
    blocks = [
        _Block(plan, start, min(start + step, num_rows)).meeting()
        for start in range(0, num_rows, step)
    ]
    return Meeting(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


class _Arrivals(NamedTuple):
    """What is multiplied at a node."""

    messages: list[int]  # that differ by row
    forms: list[Form]  # that differ by row
    shared: list[Form]  # all others, as at most one


class _Task(NamedTuple):
    """How a message that differs by row is made."""

    message: int
    arrivals: _Arrivals
    weight: Tensor | None  # none of a message that is not mixed
    sandwich: Sandwich | None  # of a shared factor and the weights
    is_levelled: bool


class _Level(NamedTuple):
    """The scale that was taken out of forms, and whether all of their numbers have all digits."""

    log_scale: Tensor  # (n,)
    is_safe: Tensor  # (n,)


class _Plan:
    """What is done once for all rows."""

    def __init__(self, tree: Tree, survey: Survey, num_rows: int) -> None:
        self.tree, self.num_rows = tree, num_rows
        self.centre = survey.centre()
        self.pair = survey.pair(self.centre)
        self.shared: dict[int, Form] = {}  # messages that are the same for all rows
        self.levels: list[_Level] = []  # of those
        self.ready: dict[int, Form] = {}  # messages that are made for all rows at once
        self.ages: dict[int, int] = {}  # of messages: how many sums ago numbers were near one
        self.floor = _floor(tree)
        self.tasks: list[_Task] = []
        for message in tree.order(self.centre):
            self._add(message, survey)
        others = [m for m in tree.arriving_at(self.centre) if m not in self.pair]
        self.last = self._arrivals(self.centre, others)
        self.bridge: Sandwich | None = None
        if self.pair:
            one, other = (tree.weight(message) for message in self.pair)
            is_shared = not self.last.messages and not self.last.forms
            self.bridge = Sandwich(one.T, other, 1 if is_shared else num_rows)

    def _add(self, message: int, survey: Survey) -> None:
        tree, weight = self.tree, self.tree.weight(message)
        parts = tree.parts(message)
        arrivals = self._arrivals(tree.sender(message), parts)
        messages, forms, shared = arrivals
        if not messages and not forms:
            form, level = _levelled(summed(shared[0], weight), self.floor)
            self.shared[message] = shared_form(form.some) if form.factor is None else form
            self.levels.append(level)
            return
        if message in self.pair:
            self.tasks.append(_Task(message, arrivals, None, None, is_levelled=False))
            return
        sandwich = None
        if shared and shared[0].factor is not None:
            sandwich = Sandwich(shared[0].factor[0], weight.T, self.num_rows)
        if sandwich is not None and not messages and all(form.rank == 1 for form in forms):
            # Far smaller than grams, and more rows at a time are faster.
            self.ready[message] = Form(sandwich.of(product(forms)), None)
            self.ages[message] = 1
            return
        age = 1 + max((self.ages.get(part, 0) for part in parts), default=0)
        is_levelled = age >= _LEVELS or survey.sums[message].rank is None
        self.ages[message] = 0 if is_levelled else age
        self.tasks.append(_Task(message, arrivals, weight, sandwich, is_levelled))

    def _arrivals(self, node: int, messages: Sequence[int]) -> _Arrivals:
        known = self.shared | self.ready
        forms = self.tree.forms[node] + [known[m] for m in messages if m in known]
        shared = [form for form in forms if len(form.some) == 1]
        return _Arrivals(
            [message for message in messages if message not in known],
            [form for form in forms if len(form.some) > 1],
            [product(shared)] if shared else [],
        )


class _Block:
    """All messages of some rows."""

    def __init__(self, plan: _Plan, start: int, stop: int) -> None:
        self.plan, self.start, self.stop = plan, start, stop
        self.messages: dict[int, Form] = {}
        self.levels = list(plan.levels)
        for task in plan.tasks:
            self._send(task)

    def meeting(self) -> Meeting:
        """The sum over all units of the product of all that arrives at the centre."""
        plan = self.plan
        forms = [*self._by_row(plan.last), *plan.last.shared]
        if plan.bridge is not None:
            bridge = plan.bridge.of(product(forms))  # (n or 1, i, k)
            one, other = (self.messages.pop(message) for message in plan.pair)
            total = joint_inner(one, other, bridge)
        else:
            *others, last = sorted(forms, key=lambda form: form.rank or form.width + 1)
            total = inner(product(others), last)
        log_total, is_safe = total.log(), total >= plan.floor
        for level in self.levels:
            log_total, is_safe = log_total + level.log_scale, is_safe & level.is_safe
        return Meeting(log_total, is_safe)

    def _send(self, task: _Task) -> None:
        forms = self._by_row(task.arrivals)
        if task.sandwich is not None and all(form.rank == 1 for form in forms):
            form = Form(task.sandwich.of(product(forms)), None)
        else:
            form = product([*forms, *task.arrivals.shared])
            form = form if task.weight is None else summed(form, task.weight)
        if task.is_levelled:
            form, level = _levelled(form, self.plan.floor)
            self.levels.append(level)
        self.messages[task.message] = form

    def _by_row(self, arrivals: _Arrivals) -> list[Form]:
        own = [form.rows(self.start, self.stop) for form in arrivals.forms]
        return own + [self.messages.pop(message) for message in arrivals.messages]


def _levelled(form: Form, floor: float) -> tuple[Form, _Level]:
    """Divide forms by their largest number, which is on the diagonal.

    In place: nobody else holds them yet.
    """
    if form.factor is not None:
        sizes = form.factor.square().sum(1)  # (n, i)
    else:
        sizes = form.expanded().diagonal(dim1=1, dim2=2)
    least, peak = torch.aminmax(sizes, dim=1)
    level = _Level(peak.log(), least >= floor)
    if form.factor is not None:
        form.factor.div_(peak.sqrt()[:, None, None])
    else:
        form.some.div_(peak[:, None, None])
    return form, level


def _floor(tree: Tree) -> float:
    """What sums must exceed for underflow to have taken no digit, whatever they are made of.

    A number may be off by the smallest one for each product and for each term of a sum on its
    way; nothing enlarges that, as neither numbers nor the sums of weights exceed one. Numbers
    off the diagonal are as exact as the diagonal is, relative to its square roots.
    """
    real = torch.finfo(torch.float64)
    terms = sum(math.prod(weight.shape) * (2 + len(weight)) for weight in tree.weights)
    return 8 * terms * real.tiny / real.eps
