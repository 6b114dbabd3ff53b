"""The sections of a report, each a function from what is looked at to a piece of the page."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np
import torch

from subtractive.report.baselines import Comparison, Rival, compare
from subtractive.report.dependence import mutual_information, strongest, strongest_pair
from subtractive.report.figures import (
    comparison,
    continuous_marginal,
    discrete_marginal,
    hidden_states,
    shown_range,
    training_curves,
)
from subtractive.report.joint_figures import (
    MOST_STATES,
    SCATTER,
    curves_by_state,
    histograms,
    pair_density,
    scatters,
    state_tables,
)
from subtractive.report.markup import gallery, paragraph, picture, section, table
from subtractive.report.structure_figures import (
    outline,
    region_tree,
    sum_weights,
    weight_histogram,
)
from subtractive.report.view import View, num_states
from subtractive.report.words import cell, count, measured, number, percent, short, state
from subtractive.tables.reading import Table
from subtractive.tables.receipts import Check
from subtractive.tables.validation import read_table

MOST_COLUMNS, MOST_SHOWN, MOST_PAIRED = 40, 12, 4
FEW_ROWS, LEAST_LIKELY = 5, 10


def training(view: View) -> str:
    """How the model learned."""
    history = view.model.history_
    if not history.epochs:
        return section("Training", [paragraph("This model carries no history of its training.")])
    words = (
        f"{_number_of(len(history.epochs), 'epoch', None)}, of which number {history.best_epoch} "
        "was the best. These log-likelihoods are in the units of the table, as those of all rows "
        "are; atoms and categories count with their probabilities."
    )
    if view.model.check_ is not None:
        words += f" After the fit, {_agreement(view.model.check_)}."
    drawn = picture(training_curves(history), "Mean log-likelihood per epoch")
    return section("Training", [paragraph(words), drawn])


def _agreement(check: Check) -> str:
    agreed, asked = check.counts()
    return (
        f"{count(agreed)} of {count(asked)} random questions about the table were answered as its "
        "held-out rows answer them, within chance; of the truth itself one would expect 95 %"
    )


def held_out(view: View) -> str:
    """The model against Gaussian mixtures."""
    result = compare(view)
    title = "Against Gaussian mixtures"
    if isinstance(result, str):
        return section(title, [paragraph(result)])
    words = (
        f"Mean log-likelihood of {count(result.num_test)} rows of this table, in nats and in the "
        f"units of the table. The Gaussian mixtures learned from {count(result.num_train)} other "
        "rows of it, which also chose their number of components from 1, 4 and 16. "
        + _scope_of(view, result)
    )
    caution = (
        "The Gaussian mixtures have not seen the rows they are judged on. Whether the model has "
        "cannot be told from the table: for a fair comparison, report on rows that it was not "
        "fitted on."
    )
    rows = [
        [rival.name, measured(rival.mean, rival.error), _lead(result, rival)]
        for rival in result.rivals
    ]
    header = ["density", "mean log-likelihood ± standard error", "the model's lead"]
    drawn = picture(comparison(result), "Mean log-likelihoods with their uncertainty")
    return section(title, [paragraph(words), drawn, table(header, rows), paragraph(caution)])


def _scope_of(view: View, result: Comparison) -> str:
    if not view.discrete and not np.isnan(view.codes).any():
        return "All columns are compared."
    return (
        f"Compared are the {_number_of(result.num_columns, 'continuous column', None)} alone, for "
        "which the model's exact marginal is taken, on rows without gaps in them: Gaussian "
        "mixtures know neither categories nor missing values."
    )


def _lead(result: Comparison, rival: Rival) -> str:
    model = result.rivals[0]
    if rival is model:
        return ""
    difference = model.scores - rival.scores
    if not np.isfinite(difference).all():
        return f"{count(int((~np.isfinite(difference)).sum()))} rows are impossible"
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    sign = "+" if difference.mean() > 0 else ""
    return sign + measured(float(difference.mean()), float(error))


def marginals(view: View) -> str:
    """Every column alone."""
    variables = range(len(view.schema.variables))
    words = (
        "Bars are the data, lines and dark bars the model's exact marginals, in the units of the "
        "table."
    )
    if len(variables) > MOST_COLUMNS:
        words += f" The first {MOST_COLUMNS} of {len(variables)} columns are shown."
    drawn = [_marginal(view, variable) for variable in variables[:MOST_COLUMNS]]
    return section("Columns", [paragraph(words), gallery(drawn), *_not_drawn(view)])


def _marginal(view: View, variable: int) -> str:
    name, gaps = short(view.name(variable), 60), np.isnan(view.codes[:, variable])
    if variable in view.continuous:
        figure, notes = continuous_marginal(view, variable), [_beyond(view, variable)]
    else:
        figure, notes = discrete_marginal(view, variable), [_hidden(view, variable)]
    notes.append(f"{percent(float(gaps.mean()))} missing" if gaps.any() else "")
    caption = ", ".join([name, *(note for note in notes if note)])
    return picture(figure, f"Distribution of {name} in the data and in the model", caption)


def _beyond(view: View, variable: int) -> str:
    low, high = shown_range(view, variable)
    values = view.values(variable)
    outside = int(((values < low) | (values > high)).sum())
    return f"{_number_of(outside, 'value', None)} outside the picture" if outside else ""


def _hidden(view: View, variable: int) -> str:
    hidden = hidden_states(view, variable)
    return (
        f"{_number_of(hidden, 'rarer category', 'rarer categories')} not shown" if hidden else ""
    )


def _not_drawn(view: View) -> list[str]:
    """Words on the columns that are no variables of their own."""
    schema = view.schema
    sentences = [
        f"{short(name)} is constant: {state(value)}." for name, value in schema.constants.items()
    ]
    sentences += [
        f"{short(name)} is a copy of {short(view.name(place))}."
        for name, place in schema.place.items()
        if view.name(place) != name
    ]
    most = 20
    more = [f"And {len(sentences) - most} more."] if len(sentences) > most else []
    return [paragraph(" ".join(sentences[:most] + more))] if sentences else []


def pairs(view: View) -> str:
    """Columns that depend on each other most, two at a time."""
    information = mutual_information(view)
    chosen = strongest(information, view.continuous, MOST_PAIRED)
    drawn = [
        picture(pair_density(view, pair), f"Joint density of {_both(view, pair)}")
        for pair in combinations(chosen, 2)
    ]
    few = [v for v in view.discrete if num_states(view, v) <= MOST_STATES]
    mixed = strongest_pair(information, view.continuous, few)
    states = strongest_pair(information, few, few)
    if mixed is not None:
        named = f"{short(view.name(mixed[0]))} for each {short(view.name(mixed[1]))}"
        drawn.append(picture(curves_by_state(view, *mixed), named, f"{named}: data and model"))
    parts = [gallery(drawn)] if drawn else []
    if states is not None:
        figure = state_tables(view, states)
        caption = f"{_both(view, states)}: joint probabilities in per cent"
        parts.append(picture(figure, caption, caption, wide=True))
    if not parts:
        parts.append(paragraph("There are no two columns that could be drawn together."))
    words = (
        "Exact joint densities of the columns that depend on each other most (by mutual "
        "information in the data); dots are rows of the table. Colour follows the square root of "
        "the density."
    )
    return section("Pairs of columns", [paragraph(words), *parts] if drawn else parts)


def _both(view: View, pair: Sequence[int]) -> str:
    return " and ".join(short(view.name(variable)) for variable in pair)


def samples(view: View) -> str:
    """What the model draws, beside what there is."""
    generator = torch.Generator().manual_seed(view.seed)
    with torch.no_grad():
        drawn = view.density.sample(SCATTER, generator=generator).numpy()
    information = mutual_information(view)
    variables = list(range(len(view.schema.variables)))
    preferred = view.continuous if len(view.continuous) > 1 else variables
    if len(variables) > 1:
        first, second, *_ = strongest(information, preferred, 2)
        figure = scatters(view, (first, second), drawn)
    else:
        figure = histograms(view, 0, drawn)
    names = view.schema.names[:MOST_SHOWN]
    rows = view.model.schema_.decode(torch.from_numpy(drawn[:FEW_ROWS]))
    invented = view.schema.build(rows)
    parts = [
        paragraph(f"Exact samples, seed {view.seed}." + _first_columns(view)),
        picture(figure, "Rows of the table beside samples of the model", wide=True),
        _rows(view.table, names, view.some_rows(FEW_ROWS).tolist(), "Rows of the table"),
        _rows(read_table(invented), names, range(FEW_ROWS), "Samples of the model"),
    ]
    return section("Samples beside data", parts)


def _rows(rows: Table, names: Sequence[Hashable], chosen: Sequence[int], caption: str) -> str:
    columns = rows.columns[: len(names)]
    body = [[cell(column, row) for column in columns] for row in chosen]
    return table([short(name, 20) for name in names], body, caption)


def _first_columns(view: View) -> str:
    size = len(view.schema.names)
    return f" Tables show the first {MOST_SHOWN} of {size} columns." if size > MOST_SHOWN else ""


def structure(view: View) -> str:
    """Which columns meet when."""
    circuits = view.circuits()
    graph = circuits[0].graph
    names = [str(column.name) for column in view.schema.variables]
    root = outline(graph, names)
    words = (
        "Which columns meet when: orange dots are inputs, purple dots multiply what is to their "
        "right and add up, with and without sign; the number says over how many columns."
    )
    if len(names) == 1:
        words = "There is one column, and nothing to meet."
    elif len(graph.regions) == 1:
        words = "All columns meet at once, in components that know how they vary together."
    if len(circuits) > 1:
        words += f" The model mixes {len(circuits)} such trees; this is the first."
    drawn = root.num_leaves
    if len(graph.regions) > 1 and drawn < len(graph.input_regions):
        words += f" The upper part is drawn: {drawn} branches of {len(graph.input_regions)}."
    picture_of_it = picture(region_tree(root), "The region graph of the model", wide=True)
    return section("Structure", [paragraph(words), picture_of_it])


def weights(view: View) -> str:
    """How much of the model is subtracted."""
    values = sum_weights(view.circuits())
    negative = values < 0
    if view.model.kind == "squared":
        size = float(np.abs(values[negative]).sum() / (np.abs(values).sum() or 1.0))
        words = (
            f"{percent(float(negative.mean()))} of {count(len(values))} weights of sums are "
            f"negative, and {percent(size)} of their total size: squares learn to subtract. "
            "(Turning the sign of a whole unit changes nothing, so the share says that the model "
            "may subtract, not by how much.)"
        )
    else:
        words = (
            f"None of the {count(len(values))} weights of sums is negative: this model "
            f"({view.model.kind}) can only add."
        )
    drawn = picture(weight_histogram(values), "Histogram of the weights, counts on a log scale")
    return section("Weights", [paragraph(words), drawn])


def least_likely(view: View) -> str:
    """The rows that the model expects least."""
    order = np.argsort(view.scores, kind="stable")[:LEAST_LIKELY]
    names = view.schema.names[:MOST_SHOWN]
    columns = view.table.columns[:MOST_SHOWN]
    rows = [
        [count(int(row) + 1), number(float(view.scores[row]), 4)]
        + [cell(column, int(row)) for column in columns]
        for row in order
    ]
    words = (
        "Where to look first for errors and for exceptions. Rows are counted from 1, without the "
        "header; log-densities are in nats."
    )
    impossible = int(np.isneginf(view.scores).sum())
    if impossible:
        words += f" {_number_of(impossible, 'row', None)} of the table cannot be, by the model."
    header = ["row", "log-density", *(short(name, 20) for name in names)]
    parts = [paragraph(words + _first_columns(view)), table(header, rows)]
    return section("Least likely rows", parts)


def _number_of(number: int, one: str, many: str | None) -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
