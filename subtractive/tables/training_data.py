"""Rows to train on and rows to judge by, under the transforms of some columns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from subtractive.tables.columns import Column, Numeric
from subtractive.tables.reading import Floats, Table
from subtractive.tables.schema import Schema
from subtractive.tables.training_rows import Rows, dither, merge, recode
from subtractive.tables.transforms import Transform, affine


class Data(NamedTuple):
    """Rows to train on and rows to judge by, as the codes of some columns."""

    columns: tuple[Column, ...]
    train: Rows
    start: Rows  # to start from: spread over the cells of grids
    valid: Rows

    @classmethod
    def of(cls, columns: tuple[Column, ...], train: Rows, valid: Rows | None, seed: int) -> Data:
        """With rows that are spread over the cells of their grids, to start from."""
        spread = dither(train.x, columns, torch.Generator().manual_seed(seed))
        return cls(columns, train, train._replace(x=spread), train if valid is None else valid)

    def some(self, num_rows: int, seed: int) -> Data:
        """With so many of the rows to train on, at random, or all."""
        if num_rows >= len(self.train.x):
            return self
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(self.train.x), generator=generator)[:num_rows]
        return self._replace(train=self.train.take(chosen), start=self.start.take(chosen))

    def standardised(self, seed: int) -> Data:
        """The same rows with transforms that are lines where most of them are."""
        columns = tuple(
            replace(column, transform=_line(column, self.train, number))
            if isinstance(column, Numeric)
            else column
            for number, column in enumerate(self.columns)
        )
        train, valid = (recode(rows, self.columns, columns) for rows in (self.train, self.valid))
        return Data.of(columns, train, valid, seed)


def _line(column: Numeric, rows: Rows, number: int) -> Transform:
    """The standardisation of a column without bounds, atoms aside."""
    if math.isfinite(column.low) or math.isfinite(column.high):
        return column.transform
    codes = rows.x[:, number]
    there = ~codes.isnan() & ~torch.isin(codes, torch.from_numpy(column.atom_codes))
    return affine(column.numbers(codes[there].numpy()), rows.weights[there].numpy())


def encode_rows(schema: Schema, table: Table, weights: Floats) -> Rows:
    """Rows to train on; impossible ones are refused."""
    encoded = schema.encode_table(table)
    for name, wrong in encoded.impossible.items():
        values = table.columns[schema.names.index(name)].values[wrong].tolist()
        raise ValueError(
            f"column {name!r} holds {values[0]!r} "
            "in training, which the schema excludes: by its bounds or its largest count, because "
            "it was constant, or the copy of another column. Fit anew, or correct the schema."
        )
    jacobian = torch.from_numpy(encoded.log_abs_det_jacobian)
    return merge(Rows(encoded.x, torch.from_numpy(weights), jacobian))
