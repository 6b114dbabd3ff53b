"""Moments, quantiles, densities and dependence of the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.conditions import number, plain
from subtractive.tables.containers import TEMPORAL
from subtractive.tables.expectations import (
    Function,
    averaged,
    expectations,
    heights,
    integration_points,
    one_box,
)
from subtractive.tables.joint_boxes import NUM_SAMPLES, joint_variables
from subtractive.tables.quantiles import (
    Distributions,
    check_levels,
    cumulative,
    snapped,
    state_quantiles,
)
from subtractive.tables.queries import as_generator, draw, draw_inside, log_weights, with_rows
from subtractive.tables.reading import Floats, RandomState
from subtractive.tables.view import View

CURVE, CURVE_REACH = 201, 3.0  # values of a column at which its density is told, and their range


def moments(view: View) -> pd.DataFrame:
    """Means and standard deviations of the columns; NaN where values are not numbers."""
    columns = view.schema.variables
    origins = {v: _origin(columns[v]) for v in view.variables.values()}
    functions = {
        v: _powers(columns[v], origin) for v, origin in origins.items() if origin is not None
    }
    found = averaged(view.density, columns, view.evidence, functions)
    rows = []
    for name in view.names:
        place, value = view.variables.get(name, -1), view.values.get(name)
        if isinstance(value, int | float | np.number):
            rows.append((float(value), 0.0))
        elif place in found:
            first, second = found[place]
            mean, spread = origins[place] + first, math.sqrt(max(second - first**2, 0.0))
            only = _only_value(columns[place], view.sets.get(place), mean)
            rows.append((mean, spread) if only is None else (only, 0.0))
        else:
            rows.append((math.nan, math.nan))
    index = pd.Index(view.names)
    return pd.DataFrame(rows, index=index, columns=["mean", "std"], dtype=float)


def _only_value(column: Column, one: CodeSet | None, mean: float) -> float | None:
    """The value of a grid near a mean in whose cell all numbers of a set are, if there is one."""
    if not isinstance(column, Numeric) or one is None or len(one.intervals) != 1:
        return None
    value = float(column.rounded(np.array([mean]))[0])
    return value if column.window(value, value) == one.intervals[0] else None


def means(view: View) -> pd.Series:
    """Means of the columns, those of dates being dates."""
    found = moments(view)["mean"]
    asked = {n: found[[n]].to_numpy() for n in temporal(view) if found[n] == found[n]}
    if not asked:
        return found
    moments_ = {name: values[0] for name, values in view.schema.build_series(asked).items()}
    return pd.Series({**found, **moments_}, index=found.index, name="mean", dtype=object)


def spreads(view: View) -> pd.Series:
    """Standard deviations of the columns, those of dates being durations."""
    found = moments(view)["std"]
    asked = [name for name in temporal(view) if found[name] == found[name]]
    if not asked:
        return found
    spans = {name: pd.Timedelta(round(found[name]), unit="us") for name in asked}
    return pd.Series({**found, **spans}, index=found.index, name="std", dtype=object)


def temporal(view: View) -> list[Hashable]:
    """The columns of dates, times and durations that are left."""
    return [n for n in view.variables if view.schema.kind(n) in TEMPORAL]


def cov(view: View) -> pd.DataFrame:
    """Covariances of the columns, by the means of all columns given values of each."""
    columns, own = view.schema.variables, moments(view)
    if joint_variables(view.density, view.evidence):
        return _cov_of_samples(view, own["std"])
    table = pd.DataFrame(np.diag(own["std"].to_numpy() ** 2), view.names, view.names)
    asked = {n: v for n, v in view.variables.items() if _origin(columns[v]) is not None}
    origins = {v: _origin(columns[v]) or 0.0 for v in asked.values()}
    for name, place in asked.items():
        later = [n for n in list(asked)[list(asked).index(name) + 1 :] if asked[n] != place]
        if later:
            others = {asked[n]: _powers(columns[asked[n]], origins[asked[n]]) for n in later}
            found = _cross_moments(view, place, origins[place], others)
            for other in later:
                means = [own["mean"][n] - origins[asked[n]] for n in (name, other)]
                value = found[asked[other]] - means[0] * means[1]
                table.loc[name, other] = table.loc[other, name] = value
    for name, place in asked.items():  # copies
        for other in [n for n in asked if asked[n] == place]:
            table.loc[name, other] = own["std"][name] ** 2
    unknown = [n for n in view.names if math.isnan(own["mean"][n])]
    table.loc[unknown, :] = math.nan
    table.loc[:, unknown] = math.nan
    return table


def _cov_of_samples(view: View, std: pd.Series) -> pd.DataFrame:
    """The same where boxes have no closed form: the correlations are those of exact samples."""
    codes = draw_inside(view, NUM_SAMPLES).numpy()
    spreads = std.to_numpy()  # NaN of what is no number, zero of what is known
    asked = [i for i, n in enumerate(view.names) if n in view.variables and spreads[i] >= 0]
    places = [view.variables[view.names[i]] for i in asked]
    numbers = [_numbers(view.schema.variables[v], codes[:, v]) for v in places]
    with np.errstate(invalid="ignore", divide="ignore"):  # of columns that do not vary
        found = np.nan_to_num(np.atleast_2d(np.corrcoef(numbers)))
    np.fill_diagonal(found, 1.0)
    table = np.outer(spreads, spreads) * 0.0
    table[np.ix_(asked, asked)] = found * np.outer(spreads[asked], spreads[asked])
    return pd.DataFrame(table, view.names, view.names)


def _cross_moments(
    view: View, place: int, origin: float, others: dict[int, Function]
) -> dict[int, float]:
    """E[(x - origin) h(y)] for the first of the functions of each other variable."""
    columns = view.schema.variables
    points = integration_points(columns[place])
    boxes, totals = view.evidence, {v: 0.0 for v in others}
    x = torch.full((len(points.codes), len(columns)), math.nan, dtype=torch.float64)
    x[:, place] = torch.from_numpy(points.codes)
    log_total = np.logaddexp.reduce(log_weights(view, torch.full_like(x[:1], math.nan)))
    for box in range(len(boxes)):
        evidence, inside = with_rows(one_box(boxes, box), x)
        with torch.no_grad():
            heights = np.exp(view.density.log_weight(evidence).numpy() - log_total) * inside
        masses = heights * points.weights
        kept = np.flatnonzero(masses > 1e-14 * masses.max())
        deviations = _numbers(columns[place], points.codes[kept]) - origin
        found = row_means(view, evidence.rows(torch.from_numpy(kept)), others)
        for variable, means in found.items():
            totals[variable] += float(np.sum(masses[kept] * deviations * means))
    return totals


def row_means(view: View, evidence: Evidence, others: dict[int, Function]) -> dict[int, Floats]:
    """The first of the functions of each variable, (n,), given each row of evidence."""
    found = expectations(view.density, view.schema.variables, evidence, others)
    return {variable: numbers[:, 0] for variable, numbers in found.items()}


def expectation(view: View, name: Hashable, function: Callable[[Any], Any]) -> float:
    """E[f(column)] given what is given."""
    place, column = distribution_of(view, name, "expectation")

    def of_codes(codes: Floats) -> Floats:
        values = column.numbers(codes) if isinstance(column, Numeric) else column.decode(codes)
        return np.broadcast_to(np.asarray(function(values), dtype=np.float64), codes.shape)

    found = averaged(view.density, view.schema.variables, view.evidence, {place: of_codes})
    return float(found[place][0])


def cdf(view: View, name: Hashable, points: object) -> pd.Series:
    """P(column <= t) at points t."""
    place, column = distribution_of(view, name, "cdf")
    listed = list(np.atleast_1d(np.asarray(plain(points), dtype=object)))
    values = np.array([number(point, column, name) for point in listed])
    if isinstance(column, Numeric):
        codes = np.array([column.window(-math.inf, value)[1] for value in values])
        heights = cumulative(view.density, view.evidence, {place: codes})[place]
    else:
        numbers = _numbers_of_states(column)
        shares = state_probabilities(view, place, column)
        heights = np.array([shares[numbers <= value].sum() for value in values])
    return pd.Series(heights, index=pd.Index(listed, name=name), name="cdf")


def quantiles(view: View, names: Sequence[Hashable] | None, levels: object) -> pd.DataFrame:
    """Quantiles of some columns, or of all columns of numbers, one row per level."""
    row = check_levels(levels)
    asked = [name for name in view.variables if _is_number(view, name)] if names is None else names
    places = {name: distribution_of(view, name, "quantile") for name in asked}
    numeric = [place for place, column in places.values() if isinstance(column, Numeric)]
    distributions = Distributions(view.density, view.evidence)
    codes = distributions.quantile_codes(numeric, row)
    table = {}
    for name, (place, column) in places.items():
        if isinstance(column, Numeric):
            table[name] = column.decode(snapped(column, codes[place]))
        else:
            shares = state_probabilities(view, place, column)
            table[name] = state_quantiles(column, shares, row)
    columns = view.schema.build_series(table)
    return pd.DataFrame(columns, index=pd.Index(row, name="level"))


def marginals(view: View) -> pd.DataFrame:
    """Densities of all columns at many values, and probabilities of states and atoms."""
    columns = {name: view.schema.variables[place] for name, place in view.variables.items()}
    points = {view.variables[name]: curve_codes(column) for name, column in columns.items()}
    found = heights(view.density, view.evidence, points)
    rows: list[tuple[Hashable, object, float, float]] = []
    for name, column in columns.items():
        codes, values = points[view.variables[name]], found[view.variables[name]]
        if isinstance(column, Numeric):
            numbers = column.numbers(codes)
            is_atom = np.isin(codes, column.atom_codes)
            values = values * np.exp(column.log_abs_det_jacobian(numbers))
            for number_, height, at in zip(numbers, values, is_atom, strict=True):
                rows.append((name, number_, *((math.nan, height) if at else (height, math.nan))))
        else:
            states = column.decode(codes)
            rows += [(name, v, math.nan, p) for v, p in zip(states, values, strict=True)]
    return pd.DataFrame(rows, columns=["column", "value", "density", "probability"])


def dated(view: View, told: pd.DataFrame) -> pd.DataFrame:
    """The same with dates, times and durations in place of microseconds."""
    for name in temporal(view):
        rows = np.array([one == name for one in told["column"]])
        values = told.loc[rows, "value"].to_numpy(dtype=np.float64)
        told["value"] = told["value"].astype(object)
        told.loc[rows, "value"] = pd.Series(
            view.schema.build_series({name: values})[name], index=told.index[rows], dtype=object
        )
    return told


def curve_codes(column: Column) -> Floats:
    """Codes at which the density of a column is told: states, or numbers and atoms."""
    if not isinstance(column, Numeric):
        return np.arange(column.family(signed=True).num_states or 0, dtype=np.float64)
    low, high = column.numbers(np.array([-CURVE_REACH, CURVE_REACH]))
    numbers = np.linspace(low, high, CURVE)
    numbers = numbers[column.possible(numbers) & ~np.isin(numbers, column.atoms)]
    return np.append(column.encode(numbers), column.atom_codes)


def mode(view: View, random_state: RandomState, count: int = 2000) -> pd.Series:
    """The best of many samples, by its density in table units."""
    x = draw(view, count, as_generator(random_state))
    values = view.schema.decode(x)
    scores = log_weights(view, x)
    for name, place in view.variables.items():
        column = view.schema.variables[place]
        if list(view.schema.place).index(name) == list(view.schema.place.values()).index(place):
            scores = scores + column.log_abs_det_jacobian(values[name])
    best = int(np.argmax(scores))
    table = view.schema.build_series({n: values[n][best : best + 1] for n in view.names})
    return pd.Series({name: list(series)[0] for name, series in table.items()}, dtype=object)


def distribution_of(view: View, name: Hashable, what: str) -> tuple[int, Column]:
    """The variable of a column whose value is not known, and the column as it is modelled."""
    view.schema.check_names([name], what)
    if name not in view.variables:
        raise ValueError(f"the value of column {name!r} is known: it has no distribution left.")
    place = view.variables[name]
    return place, view.schema.variables[place]


def state_probabilities(view: View, place: int, column: Column) -> Floats:
    """The probabilities of all states of a column, (v,)."""
    count = column.family(signed=True).num_states or 0

    def indicators(codes: Floats) -> Floats:
        return np.eye(count)[:, codes.astype(int)]

    return averaged(view.density, view.schema.variables, view.evidence, {place: indicators})[place]


def _is_number(view: View, name: Hashable) -> bool:
    return _origin(view.schema.variables[view.variables[name]]) is not None


def _numbers(column: Column, codes: Floats) -> Floats:
    numbers = column.numbers(codes)
    assert numbers is not None
    return numbers


def _numbers_of_states(column: Column) -> Floats:
    count = column.family(signed=True).num_states or 0
    numbers = column.numbers(np.arange(count, dtype=np.float64))
    if numbers is None:
        raise ValueError(f"the categories of column {column.name!r} have no order.")
    return numbers


def _origin(column: Column) -> float | None:
    """A number near the middle of a column, from which deviations are taken; none of texts."""
    if isinstance(column, Numeric):
        return float(column.numbers(np.zeros(1))[0])
    numbers = column.numbers(np.zeros(1))
    return None if numbers is None else float(numbers[0])


def _powers(column: Column, origin: float) -> Function:
    def powers(codes: Floats) -> Floats:
        deviations = _numbers(column, codes) - origin
        return np.stack([deviations, deviations**2])

    return powers
