"""Bad tables, questions and settings get a named error, or the answer that is documented."""

import numpy as np
import pandas as pd
import pytest
import torch
from frames import BOUNDS, mixed_frame, quick
from scipy.sparse import csr_array

import subtractive as sub

FRAME = mixed_frame(120)
ARRAY = np.random.default_rng(0).normal(size=(60, 2))
COPIED = pd.DataFrame({"a": ARRAY[:, 0], "b": ARRAY[:, 0], "c": "x", "d": ARRAY[:, 1]})


def frame(**columns):
    """Forty good rows, and what a case puts in their place."""
    good = {"a": np.arange(40) / 7, "b": ["x", "y"] * 20}
    return pd.DataFrame({**good, **columns})


def with_value(value, row=3):
    column = np.arange(40) / 7
    column[row] = value
    return column


def labels(values):
    return pd.Series((values * 40)[:40], dtype=object)


def fit(table, **settings):
    return lambda: quick(**settings).fit(table)


def columns(kind, name="a"):
    return fit(frame(), schema={name: kind})


BAD_FITS = {
    "infinity": (fit(frame(a=with_value(np.inf))), "column 'a' holds inf in row 3"),
    "minus infinity": (fit(frame(a=with_value(-np.inf))), "column 'a' holds -inf in row 3"),
    "infinity in an array": (
        fit(np.array([[1.0, 2], [3, np.inf]])),
        "column 1 holds inf in row 1",
    ),
    "a number near overflow": (fit(frame(a=with_value(1e305))), "column 'a' holds 1e"),
    "every column constant": (
        fit(frame()[["a"]] * 0 + 1),
        "every column is constant or set aside \\('a'\\)",
    ),
    "one row": (fit(ARRAY[:1]), "every column is constant or set aside .* n_samples=1 "),
    "no rows": (fit(frame().head(0)), "0 sample\\(s\\)"),
    "no columns": (fit(frame()[[]]), "0 feature\\(s\\)"),
    "an empty array": (fit(np.empty((0, 2))), "0 sample\\(s\\)"),
    "an array without columns": (fit(np.empty((5, 0))), "0 feature\\(s\\)"),
    "one dimension": (fit(np.arange(5.0)), "Expected 2D array, got 1D array"),
    "three dimensions": (fit(np.zeros((2, 2, 2))), "dim 3"),
    "complex numbers": (fit(ARRAY + 1j), "Complex data not supported"),
    "texts in an array": (fit(np.array([["a", "b"]] * 9)), "For text and dates pass a data frame"),
    "dates in an array": (
        fit(np.array([["2020-01-01"]] * 9, dtype="datetime64[D]")),
        "For text and dates pass a data frame",
    ),
    "texts in a list": (fit([["a", "b"], ["c", "d"]]), "could not convert string to float"),
    "nothing": (fit(None), "Expected 2D array, got scalar array"),
    "a ragged list": (fit([[1.0, 2.0], [3.0]]), "inhomogeneous shape"),
    "names twice": (
        fit(pd.concat([frame(), frame()], axis=1)),
        "different names for its columns, got \\['a', 'b'\\] more than once",
    ),
    "an unknown column": (columns("continuous", "z"), "schema names 'z', but there are 'a', 'b'"),
    "an unknown kind": (columns("numeric"), "column 'a' must be 'continuous', 'categorical'"),
    "a kind that is a class": (columns(sub.tables.Continuous), "column 'a' must be"),
    "kinds as a list": (
        fit(frame(), schema=["continuous"]),
        "schema must map names .* got list",
    ),
    "text that is continuous": (
        columns("continuous", "b"),
        "column 'b' holds text such as 'x', which cannot be continuous",
    ),
    "fractions that are counted": (columns("count"), "column 'a' holds .*, which is no multiple"),
    "negative counts": (
        fit(frame(a=-np.arange(40)), schema={"a": "count"}),
        "which is not inside its bounds",
    ),
    "a resolution below zero": (
        lambda: sub.tables.Continuous(resolution=-1),
        "resolution must be",
    ),
    "an atom outside bounds": (
        lambda: sub.tables.Continuous(0, 1, atoms=[2]),
        "atoms must be inside",
    ),
    "values outside bounds": (
        columns(sub.tables.Continuous(0, 1)),
        "column 'a' holds 1.14286, which is not inside its bounds \\(0, 1\\)",
    ),
    "an undeclared category": (
        fit(frame(), schema={"b": sub.tables.Categories(["x", "z"])}),
        "column 'b' holds 'y', which is not among its 2 declared categories",
    ),
    "bounds in the wrong order": (lambda: sub.tables.Continuous(1, 0), "lower < upper"),
    "bounds that are text": (lambda: sub.tables.Continuous("a", "b"), "lower < upper"),
    "one category": (lambda: sub.tables.Categories(["a"]), "at least two different values"),
    "categories twice": (
        lambda: sub.tables.Categories(["a", "b", "a"]),
        "at least two different values",
    ),
    "categories as text": (lambda: sub.tables.Categories("abc"), "at least two different values"),
    "no components": (fit(ARRAY, n_components=0), "n_components"),
    "half a component": (fit(ARRAY, n_components=2.5), "n_components"),
    "an unknown model": (fit(ARRAY, kind="cubed"), "kind must be one of 'squared'"),
    "an unknown structure": (fit(ARRAY, structure="tree"), "structure must be one of 'auto'"),
    "an unknown covariance": (fit(ARRAY, covariance="tied"), "covariance must be one of 'full'"),
    "no squares": (fit(ARRAY, n_squares=0), "n_squares"),
    "squares of an additive model": (fit(ARRAY, kind="monotonic", n_squares=3), "no squares"),
    "several flat structures": (fit(ARRAY, structure="flat", n_structures=2), "only one 'flat'"),
    "no epochs": (fit(ARRAY, max_epochs=0), "max_epochs"),
    "all rows held out": (fit(ARRAY, validation_fraction=1.0), "validation_fraction must be"),
    "a rule for the unknown that is unknown": (fit(ARRAY, unknown="drop"), "unknown must be"),
    "a random state that is text": (fit(ARRAY, random_state="x"), "cannot be used to seed"),
    "a random state below zero": (fit(ARRAY, random_state=-1), "Seed must be between"),
    "too few weights": (
        lambda: quick().fit(ARRAY, sample_weight=[1, 2]),
        "expected shape \\(60,\\)",
    ),
    "negative weights": (lambda: quick().fit(ARRAY, sample_weight=-np.ones(60)), "not negative"),
    "weights that are no numbers": (
        lambda: quick().fit(ARRAY, sample_weight=["a"] * 60),
        "sample_weight must be numbers",
    ),
    "missing weights": (lambda: quick().fit(ARRAY, sample_weight=[np.nan] * 60), "must be finite"),
    "no weight at all": (lambda: quick().fit(ARRAY, sample_weight=np.zeros(60)), "not all of it"),
}


