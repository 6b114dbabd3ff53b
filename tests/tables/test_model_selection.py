"""Which candidates the defaults try, and for how long."""

from __future__ import annotations

import pytest
import torch

import subtractive as sub
from subtractive.tables.candidates import Candidates
from subtractive.tables.columns import Numeric
from subtractive.tables.recipe import Recipe
from subtractive.tables.training_data import Data
from subtractive.tables.training_rows import Rows, split
from subtractive.tables.transforms import Affine

SETTINGS = {
    "kind": "squared",
    "structure": "auto",
    "num_components": None,
    "num_squares": None,
    "num_structures": 1,
    "covariance": "full",
    "effort": "balanced",
    "max_epochs": 100,
    "validation_fraction": 0.1,
    "progress": False,
}


def rows_of(count, num_columns):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, num_columns, generator=generator, dtype=torch.float64)
    return Rows(x, torch.ones(count).double(), torch.zeros(count).double())


def candidates_of(rows, **settings):
    columns = tuple(Numeric(k, "continuous", Affine(0.0, 1.0)) for k in range(rows.x.shape[1]))
    data = Data.of(columns, rows, None, 0)
    return list(Candidates(Recipe(**(SETTINGS | settings))).of(data, 0))


def names(rows, **settings):
    """Where the candidates of a recipe start from, and of which size."""
    starts = [candidate.start for candidate in candidates_of(rows, **settings)]
    return [(start.func.__name__, *start.args[1:]) for start in starts]


def sizes(rows, **settings):
    return [(name, *size) for name, *size in names(rows, **settings) if name != "_from_data"]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((9000, 4), [12, 12, 12]), ((9000, 40), [12, 12, 4]), ((5400, 600), [4])],
)
def test_mixtures_of_many_components_times_columns_train_for_fewer_epochs(shape, expected):
    candidates = candidates_of(rows_of(*shape), structure="flat")
    assert [candidate.num_epochs for candidate in candidates] == expected


def test_what_is_left_open_is_tried_as_a_tree_and_in_frames():
    rows = rows_of(9000, 10)
    assert [name for name, *_ in names(rows)] == ["_from_data", "_from_frames", "_from_frames"]
    assert sizes(rows) == [("_from_frames", 8), ("_from_frames", 32)]


@pytest.mark.parametrize(("count", "expected"), [(1279, [8]), (1280, [8, 32]), (100, [2])])
def test_few_rows_pay_for_few_frames(count, expected):
    assert sizes(rows_of(count, 10)) == [("_from_frames", size) for size in expected]


def test_what_is_said_or_missing_is_left_to_components():
    rows = rows_of(9000, 10)
    assert sizes(rows, num_components=5) == [("_from_em", 5)]
    assert sizes(rows, structure="binary") == []
    rows.x[0, 0] = torch.nan
    assert sizes(rows) == [("_from_em", size) for size in (4, 16, 64)]


@pytest.mark.parametrize("kind", ["squared", "monotonic"])
def test_frames_are_of_the_kind_that_was_asked_for(kind):
    rows = rows_of(200, 3)
    recipe = Recipe(**(SETTINGS | {"kind": kind}))
    density = Candidates(recipe)._from_frames(rows, 2, 0)
    wanted = sub.SquaredCircuit if kind == "squared" else sub.MonotonicCircuit
    assert all(isinstance(member, wanted) for member in density.members)


def test_rows_that_repeat_are_split_one_by_one():
    """One row that occurs 600 times is nine tenths in training, not all of it on either side."""
    weights = torch.cat([torch.tensor([600.0, 300.0]), torch.ones(98)]).double()
    x = torch.arange(100.0).double()[:, None]
    train, valid = split(Rows(x, weights, torch.zeros(100).double()), 0.1, seed=0)
    assert valid.weights.sum() == 99
    total = torch.zeros(100).double()
    for part in (train, valid):
        assert (part.weights > 0).all()
        total[part.x[:, 0].long()] += part.weights
    assert torch.equal(total, weights)
    # Four standard deviations of a binomial share.
    assert abs(float(valid.weights[0]) - 60) < 4 * 7.4
