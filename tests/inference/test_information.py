"""Entropies and information of sets of variables, against enumeration."""

import pytest
import torch
from oracles import all_states
from registry import NUM_STATES, build

import subtractive as sub

D = 4


def model():
    return sub.SquaredCircuit(build("binary", "embedding", d=D, outputs=2))


def entropy(table, variables, given=None):
    """−Σ p log p of the marginal of some variables, from all joint states."""
    states, shares = table
    for variable, value in (given or {}).items():
        shares = shares * (states[:, variable] == value)
    shares = shares / shares.sum()
    _, group = torch.unique(states[:, list(variables)], dim=0, return_inverse=True)
    marginal = torch.zeros(int(group.max()) + 1, dtype=shares.dtype).index_add(0, group, shares)
    marginal = marginal[marginal > 0]
    return float(-(marginal * marginal.log()).sum())


@pytest.fixture(scope="module")
def table():
    states = all_states([NUM_STATES] * D)
    with torch.no_grad():
        return states, model().log_prob(states).exp()


def check(found, exact):
    # Four standard errors: one false alarm in 16 000.
    assert abs(found.value - exact) < 4 * found.standard_error
    assert found.standard_error < 0.02


def generator():
    return torch.Generator().manual_seed(0)


def test_the_entropy_given_evidence(table):
    given = {1: 2.0}
    found = model().entropy(4000, given=given, generator=generator())
    check(found, entropy(table, range(D), given))


def test_the_entropy_of_some_variables(table):
    found = model().conditional_entropy([0, 2], num_samples=4000, generator=generator())
    check(found, entropy(table, [0, 2]))


def test_the_entropy_of_some_variables_given_others(table):
    found = model().conditional_entropy([0, 2], [3], num_samples=4000, generator=generator())
    check(found, entropy(table, [0, 2, 3]) - entropy(table, [3]))


def test_the_information_between_sets_of_variables(table):
    found = model().mutual_information([0], [2, 3], num_samples=4000, generator=generator())
    exact = entropy(table, [0]) + entropy(table, [2, 3]) - entropy(table, [0, 2, 3])
    check(found, exact)


def test_the_information_given_evidence(table):
    given = {1: 0.0}
    found = model().mutual_information(
        [0], [2], given=given, num_samples=4000, generator=generator()
    )
    exact = entropy(table, [0], given) + entropy(table, [2], given) - entropy(table, [0, 2], given)
    check(found, exact)


def test_a_gaussian_has_the_textbook_information():
    """Two variables of correlation r: I = −log(1 − r²) / 2."""
    p = sub.MonotonicCircuit(
        sub.Circuit(
            sub.flat([[0, 1]]),
            sub.MultivariateGaussian(),
            num_units=1,
            weights=sub.positive_weights,
            dtype=torch.float64,
            seed=3,
        )
    )
    with torch.no_grad():
        p.circuit.input_layers[0].lower.fill_(0.8)
    covariance = p.covariance()
    r2 = covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1])
    found = p.mutual_information([0], [1], num_samples=4000, generator=generator())
    check(found, float(-0.5 * (1 - r2).log()))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.mutual_information([0], [0, 1]), "must not overlap"),
        (lambda p: p.mutual_information([], [1]), "at least one variable"),
        (lambda p: p.mutual_information([0], []), "on both sides"),
        (lambda p: p.conditional_entropy([0], [0]), "must not overlap"),
        (lambda p: p.conditional_entropy([9]), "unknown variable 9"),
        (lambda p: p.mutual_information([0], [1], given={1: 0.0}), "must not overlap"),
    ],
)
def test_impossible_questions_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(model())
