"""Bad input is refused at the door, in words that help; unusual input that is right is not."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from registry import build, points

import subtractive as sub

NAN, INF = math.nan, math.inf


def gaussian():
    return sub.SquaredCircuit(build("binary", "gaussian", d=3))


def discrete():
    """Columns of 3 states, of counts up to 2, and of bounded reals."""
    families = [sub.Categorical(3), sub.Binomial(2), sub.Spline(4, domain=(0.0, 1.0))]
    return sub.SquaredCircuit(
        sub.Circuit(sub.flat(3), families, num_units=2, seed=0, dtype=torch.float64)
    )


def circuit(**options):
    settings = {"num_units": 2, "seed": 0, "dtype": torch.float64}
    graph, family = options.pop("graph", sub.flat(3)), options.pop("family", sub.Gaussian())
    return sub.Circuit(graph, family, **(settings | options))


X = torch.zeros(4, 3, dtype=torch.float64)
FIRST, OTHERS = torch.tensor([True, False, False]), torch.tensor([False, True, True])

# what was asked -> (how, what the message says: what was expected, what came, what to do)
TABLES = {
    "a number": (3.0, r"shape \(rows, 3\).*got \(\)"),
    "too few columns": (torch.zeros(4, 2), r"shape \(rows, 3\).*got \(4, 2\)"),
    "too many columns": (np.zeros((4, 4)), r"shape \(rows, 3\).*got \(4, 4\)"),
    "no rows of the wrong width": (torch.zeros(0, 2), r"shape \(rows, 3\).*got \(0, 2\)"),
    "transposed": (X.T, r"shape \(rows, 3\).*got \(3, 4\)"),
    "an empty list": ([], r"shape \(rows, 3\).*got \(0,\)"),
    "complex numbers": (X.to(torch.complex128), "x must be real, got complex numbers"),
    "a complex array": (np.zeros((4, 3), complex), "x must be real, got complex numbers"),
    "None": (None, "x must be a table of numbers, got NoneType.*Pass a tensor or an array"),
    "a string": ("abc", "x must be a table of numbers, got str.*Pass a tensor or an array"),
    "strings": ([["a", "b", "c"]], "x must be a table of numbers, got list"),
    "numbers as strings": (np.array([["1", "2", "3"]]), "must be a table of numbers, got ndarray"),
    "objects": (
        np.array([[1, None, "a"]], dtype=object),
        "table of numbers, got ndarray of object",
    ),
    "dates": (np.zeros((2, 3), "datetime64[s]"), "table of numbers, got ndarray of datetime64"),
    "ragged rows": ([[1.0, 2.0, 3.0], [1.0]], "table of numbers, got list .*inhomogeneous"),
    "a dictionary": ({"a": [1.0]}, "table of numbers, got dict of object"),
    "infinity": (torch.full((1, 3), INF), "variable 0 .* needs finite values, got inf.*write NaN"),
    "minus infinity": ([[0.0, -INF, 0.0]], "variable 1 .* needs finite values, got -inf"),
}

# What has other axes than a table; log_prob alone takes them.
OTHER_AXES = {
    "one row without its axis": (
        torch.zeros(3),
        r"x must have shape \(rows, 3\), one column per variable, got \(3,\).*pass x\[None\]",
    ),
    "three axes": (torch.zeros(1, 4, 3), r"shape \(rows, 3\).*got \(1, 4, 3\)"),
}


@pytest.mark.parametrize(("x", "message"), OTHER_AXES.values(), ids=OTHER_AXES)
def test_queries_of_tables_refuse_other_axes(x, message):
    p = gaussian()
    for ask in (
        p.log_square,
        p.log_marginal,
        p.impute,
        lambda x: p.log_conditional(x, torch.ones(3) > 0, torch.zeros(3) > 0),
    ):
        with pytest.raises(ValueError, match=message):
            ask(x)


@pytest.mark.parametrize(("x", "message"), TABLES.values(), ids=TABLES)
def test_what_is_no_table_is_refused_by_every_query(x, message):
    p = gaussian()
    before = copy.deepcopy(p.state_dict())
    for ask in (
        p.log_prob,
        p.log_square,
        lambda x: p.log_marginal(x, torch.ones(3, dtype=torch.bool)),
        lambda x: p.log_conditional(x, torch.ones(3) > 0, torch.zeros(3) > 0),
        sub.Mixture([p, p]).log_prob,
        p.marginal([0, 1, 2]).log_prob,
    ):
        with pytest.raises(ValueError, match=message):
            ask(x)
    after = p.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert p.log_prob(X).isfinite().all()


VALUES = {
    "a state too many": ([3, 0, 0.5], r"variable 0 must hold whole numbers in 0\.\.2, got 3\."),
    "a negative state": ([-1, 0, 0.5], r"variable 0 must hold whole numbers in 0\.\.2, got -1"),
    "half a state": ([0.5, 0, 0.5], r"variable 0 .*whole numbers in 0\.\.2, got 0\.5"),
    "a count too many": ([0, 3, 0.5], r"variable 1 must hold whole numbers in 0\.\.2, got 3"),
    "a negative count": ([0, -2, 0.5], r"variable 1 must hold whole numbers in 0\.\.2, got -2"),
    "infinitely many": ([0, INF, 0.5], r"variable 1 must hold whole numbers in 0\.\.2, got inf"),
    "infinity": (
        [0, 0, INF],
        "variable 2 is continuous and needs finite.*got inf.*write NaN",
    ),
}


@pytest.mark.parametrize(("row", "message"), VALUES.values(), ids=VALUES)
def test_impossible_values_are_refused_where_they_count(row, message):
    p = discrete()
    with pytest.raises(ValueError, match=message):
        p.log_prob([[0.0, 0.0, 0.5], row])
    with pytest.raises(ValueError, match=message):
        p.condition({v: value for v, value in enumerate(row) if value == row[worst(row)]})
    hidden = torch.arange(3) != worst(row)
    assert p.log_marginal([row], hidden).isfinite().all()


def worst(row):
    return next(v for v, good in enumerate([(0, 1, 2), (0, 1, 2), (0.5,)]) if row[v] not in good)


MASKS = {
    "numbers": (torch.tensor([1, 0, 1]), r"must be boolean, got torch.int64.*pass a mask that is"),
    "floats": (np.ones(3), "must be boolean, got torch.float64"),
    "variables": ([0, 2], "must be boolean, got torch.int64"),
    "too short": (torch.ones(2) > 0, r"expected shape \(3,\) or \(4, 3\), got \(2,\)"),
    "one per row": (torch.ones(4) > 0, r"expected shape \(3,\) or \(4, 3\), got \(4,\)"),
    "rows too many": (torch.ones(5, 3) > 0, r"expected shape \(3,\) or \(4, 3\), got \(5, 3\)"),
    "one row": (torch.ones(1, 3) > 0, r"expected shape \(3,\) or \(4, 3\), got \(1, 3\)"),
    "transposed": (torch.ones(3, 4) > 0, r"expected shape \(3,\) or \(4, 3\), got \(3, 4\)"),
    "a flag": (True, r"expected shape \(3,\) or \(4, 3\), got \(\)"),
    "a string": ("abc", "must be a boolean mask, got str.*True at the variables that count"),
    "objects": (np.array([True, None, False]), "must be a boolean mask, got ndarray of object"),
    "ragged": ([[True], [True, False]], "must be a boolean mask, got list"),
}


@pytest.mark.parametrize(("mask", "message"), MASKS.values(), ids=MASKS)
def test_what_is_no_mask_is_refused(mask, message):
    p = gaussian()
    with pytest.raises(ValueError, match=f"observed .*{message}"):
        p.log_marginal(X, mask)
    with pytest.raises(ValueError, match=f"query .*{message}"):
        p.log_conditional(X, mask, FIRST)
    with pytest.raises(ValueError, match=f"given .*{message}"):
        p.log_conditional(X, FIRST, mask)


SHARED = "query and given must not share a variable: remove it from one"
EMPTY = "query is empty.*Mark at least one variable"
POSITIVE = {"weights": sub.positive_weights}
CALLS = {
    "no mask": (
        lambda p: p.log_conditional(X, FIRST, None),
        "given must be a boolean mask, got None",
    ),
    "overlap": (lambda p: p.log_conditional(X, FIRST, FIRST), SHARED),
    "overlap in one row": (
        lambda p: p.log_conditional(X, OTHERS.expand(4, 3), torch.arange(12).reshape(4, 3) == 4),
        SHARED,
    ),
    "empty query": (lambda p: p.log_conditional(X, ~(FIRST | OTHERS), FIRST), EMPTY),
    "empty query in one row": (
        lambda p: p.log_conditional(X, torch.arange(12).reshape(4, 3) > 2, FIRST & False),
        EMPTY,
    ),
    "unknown": (lambda p: p.marginal([0, 3]), "unknown variable 3: expected integers from 0 to 2"),
    "negative": (lambda p: p.marginal([-1]), "unknown variable -1: expected integers from 0 to 2"),
    "fraction": (lambda p: p.marginal([0.0]), r"unknown variable 0\.0: expected integers"),
    "name": (lambda p: p.marginal(["a"]), "unknown variable 'a': expected integers"),
    "flag": (lambda p: p.marginal([True]), "unknown variable True: expected integers"),
    "mask": (lambda p: p.marginal(FIRST), "unknown variable True: expected integers"),
    "mask array": (lambda p: p.marginal(FIRST.numpy()), "unknown variable True: expected"),
    "twice": (lambda p: p.marginal([1, 1]), r"variables must be distinct, got \[1, 1\]"),
    "none": (lambda p: p.marginal([]), "marginal needs at least one variable to keep, got none"),
    "a number": (
        lambda p: p.marginal(1),
        r"expected a list of variables, got 1.*pass \[variable\]",
    ),
    "nothing": (lambda p: p.marginal(None), "expected a list of variables, got None"),
    "given unknown": (lambda p: p.condition({3: 0.0}), "unknown variable 3: expected integers"),
    "given flag": (lambda p: p.condition({False: 0.0}), "unknown variable False: expected"),
    "given NaN": (lambda p: p.condition({1: NAN}), "value of variable 1 is NaN: leave it out"),
    "given all": (lambda p: p.condition({0: 0, 1: 0, 2: 0}), "at least one variable left free"),
    "given text": (lambda p: p.condition({1: "a"}), "variable 1 must be a number, got 'a'"),
    "given None": (lambda p: p.condition({1: None}), "variable 1 must be a number, got None"),
    "given complex": (lambda p: p.condition({1: 1j}), "variable 1 must be a number, got 1j"),
    "given several": (lambda p: p.condition({1: [1, 2]}), "variable 1 must be a number, got"),
    "given a list": (
        lambda p: p.condition([0, 1]),
        r"given values must be a dictionary .* such as \{2: 0\.5\}, got list",
    ),
    "given infinity": (
        lambda p: p.condition({1: INF}),
        "variable 1 .*needs finite values, got inf",
    ),
    "nested unknown": (lambda p: p.marginal([2, 0]).marginal([2]), "unknown variable 2: expected"),
    "no members": (lambda p: sub.Mixture([]), "a mixture needs at least one member, got none"),
    "one member bare": (
        lambda p: sub.Mixture(p),
        r"must be a list of densities, got Squared.*\[d",
    ),
    "circuit member": (lambda p: sub.Mixture([p.circuit]), "must be densities, got Circuit. Wrap"),
    "other variables": (
        lambda p: sub.Mixture([p, p.marginal([0, 1])]),
        "members must be over the same variables: the number of variables",
    ),
    "other states": (
        lambda p: sub.Mixture([p, discrete()]),
        "the number of states of one, differs",
    ),
    "negative weight": (
        lambda p: sub.Mixture([p, p], weights=[1.5, -0.5]),
        r"weights must be 2 non-negative finite numbers.*got \[1\.5, -0\.5\]",
    ),
    "zero weights": (lambda p: sub.Mixture([p, p], weights=[0, 0]), "not all zero, got"),
    "NaN weight": (lambda p: sub.Mixture([p, p], weights=[NAN, 1]), "weights must be 2 non-neg"),
    "infinite weight": (lambda p: sub.Mixture([p, p], weights=[INF, 1]), "weights must be 2 non-"),
    "a weight short": (lambda p: sub.Mixture([p, p], weights=[1.0]), "weights must be 2 non-neg"),
    "no weights": (lambda p: sub.Mixture([p, p], weights=[]), "weights must be 2 non-negative"),
    "text weights": (lambda p: sub.Mixture([p, p], weights="ab"), "weights must be 2 non-neg"),
    "weight": (lambda p: sub.Mixture([p, p], weights=1.0), "weights must be 2 non-negative"),
    "square of a density": (
        lambda p: sub.SquaredCircuit(p),
        "takes a Circuit, got SquaredCircuit",
    ),
    "square of a graph": (
        lambda p: sub.SquaredCircuit(sub.flat(2)),
        "takes a Circuit, got Region",
    ),
    "monotonic density": (
        lambda p: sub.MonotonicCircuit(p),
        "takes a Circuit, got SquaredCircuit",
    ),
    "monotonic real": (
        lambda p: sub.MonotonicCircuit(p.circuit),
        "needs positive weights and non-negative input functions.*weights=positive_weights",
    ),
    "monotonic complex": (
        lambda p: sub.MonotonicCircuit(circuit(weights=sub.complex_weights)),
        "needs positive weights",
    ),
    "monotonic embedding": (
        lambda p: sub.MonotonicCircuit(circuit(family=sub.Embedding(2), **POSITIVE)),
        r"non-negative input functions.*Categorical\(v\)",
    ),
    "monotonic spline": (
        lambda p: sub.MonotonicCircuit(circuit(family=sub.Spline(4), **POSITIVE)),
        r"Spline\(\.\.\., non_negative=True\)",
    ),
    "inner of densities": (
        lambda p: sub.inner(p, p),
        "two circuits, got SquaredCircuit.*\\.circuit",
    ),
    "inner of other graphs": (
        lambda p: sub.inner(circuit(), circuit(graph=sub.linear_tree(3))),
        "two circuits on the same region graph: build both from one graph",
    ),
    "inner of other families": (
        lambda p: sub.inference.log_inner(circuit(), circuit(family=sub.RBF((0.0, 1.0), 1.0))),
        "same input family for each variable",
    ),
    "inner of other states": (
        lambda p: sub.inner(circuit(family=sub.Embedding(2)), circuit(family=sub.Embedding(3))),
        "same input family for each variable",
    ),
    "inner of other domains": (
        lambda p: sub.inner(
            circuit(family=sub.Spline(4)), circuit(family=sub.Spline(4, domain=(0.0, 2.0)))
        ),
        "same knots",
    ),
    "inner of other products": (
        lambda p: sub.inner(circuit(), circuit(product=sub.KroneckerLayer)),
        "the same kind of product layer",
    ),
    "inner of other widths": (
        lambda p: sub.inner(circuit(), circuit(num_input_units=3)),
        "both or neither with as many input units as units",
    ),
    "no families": (lambda p: circuit(family=[]), "one per variable: expected 3, got 0"),
    "a family short": (lambda p: circuit(family=[sub.Gaussian()] * 2), "expected 3, got 2"),
    "family classes": (lambda p: circuit(family=[sub.Gaussian] * 3), r"such as Gaussian\(\), got"),
    "a family class": (lambda p: circuit(family=sub.Gaussian), "family"),
    "no family": (lambda p: circuit(family=None), "family"),
    "no graph": (
        lambda p: circuit(graph=3),
        "expected a RegionGraph, got int.*random_binary_tree",
    ),
    "no tree": (
        lambda p: sub.SquaredCircuit(
            circuit(
                graph=sub.RegionGraph(
                    [sub.regions.Region([v]) for v in range(3)]
                    + [sub.regions.Region([0, 1], [sub.regions.Partition((0, 1))])]
                    + [sub.regions.Region([1, 2], [sub.regions.Partition((1, 2))])]
                    + [
                        sub.regions.Region(
                            [0, 1, 2],
                            [sub.regions.Partition((3, 2)), sub.regions.Partition((0, 4))],
                        )
                    ]
                )
            )
        ),
        "needs a region tree.*for several trees a Mixture of densities, one per tree",
    ),
    "region of two": (
        lambda p: circuit(graph=sub.flat([[0, 1], [2]])),
        "Gaussian takes input regions of one variable, got a region of 2.*MultivariateGaussian",
    ),
    "no units": (lambda p: circuit(num_units=0), "num_units.*0"),
    "no outputs": (lambda p: circuit(num_outputs=0), "num_outputs.*0"),
    "negative start": (
        lambda p: circuit(initialise=sub.init.normal(), **POSITIVE),
        r"positive weights need a positive start, got values down to -.*Use uniform\(\)",
    ),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_what_cannot_be_is_refused_and_leaves_everything_as_it_was(call, message):
    p = gaussian()
    before = copy.deepcopy(p.state_dict())
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        call(p)
    assert all(torch.equal(before[name], tensor) for name, tensor in p.state_dict().items())
    assert not p.training or p.log_prob(X).isfinite().all()


def test_weights_that_cancel_completely_are_named_as_such():
    p = sub.SquaredCircuit(circuit())
    with torch.no_grad():
        p.circuit.sum_layers[0].weights.value.zero_()
    with pytest.raises(sub.CancellationError, match="cancel completely.*go back to earlier"):
        p.log_prob(X)
    with torch.no_grad():
        p.circuit.sum_layers[0].weights.value.fill_(NAN)
    with pytest.raises(sub.CancellationError, match="a parameter is not a finite number"):
        p.log_prob(X)


READABLE = {
    "an array": lambda x: x.numpy(),
    "single precision": lambda x: x.float(),
    "half precision": lambda x: x.half(),
    "a single array": lambda x: x.float().numpy(),
    "a list": lambda x: x.tolist(),
    "a tuple of rows": lambda x: tuple(map(tuple, x.tolist())),
    "integers": lambda x: x.long(),
    "small integers": lambda x: x.to(torch.int8),
    "unsigned integers": lambda x: x.to(torch.uint8).numpy().astype(np.uint16),
    "a list of integers": lambda x: x.long().tolist(),
    "transposed storage": lambda x: x.T.contiguous().T,
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "an expanded tensor": lambda x: x[:, None].expand(-1, 1, -1)[:, 0],
    "a reversed array": lambda x: x.numpy()[::-1].copy()[::-1],
    "a read-only array": lambda x: np.frombuffer(x.numpy().tobytes()).reshape(x.shape),
    "foreign byte order": lambda x: x.numpy().astype(">f8"),
    "a tracked tensor": lambda x: x.clone().requires_grad_(),
    "a list of arrays": lambda x: list(x.numpy()),
}


@pytest.mark.parametrize("present", READABLE.values(), ids=READABLE)
@pytest.mark.parametrize("family", ["gaussian", "embedding"])
def test_numbers_are_read_however_they_come(family, present):
    p = sub.SquaredCircuit(build("binary", family))
    x = torch.tensor([[0.0, 1, 2, 1], [2, 2, 0, 0], [1, 0, 1, 2]], dtype=torch.float64)
    observed = torch.tensor([True, False, True, True])
    for ask in (
        p.log_prob,
        lambda x: p.log_marginal(x, observed),
        p.marginal([3, 1, 0, 2]).log_prob,
    ):
        torch.testing.assert_close(ask(present(x)), ask(x), rtol=0, atol=1e-12)


def test_lists_keep_double_precision():
    p = gaussian()
    row = [0.1, 0.2, 0.3]
    exact = p.log_prob(torch.tensor([row], dtype=torch.float64))
    torch.testing.assert_close(p.log_prob([row]), exact, rtol=0, atol=0)


@pytest.mark.parametrize(
    "mask", [[True, False, True], (True, False, True), np.array([1, 0, 1]) > 0]
)
def test_masks_are_read_however_they_come(mask):
    p, x = gaussian(), points("gaussian", 4, 3)
    expected = p.log_marginal(x, torch.tensor([True, False, True]))
    torch.testing.assert_close(p.log_marginal(x, mask), expected, rtol=0, atol=0)
    rows = np.broadcast_to(np.asarray(mask), (4, 3))
    torch.testing.assert_close(p.log_marginal(x, rows), expected, rtol=0, atol=0)


DENSITIES = {
    "squared": gaussian,
    "monotonic": lambda: sub.MonotonicCircuit(build("flat", "gaussian", weights="positive", d=3)),
    "mixture": lambda: sub.Mixture([gaussian(), gaussian()]),
    "conditional": lambda: sub.SquaredCircuit(build("flat", "gaussian", d=4)).condition({1: 0.5}),
}


@pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)
def test_no_rows_have_no_probabilities_and_missing_rows_have_probability_one(make):
    p = make()
    for empty in (X[:0], np.zeros((0, 3)), torch.zeros(0, 3, dtype=torch.long)):
        for result in (
            p.log_prob(empty),
            p.log_marginal(empty, FIRST),
            p.log_marginal(empty, torch.zeros(0, 3, dtype=torch.bool)),
            p.log_conditional(empty, FIRST, OTHERS),
        ):
            assert result.shape == (0,)
            assert result.dtype == torch.float64
    p.log_prob(X[:0]).sum().backward()
    nothing = torch.full((3, 3), NAN, dtype=torch.float64)
    zeros = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(p.log_prob(nothing), zeros, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        p.log_marginal(torch.full((3, 3), INF), ~(FIRST | OTHERS)), zeros, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)
def test_rows_get_gradients_but_for_entries_that_do_not_count(make):
    p = make()
    x = points("gaussian", 4, 3)
    x[1, 2] = NAN
    x.requires_grad_()
    p.log_marginal(x, ~FIRST).sum().backward()
    assert x.grad.isfinite().all()
    expected = torch.tensor([[False, True, True]] * 4)
    expected[1, 2] = False
    assert torch.equal(x.grad != 0, expected)
