"""Facts from a file against the type hints of the class that they are for."""

from __future__ import annotations

import types
from collections.abc import Hashable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# Larger whole numbers fit into no array.
_LARGEST_INT = 2**63 - 1


def check_facts(kind: type, facts: Mapping[str, Any]) -> None:
    """Refuse facts that are not of the types that the fields of a class have.

    Hints that JSON knows nothing of, such as those of other classes, are left to the class.

    >>> from subtractive.learning.history import Epoch
    >>> check_facts(Epoch, {"epoch": 1, "train": -2.5})
    >>> check_facts(Epoch, {"epoch": "1"})
    Traceback (most recent call last):
        ...
    ValueError: epoch of Epoch must be int, got '1'.
    """
    hints = get_type_hints(kind)
    for name, value in facts.items():
        if name in hints and not _fits(value, hints[name]):
            expected = getattr(hints[name], "__name__", str(hints[name]))
            raise ValueError(f"{name} of {kind.__name__} must be {expected}, got {value!r:.60}.")


def is_scalar(value: object) -> bool:
    """Whether a value is one that a cell of a table, or its name, can be."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= _LARGEST_INT
    return isinstance(value, bool | str) or (isinstance(value, float) and value == value)


def _fits(value: Any, hint: Any) -> bool:  # noqa: ANN401 - whatever JSON holds, any type
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in (tuple, list):
        return _fits_sequence(value, parts)
    if hint is Hashable:
        return is_scalar(value) or (isinstance(value, tuple) and all(map(is_scalar, value)))
    if hint is float:
        return isinstance(value, float) or (is_scalar(value) and type(value) is int)
    if hint is int:
        return is_scalar(value) and type(value) is int
    if hint in (bool, str, type(None)):
        return isinstance(value, hint)
    return True


def _fits_sequence(value: Any, parts: tuple[Any, ...]) -> bool:  # noqa: ANN401 - as above
    if not isinstance(value, tuple | list):
        return False
    if len(parts) == 1 or parts[1:] == (...,):
        return all(_fits(entry, parts[0]) for entry in value)
    pairs = zip(value, parts, strict=False)
    return len(value) == len(parts) and all(_fits(entry, part) for entry, part in pairs)
