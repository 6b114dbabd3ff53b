"""The regions that are neither observed nor missing altogether: the trunk of a tree.

Below it, messages climb as always, vectors of each row or grams for all rows. Within it they need
not climb: see :mod:`subtractive.circuits.survey`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor

from subtractive.circuits.ascent import Ascent, is_recorded
from subtractive.circuits.climb import Climb
from subtractive.circuits.forms import Form, shared_form
from subtractive.circuits.meeting import meet
from subtractive.circuits.planning import Plan
from subtractive.circuits.survey import Tree

# With fewer rows, what is done once for all of them would dominate.
_FEWEST_ROWS = 8


class Kind(Enum):
    """What a message is: a vector or a gram for each row, or one gram for all rows."""

    VECTOR = 1
    SHARED = 2
    MIXED = 3


def meet_in_trunk(
    plan: Plan, leaves: Sequence[Tensor], weights: Sequence[Tensor]
) -> Ascent | None:
    """The logarithm of a root of grams, if there is a trunk and nothing is differentiated."""
    num_rows = max(leaf.shape[1] for leaf in leaves)
    if num_rows < _FEWEST_ROWS or is_recorded(leaves, weights):
        return None
    kinds = _kinds(plan, leaves)
    if kinds[-1] is not Kind.MIXED:
        return None
    with torch.no_grad():
        return _Trunk(plan, kinds, leaves, weights).ascent(num_rows)


def _kinds(plan: Plan, leaves: Sequence[Tensor]) -> list[Kind]:
    """The kinds of all leaves and of the results of all steps."""
    kinds = [
        Kind.VECTOR if leaf.dim() == 3 else Kind.SHARED if leaf.shape[1] == 1 else Kind.MIXED
        for leaf in leaves
    ]
    for step in plan.steps:
        first, *others = {kinds[child.tensor] for child in step.children}
        kinds.append(Kind.MIXED if others else first)
    return kinds


class _Trunk:
    """The climb up to the trunk, and the trunk as a tree of forms."""

    def __init__(
        self, plan: Plan, kinds: list[Kind], leaves: Sequence[Tensor], weights: Sequence[Tensor]
    ) -> None:
        self.plan, self.leaves, self.weights = plan, leaves, weights
        count = len(leaves)
        self.steps = [k for k in range(len(plan.steps)) if kinds[count + k] is Kind.MIXED]
        below = [k for k in range(len(plan.steps)) if kinds[count + k] is not Kind.MIXED]
        self.places = {count + old: count + new for new, old in enumerate(below)}
        self.climb = None
        if below:
            read = {c.tensor for k in self.steps for c in plan.steps[k].children}
            part = plan.part(below, read)
            self.climb = Climb(part, leaves, [weights[k] for k in below], keeps=False)
        self.log_scales: list[Tensor] = []  # (n,) or (1,)
        self.tree = Tree([], [], [], [])
        for step in self.steps:
            self._add(step)
        self.tree.forms[-1].append(self._root_form())

    def ascent(self, num_rows: int) -> Ascent:
        """What the messages find where they meet."""
        log_total, is_safe = meet(self.tree, num_rows)
        for log_scale in self.log_scales:
            log_total = log_total + log_scale
        if self.climb is not None:
            log_total = log_total + self.climb.log_scale()
            lost = self.climb.lost_rows()
            is_safe = is_safe if lost is None else is_safe & ~lost
        is_safe = is_safe & log_total.isfinite()
        return Ascent(log_total, None if bool(is_safe.all()) else ~is_safe)

    def _add(self, number: int) -> None:
        """One node for each region of a step."""
        tree, step, count = self.tree, self.plan.steps[number], len(self.leaves)
        self.places[count + number] = len(tree.forms)
        for place, weight in enumerate(self._weights(number)):
            forms, children = [], []
            for child in step.children:
                at = child.first + place
                if child.tensor - count in self.steps:
                    children.append(self.places[child.tensor] + at)
                    tree.parents[children[-1]] = len(tree.forms)
                else:
                    forms.append(self._form(child.tensor, at))
            tree.forms.append(forms)
            tree.children.append(children)
            tree.weights.append(weight)
            tree.parents.append(-1)

    def _weights(self, number: int) -> Tensor:
        """Weights (f, o, i) of which neither rows nor columns add up to more than one."""
        weights = self.weights[number].double()
        size = weights.abs()
        total = torch.maximum(size.sum(1).amax(1), size.sum(2).amax(1))
        self.log_scales.append(2 * total.log().sum(0, keepdim=True))
        return weights / total[:, None, None]

    def _form(self, tensor: int, place: int) -> Form:
        """The message of a region below the trunk."""
        if tensor < len(self.leaves):
            message = self._settled(self.leaves[tensor][place].double(), tensor)
        else:
            assert self.climb is not None
            message = self.climb.messages[self.places[tensor]][place].double()
        if message.dim() == 2:
            return Form(message[:, None], None)
        return shared_form(message) if len(message) == 1 else Form(None, message)

    def _settled(self, leaf: Tensor, tensor: int) -> Tensor:
        """A leaf (n, i) or (n, i, j) as numbers up to one."""
        flat = leaf.flatten(1)
        if self.plan.is_exponent[tensor]:
            peak = flat.amax(1)
            result, log_peak = (flat - peak[:, None]).exp_(), peak
        else:
            peak = flat.abs().amax(1)
            result, log_peak = flat / peak[:, None], peak.log()
        self.log_scales.append(log_peak * 2 if leaf.dim() == 2 else log_peak)
        return result.view_as(leaf)

    def _root_form(self) -> Form:
        """Σ_s c_s² as a form of the products below the outputs."""
        return Form(self.tree.weights[-1][None], None)
