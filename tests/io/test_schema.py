"""Facts are what type hints say, or are refused with their name."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from subtractive.io.schema import check_facts


@dataclass
class Facts:
    name: Hashable
    number: float
    count: int
    flag: bool
    choice: Literal["a", "b"]
    maybe: float | None
    pair: tuple[float, int]
    many: tuple[float, ...]
    rows: list[int]
    anything: Any


GOOD = {
    "name": ["x", 1, True, 2.5, (1, "x")],
    "number": [1, 1.5, float("inf"), float("nan")],
    "count": [0, -3, 2**62],
    "flag": [True],
    "choice": ["a", "b"],
    "maybe": [None, 1.0],
    "pair": [(1.0, 2)],
    "many": [(), (1, 2.5, 3.0)],
    "rows": [[], [1, 2]],
    "anything": [None, {}, "x"],
}
BAD = {
    "name": [None, [], {}, (None,), float("nan")],
    "number": ["1", None, True, 10**400, [1.0]],
    "count": [1.5, True, "1", 10**400],
    "flag": [1, "yes", None],
    "choice": ["c", None, []],
    "maybe": ["x", []],
    "pair": [(1.0,), (1.0, 2.5), (1.0, 2, 3), 5],
    "many": [5, (1, "x")],
    "rows": [[1.5], "12"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in GOOD.items() for v in vs])
def test_what_fits_is_taken(name, value):
    check_facts(Facts, {name: value})


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BAD.items() for v in vs])
def test_what_does_not_fit_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} of Facts must be .*, got "):
        check_facts(Facts, {name: value})
