"""The answers of a model and a table to what is selected on the page, ready to be sent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from subtractive.explorer.columns import ShownColumn, shown_columns
from subtractive.explorer.curves import Curves, rounded
from subtractive.explorer.selection import Selection
from subtractive.explorer.subset import Subset
from subtractive.tables.columns import Numeric
from subtractive.tables.containers import AnyTable
from subtractive.tables.joint_boxes import joint_variables
from subtractive.tables.queries import log_total
from subtractive.tables.reading import Floats
from subtractive.tables.table_density import TableQueries
from subtractive.tables.validation import read_table
from subtractive.tables.value_text import value_text

Answer = dict[str, Any]
INTERVAL = (0.05, 0.5, 0.95)
GRID, MOST_DOTS, NUM_SAMPLES = 48, 300, 6


@final
@dataclass(frozen=True)
class Answers:
    """A model, perhaps a table, and what the page shows of them."""

    model: TableQueries
    columns: tuple[ShownColumn, ...]
    drawn: Curves
    log_whole: float  # log of the weight of everything
    subset: Subset | None
    path: str | None  # of the model's file, for the lines to copy

    @classmethod
    def of(cls, model: TableQueries, table: AnyTable, path: str | None) -> Answers:
        """Check the model, and read the table if there is one."""
        if not isinstance(model, TableQueries):
            raise ValueError(
                f"the explorer shows a model of a table, got {type(model).__name__}. Fit a "
                "SubtractiveMixture, or load one."
            )
        columns = tuple(shown_columns(model))
        subset = None
        if table is not None:
            model._read(table)  # refuses a table of other columns
            subset = Subset.of(columns, model._view().schema.dated(read_table(table)))
        return cls(
            model,
            columns,
            Curves.of(columns, model._view()),
            log_total(model._view()),
            subset,
            path,
        )

    def page(self) -> Answer:
        """What does not change: the columns, and their densities before anything is selected."""
        return {
            "columns": [shown.describe() for shown in self.columns],
            "model": self.path,
            "rows": None if self.subset is None else self.subset.num_rows,
            "start": self.curves({}),
        }

    def curves(self, request: Mapping[str, Any]) -> Answer:
        """Conditional densities of all columns or of some, the selection's probability, the rows.

        One pass gives the densities of all columns; but if the model could not be prepared for
        it, each column that was selected from takes a pass of its own, in :meth:`selected`.
        """
        selection = Selection.read(self.columns, request.get("given", {}))
        some = self._wanted(request)
        with noting_warnings() as notes:
            names = self._names(some, selection, selected=False)
            if self.drawn.forest is not None:
                names += self._names(some, selection, selected=True)
            log_weight, columns = self.drawn.given(self.model._view(), selection.given, names)
            answer: Answer = {
                "columns": columns,
                "probability": self._probability(selection, log_weight),
                "python": selection.python(self.path),
                "shell": selection.shell(self.path, self.model._view().schema),
            }
        if self.subset is not None:
            answer["data"] = self.subset.count(selection, some)
        return {**answer, "notes": notes}

    def selected(self, request: Mapping[str, Any]) -> Answer:
        """Conditional densities of the columns in which a set was selected."""
        selection = Selection.read(self.columns, request.get("given", {}))
        names = self._names(self.columns, selection, selected=True)
        with noting_warnings():
            _, columns = self.drawn.given(self.model._view(), selection.given, names)
        return {"columns": columns}

    def summary(self, request: Mapping[str, Any]) -> Answer:
        """Conditional means, and intervals that hold nine tenths, of all columns or of some."""
        selection = Selection.read(self.columns, request.get("given", {}))
        some = self._wanted(request)
        names = [shown.name for shown in some if shown.name not in selection.points]
        if not names:
            return {"columns": {}}
        with noting_warnings():
            density = self.model.condition(selection.given) if selection.given else self.model
            part = density.marginal(names)
            means, spread = part.mean(), part.quantiles(INTERVAL)
        columns = {}
        for shown in some:
            if shown.name in spread:
                ends = [_as_number(value) for value in spread[shown.name]]
                mean = means[shown.name]
                columns[shown.key] = {
                    "mean": None if pd.isna(mean) else _as_number(mean),
                    "low": ends[0],
                    "median": ends[1],
                    "high": ends[2],
                }
        return {"columns": columns}

    def samples(self, request: Mapping[str, Any]) -> Answer:
        """A few exact samples."""
        given = Selection.read(self.columns, request.get("given", {})).given
        seed = request.get("seed", 0)
        if type(seed) is not int or not 0 <= seed < 2**31:
            raise ValueError(f"the seed of samples is a whole number, got {seed!r}.")
        with noting_warnings():
            drawn = self.model.sample(NUM_SAMPLES, given=given, random_state=seed)
        frame = pd.DataFrame(drawn)
        frame.columns = pd.Index(self.model._view().names)
        rows = [[_cell(row[shown.name]) for shown in self.columns] for _, row in frame.iterrows()]
        return {"columns": [shown.key for shown in self.columns], "rows": rows}

    def joint(self, request: Mapping[str, Any]) -> Answer:
        """The joint density of two columns over a grid, and some of the selected rows."""
        selection = Selection.read(self.columns, request.get("given", {}))
        by_key = {shown.key: shown for shown in self.columns}
        pair = [by_key.get(request.get(side, "")) for side in ("x", "y")]
        free = [shown for shown in pair if shown and shown.name not in selection.points]
        if len(free) < 2 or free[0] is free[1]:
            raise ValueError("choose two different columns whose values are not picked exactly.")
        lines = [_line(shown) for shown in free]
        with noting_warnings():
            heights = self._joint_heights(selection, free, lines)
        answer: Answer = {
            "heights": rounded(heights.ravel()),
            "lines": [
                [] if c.states else line.tolist() for c, line in zip(free, lines, strict=True)
            ],
        }
        if self.subset is not None:
            answer["dots"] = [
                side.tolist() for side in self.subset.dots(selection, free, MOST_DOTS)
            ]
        return answer

    def _joint_heights(
        self, selection: Selection, pair: Sequence[ShownColumn], lines: Sequence[Any]
    ) -> Floats:
        """The joint density (p, q) of two columns at values (p,) and (q,)."""
        forest, view = self.drawn.forest, self.model._view()
        narrowed = view.narrowed(selection.given) if selection.given else view
        if forest is not None:
            codes = [one.column.encode(line) for one, line in zip(pair, lines, strict=True)]
            places = [narrowed.variables[one.name] for one in pair]
            heights = forest.pair_heights(narrowed.evidence, places, codes)
            stretch = [_stretch(one, line) for one, line in zip(pair, lines, strict=True)]
            return heights * stretch[0][:, None] * stretch[1]
        columns = {view.variables[one.name] for one in pair}
        boxed = joint_variables(view.density, narrowed.evidence)
        if len(set(boxed) - columns) > 1:
            raise ValueError(
                "this picture would take minutes: the columns share a full covariance, and there "
                "are intervals of two others. Clear one of these, or take exact values."
            )
        across, up = np.meshgrid(*(np.arange(len(line)) for line in lines), indexing="ij")
        grid = (across.ravel(), up.ravel())
        asked = pd.DataFrame(
            {c.name: list(line[at]) for c, line, at in zip(pair, lines, grid, strict=True)}
        )
        density = self.model.condition(selection.given) if selection.given else self.model
        scores = density.marginal([shown.name for shown in pair]).score_samples(asked)
        return np.exp(scores).reshape(across.shape)

    def _wanted(self, request: Mapping[str, Any]) -> list[ShownColumn]:
        """The columns that a request is about: all of them, unless it lists their keys."""
        wanted = request.get("columns", [shown.key for shown in self.columns])
        if not isinstance(wanted, list):
            raise ValueError(f"columns must be a list of keys, got {wanted!r}.")
        return [shown for shown in self.columns if shown.key in wanted]

    def _names(
        self, columns: Sequence[ShownColumn], selection: Selection, *, selected: bool
    ) -> list[Hashable]:
        """The columns whose value is not known: in which a set was selected, or the others."""
        free = [shown.name for shown in columns if shown.name not in selection.points]
        return [name for name in free if (name in selection.event) == selected]

    def _probability(self, selection: Selection, log_weight: float) -> float | None:
        """P(what has a probability | the numbers that were picked), by the weight of both."""
        if not selection.event:
            return None
        whole = self.log_whole
        if selection.points:
            whole = log_total(self.model._view().narrowed(selection.points))
        return float(min(1.0, math.exp(log_weight - whole)))


@contextmanager
def noting_warnings() -> Iterator[list[str]]:
    """Collect what the model warns of, for the page to tell."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += [str(warning.message) for warning in caught]


