"""What was selected on the page, as evidence, and as lines of Python and of the shell."""

from __future__ import annotations

import math
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from subtractive.explorer.columns import ShownColumn
from subtractive.tables.containers import TEMPORAL
from subtractive.tables.parsing import parse_events, parse_given
from subtractive.tables.schema import Schema
from subtractive.tables.states import States
from subtractive.tables.value_text import value_text

Side = list[Any] | tuple[float | None, float | None] | float


@final
@dataclass(frozen=True)
class Condition:
    """One column's part of a selection: a list, an interval, ``None`` an open end, or a number."""

    shown: ShownColumn
    side: Side

    @property
    def is_point(self) -> bool:
        """Whether it is a single number, which has a density and no probability."""
        return isinstance(self.side, float)

    @property
    def python(self) -> str:
        """The value of ``given``, as Python is written."""
        kind = self.shown.column.kind
        if kind not in TEMPORAL or isinstance(self.shown.column, States):
            return repr(self.side)
        if isinstance(self.side, float):
            return repr(value_text(self.side, kind))
        texts = [None if end is None else value_text(end, kind) for end in self.side]
        return repr(tuple(texts) if isinstance(self.side, tuple) else texts)

    @property
    def phrase(self) -> str:
        """As the command line reads it."""
        name = str(self.shown.name)
        if isinstance(self.side, tuple):
            low, high = self.side
            if low is None:
                return f"{name}<={high!r}"
            return f"{name}>={low!r}" if high is None else f"{low!r}<={name}<={high!r}"
        values = self.side if isinstance(self.side, list) else [self.side]
        return f"{name}={','.join(str(value) for value in values)}"


@final
@dataclass(frozen=True)
class Selection:
    """The conditions of all columns that have one."""

    conditions: tuple[Condition, ...]

    @classmethod
    def read(cls, columns: Sequence[ShownColumn], given: object) -> Selection:
        """What the page sent: by key ``{"states": [0, 2]}``, ``atoms``, ``range`` or ``value``."""
        if not isinstance(given, Mapping):
            raise ValueError(f"a selection is an object with a key per column, got {given!r}.")
        known = {shown.key: shown for shown in columns}
        strange = [key for key in given if key not in known]
        if strange:
            raise ValueError(f"there is no column {strange[0]!r} on this page.")
        return cls(
            tuple(Condition(known[key], _side(known[key], one)) for key, one in given.items())
        )

    @property
    def points(self) -> dict[Hashable, Any]:
        """The columns whose single number is known."""
        return {c.shown.name: c.side for c in self.conditions if c.is_point}

    @property
    def event(self) -> dict[Hashable, Any]:
        """The columns in a set that has a probability."""
        return {c.shown.name: c.side for c in self.conditions if not c.is_point}

    @property
    def given(self) -> dict[Hashable, Any] | None:
        """All of it as evidence."""
        return {**self.points, **self.event} or None

    def python(self, path: str | None) -> str:
        """Lines of Python that ask for what the page shows."""
        sides = [f"{c.shown.name!r}: {c.python}" for c in self.conditions]
        lines = (
            [] if path is None else ["import subtractive as sub", f"model = sub.load({path!r})"]
        )
        if not sides:
            return "\n".join([*lines, "model.marginals()"])
        lines.append(f"given = {{{', '.join(sides)}}}")
        points = {c.shown.name for c in self.conditions if c.is_point}
        if not points:
            lines.append("model.probability(given)")
        return "\n".join([*lines, "model.marginals(given=given), model.mean(given=given)"])

    def shell(self, path: str | None, schema: Schema) -> str | None:
        """A command that asks the same; ``None`` if its words cannot say it."""
        file = shlex.quote(path or "MODEL")
        event = [c.phrase for c in self.conditions if not c.is_point]
        points = [c.phrase for c in self.conditions if c.is_point]
        try:
            read = (parse_events(event, schema) if event else {}, parse_given(points, schema))
            same = read == (_with_infinities(self.event), self.points)
        except ValueError:
            same = False
        if not same:
            return None
        words = [f"--given {shlex.quote(phrase)}" for phrase in points]
        if event:
            words += [f"--probability {shlex.quote(phrase)}" for phrase in event]
            return " ".join(["subtractive query", file, *words])
        return " ".join(["subtractive sample", file, "-n 10", *words])


def _with_infinities(event: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    """Open ends as the command line has them."""
    ends = {
        name: (
            -math.inf if side[0] is None else side[0],
            math.inf if side[1] is None else side[1],
        )
        for name, side in event.items()
        if isinstance(side, tuple)
    }
    return {**event, **ends}


def _side(shown: ShownColumn, one: object) -> Side:
    """One condition, checked."""
    if isinstance(one, Mapping) and len(one) == 1:
        [(kind, content)] = one.items()
        listed = {"states": shown.states, "atoms": shown.atoms}.get(kind)
        if listed and _are_places(content, len(listed)):
            return [listed[place] for place in sorted(set(content))]
        if kind == "value" and not shown.states and _is_number(content):
            return float(content)
        if kind == "range" and not shown.states and _is_range(content):
            low, high = (None if end is None else float(end) for end in content)
            return low, high
    raise ValueError(f"column {shown.key!r} cannot be {one!r}.")


def _are_places(content: object, count: int) -> bool:
    if not isinstance(content, list) or not content:
        return False
    return all(type(place) is int and 0 <= place < count for place in content)


def _is_number(content: object) -> bool:
    return type(content) in (int, float) and abs(content) < 1e300  # type: ignore[arg-type]


def _is_range(content: object) -> bool:
    if not isinstance(content, list) or len(content) != 2:
        return False
    ends = [end for end in content if end is not None]
    return all(map(_is_number, ends)) and bool(ends) and ends == sorted(ends)
