"""What columns of Python objects are taken for."""

import numpy as np
import pandas as pd
import pytest
import torch

import subtractive as sub
from subtractive.tables.cell_values import Content
from subtractive.tables.reading import read_mapping
from subtractive.tables.validation import read_table

LARGE = {
    "whole": [2**53 + 1, 2**53 + 2, 3],
    "beyond 64 bits": [10**30 + number for number in range(3)],
    "negative": [-(10**30), 1, 2],
    "with gaps": [None, 10**30, 1],
}


@pytest.mark.parametrize("values", LARGE.values(), ids=LARGE)
def test_whole_numbers_that_cannot_be_told_apart_are_set_aside_among_objects(values):
    frame = pd.DataFrame({"id": pd.Series(values, dtype=object), "x": [1.0, 2.0, 3.0]})
    with pytest.warns(sub.DataWarning, match=r"'id' \(its whole numbers are beyond 2\*\*53"):
        schema = sub.tables.Schema.infer(frame)
    assert schema.aside == ("id",)
    (column,) = read_mapping({"id": max(values, key=lambda value: abs(value or 0))})
    assert column.content is Content.OTHER


ARRAYS = {
    "numpy": lambda: np.array([[1, 2**53 + 1], [2, 2**60], [3, 4]]),
    "lowest": lambda: np.array([[1, -(2**63)], [2, 3]]),
    "unsigned": lambda: np.array([[1, 2**63 + 1], [2, 3]], dtype=np.uint64),
    "objects": lambda: np.array([[0.5, 10**30], [None, 10**30 + 1]], dtype=object),
    "lists": lambda: [[1, 10**30], [2, 10**30 + 1]],
    "tensor": lambda: torch.tensor([[1, 2**60], [2, 3]]),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_whole_numbers_that_cannot_be_told_apart_are_refused_in_arrays(make):
    with pytest.raises(ValueError, match=r"column 1 cannot be modelled.* beyond 2\*\*53"):
        read_table(make())


def test_whole_numbers_of_arrays_up_to_the_limit_are_read():
    table = read_table(np.array([[2**53, -(2**53)]]))
    assert [column.values.tolist() for column in table.columns] == [[2.0**53], [-(2.0**53)]]


def test_large_whole_numbers_among_fractions_are_numbers():
    (column,) = read_mapping({"x": 10.0**30})
    assert column.content is Content.REAL


def test_whole_numbers_up_to_the_limit_are_read():
    (column,) = read_mapping({"id": 2**53})
    assert column.values.tolist() == [2.0**53]