def _line(shown: ShownColumn) -> Any:  # noqa: ANN401 - values of any type
    """Values along one side of a joint density: states, or numbers between the atoms."""
    if shown.states:
        states = np.empty(len(shown.states), dtype=object)
        states[:] = shown.states
        return states
    column = shown.column
    assert isinstance(column, Numeric)
    edges = np.linspace(shown.low, shown.high, GRID + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    # An atom has a probability in place of a density: a number beside it is taken.
    return np.where(np.isin(middles, column.atoms), np.nextafter(middles, np.inf), middles)


def _stretch(shown: ShownColumn, line: Any) -> Floats:  # noqa: ANN401 - values of any type
    """What turns densities of codes into those of numbers, (q,)."""
    if not isinstance(shown.column, Numeric):
        return np.ones(len(line))
    return np.exp(shown.column.log_abs_det_jacobian(line))


def _as_number(value: object) -> float:
    """A mean or a quantile as the page has numbers: dates in microseconds."""
    if isinstance(value, float | int | np.number):
        return float(value)
    if isinstance(value, pd.Timedelta):
        return float(value / pd.Timedelta(microseconds=1))
    return float((pd.Timestamp(value) - pd.Timestamp(0)) / pd.Timedelta(microseconds=1))


def _cell(value: object) -> str:
    missing = value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value))
    if missing:
        return ""
    return value_text(value, "")
