"""Densities of a table for each of several classes: learned class by class, or in one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from subtractive.inputs.gaussian import Gaussian
from subtractive.tables import queries
from subtractive.tables.cell_values import Content
from subtractive.tables.effort import seconds_of
from subtractive.tables.model_selection import learn_table
from subtractive.tables.reading import Floats, RawColumn, Table
from subtractive.tables.recipe import Recipe
from subtractive.tables.schema import Schema
from subtractive.tables.view import View

# Rows of few are held out in turn, in so many folds; of many, one share of each class is.
FEW, FOLDS, SHARE = 2000, 3, 0.15
# Mistakes of each class, and as many rows that were none, beside those that are seen. Platt takes
# one; but the mean of all folds is better than the densities of one fold, which are judged.
UNSEEN_MISTAKES = 0.25
# Powers of densities that are tried.
LEAST_POWER, MOST_POWER = 0.02, 1.5

Codes = npt.NDArray[Any]  # (n,), of classes


class LabelledTable(NamedTuple):
    """Rows of a table, the class of each, (n,), and their weights (n,)."""

    table: Table
    codes: Codes
    weights: Floats

    def rows(self, rows: Codes) -> LabelledTable:
        """Some of the rows."""
        return LabelledTable(self.table.rows(rows), self.codes[rows], self.weights[rows])

    @property
    def log_shares(self) -> Floats:
        """The logarithms of the classes' shares, (c,)."""
        totals = np.bincount(self.codes, weights=self.weights)
        return np.asarray(np.log(totals / totals.sum()))


class ClassDensities(NamedTuple):
    """Densities of each class, whose mean is its density, and the power that is taken of it."""

    views: list[list[View]]  # of each class one, or one for each fold
    power: float = 1.0

    def log_densities(self, table: Table) -> Floats:
        """log p(x | class), (n, c)."""
        return np.stack([_log_mean(views, table) for views in self.views], axis=1)


Learner = Callable[[Recipe, Schema, LabelledTable, np.random.RandomState], ClassDensities]


def learn_classes(
    recipe: Recipe, schema: Schema, rows: LabelledTable, random: np.random.RandomState
) -> ClassDensities:
    """The densities of classes that a recipe asks for.

    If a recipe leaves structure and size open, rows are held out: they say how sure the classes
    are, and whether densities of their own are better than one model of rows and classes, in
    which classes share what they have in common. Of many rows that are not all continuous it is
    not asked: there one model was always better.
    """
    folds = held_out_rows(rows, random) if recipe.is_open else []
    if not folds:
        return class_by_class(recipe, schema, rows, random)
    is_continuous = all(c.family(signed=False) == Gaussian() for c in schema.variables)
    may_be_apart = is_continuous or len(folds) > 1
    learners: list[Learner] = [jointly, class_by_class] if may_be_apart else [jointly]
    seconds = seconds_of(recipe.effort, rows.table.num_rows * len(schema.variables))
    part = replace(recipe, effort=seconds / (len(folds) * len(learners)))
    held = np.concatenate(folds)
    trials = []
    for learner in learners:
        found, scores = [], []
        for fold in folds:
            train = rows.rows(np.setdiff1d(np.arange(len(rows.codes)), fold))
            found.append(learner(part, schema, train, random))
            scores.append(found[-1].log_densities(rows.table.rows(fold)))
        power, loss = best_power(np.concatenate(scores), rows.rows(held))
        trials.append((loss, power, found))
    _, power, found = min(trials, key=lambda trial: trial[0])
    views = [
        list(chain.from_iterable(parts))
        for parts in zip(*(one.views for one in found), strict=True)
    ]
    return ClassDensities(views, power)


def best_power(scores: Floats, rows: LabelledTable) -> tuple[float, float]:
    """The power of densities, log p(x | class) being (n, c), of the least log loss, and that.

    Classes are smoothed as by Platt: of n rows that are all told apart, one more might not be.
    """
    counts = np.bincount(rows.codes)[rows.codes]
    wrong = UNSEEN_MISTAKES / (counts + 2 * UNSEEN_MISTAKES)
    others = wrong / max(1, scores.shape[1] - 1)
    targets = np.repeat(others[:, None], scores.shape[1], axis=1)
    targets[np.arange(len(counts)), rows.codes] = 1 - wrong
    finite = np.maximum(np.nan_to_num(scores, neginf=-1e9), scores.max(1, keepdims=True) - 1e4)

    def loss(power: float) -> float:
        logs = log_softmax(power * finite + rows.log_shares, axis=1)
        return -float(np.average((targets * logs).sum(1), weights=rows.weights))

    found = minimize_scalar(loss, bounds=(LEAST_POWER, MOST_POWER), method="bounded")
    return float(found.x), float(found.fun)


def class_by_class(
    recipe: Recipe, schema: Schema, rows: LabelledTable, random: np.random.RandomState
) -> ClassDensities:
    """A density of its own for each class."""
    views: list[list[View]] = []
    for code in range(len(rows.log_shares)):
        own = rows.rows((rows.codes == code).nonzero()[0])
        learned = learn_table(recipe, schema, own.table, own.weights, _seed(random))
        recoded = schema.recoded(learned.columns)
        views.append([View(recoded, learned.density, recoded.names)])
    return ClassDensities(views)


def jointly(
    recipe: Recipe, schema: Schema, rows: LabelledTable, random: np.random.RandomState
) -> ClassDensities:
    """One density of rows and classes, given each of the classes."""
    name = ("class", *schema.names)  # the name of no column
    labels = np.array([str(code) for code in rows.codes], dtype=object)
    column = RawColumn(name, labels, Content.TEXT)
    alone = rows.table._replace(columns=(column,))
    own = Schema.of(alone, rows.weights, {name: "categorical"}, schema.unknown)
    joint = replace(
        schema,
        names=(*schema.names, name),
        variables=(*schema.variables, *own.variables),
        place={**schema.place, name: len(schema.variables)},
    )
    table = rows.table._replace(columns=(*rows.table.columns, column))
    learned = learn_table(recipe, joint, table, rows.weights, _seed(random))
    recoded = joint.recoded(learned.columns)
    view = View(recoded, learned.density, recoded.names)
    return ClassDensities([[view.given({name: str(c)})] for c in range(len(rows.log_shares))])


def held_out_rows(rows: LabelledTable, random: np.random.RandomState) -> list[Codes]:
    """The rows of each fold, or of one; none if a class is too small to be in each of them."""
    num_folds = FOLDS if len(rows.codes) < FEW else 1
    if np.bincount(rows.codes).min() < 2 * FOLDS:
        return []
    folds: list[list[Codes]] = [[] for _ in range(num_folds)]
    for code in range(len(rows.log_shares)):
        own = random.permutation((rows.codes == code).nonzero()[0])
        if num_folds == 1:
            own = own[: max(2, int(SHARE * len(own)))]
        for fold, part in zip(folds, np.array_split(own, num_folds), strict=True):
            fold.append(part)
    return [np.sort(np.concatenate(fold)) for fold in folds]


def _log_mean(views: Sequence[View], table: Table) -> Floats:
    scores = np.stack([queries.score_rows(view, table) for view in views])
    return np.asarray(np.logaddexp.reduce(scores) - np.log(len(views)))


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))
