"""What a page is made of. The template turns it into markup, and escapes every word of it."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import matplotlib as mpl
from matplotlib.figure import Figure

# The same input gives the same bytes: names inside a picture do not depend on chance or on time.
SVG = {"svg.hashsalt": "subtractive", "svg.fonttype": "none"}
NO_TIME = {"Date": None, "Creator": None}
NUMBER = re.compile(r"[-+\u2212]?[\d,]+(\.\d+)?")


@final
@dataclass(frozen=True)
class Paragraph:
    """Plain words; ``lead`` ones are larger."""

    kind: ClassVar[str] = "paragraph"
    words: str
    lead: bool = False


@final
@dataclass(frozen=True)
class Picture:
    """A figure that is part of the page; ``description`` is for those who cannot see it."""

    kind: ClassVar[str] = "picture"
    source: str
    width: int
    height: int
    description: str
    caption: str = ""

    @classmethod
    def of(cls, figure: Figure, description: str, caption: str = "") -> Picture:
        """A figure of matplotlib."""
        width, height = (round(96 * inches) for inches in figure.get_size_inches())
        source = "data:image/svg+xml;base64," + base64.b64encode(svg(figure)).decode("ascii")
        return cls(source, width, height, description, caption)


@final
@dataclass(frozen=True)
class Gallery:
    """Pictures side by side, as many as the screen is wide; ``size`` is small or large."""

    kind: ClassVar[str] = "gallery"
    pictures: Sequence[Picture]
    size: str = "small"


@final
@dataclass(frozen=True)
class Cells:
    """A table of plain words; on a narrow screen it scrolls, or each row becomes a card."""

    kind: ClassVar[str] = "cells"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    cards: bool = False

    @property
    def is_number(self) -> list[bool]:
        """Whether each column holds nothing but numbers, which are set flush right."""
        return [
            any(column) and all(not entry or NUMBER.fullmatch(entry) for entry in column)
            for column in zip(*self.rows, strict=True)
        ]


@final
@dataclass(frozen=True)
class Tiles:
    """Large numbers with small words below."""

    kind: ClassVar[str] = "tiles"
    facts: Sequence[tuple[str, str]]  # words, number


@final
@dataclass(frozen=True)
class Beside:
    """Columns of blocks side by side on a wide screen."""

    kind: ClassVar[str] = "beside"
    columns: Sequence[Sequence[Cells | Picture]]


Block = Paragraph | Picture | Gallery | Cells | Tiles | Beside


@final
@dataclass(frozen=True)
class Section:
    """A part of the page with a heading, to which links can point."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """What a link to it names."""
        return self.title.lower().replace(" ", "-")


def svg(figure: Figure) -> bytes:
    """A figure as SVG, in which words stay words: the browser has letters that we may lack."""
    buffer = io.BytesIO()
    with mpl.rc_context(SVG), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=NO_TIME, dpi=160)
    return buffer.getvalue()
