"""The first section of a report: what the table is, and how well the model fits it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from subtractive.plots.calibration import draw_calibration
from subtractive.plots.labels import short
from subtractive.plots.style import panel
from subtractive.report.blocks import (
    Beside,
    Block,
    Cells,
    Gallery,
    Paragraph,
    Picture,
    Section,
    Tiles,
)
from subtractive.report.context import Context
from subtractive.report.dependence import mutual_information, strongest
from subtractive.report.fidelity import MOST_FEATURES, Fidelity, measure
from subtractive.report.figures import histograms, scatters
from subtractive.report.formatting import (
    cell,
    count,
    listed,
    number,
    number_of,
    percent,
    same_decimals,
)
from subtractive.tables.functional_dependencies import dependencies_of
from subtractive.tables.reading import Table
from subtractive.tables.validation import read_table

MOST_SHOWN, FEW_ROWS, MOST_RULES = 12, 5, 6
MOST_BESIDE = 6  # columns with which two tables fit on a page side by side
LONG_NUMBER = re.compile(r"\d+\.\d{4,}")


def overview(context: Context) -> Section:
    """What there is, a verdict in words, and what it rests on."""
    fidelity = measure(context)
    blocks: list[Block] = [
        Paragraph(f"{fidelity.verdict} {_table_words(context)}", lead=True),
        Tiles(_facts(context, fidelity)),
        Cells(
            ["check", "result", "meaning"],
            _judged(context, fidelity),
            cards=True,
        ),
        Gallery(_pictures(context, fidelity), "large"),
        *_rules(context),
        *_samples(context),
        Paragraph(
            "If the model was trained on these rows, the checks flatter it. For a fair test, make "
            "the report with rows that it has not seen."
        ),
    ]
    return Section("How well the model fits this table", blocks)


def _table_words(context: Context) -> str:
    schema, gaps = context.schema, float(np.mean([c.missing for c in context.table.columns]))
    kinds = [
        number_of(len(context.continuous), "numeric column", None),
        number_of(
            len(context.discrete),
            "column of categories or counts",
            "columns of categories or counts",
        ),
    ]
    words = f"The table has {' and '.join(kinds)}"
    words += (
        f"; {percent(gaps)} of the entries are missing" if gaps else ", and no missing entries"
    )
    if schema.constants:
        words += f"; {listed(list(schema.constants))} never change"
    if schema.aside:
        words += f"; {listed(list(schema.aside))} are ignored"
    return words + "."


def _rules(context: Context) -> list[Block]:
    """Columns that follow from others, if there are any."""
    rules = [str(rule) for rule in dependencies_of(context.table)]
    if not rules:
        return []
    more = f"; and {len(rules) - MOST_RULES} more" if len(rules) > MOST_RULES else ""
    return [
        Paragraph(
            f"In every row of this table, some columns follow from others: "
            f"{'; '.join(rules[:MOST_RULES])}{more}. The model learns such rules only "
            "approximately. Leave out columns that follow from others, and compute them instead."
        )
    ]


def _facts(context: Context, fidelity: Fidelity) -> list[tuple[str, str]]:
    possible = context.scores[np.isfinite(context.scores)]
    mean = float(possible.mean()) if len(possible) else -np.inf
    facts = [
        ("rows of this table", count(context.table.num_rows)),
        ("columns", count(len(context.schema.names))),
        ("rows with gaps", percent(float(_with_gaps(context)))),
    ]
    if fidelity.questions is not None:
        facts.append(
            (
                "of answers to random questions agree with the table",
                percent(fidelity.questions.share),
            )
        )
    facts.append(("mean log-density of a row, nats", number(mean)))
    left_out = len(context.scores) - len(possible)
    if left_out:
        facts.append(("impossible rows, not in the mean", count(left_out)))
    return facts


def _with_gaps(context: Context) -> float:
    columns = [c.missing for c in context.table.columns if c.name not in context.schema.aside]
    return float(np.any(columns, axis=0).mean()) if columns else 0.0


def _judged(context: Context, fidelity: Fidelity) -> list[list[str]]:
    rows = []
    if len(fidelity.pit.columns):
        right, far = fidelity.calibrated, fidelity.distances
        off = [name for name in far.index if not right[name]]
        words = (
            f"Largest deviations: {listed(off, 3)}."
            if off
            else "No column deviates by more than chance."
        )
        result = f"{int(right.sum())} of {len(right)} columns"
        rows.append(["Distribution of each column (PIT)", result, words])
    if fidelity.auc is not None:
        words = (
            "Gradient boosting cannot tell samples from rows (0.5 is chance)."
            if fidelity.auc < 0.6
            else "Gradient boosting recognises some samples (0.5 is chance, 1 is perfect)."
            if fidelity.auc < 0.78
            else "Gradient boosting recognises most samples (0.5 is chance, 1 is perfect)."
        )
        size = len(context.schema.variables)
        if size > MOST_FEATURES:
            words += f" It sees the first {MOST_FEATURES} of {size} columns."
        rows.append(
            ["Samples and rows told apart by a classifier", f"AUC {fidelity.auc:.2f}", words]
        )
    if fidelity.questions is not None:
        asked = fidelity.questions
        worst = min(asked.receipts, key=lambda receipt: receipt.p_value or 0.0)
        question = LONG_NUMBER.sub(lambda found: number(float(found[0])), worst.question)
        words = (
            f"A perfect model would agree in 95 %. Least likely by chance: {short(question, 120)} "
            f"is {number(worst.probability, 2)} in the model and {number(worst.share or 0.0, 2)} "
            "in the table."
        )
        result = f"{percent(asked.share)} of {len(asked.receipts)}"
        rows.append(["Random questions P(event | given)", result, words])
    return rows


def _pictures(context: Context, fidelity: Fidelity) -> list[Picture]:
    drawn = []
    if len(fidelity.pit.columns):
        figure, axes = panel((4.8, 2.8))
        draw_calibration(axes, fidelity.pit)
        caption = (
            "Calibration: the share of rows below each of the model's quantiles, minus the level "
            "of the quantile. A perfect model stays inside the grey band."
        )
        drawn.append(Picture.of(figure, "Calibration of the columns", caption))
    information = mutual_information(context)
    variables = list(range(len(context.schema.variables)))
    preferred = context.continuous if len(context.continuous) > 1 else variables
    if len(variables) > 1:
        first, second, *_ = strongest(information, preferred, 2)
        figure = scatters(context, (first, second), context.samples)
    else:
        figure = histograms(context, 0, context.samples)
    caption = "Rows of the table, and as many exact samples from the model."
    drawn.append(Picture.of(figure, "Rows of the table beside samples from the model", caption))
    return drawn


def _samples(context: Context) -> list[Block]:
    names = context.schema.names[:MOST_SHOWN]
    rows = context.schema.decode(torch.from_numpy(context.samples[:FEW_ROWS]))
    invented = read_table(context.schema.build(rows))
    chosen = context.some_rows(FEW_ROWS).tolist()
    tables = [
        row_cells(context.table, names, chosen, "Rows of the table" + first_columns(context)),
        row_cells(
            invented, names, range(FEW_ROWS), f"Samples from the model, seed {context.seed}"
        ),
    ]
    return [Beside([[one] for one in tables])] if len(names) <= MOST_BESIDE else [*tables]


def row_cells(
    rows: Table, names: Sequence[Hashable], chosen: Sequence[int], caption: str
) -> Cells:
    """Some rows as a table of words."""
    columns = rows.columns[: len(names)]
    entries = [same_decimals([cell(column, row) for row in chosen]) for column in columns]
    body = list(zip(*entries, strict=True))
    return Cells([short(name, 20) for name in names], body, caption)


def first_columns(context: Context) -> str:
    """Words on how many columns a table of rows leaves out."""
    size = len(context.schema.names)
    return f" (the first {MOST_SHOWN} of {size} columns)" if size > MOST_SHOWN else ""
