"""Sections of a report about columns, pairs of them, and rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from subtractive.plots.dependence import draw_matrix
from subtractive.plots.joints import draw_dots, draw_shades, joint_heights, joint_sides
from subtractive.plots.labels import short
from subtractive.plots.marginals import MOST_BARS, draw_numbers, draw_states
from subtractive.plots.style import SIZE, panel
from subtractive.report.blocks import Beside, Block, Cells, Gallery, Paragraph, Picture, Section
from subtractive.report.context import Context, num_states
from subtractive.report.dependence import (
    MOST_VARIABLES,
    information_of,
    mutual_information,
    strongest,
    strongest_pair,
    strongest_pairs,
)
from subtractive.report.fidelity import as_recorded
from subtractive.report.figures import MOST_STATES, curves_by_state, state_tables
from subtractive.report.formatting import (
    cell,
    count,
    number,
    number_of,
    percent,
    same_decimals,
    state,
)
from subtractive.report.overview import MOST_SHOWN, first_columns
from subtractive.tables.reading import Floats

MOST_COLUMNS, MOST_PAIRED, MOST_IN_MATRIX, MOST_PAIRS = 40, 3, 24, 8
UNUSUAL = 10


def columns(context: Context) -> Section:
    """Every column alone."""
    variables = range(len(context.schema.variables))
    words = (
        "Blue bars show the data; purple lines and bars show the model's exact marginals. A bar "
        "with its own axis on the right is an atom: a single value with positive probability, "
        "such as zero rainfall."
    )
    if len(variables) > MOST_COLUMNS:
        words += f" The first {MOST_COLUMNS} of {len(variables)} columns are drawn."
    drawn = [_marginal(context, variable) for variable in variables[:MOST_COLUMNS]]
    return Section("Columns", [Paragraph(words), Gallery(drawn), *_not_drawn(context)])


def _marginal(context: Context, variable: int) -> Picture:
    name, gaps = short(context.name(variable), 60), np.isnan(context.codes[:, variable])
    found = context.marginals[context.name(variable)]
    notes = []
    if found.is_states:
        bars = min(len(found.values), MOST_BARS)
        figure, axes = panel((SIZE[0], max(SIZE[1], 0.24 * bars + 0.6)))
        hidden = draw_states(axes, found, context.codes[:, variable])
        notes.append(_number_or_nothing(hidden, "rarer category", "rarer categories", "not drawn"))
    else:
        figure, axes = panel()
        values = context.values(variable)
        draw_numbers(axes, found, values[~np.isnan(values)])
        low, high = context.limits(variable)
        atoms = np.isin(values, found.values)
        outside = int((((values < low) | (values > high)) & ~atoms).sum())
        notes.append(_number_or_nothing(outside, "value", None, "outside the plot"))
    notes.append(f"{percent(float(gaps.mean()))} missing" if gaps.any() else "")
    caption = ", ".join([name, *(note for note in notes if note)])
    return Picture.of(figure, f"Distribution of {name} in the data and in the model", caption)


def _number_or_nothing(size: int, one: str, many: str | None, what: str) -> str:
    return f"{number_of(size, one, many)} {what}" if size else ""


def _not_drawn(context: Context) -> list[Block]:
    """Words on the columns that are no variables of their own."""
    schema = context.schema
    sentences = [
        f"{short(name)} is constant: {state(value)}." for name, value in schema.constants.items()
    ]
    sentences += [
        f"{short(name)} is a copy of {short(context.name(place))}."
        for name, place in schema.place.items()
        if context.name(place) != name
    ]
    most = 20
    more = [f"And {len(sentences) - most} more."] if len(sentences) > most else []
    return [Paragraph(" ".join(sentences[:most] + more))] if sentences else []


def dependence(context: Context) -> Section:
    """Which columns depend on each other: a matrix, the strongest pairs, and their densities."""
    information = mutual_information(context)
    size = len(information)
    if size < 2:
        return Section("Dependence", [Paragraph("There is only one column.")])
    drawn = as_recorded(context, context.samples)
    invented = information_of(drawn)
    pairs = strongest_pairs(information, MOST_PAIRS)
    words = (
        "Mutual information, in nats, measures how much one column tells you about another; zero "
        "means independent. It is estimated in the same way from rows and from samples."
    )
    if size > MOST_VARIABLES:
        words += f" Only the first {MOST_VARIABLES} of {size} columns are compared."
    rows = [
        [_both(context, pair), f"{information[pair]:.2f}", f"{invented[pair]:.2f}"]
        for pair in pairs
    ]
    header = ["strongest pairs", "in the table", "in samples"]
    right: list[Cells | Picture] = [Cells(header, rows)] if rows else []
    right += _pair_tables(context)
    blocks: list[Block] = [Paragraph(words), Beside([[_matrix(context, information)], right])]
    pictures = _joint_pictures(context, information)
    if pictures:
        words = "Shading is the model's exact joint density; dots are rows of the table."
        blocks += [Paragraph(words), Gallery(pictures)]
    return Section("Dependence", blocks)


def _matrix(context: Context, information: Floats) -> Picture:
    among = list(range(min(len(information), MOST_VARIABLES)))
    shown = sorted(strongest(information, among, MOST_IN_MATRIX))
    names = [short(context.name(variable), 18) for variable in shown]
    part = pd.DataFrame(information[np.ix_(shown, shown)], names, names)
    inches = max(2.6, 1.4 + 0.3 * len(shown))
    figure, axes = panel((max(4.8, inches + 1.0), inches))
    draw_matrix(axes, part)
    more = f" (the {len(shown)} most dependent columns)" if len(shown) < len(information) else ""
    return Picture.of(figure, "Mutual information of columns", f"Dependence in the table{more}")


def _pair_tables(context: Context) -> list[Picture]:
    """The most dependent two columns with few states, in data and model."""
    few = [v for v in context.discrete if num_states(context, v) <= MOST_STATES]
    pair = strongest_pair(mutual_information(context), few, few)
    if pair is None:
        return []
    caption = f"{_both(context, pair)}: joint probabilities in percent"
    return [Picture.of(state_tables(context, pair), caption, caption)]


def _joint_pictures(context: Context, information: Floats) -> list[Picture]:
    chosen = strongest(information, context.continuous, MOST_PAIRED)
    pictures = []
    for pair in combinations(chosen, 2):
        sides = joint_sides(context.model, [context.name(v) for v in pair], None)
        figure, axes = panel((3.6, 3.1))
        draw_shades(axes, sides, joint_heights(context.model, sides, None))
        draw_dots(axes, sides, [context.values(v) for v in pair])
        pictures.append(Picture.of(figure, f"Joint density of {_both(context, pair)}"))
    few = [v for v in context.discrete if num_states(context, v) <= MOST_STATES]
    mixed = strongest_pair(information, context.continuous, few)
    if mixed is not None:
        named = f"{short(context.name(mixed[0]))} for each {short(context.name(mixed[1]))}"
        figure = curves_by_state(context, *mixed)
        pictures.append(Picture.of(figure, named, f"{named}: data and model"))
    return pictures


def _both(context: Context, pair: Sequence[int]) -> str:
    return " and ".join(short(context.name(variable)) for variable in pair)


def unusual(context: Context) -> Section:
    """The rows that the model expects least."""
    order = np.argsort(context.scores, kind="stable")[:UNUSUAL]
    names = context.schema.names[:MOST_SHOWN]
    entries = [[count(int(row) + 1) for row in order]]
    entries += [[number(float(context.scores[row])) for row in order]]
    entries += [
        [cell(column, int(row)) for row in order] for column in context.table.columns[:MOST_SHOWN]
    ]
    rows = list(zip(*map(same_decimals, entries), strict=True))
    words = (
        "The rows with the lowest density under the model: the first place to look for errors and "
        "exceptions. Rows are numbered from 1, without the header. Log-densities are in nats"
        f"{first_columns(context)}."
    )
    impossible = int(np.isneginf(context.scores).sum())
    if impossible:
        words += f" The model rules out {number_of(impossible, 'row', None)} of the table."
    header = ["row", "log-density", *(short(name, 20) for name in names)]
    return Section("Unusual rows", [Paragraph(words), Cells(header, rows)])
