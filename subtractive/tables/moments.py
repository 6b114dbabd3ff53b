"""Means and covariances of the columns of a table, in users' units."""

from __future__ import annotations

import math

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.tables.columns import Column, States
from subtractive.tables.reading import Floats
from subtractive.tables.schema import Schema


def column_means(schema: Schema, density: Density) -> Floats:
    """Means of the columns, (d,); NaN where values are not numbers, or on a logarithmic scale."""
    with torch.no_grad():
        codes = density.mean().numpy()
    means = [_mean(density, i, column, codes[i]) for i, column in enumerate(schema.variables)]
    return np.array(
        [
            means[schema.place[name]] if name in schema.place else _number(schema.constants[name])
            for name in schema.names
        ]
    )


def column_covariance(schema: Schema, density: Density) -> Floats:
    """Covariances of the columns, (d, d), NaN in the same places, zero where one is constant."""
    with torch.no_grad():
        variables = _variable_covariance(schema, density)
    number = [schema.place.get(name, -1) for name in schema.names]
    result = np.zeros((len(number), len(number)))
    for row, i in enumerate(number):
        for column, j in enumerate(number):
            if i >= 0 and j >= 0:
                result[row, column] = variables[i, j]
    constant = np.array(
        [
            i < 0 and math.isnan(_number(schema.constants[n]))
            for n, i in zip(schema.names, number, strict=True)
        ]
    )
    result[constant, :] = result[:, constant] = np.nan
    return result


def _variable_covariance(schema: Schema, density: Density) -> Floats:
    """Covariances (v, v) of the variables in users' units."""
    columns = schema.variables
    slopes = np.array([math.nan if c.affine is None else c.affine[1] for c in columns])
    covariance = slopes[:, None] * density.covariance().numpy() * slopes
    for i, column in enumerate(columns):
        values = _state_values(column)
        if values is None or column.affine is not None:
            continue
        shares = density.pdf(i, torch.arange(len(values)).double()).numpy()
        weights = shares * (values - shares @ values)  # (v,)
        for j, other in enumerate(columns):
            means = _conditional_means(density, i, len(values), j, other)
            covariance[i, j] = covariance[j, i] = weights @ (values if i == j else means)
    return np.asarray(covariance)


def _conditional_means(
    density: Density, given: int, num_states: int, asked: int, column: Column
) -> Floats:
    """E[asked | given = state], (v,), in users' units; NaN if they are not numbers."""
    states = torch.arange(num_states, dtype=torch.float64)
    if asked == given:
        return np.full(num_states, math.nan)
    if column.affine is not None:
        rows = torch.full((num_states, density.num_variables), math.nan, dtype=torch.float64)
        rows[:, given] = states
        origin, slope = column.affine
        return np.asarray(origin + slope * density.mean(rows).numpy()[:, asked])
    values = _state_values(column)
    if values is None:
        return np.full(num_states, math.nan)
    points = torch.arange(len(values), dtype=torch.float64)
    return np.array(
        [density.pdf(asked, points, {given: float(s)}).numpy() @ values for s in states]
    )


def _mean(density: Density, variable: int, column: Column, code: float) -> float:
    if column.affine is not None:
        return column.affine[0] + column.affine[1] * float(code)
    values = _state_values(column)
    if values is None:
        return math.nan
    with torch.no_grad():
        shares = density.pdf(variable, torch.arange(len(values)).double()).numpy()
    return float(shares @ values)


def _state_values(column: Column) -> Floats | None:
    """The numbers that the states of a categorical column stand for, (v,)."""
    if not isinstance(column, States):
        return None
    return column.numbers(np.arange(len(column.values), dtype=np.float64))


def _number(value: object) -> float:
    return math.nan if isinstance(value, str) else float(value)  # type: ignore[arg-type]