@pytest.mark.filterwarnings("ignore::subtractive.DataWarning")
@pytest.mark.parametrize(("call", "message"), BAD_FITS.values(), ids=BAD_FITS)
def test_a_bad_table_or_setting_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


ROW = FRAME.iloc[[1]]
BAD_QUESTIONS = {
    "infinity": (lambda m: m.score_samples(ROW.assign(age=np.inf)), "column 'age' holds inf"),
    "text in place of numbers": (
        lambda m: m.score_samples(ROW.assign(age="forty")),
        "column 'age' was numbers when .*, but now holds categories such as 'forty'",
    ),
    "a missing column": (
        lambda m: m.score_samples(ROW.drop(columns="age")),
        "Feature names seen at fit time, yet now missing:\n- age",
    ),
    "another order": (lambda m: m.score_samples(ROW[ROW.columns[::-1]]), "in the same order"),
    "one column too many": (
        lambda m: m.score_samples(ROW.assign(height=1.8)),
        "Feature names unseen at fit time:\n- height",
    ),
    "a missing column to be filled": (
        lambda m: m.impute(ROW.drop(columns="age")),
        "Feature names seen at fit time, yet now missing:\n- age",
    ),
    "no rows": (lambda m: m.score(ROW.head(0)), "0 sample"),
    "a column that is not there": (
        lambda m: m.sample(2, given={"height": 1}),
        "given names 'height', but the columns are 'age', 'rooms'",
    ),
    "an unseen category given": (
        lambda m: m.condition({"city": "Paris"}),
        "column 'city' holds 'Paris', which is not among",
    ),
    "a missing value given": (
        lambda m: m.condition({"age": np.nan}),
        "the given value of column 'age' is missing",
    ),
    "a list given": (lambda m: m.condition({"age": [40, 50]}), "has probability zero"),
    "infinity given": (lambda m: m.sample(1, given={"age": np.inf}), "column 'age' holds inf"),
    "text given": (lambda m: m.condition({"age": "old"}), "column 'age' was numbers"),
    "a value outside bounds given": (
        lambda m: m.condition({"share": 2.0}),
        "what is given has probability zero",
    ),
    "a list to condition on": (lambda m: m.condition(["age"]), "condition needs values by column"),
    "all columns given": (
        lambda m: m.condition(ROW.iloc[0].to_dict()),
        "leave at least one column free",
    ),
    "a marginal of nothing": (lambda m: m.marginal([]), "marginal needs different columns"),
    "a marginal of text": (lambda m: m.marginal("age"), "marginal needs a list of columns"),
    "a column twice": (lambda m: m.marginal(["age", "age"]), "marginal needs different columns"),
    "an unknown column": (lambda m: m.marginal(["x"]), "marginal names 'x'"),
    "no event": (lambda m: m.probability({}), "an event names at least one column"),
    "an event of an unknown column": (
        lambda m: m.probability({"x": (0, 1)}),
        "the event names 'x'",
    ),
    "an empty interval": (lambda m: m.probability({"age": (50, 40)}), "column 'age' needs an int"),
    "an interval of texts": (
        lambda m: m.probability({"age": ("a", "b")}),
        "column 'age' needs an interval",
    ),
    "an interval of categories": (
        lambda m: m.probability({"city": ("Bergen", "Oslo")}),
        "the categories of column 'city' have no order",
    ),
    "an unseen category in an event": (
        lambda m: m.probability({"city": ["Paris"]}),
        "column 'city' holds 'Paris'",
    ),
    "no category in an event": (lambda m: m.probability({"city": []}), "at least one value"),
    "an event that is given": (
        lambda m: m.probability({"age": (0, 40)}, given={"age": 30}),
        "column 'age' is both in the event and given",
    ),
    "fewer than no samples": (lambda m: m.sample(-1), "n_samples must be a whole number"),
    "half a sample": (lambda m: m.sample(1.5), "n_samples must be a whole number"),
    "another number of samples than rows": (
        lambda m: m.sample(7, given=FRAME.head(3)),
        "one sample for each of its 3 rows, got n_samples=7",
    ),
    "an impossible row to be filled": (
        lambda m: m.impute(ROW.assign(share=2.0)),
        "the value of column 'share' in row 0 has probability zero",
    ),
    "impossible rows to go on with": (
        lambda m: m.partial_fit(ROW.assign(share=2.0)),
        "column 'share' holds .*2.0.* which the schema excludes",
    ),
}


