"""One self-contained page about a model and a table, for those who would rather look than read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from tqdm import tqdm

from subtractive.io.writing import check_writable, write_atomically
from subtractive.report import sections
from subtractive.report.markup import paragraph, text, tiles
from subtractive.report.style import CSS
from subtractive.report.view import View
from subtractive.report.words import count, number, percent
from subtractive.tables.containers import AnyTable
from subtractive.tables.estimator import SubtractiveMixture

SECTIONS = {
    "Training": sections.training,
    "Against Gaussian mixtures": sections.held_out,
    "Columns": sections.marginals,
    "Pairs of columns": sections.pairs,
    "Samples beside data": sections.samples,
    "Structure": sections.structure,
    "Weights": sections.weights,
    "Least likely rows": sections.least_likely,
}
ADDS = {
    "squared": "a squared model, which adds and subtracts",
    "monotonic": "a monotonic model, which only adds",
    "squared-monotonic": "a squared monotonic model, which only adds before it squares",
}

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
    seed: int = 0,
    progress: bool = False,
) -> None:
    """Write a page of pictures about a fitted model and a table with its columns.

    The page needs nothing else: no network, no scripts, both of which it forbids the browser. It
    draws the first 40 columns, and looks for pairs among the first 200. Best is a table that the
    model was not fitted on. The same model, table and seed give the same bytes.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(60, 1))
    >>> model = sub.SubtractiveMixture(2, max_epochs=1, random_state=0).fit(x)
    >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> sub.write_report(model, x, path)
    """
    check_writable(path)
    page = make_page(View.of(model, frame, seed), progress=progress)
    write_atomically(path, lambda partial: _write(partial, page))


def make_page(view: View, *, progress: bool = False) -> str:
    """The whole page; on a terminal, with a bar for its sections."""
    sections = tqdm(SECTIONS.values(), unit="section", disable=None if progress else True)
    body = "\n".join(section(view) for section in sections)
    links = "".join(
        f'<a href="#{text(title.lower().replace(" ", "-"))}">{text(title)}</a>'
        for title in SECTIONS
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(_title(view))}</title>"
        f"<style>{CSS}</style></head>\n<body><header>{_header(view)}</header>"
        f"<nav>{links}</nav><main>\n{body}\n</main>"
        "<footer>Written by subtractive. Every density, probability and sample here is exact for "
        "the model.</footer></body></html>\n"
    )


def _header(view: View) -> str:
    model, graph = view.model, view.circuits()[0].graph
    trees, units = len(view.circuits()), view.circuits()[0].input_layers[0].num_units
    shape = "all columns at once" if len(graph.regions) == 1 else f"a tree of depth {graph.depth}"
    words = (
        f"It is {ADDS[model.kind]}, over {shape if trees == 1 else f'{trees} trees'} (settings: "
        f"{units} components, structure {model.structure})."
    )
    possible = view.scores[np.isfinite(view.scores)]
    facts = [
        ("rows of this table", count(view.table.num_rows)),
        ("columns", count(len(view.schema.names))),
        ("entries missing", percent(_missing(view))),
        ("parameters", count(sum(p.numel() for p in view.density.parameters()))),
        (
            "mean log-density of a row, nats",
            number(float(possible.mean()) if len(possible) else -np.inf),
        ),
    ]
    left_out = len(view.scores) - len(possible)
    if left_out:
        facts.append(("impossible rows, not in the mean", count(left_out)))
    return f"<h1>{text(_title(view))}</h1>{paragraph(words)}{tiles(facts)}"


def _title(view: View) -> str:
    columns = len(view.schema.names)
    if columns == 1:
        return "The density of 1 column"
    return f"The joint density of {count(columns)} columns"


def _missing(view: View) -> float:
    return float(np.mean([column.missing for column in view.table.columns]))


def _write(path: str, page: str) -> None:
    # A lone half of a surrogate pair, which a name may hold, has no bytes.
    Path(path).write_text(page, encoding="utf-8", errors="replace", newline="\n")
