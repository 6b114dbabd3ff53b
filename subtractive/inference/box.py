"""Boxes: intervals of some variables, or sets of states of discrete ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch

from subtractive.inference.evidence import Evidence, check_variables
from subtractive.inputs.base import InputFamily

Side = tuple[float | None, float | None] | AbstractSet[int]


def in_box(
    evidence: Evidence, box: Mapping[int, Side], families: Sequence[InputFamily]
) -> Evidence:
    """Evidence whose unobserved variables are integrated over a box only.

    ``(a, b)`` is the interval a <= x <= b, ``None`` an open end; a set holds states.
    """
    if not isinstance(box, Mapping) or not box:
        raise ValueError(
            "a box names at least one variable and its interval or states, such as "
            f"{{0: (-1.0, 1.0)}}, got {box!r}."
        )
    lower = torch.full((1, len(families)), -math.inf, dtype=torch.float64)
    upper = torch.full((1, len(families)), math.inf, dtype=torch.float64)
    states = {}
    for variable in check_variables(list(box), len(families)):
        if bool(evidence.observed[:, variable].any()):
            raise ValueError(
                f"variable {variable} is both in the box and given: remove it from one of them."
            )
        side, count = box[variable], families[variable].num_states
        is_smooth = count is None and not families[variable].atoms
        if isinstance(side, AbstractSet):
            states[variable] = _state_mask(side, count, variable)
            continue
        low, high = _interval(side, variable)
        # Windows are open on the left; the state or atom a itself is inside.
        lower[0, variable] = low if is_smooth else math.nextafter(low, -math.inf)
        upper[0, variable] = high
    return Evidence(evidence.x, evidence.observed, lower, upper, states)


def _interval(side: object, variable: int) -> tuple[float, float]:
    if not isinstance(side, tuple | list) or len(side) != 2:
        raise ValueError(
            f"the side of variable {variable} must be an interval (low, high) or a set of "
            f"states, got {side!r}."
        )
    try:
        low = -math.inf if side[0] is None else float(side[0])
        high = math.inf if side[1] is None else float(side[1])
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"the ends of the interval of variable {variable} must be numbers or None, got "
            f"{side!r}."
        ) from None
    if math.isnan(low) or math.isnan(high) or low > high:
        raise ValueError(
            f"the interval of variable {variable} must have low <= high, got {side!r}."
        )
    return low, high


def _state_mask(side: AbstractSet[int], count: int | None, variable: int) -> torch.Tensor:
    if count is None:
        raise ValueError(
            f"variable {variable} is continuous: give an interval (low, high), got {set(side)!r}."
        )
    mask = torch.zeros(count, dtype=torch.bool)
    for state in side:
        try:
            number = -1 if isinstance(state, bool) else operator.index(state)
        except TypeError:
            number = -1
        if not 0 <= number < count:
            raise ValueError(
                f"variable {variable} has states 0 to {count - 1}, got {state!r} in the box."
            )
        mask[number] = True
    return mask
