"""The densities of all columns given a selection, in one pass over the model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.explorer.columns import ShownColumn, thinned
from subtractive.inference.evidence import Evidence
from subtractive.tables.box_points import Draws
from subtractive.tables.columns import Numeric
from subtractive.tables.expectations import weigh_heights
from subtractive.tables.forest import Forest, split_trees
from subtractive.tables.joint_boxes import ImprobableError
from subtractive.tables.reading import Floats
from subtractive.tables.summaries import curve_codes
from subtractive.tables.view import View, impossible

DIGITS = 5
INVISIBLE = 50.0  # how many times as likely some members hide the others in a picture


@final
@dataclass(frozen=True)
class Curve:
    """Where the density of a column is drawn, which no selection changes."""

    key: str
    codes: Floats  # (q,), of numbers from left to right, then of atoms; or of states
    stretch: Floats  # (q,), what turns densities of codes into those of numbers; 1 for the others
    is_number: npt.NDArray[np.bool_]  # (q,), whether it has a density

    @classmethod
    def of(cls, shown: ShownColumn) -> Curve:
        """The points of a column."""
        codes = curve_codes(shown.column)
        if not isinstance(shown.column, Numeric):
            return cls(shown.key, codes, np.ones(len(codes)), np.zeros(len(codes), dtype=bool))
        numbers = shown.column.numbers(codes)
        is_number = ~np.isin(codes, shown.column.atom_codes)
        stretch = np.exp(shown.column.log_abs_det_jacobian(numbers))
        along = np.flatnonzero(is_number)[np.argsort(numbers[is_number])]
        order = np.append(thinned(along), np.flatnonzero(~is_number))
        return cls(shown.key, codes[order], stretch[order], is_number[order])

    def describe(self, heights: Floats) -> dict[str, list[float]]:
        """Densities and probabilities for the page."""
        values = heights * self.stretch
        return {
            "density": rounded(values[self.is_number]),
            "probability": rounded(values[~self.is_number]),
        }


@final
@dataclass(frozen=True)
class Curves:
    """The curves of all columns, and the parts of the model that can be prepared for them."""

    by_name: Mapping[Hashable, Curve]
    trees: Forest | None  # prepared
    rest: Draws | None  # members that are not trees
    log_share: float  # of the trees

    @classmethod
    def of(cls, columns: Sequence[ShownColumn], view: View) -> Curves:
        """The curves of the columns of a page."""
        curves = {shown.name: Curve.of(shown) for shown in columns}
        points = {view.variables[name]: curve.codes for name, curve in curves.items()}
        parts = split_trees(view.density)
        if parts is None:
            whole = Forest.of(view.density, points)
            if whole is None:
                return cls(curves, None, Draws(view.density), -math.inf)
            return cls(curves, whole, None, 0.0)
        return cls(curves, Forest.of(parts.trees, points), Draws(parts.rest), parts.log_share)

    @property
    def forest(self) -> Forest | None:
        """The whole model, if all of it can be prepared."""
        return self.trees if self.rest is None else None

    def given(
        self, view: View, given: Mapping[Any, object] | None, names: Sequence[Hashable]
    ) -> tuple[float, dict[str, dict[str, list[float]]]]:
        """log of the weight of what is given, and by key the curves of some columns."""
        narrowed = view.narrowed(given) if given else view
        places = {name: narrowed.variables[name] for name in names}
        points = {place: self.by_name[name].codes for name, place in places.items()}
        log_weight, heights = self._weigh_heights(narrowed.evidence, points)
        if math.isinf(log_weight):
            raise ValueError(impossible(given or {}))
        told = {name: self.by_name[name].describe(heights[at]) for name, at in places.items()}
        return log_weight, {self.by_name[name].key: curve for name, curve in told.items()}

    def _weigh_heights(
        self, evidence: Evidence, points: Mapping[int, Floats]
    ) -> tuple[float, dict[int, Floats]]:
        """log of the weight of evidence, and the densities of variables at codes."""
        if self.trees is None:
            assert self.rest is not None
            return weigh_heights(self.rest.density, evidence, points, self.rest)
        if self.rest is None:
            return self.trees.weigh_heights(evidence, points.keys())
        log_trees = self.trees.log_weight(evidence) + self.log_share
        log_rest, others = self._weigh_rest(evidence, points, log_trees)
        whole = float(np.logaddexp(log_trees, log_rest))
        if math.isinf(whole) or log_trees + math.log(INVISIBLE) < log_rest:
            return whole, others
        _, heights = self.trees.weigh_heights(evidence, points.keys())
        shares = math.exp(log_trees - whole), math.exp(log_rest - whole)
        return whole, {v: shares[0] * heights[v] + shares[1] * others[v] for v in points}

    def _weigh_rest(
        self, evidence: Evidence, points: Mapping[int, Floats], log_trees: float
    ) -> tuple[float, dict[int, Floats]]:
        """The same for the members that are not trees; nothing where they hardly count."""
        assert self.rest is not None
        log_share = math.log(-math.expm1(self.log_share))
        try:
            log_weight, heights = weigh_heights(self.rest.density, evidence, points, self.rest)
        except ImprobableError as error:
            # At most so much of them is inside: beside the trees it would not be seen.
            if log_trees < log_share + math.log(error.most) + math.log(INVISIBLE):
                raise
            return -math.inf, {v: np.zeros(len(codes)) for v, codes in points.items()}
        return log_weight + log_share, heights


def rounded(values: Floats) -> list[float]:
    """Numbers with as many digits as a picture shows."""
    finite = np.nan_to_num(values, posinf=0.0)
    top = float(np.max(finite, initial=0.0))
    digits = DIGITS - math.floor(math.log10(top)) if top > 0 else 0
    return [float(number) for number in np.round(finite, digits)]
