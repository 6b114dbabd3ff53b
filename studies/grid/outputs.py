"""What an experiment leaves for its readers: tables, figures, and one page that holds them."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from matplotlib.figure import Figure

from subtractive.io.files import write_atomically


class Page(ABC):
    """What an experiment shows: paragraphs, tables and figures, in this order."""

    @abstractmethod
    def text(self, paragraph: str) -> None:
        """Put a paragraph on the page."""

    @abstractmethod
    def table(
        self, name: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Show a table."""

    @abstractmethod
    def figure(self, name: str, caption: str, figure: Figure) -> None:
        """Show a figure."""

    @abstractmethod
    def file(self, name: str, caption: str, contents: bytes) -> None:
        """Show a file that pages can show, such as an animation."""


@final
class Collected(Page):
    """Tables as Markdown and figures by their names, written nowhere."""

    def __init__(self) -> None:
        self.tables: dict[str, str] = {}
        self.figures: dict[str, Figure] = {}
        self.texts: list[str] = []

    def text(self, paragraph: str) -> None:
        self.texts.append(paragraph)

    def table(
        self, name: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        self.tables[name] = markdown(columns, rows)

    def figure(self, name: str, caption: str, figure: Figure) -> None:
        self.figures[name] = figure

    def file(self, name: str, caption: str, contents: bytes) -> None:
        pass


@final
class Outputs(Page):
    """A folder of tables (CSV, Markdown) and figures (PNG, PDF), and ``results.md`` of all.

    A ``remark`` stands over every table.
    """

    def __init__(self, folder: Path, title: str, command: str, remark: str = "") -> None:
        self.folder, self.remark = folder, remark
        self.written: list[Path] = []
        self._page = [f"# {title}", f"```sh\n{command}\n```"]

    def text(self, paragraph: str) -> None:
        self._page.append(paragraph)

    def table(
        self, name: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Write a table to ``name.csv`` in full precision, and rounded to ``name.md``."""
        self._write(f"{name}.csv", csv_text(columns, rows))
        table = (f"**{self.remark}**\n\n" if self.remark else "") + markdown(columns, rows)
        self._write(f"{name}.md", table)
        self._page += [caption, table.rstrip()]

    def figure(self, name: str, caption: str, figure: Figure) -> None:
        """Write a figure to ``name.png`` and ``name.pdf``."""
        for ending, facts in (("png", {}), ("pdf", {"CreationDate": None})):
            path = self.folder / f"{name}.{ending}"
            write_atomically(path, _saving(figure, ending, facts))
            self.written.append(path)
        self._page += [f"![{caption}]({name}.png)", caption]

    def file(self, name: str, caption: str, contents: bytes) -> None:
        """Write a file that pages can show, such as an animation."""
        path = self.folder / name
        write_atomically(path, lambda partial: _write_bytes(partial, contents))
        self.written.append(path)
        self._page += [f"![{caption}]({name})", caption]

    def finish(self) -> Path:
        """Write the page."""
        return self._write("results.md", "\n\n".join(self._page) + "\n")

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        write_atomically(path, lambda partial: _write_bytes(partial, text.encode()))
        self.written.append(path)
        return path


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as comma-separated values, in full precision."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return page.getvalue()


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown, numbers to four digits after the point.

    >>> print(markdown(["model", "score"], [["NPC²", -1.74193], ["MPC", None]]))
    | model | score |
    |---|---|
    | NPC² | -1.7419 |
    | MPC |  |
    """
    cells = [[shown(cell) for cell in row] for row in (columns, *rows)]
    lines = [cells[0], ["---"] * len(columns), *cells[1:]]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text.replace("| --- |", "|---|").replace(" --- |", "---|") + "\n"


def shown(cell: Any) -> str:  # noqa: ANN401 - a number, a text or nothing
    """A cell as a reader wants it."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}" if 1e-2 <= abs(cell) < 1e4 else f"{cell:.3g}"
    return str(cell).replace("|", "\\|")


def _saving(figure: Figure, ending: str, facts: dict[str, Any]) -> Any:  # noqa: ANN401
    return lambda partial: figure.savefig(partial, format=ending, dpi=150, metadata=facts)


def _write_bytes(path: str, contents: bytes) -> None:
    Path(path).write_bytes(contents)
