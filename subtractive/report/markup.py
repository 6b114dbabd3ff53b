"""Pieces of a page. Whatever comes from a table passes through :func:`text`."""

from __future__ import annotations

import base64
import html
import io
import warnings
from collections.abc import Iterable, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

# The same input gives the same bytes: names inside a picture do not depend on chance or on time.
SVG = {"svg.hashsalt": "subtractive", "svg.fonttype": "none"}
NO_TIME = {"Date": None, "Creator": None}


def text(words: object) -> str:
    """Words that are not markup, whatever they contain.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return html.escape(str(words), quote=True)


def paragraph(words: str) -> str:
    """A paragraph of plain words."""
    return f"<p>{text(words)}</p>"


def section(title: str, parts: Iterable[str]) -> str:
    """A part of the page with a heading, to which links can point."""
    name = title.lower().replace(" ", "-")
    return f'<section id="{text(name)}"><h2>{text(title)}</h2>{"".join(parts)}</section>'


def picture(figure: Figure, description: str, caption: str = "", *, wide: bool = False) -> str:
    """A figure that is part of the page; ``description`` is for those who cannot see it."""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    source = base64.b64encode(svg(figure)).decode("ascii")
    below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return (
        f'<figure{" class=wide" if wide else ""}><div class="scroll"><img '
        f'src="data:image/svg+xml;base64,{source}" alt="{text(description)}" '
        f'width="{width}" height="{height}"></div>{below}</figure>'
    )


def gallery(pictures: Sequence[str]) -> str:
    """Pictures side by side, as many as the screen is wide."""
    return f'<div class="gallery">{"".join(pictures)}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table of plain words, which scrolls sideways on a narrow screen."""
    above = f"<caption>{text(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{text(entry)}</td>' for entry in row)}</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table>{above}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Large numbers with small words below."""
    pairs = (f"<div><dd>{text(fact)}</dd><dt>{text(words)}</dt></div>" for words, fact in facts)
    return f'<dl class="tiles">{"".join(pairs)}</dl>'


def svg(figure: Figure) -> bytes:
    """A figure as SVG, in which words stay words: the browser has letters that we may lack."""
    buffer = io.BytesIO()
    with mpl.rc_context(SVG), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=NO_TIME, dpi=160)
    return buffer.getvalue()
