"""One self-contained page about a model and a table, for those who would rather look than read."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jinja2
from tqdm import tqdm

from subtractive.io.writing import check_writable, write_atomically
from subtractive.report.blocks import Section
from subtractive.report.context import Context
from subtractive.report.formatting import number_of
from subtractive.report.model_section import model_section
from subtractive.report.overview import overview
from subtractive.report.sections import columns, dependence, unusual
from subtractive.tables.containers import AnyTable
from subtractive.tables.estimator import SubtractiveMixture

SECTIONS: tuple[Callable[[Context], Section], ...] = (
    overview,
    columns,
    dependence,
    unusual,
    model_section,
)

# What a browser may do with the page, should anything of a table ever become markup: nothing.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)


def write_report(
    model: SubtractiveMixture,
    frame: AnyTable,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> None:
    """Write an HTML page about a fitted model and a table with its columns.

    It begins with how well the model fits the table, in words; then come the columns, their
    dependence, unusual rows, training and structure. The page is self-contained: it needs no
    network and no scripts, and forbids the browser both. It draws the first 40 columns, and looks
    for pairs among the first 200. Use rows that the model was not trained on, if you can. The
    same model, table and seed give the same bytes.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(60, 1))
    >>> model = sub.SubtractiveMixture(2, max_epochs=1, random_state=0).fit(x)
    >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> sub.write_report(model, x, path)
    """
    check_writable(path)
    page = make_page(Context.of(model, frame, seed), title, progress=progress)
    write_atomically(path, lambda partial: _write(partial, page))


def make_page(context: Context, title: str | None = None, *, progress: bool = False) -> str:
    """The whole page; on a terminal, with a bar for its sections."""
    made = []
    for section in (bar := tqdm(SECTIONS, unit="section", disable=None if progress else True)):
        bar.set_description(section.__name__.replace("_", " "))
        made.append(section(context))
    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    template = templates.get_template("page.html")
    return template.render(
        title=title or _size(context),
        size=_size(context),
        sections=made,
        policy=POLICY,
        css=_read("style.css"),
    )


def _read(name: str) -> str:
    return (files("subtractive.report") / "templates" / name).read_text(encoding="utf-8")


def _size(context: Context) -> str:
    columns, rows = len(context.schema.names), context.table.num_rows
    return f"{number_of(rows, 'row', None)}, {number_of(columns, 'column', None)}"


def _write(path: str, page: str) -> None:
    # A lone half of a surrogate pair, which a name may hold, has no bytes.
    Path(path).write_text(page, encoding="utf-8", errors="replace", newline="\n")
