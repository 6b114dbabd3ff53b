"""Small tables for notebooks, in which every word is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = "border-collapse: collapse; text-align: left"


def html_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], *, most: int = 30
) -> str:
    """A title and a table of plain words, of at most so many rows.

    >>> html_table("a < b", ["x"], [[1]])
    '<p><b>a &lt; b</b></p><table ...<td>1</td></tr></tbody></table>'
    """
    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in header)
    shown = rows if len(rows) <= most else rows[: most - 1]
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(entry))}</td>' for entry in row)}</tr>" for row in shown
    )
    if len(shown) < len(rows):
        more = f"and {len(rows) - len(shown)} more"
        body += f'<tr><td colspan="{len(header)}">{more}</td></tr>'
    return (
        f'<p><b>{escape(title)}</b></p><table cellpadding="5" style="{STYLE}"><thead>'
        f"<tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
