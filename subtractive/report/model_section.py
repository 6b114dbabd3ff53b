"""The last section of a report: how the model learned, and what it looks like inside."""

from __future__ import annotations

import numpy as np

from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.plots.structure import draw_tree, draw_weights, outline, sum_weights, tree_size
from subtractive.plots.style import panel
from subtractive.plots.training import training
from subtractive.report.baselines import Comparison, Rival, compare
from subtractive.report.blocks import Block, Cells, Gallery, Paragraph, Picture, Section
from subtractive.report.context import Context
from subtractive.report.figures import comparison
from subtractive.report.formatting import count, measured, number_of, percent

ADDS = {
    "squared": "a squared model, which adds and subtracts",
    "monotonic": "a monotonic model, which only adds",
    "squared-monotonic": "a squared monotonic model, which only adds before it squares",
}


def model_section(context: Context) -> Section:
    """Training, Gaussian mixtures, region graph and weights."""
    result = compare(context)
    blocks = [Paragraph(_model_words(context)), *_against_mixtures(context, result)]
    compared = [] if isinstance(result, str) else [_compared(result)]
    pictures = [*compared, *_training(context), _weights(context), _tree(context)]
    words = [_training_words(context), _tree_words(context), _weight_words(context)]
    return Section(
        "Training and structure",
        [*blocks, *(Paragraph(text) for text in words), Gallery(pictures, "large")],
    )


def _model_words(context: Context) -> str:
    model, graph = context.model, context.circuits()[0].graph
    trees, units = len(context.circuits()), context.circuits()[0].input_layers[0].num_units
    shape = "all columns at once" if len(graph.regions) == 1 else f"a tree of depth {graph.depth}"
    parameters = sum(p.numel() for p in context.density.parameters())
    over = shape if trees == 1 else f"{trees} trees"
    return (
        f"This is {ADDS[_kind(context)]}, over {over}, with {units} components and "
        f"{count(parameters)} parameters (structure: {model.structure})."
    )


def _kind(context: Context) -> str:
    """What the model does in the end: a search may have preferred models that only add."""
    density = context.density
    members = density.members if isinstance(density, Mixture) else [density]
    only_adds = all(isinstance(member, MonotonicCircuit) for member in members)
    return "monotonic" if only_adds else context.model.kind


def _training_words(context: Context) -> str:
    history = context.model.history_
    if not history.epochs:
        return "The model file contains no training history."
    words = (
        f"It was trained for {number_of(len(history.epochs), 'epoch', None)}; epoch "
        f"{history.best_epoch} was the best. Log-likelihoods are in the units of the table; for "
        "atoms and categories they use probabilities."
    )
    if history.gain_of_squares is not None:
        words += (
            " Squared models that start from the trained sums were tried, too: "
            f"{history.squares_against_sums} (per held-out row)."
        )
    if context.model.check_ is None:
        return words
    agreed, asked = context.model.check_.counts()
    return (
        f"{words} After the fit, the answers to {count(agreed)} of {count(asked)} random "
        "questions agreed with the held-out rows within chance; a perfect model would reach 95 %."
    )


def _training(context: Context) -> list[Picture]:
    if not context.model.history_.epochs:
        return []
    figure, axes = panel((4.8, 2.6))
    training(context.model.history_, ax=axes)
    return [Picture.of(figure, "Mean log-likelihood per epoch", "Training")]


def _compared(result: Comparison) -> Picture:
    words = "Mean log-likelihoods and two standard errors"
    return Picture.of(
        comparison(result), words, "This model and Gaussian mixtures; bars are two standard errors"
    )


def _against_mixtures(context: Context, result: Comparison | str) -> list[Block]:
    if isinstance(result, str):
        return [Paragraph(f"There is no comparison with Gaussian mixtures: {result}")]
    words = (
        "Comparison with Gaussian mixtures: the mean log-likelihood of "
        f"{count(result.num_test)} rows, in nats. The mixtures were fitted to "
        f"{count(result.num_train)} other rows of this table, which also decided between 1, 4 and "
        "16 components. " + _scope(context, result)
    )
    rows = [
        [rival.name, measured(rival.mean, rival.error), _lead(result, rival)]
        for rival in result.rivals
    ]
    header = ["model", "mean log-likelihood ± standard error", "lead of this model"]
    return [Paragraph(words), Cells(header, rows, cards=True)]


def _scope(context: Context, result: Comparison) -> str:
    everything = result.num_columns == len(context.schema.variables)
    if everything and not np.isnan(context.codes).any():
        return "All columns are compared."
    return (
        f"Only {number_of(result.num_columns, 'numeric column', None)} can be compared, through "
        "the model's exact marginal and on rows without gaps, because Gaussian mixtures know no "
        "categories, missing values or atoms."
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


def _tree_words(context: Context) -> str:
    circuits, graph = context.circuits(), context.circuits()[0].graph
    drawn = outline(graph, _names(context)).num_leaves
    words = (
        "The region graph shows in which order columns are combined. Orange dots are columns; "
        "purple dots multiply the parts to their right and mix the products, and show their "
        "number of columns."
    )
    if len(_names(context)) == 1:
        words = "There is only one column to model."
    elif len(graph.regions) == 1:
        words = "All columns meet at once, in components that describe how they vary together."
    if len(circuits) > 1:
        words += f" The model mixes {len(circuits)} such trees; this is the first."
    if len(graph.regions) > 1 and drawn < len(graph.input_regions):
        words += f" Only its upper part is drawn: {drawn} of {len(graph.input_regions)} branches."
    return words


def _tree(context: Context) -> Picture:
    root = outline(context.circuits()[0].graph, _names(context))
    figure, axes = panel(tree_size(root))
    draw_tree(axes, root)
    return Picture.of(figure, "The region graph of the model", "Region graph")


def _names(context: Context) -> list[str]:
    return [str(column.name) for column in context.schema.variables]


def _weight_words(context: Context) -> str:
    values = sum_weights(context.circuits())
    negative = values < 0
    if _kind(context) != "squared":
        return f"All {count(len(values))} sum weights are non-negative: this model can only add."
    size = float(np.abs(values[negative]).sum() / (np.abs(values).sum() or 1.0))
    return (
        f"{percent(float(negative.mean()))} of {count(len(values))} sum weights are negative, and "
        f"{percent(size)} of the total size of the weights. (Flipping the sign of a whole unit "
        "changes nothing, so this shows that the model can subtract, not how much.)"
    )


def _weights(context: Context) -> Picture:
    figure, axes = panel((4.8, 2.5))
    draw_weights(axes, sum_weights(context.circuits()))
    words = "Histogram of the weights, counts on a log scale"
    return Picture.of(figure, words, "Sum weights")
