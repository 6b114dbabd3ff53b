"""Probabilities of boxes: intervals, half-lines, sets of states."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import all_states
from registry import CONTINUOUS, DISCRETE, GRAPHS, NUM_STATES, build, every_kind
from scipy import stats

import subtractive as sub
from subtractive.inference.box import in_box
from subtractive.inference.evidence import make_evidence

INF = math.inf


def squared(graph="binary", family="gaussian", **options):
    return sub.SquaredCircuit(build(graph, family, **options))


def monotonic(graph="binary", family="gaussian", **options):
    return sub.MonotonicCircuit(build(graph, family, weights="positive", **options))


def mixture(graph="binary", family="gaussian"):
    return sub.Mixture([squared(graph, family), monotonic("flat", family)], weights=[0.4, 0.6])


def restriction(graph="binary", family="gaussian"):
    return mixture(graph, family).marginal([3, 1, 0, 2])


MAKERS = [squared, monotonic, mixture, restriction]
every_density = pytest.mark.parametrize("make", MAKERS)


def regions(graph):
    circuit = sub.Circuit(
        graph, sub.MultivariateGaussian(), num_units=3, seed=0, dtype=torch.float64
    )
    return sub.SquaredCircuit(circuit)


@every_density
@pytest.mark.parametrize("family", ["categorical", "binomial"])
@torch.no_grad()
def test_every_box_of_states_is_a_sum(make, family):
    p = make("linear", family)
    x = all_states([NUM_STATES] * 4)
    mass = p.log_prob(x).exp()
    sides = [(1, 2), (None, 1), (2, None), (0, 0), {0, 2}, {1}, frozenset({0, 1, 2}), (0.5, 1.7)]
    states = [{1, 2}, {0, 1}, {2}, {0}, {0, 2}, {1}, {0, 1, 2}, {1}]
    for k, turn in itertools.product(range(8), (1, 4)):
        a, inside_a = sides[k], states[k]
        b, inside_b = sides[k - turn], states[k - turn]
        member = [[row[0] in inside_a, row[2] in inside_b] for row in x.tolist()]
        expected = mass[torch.tensor(member).all(1)].sum()
        torch.testing.assert_close(p.probability({0: a, 2: b}), expected, rtol=0, atol=1e-12)


@every_density
@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_the_probability_of_a_half_line_is_the_distribution_function(make, family):
    p = make("nested", family)
    for given in (None, {1: 1.0}):
        for end in (0.0, 1.0):
            below = p.probability({0: (None, end)}, given)
            torch.testing.assert_close(below, p.cdf(0, [end], given)[0], rtol=0, atol=1e-12)


@every_density
@torch.no_grad()
def test_a_box_and_its_complement_sum_to_one(make):
    p = make()
    for given in (None, {3: 0.2}):
        parts = [
            p.probability({0: a, 2: b}, given)
            for a, b in itertools.product(
                [(None, -0.3), (-0.3, 0.9), (0.9, None)], [(None, 0.1), (0.1, INF)]
            )
        ]
        torch.testing.assert_close(sum(parts).item(), 1.0, rtol=0, atol=1e-12)


@every_kind(
    ("graph", "family"),
    list(itertools.product(GRAPHS, [*CONTINUOUS, *DISCRETE])),
    together=1,
)
@torch.no_grad()
def test_larger_boxes_are_more_probable_and_never_certain_beyond_one(graph, family):
    p = squared(graph, family, weights="complex", outputs=3)
    before = 0.0
    for size in (0.0, 0.3, 0.6, 1.0, 1.9, 5.0, 40.0, 1e6, INF):
        now = p.probability({v: (-size, size) for v in range(4)}).item()
        assert before - 1e-15 <= now <= 1.0
        before = now
    torch.testing.assert_close(before, 1.0, rtol=0, atol=1e-14)
    torch.testing.assert_close(p.probability({0: (None, None)}).item(), 1.0, rtol=0, atol=1e-14)


@every_density
def test_empty_sides_are_impossible(make):
    discrete, continuous = make("binary", "categorical"), make()
    assert discrete.probability({0: set()}) == 0
    assert discrete.probability({0: (0.2, 0.8), 1: (0, 2)}) == 0
    assert discrete.probability({0: (3, None)}) == 0
    assert continuous.probability({0: (0.3, 0.3)}) == 0
    assert continuous.probability({0: (INF, INF)}) == 0


def test_outside_the_domain_of_a_spline_there_is_nothing():
    p = squared(family="spline")
    assert p.probability({0: (2.5, 3.0)}) == 0
    assert p.probability({0: (-1.0, 2.0)}) == 1
    whole = p.probability({1: (0.0, 0.5)})
    torch.testing.assert_close(
        p.probability({0: (-7.0, 9.0), 1: (0.0, 0.5)}), whole, rtol=1e-12, atol=0
    )


def test_states_just_outside_an_interval_stay_outside():
    p = squared(family="binomial")
    two = p.pdf(0, [2])[0]
    for low in (2.0, 1.0 + 1e-12, 1.5):
        torch.testing.assert_close(p.probability({0: (low, 2.9)}), two, rtol=0, atol=1e-14)


def test_numbers_of_numpy_and_torch_are_numbers():
    p = squared(family="categorical")
    plain = p.probability({0: {0, 1}, 1: (1, 2)})
    torch.testing.assert_close(
        p.probability({np.int64(0): set(np.arange(2)), 1: [torch.tensor(1.0), np.float32(2)]}),
        plain,
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("weights", ["real", "positive", "complex"])
@torch.no_grad()
def test_tails_are_tiny_and_positive(weights):
    p = squared(weights=weights)
    ends = [6.0, 10.0, 15.0, 20.0, 25.0]
    for side in (lambda t: (t, None), lambda t: (t, t + 1), lambda t: (-t - 1, -t)):
        chances = [p.probability({0: side(t)}).item() for t in ends]
        assert all(chance > 0 for chance in chances)
        assert chances == sorted(chances, reverse=True)
    assert p.probability({0: (1e3, None)}) == 0
    assert p.probability({v: (9.0, None) for v in range(4)}) >= 0


def test_the_tail_of_one_gaussian_has_all_its_digits():
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=1, dtype=torch.float64)
    with torch.no_grad():
        circuit.input_layers[0].mean.zero_()
        circuit.input_layers[0].log_scale.fill_(0.5 * math.log(2))  # its square is N(0, 1)
    p = sub.SquaredCircuit(circuit)
    for t in (1.0, 8.0, 20.0, 37.0):
        exact = stats.norm.sf(t)
        torch.testing.assert_close(p.probability({0: (t, None)}).item(), exact, rtol=1e-12, atol=0)
        torch.testing.assert_close(
            p.probability({0: (None, -t)}).item(), exact, rtol=1e-12, atol=0
        )


@every_density
@torch.no_grad()
def test_conditional_boxes_follow_the_product_rule(make):
    """P(x0 in A, x2 = v) = p(v) P(A | v), and boxes shrink to densities."""
    p = make("linear", "categorical")
    joint = p.probability({0: (1, 2), 2: {1}})
    given = p.probability({0: (1, 2)}, {2: 1}) * p.pdf(2, [1])[0]
    torch.testing.assert_close(joint, given, rtol=0, atol=1e-12)
    restricted = p.condition({2: 1}).probability({0: (1, 2)})
    torch.testing.assert_close(restricted, p.probability({0: (1, 2)}, {2: 1}), rtol=0, atol=1e-12)
    p, width = make(), 1e-5
    box = p.probability({0: (0.4, 0.4 + width)}, {1: 0.3, 2: -0.5}) / width
    height = p.pdf(0, [0.4 + width / 2], {1: 0.3, 2: -0.5})[0]
    torch.testing.assert_close(box, height, rtol=1e-8, atol=0)


def test_gradients_of_boxes_are_exact():
    p = squared()
    assert torch.autograd.gradcheck(
        lambda *_: p.probability({0: (-0.4, 0.8), 3: (0.1, None)}, {1: 0.2}),
        list(p.parameters()),
        fast_mode=True,
    )


def test_regions_of_several_variables_take_boxes_on_other_variables():
    p = regions(sub.flat([[0, 1], [2]]))
    torch.testing.assert_close(
        p.probability({2: (None, 0.3)}), p.cdf(2, [0.3])[0], rtol=0, atol=1e-12
    )
    given = {0: 0.2}
    torch.testing.assert_close(
        p.probability({2: (None, 0.3)}, given), p.cdf(2, [0.3], given)[0], rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        p.probability({0: (None, None), 2: (None, 0.3)}), p.cdf(2, [0.3])[0], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("box", [{0: (0.0, 1.0)}, {1: (None, 0.0), 2: (0.0, 1.0)}])
def test_regions_of_several_variables_refuse_boxes_of_their_own(box):
    p = regions(sub.flat([[0, 1], [2]]))
    with pytest.raises(ValueError, match=r"no closed form for a box on variables \[0, 1\]"):
        p.probability(box)


@pytest.mark.parametrize("density", [sub.SquaredCircuit, sub.MonotonicCircuit])
def test_partly_known_regions_refuse_boxes_of_their_own(density):
    circuit = sub.Circuit(
        sub.flat([[0, 1], [2]]),
        sub.MultivariateGaussian(),
        num_units=2,
        weights=sub.positive_weights,
        dtype=torch.float64,
    )
    with pytest.raises(ValueError, match=r"no closed form for a box on variables \[0, 1\]"):
        density(circuit).probability({0: (0.0, 1.0)}, {1: 0.2})


def test_a_box_is_evidence_with_bounds():
    p = squared(family="categorical")
    x = torch.tensor([[math.nan, 1.0, math.nan, math.nan]])
    evidence = make_evidence(x, None, p.families, p.device)
    inside = in_box(evidence, {0: (1, 2), 3: {2}}, p.families)
    assert inside.lower[0, 0] < 1 <= inside.upper[0, 0] == 2
    assert inside.lower[0, 2] == -INF
    assert inside.states[3].tolist() == [False, False, True]
    assert torch.equal(inside.observed, evidence.observed)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ({}, "a box names at least one variable and its interval or states"),
        (None, "a box names at least one variable"),
        ([(0, 1)], "a box names at least one variable"),
        ({4: (0, 1)}, "unknown variable 4: expected integers from 0 to 3"),
        ({"a": (0, 1)}, "unknown variable 'a'"),
        ({1: (0, 1)}, "variable 1 is both in the box and given: remove it from one of them"),
        ({0: (2.0, 1.0)}, r"variable 0 must have low <= high, got \(2\.0, 1\.0\)"),
        ({0: (math.nan, 1.0)}, "variable 0 must have low <= high"),
        ({0: 1.0}, r"variable 0 must be an interval \(low, high\) or a set of states, got 1\.0"),
        ({0: (1.0, 2.0, 3.0)}, r"must be an interval \(low, high\) or a set of states"),
        ({0: "ab"}, r"must be an interval \(low, high\) or a set of states, got 'ab'"),
        ({0: ("a", 1.0)}, r"ends of the interval of variable 0 must be numbers or None, got"),
        ({0: ([0.0], [1.0])}, "ends of the interval of variable 0 must be numbers or None"),
        ({0: {1}}, r"variable 0 is continuous: give an interval \(low, high\), got \{1\}"),
        ({2: {3}}, "variable 2 has states 0 to 2, got 3 in the box"),
        ({2: {-1}}, "variable 2 has states 0 to 2, got -1"),
        ({2: {0.5}}, "variable 2 has states 0 to 2, got 0.5"),
        ({2: {True}}, "variable 2 has states 0 to 2, got True"),
        ({2: {"a"}}, "variable 2 has states 0 to 2, got 'a'"),
    ],
)
def test_boxes_that_are_none_say_what_was_expected(box, message):
    families = [sub.Gaussian(), sub.Gaussian(), sub.Categorical(3), sub.Spline(6)]
    circuit = sub.Circuit(sub.linear_tree(4), families, num_units=2, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        sub.SquaredCircuit(circuit).probability(box, {1: 0.5})


def test_impossible_evidence_is_refused():
    p = squared(family="spline")
    with pytest.raises(ValueError, match=r"probability zero in rows \[0\]"):
        p.probability({0: (0.0, 1.0)}, {1: 5.0})
