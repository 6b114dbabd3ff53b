"""Questions as people write them, rewritten as phrases that :mod:`.parsing` reads.

Signs have many spellings, names and values may be quoted, ``in (a, b)`` is a list, and a boolean
column alone is a condition. What may be read in two ways is refused.
"""

from __future__ import annotations

import re

import numpy as np

from subtractive.tables.schema import Schema
from subtractive.tables.states import States
from subtractive.tables.unseen_numbers import numbers_of
from subtractive.tables.value_text import value_text

# Characters of quoted text are moved there, so that no sign among them is read as one.
_HIDDEN = 0xE000
_QUOTED = re.compile(r"""(?<![^\s=<>!,(\[{|&])(["'`])(.+?)\1(?![^\s=<>!,)\]}|&])""")
_SPELLINGS = {"≥": ">=", "≤": "<=", "≠": "!=", "−": "-", "==": "="}
_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # outside of brackets
_AND = re.compile(r"\s+and\s+|\s*&+\s*", re.IGNORECASE)
_IN = re.compile(r"^(.+?)\s+in\s*([(\[{]?)(.+?)([)\]}]?)$", re.IGNORECASE)
_BETWEEN = re.compile(r"^(.+?)\s+between\s+(.+?)\s+and\s+(.+)$", re.IGNORECASE)
_FALLING = re.compile(r"^([^<>=]+?)\s*(>=?)([^<>=]+?)(>=?)\s*([^<>=]+)$")


def hide(text: str) -> str:
    """Text that holds no sign; :func:`shown` is the inverse.

    >>> shown(hide("a = b")), "=" in hide("a = b")
    ('a = b', False)
    """
    return "".join(chr(_HIDDEN + ord(c)) if ord(c) < 128 else c for c in text)


def shown(text: str) -> str:
    """Text with what was hidden in it."""
    return "".join(chr(ord(c) - _HIDDEN) if _HIDDEN <= ord(c) < _HIDDEN + 128 else c for c in text)


def hide_quoted(text: str) -> str:
    """Text in which what is quoted has neither quotes nor signs."""
    return _QUOTED.sub(lambda found: hide(found[2]), text)


def phrases(side: str, schema: Schema) -> list[str]:
    """The conditions on one side of the bar."""
    for spelling, sign in _SPELLINGS.items():
        side = side.replace(spelling, sign)
    found: list[str] = []
    for part in (part.strip() for part in _COMMA.split(side)):
        if part:
            parts = [part] if _BETWEEN.match(part) else _joined_by_and(part, schema)
            found += [_rewritten(one.strip(), schema) for one in parts]
    return found


def _joined_by_and(part: str, schema: Schema) -> list[str]:
    """Conditions with "and" between them; texts that hold the word are whole."""
    parts = _AND.split(part)
    texts = {str(v) for c in schema.variables if isinstance(c, States) for v in c.values}
    name, _, value = part.partition("=")
    is_text = shown(value.strip()) in texts and shown(name.strip()) in map(str, schema.names)
    return [part] if is_text or not all(_is_condition(one, schema) for one in parts) else parts


def _is_condition(text: str, schema: Schema) -> bool:
    return bool(re.search(r"[<>=]|\s+in\s", text)) or _flag(text, schema) is not None


def _rewritten(phrase: str, schema: Schema) -> str:
    """One condition in the words of the command line."""
    if (flag := _flag(phrase, schema)) is not None:
        return flag
    if found := _BETWEEN.match(phrase):
        return f"{found[2]} <= {found[1]} <= {found[3]}"
    if found := _FALLING.match(phrase):
        first, second = found[2].replace(">", "<"), found[4].replace(">", "<")
        return f"{found[5].strip()} {second} {found[3].strip()} {first} {found[1].strip()}"
    if "!=" in phrase:
        return _others(phrase, schema)
    if (found := _IN.match(phrase)) and not re.search(r"[<>=]", found[1]):
        return _listed(found, schema)
    return phrase


def _flag(phrase: str, schema: Schema) -> str | None:
    """``flag = true`` for the name of a boolean column alone, ``flag = false`` with a "not"."""
    for text, value in ((phrase, "true"), (re.sub(r"^\s*not\s+", "", phrase), "false")):
        for name, place in schema.place.items():
            if shown(text.strip()) == str(name) and schema.variables[place].kind == "boolean":
                return f"{hide(str(name))} = {value}"
    return None


def _others(phrase: str, schema: Schema) -> str:
    """All values of a column but some."""
    name, _, text = phrase.partition("!=")
    columns = [schema.column(n) for n in schema.place if str(n) == shown(name.strip())]
    if not columns or not isinstance(columns[0], States):
        raise ValueError(f"{shown(phrase)!r} leaves values out: ask for those that are left")
    column, wrong = columns[0], [shown(w.strip()) for w in re.split(r",|\s+or\s+", text)]
    words = {"boolean": {"0.0": "false", "1.0": "true"}}.get(column.kind, {})
    values = [words.get(str(value), str(value)) for value in column.values]
    short = [
        value.removesuffix(".0") if numbers_of(column) is not None else value for value in values
    ]
    strange = [word for word in wrong if word not in short and word.lower() not in short]
    if strange:
        raise ValueError(f"column {column.name!r} has no value {strange[0]!r}")
    kept = [value for value in short if value not in wrong and value not in map(str.lower, wrong)]
    if not kept:
        raise ValueError(f"{shown(phrase)!r} leaves no value")
    return f"{hide(str(column.name))} = {' or '.join(map(hide, kept))}"


def _listed(found: re.Match[str], schema: Schema) -> str:
    """``name = a or b`` for ``name in (a, b)``."""
    name, opening, text, closing = found.groups()
    pairs = {"": "", "(": ")", "[": "]", "{": "}"}
    if pairs[opening] != closing:
        raise ValueError(f"a bracket of {shown(name)!r} in {opening}{shown(text)} does not close")
    values = [value.strip() for value in text.split(",") if value.strip()]
    columns = [schema.column(n) for n in schema.place if str(n) == shown(name.strip())]
    has_order = bool(columns) and columns[0].kind not in ("categorical", "boolean")
    if len(values) == 2 and opening in ("(", "[") and has_order:
        low, high = map(shown, values)
        raise ValueError(
            f"'in {opening}{low}, {high}{closing}' may be two values or an interval: write "
            f"'{shown(name)} = {low} or {high}' or '{low} <= {shown(name)} <= {high}'"
        )
    return f"{name} = {' or '.join(values)}"


def example(schema: Schema) -> str:
    """A question that can be asked of these columns."""
    for name in schema.place:
        column = schema.column(name)
        word = str(name) if re.fullmatch(r"[\w ]+", str(name)) else f'"{name}"'
        value = value_text(column.decode(np.zeros(1)).tolist()[0], column.kind, digits=3)
        sign = "=" if isinstance(column, States) else ">"
        return f"P({word} {sign} {value if re.fullmatch(r'[^,|=<>()]+', value) else repr(value)})"
    return "P(weather = rain)"
