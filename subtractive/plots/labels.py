"""Names and values as pictures show them: on one line, short, and never as a formula."""

from __future__ import annotations

import unicodedata

import numpy as np


def clean(name: object) -> str:
    r"""A name on one line, without characters that a picture or a page cannot hold.

    >>> clean("a\tb\x00c")
    'a b\ufffdc'
    """
    text = " ".join(str(name).split())
    unfit = ("Cc", "Cs", "Cn")  # control characters, halves of surrogate pairs, no characters
    return "".join("\ufffd" if unicodedata.category(c) in unfit else c for c in text)


def short(name: object, most: int = 28) -> str:
    """A clean name, cut if it is longer than ``most``."""
    text = clean(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def label(name: object, most: int = 24) -> str:
    r"""A short name for a picture, in which a dollar sign begins no formula.

    >>> print(label("price in $"))
    price in \$
    """
    return short(name, most).replace("$", r"\$")


def value_label(value: object, most: int = 18) -> str:
    """One value of a column, for a picture.

    >>> value_label(True), value_label(0.1 + 0.2), value_label("Oslo")
    ('true', '0.3', 'Oslo')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return label(value, most)