@pytest.fixture(scope="module")
def fitted():
    return quick(schema=BOUNDS).fit(FRAME)


@pytest.mark.parametrize(("ask", "message"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS)
def test_a_bad_question_is_refused_by_name(fitted, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(fitted)


def test_sparse_tables_are_refused_as_scikit_learn_does():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        quick().fit(csr_array(np.eye(5)))


def test_an_array_of_another_width_is_refused():
    with pytest.raises(ValueError, match="X has 1 features, .* is expecting 2 features"):
        quick().fit(ARRAY).score(ARRAY[:, :1])


def test_a_value_that_contradicts_a_constant_or_a_copy_cannot_be_given():
    with pytest.warns(sub.DataWarning):
        model = quick().fit(COPIED)
    with pytest.raises(ValueError, match="what is given has probability zero"):
        model.sample(1, given={"c": "y"})
    with pytest.raises(ValueError, match="what is given has probability zero"):
        model.condition({"a": 1.0, "b": 2.0})
    with pytest.raises(ValueError, match="not constant"):
        model.marginal(["c"])


EXTREMES = {
    "an outlier": np.vstack([ARRAY, [[1e9, 0.0]]]),
    "tiny units": 1e-200 * ARRAY,
    "huge units": 1e200 * ARRAY,
    "a far origin": ARRAY + 1e12,
    "two rows": ARRAY[:2],
    "three rows": ARRAY[:3],
    "equal rows and another": np.vstack([np.ones((50, 2)), [[2.0, 3.0]]]),
    "one column": ARRAY[:, :1],
    "more columns than rows": np.random.default_rng(0).normal(size=(5, 20)),
    "dependent columns": ARRAY[:, [0, 0, 1]] * [1, 2, 1],
    "mostly gaps": np.where(np.random.default_rng(1).random((60, 2)) < 0.9, np.nan, ARRAY),
    "rows of gaps": np.vstack([ARRAY, np.full((5, 2), np.nan)]),
    "fortran order": np.asfortranarray(ARRAY),
    "reversed rows": ARRAY[::-1],
    "foreign byte order": ARRAY.astype(">f8"),
    "half precision": ARRAY.astype(np.float16),
    "small integers": (10 * ARRAY).astype(np.int8),
    "objects": ARRAY.astype(object),
    "a list of lists": ARRAY.tolist(),
}


# Of all other tables "auto" makes a flat mixture by itself.
NOT_FLAT = {"two rows", "three rows", "equal rows and another", "more columns than rows"}
NOT_FLAT |= {"mostly gaps"}


@pytest.mark.parametrize(
    ("table", "structure"),
    [
        pytest.param(
            table,
            structure,
            marks=pytest.mark.slow if structure == "flat" and name not in NOT_FLAT else [],
            id=f"{name}-{structure}",
        )
        for name, table in EXTREMES.items()
        for structure in ("auto", "binary", "flat")
    ],
)
def test_extreme_tables_have_finite_scores_and_samples(table, structure):
    model = quick(structure=structure, max_epochs=2).fit(table)
    assert np.isfinite(model.score_samples(table)).all()
    draws = model.sample(20, random_state=0)
    assert np.isfinite(np.asarray(draws, dtype=float)).all()
    assert np.isfinite(model.score(draws))


def test_a_number_that_is_very_far_away_has_a_low_score():
    model = quick().fit(ARRAY)
    scores = model.score_samples([[0.0, 0.0], [1e6, 0.0], [1e200, 0.0]])
    assert np.isfinite(scores).all()
    assert scores[0] > scores[1] > scores[2]


def test_unseen_values_are_integrated_out_and_told_with_their_number(fitted):
    strange = pd.concat([ROW.assign(city="Paris"), ROW, ROW.assign(city="Lima")])
    with pytest.warns(sub.DataWarning, match="column 'city' in 2 rows, such as 'Paris'"):
        scores = fitted.score_samples(strange)
    missing = ROW.assign(city=None).astype({"city": FRAME.city.dtype})
    assert scores[0] == scores[2] == fitted.score_samples(missing)[0]


def test_unseen_values_are_refused_on_demand():
    model = quick(schema=BOUNDS, unknown="error").fit(FRAME)
    with pytest.raises(ValueError, match="column 'city' in 1 rows, such as 'Paris'"):
        model.score_samples(ROW.assign(city="Paris"))


OTHERS = {
    "gaps": [np.nan] * 40,
    "complex": 1j * np.arange(40),
    "lists": labels([[1], [2]]),
    "mixed": labels(["one", 2]),
    "booleans and texts": labels([True, "no"]),
    "huge": 2**60 + np.arange(40),
    "huge objects": labels([10**30, 10**30 + 1]),
    "bytes": labels([b"a", b"b"]),
    "periods": pd.period_range("2020", periods=40, freq="D"),
    "texts": [f"row {i}" for i in range(40)],
}


@pytest.mark.parametrize("column", OTHERS.values(), ids=OTHERS)
def test_a_column_of_anything_else_is_set_aside_by_name(column):
    table = pd.concat([frame(c=column, d=np.arange(40) % 3)] * 7, ignore_index=True)
    if isinstance(column, list) and isinstance(column[0], str):
        table["c"] = [f"row {i}" for i in range(len(table))]
    with pytest.warns(sub.DataWarning, match="columns were set aside.*'c' "):
        model = quick().fit(table)
    drawn = model.sample(3, random_state=0)
    assert list(drawn.columns) == list(table.columns)
    assert drawn["c"].isna().all()
    gaps = table.assign(a=table["a"].where(table.index % 2 == 0))
    filled = model.impute(gaps)
    pd.testing.assert_series_equal(filled["c"], gaps["c"])
    assert filled["a"].notna().all()
    assert np.isfinite(model.score(table))
    with pytest.raises(ValueError, match="'c', which was set aside and is not modelled"):
        model.probability({"c": [1]})


def test_tensors_that_are_differentiated_are_tables():
    x = np.random.default_rng(0).normal(size=(80, 2))
    tensor = torch.tensor(x, requires_grad=True)
    model = quick().fit(tensor)
    np.testing.assert_array_equal(model.score_samples(tensor), quick().fit(x).score_samples(x))
    assert model.impute(tensor).shape == (80, 2)
    history = sub.fit(model.density_, tensor, max_epochs=1, progress=False)
    assert len(history.epochs) == 1


def test_more_samples_than_any_memory_holds_are_refused(fitted):
    with pytest.raises(ValueError, match="samples take .* GB of memory at least. Draw fewer"):
        fitted.sample(99_999_999_999)
    with pytest.raises(ValueError, match="samples take .* GB of memory at least. Draw fewer"):
        fitted.density_.sample(99_999_999_999)
