"""Univariate marginals given evidence: tables of it, imputation, gradients and extremes."""

import math

import numpy as np
import pytest
import torch
from oracles import all_states
from registry import NUM_STATES, build, points
from scipy import stats

import subtractive as sub
from subtractive.inference import marginal
from subtractive.inference.evidence import make_evidence
from subtractive.inference.expectations import as_row, plain_expectations, square_expectations
from subtractive.inputs.test_functions import CumulativeAt, DensityAt, Moments

NAN = math.nan
MIXED = [sub.Gaussian(), sub.Categorical(3), sub.Spline(6, domain=(-3.0, 3.0)), sub.Binomial(2)]


def squared(graph="binary", family="gaussian", **options):
    return sub.SquaredCircuit(build(graph, family, **options))


def monotonic(graph="binary", family="gaussian", **options):
    return sub.MonotonicCircuit(build(graph, family, weights="positive", **options))


def of_circuit(graph, inputs):
    return sub.Circuit(graph, inputs, num_units=3, seed=3, dtype=torch.float64)


DENSITIES = {
    "squared": lambda: squared(layer="kronecker", outputs=3),
    "complex": lambda: squared("linear", weights="complex"),
    "monotonic": lambda: monotonic("nested"),
    "mixture": lambda: sub.Mixture([squared(), monotonic("flat")], weights=[0.3, 0.7]),
    "marginal": lambda: squared(d=6).marginal([5, 1, 2, 4]),
    "conditional": lambda: squared("chow-liu", d=6).condition({0: 0.4, 3: -0.2}),
    "mixed types": lambda: sub.SquaredCircuit(of_circuit(sub.linear_tree(4, seed=0), MIXED)),
    "regions": lambda: sub.SquaredCircuit(
        of_circuit(sub.flat([[0, 2], [1, 3]]), sub.MultivariateGaussian())
    ),
}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


def incomplete(num_rows, seed=0):
    """Rows of whole numbers, possible for every family, with entries missing at random."""
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.integers(0, 3, (num_rows, 4)).astype(float))
    x[torch.from_numpy(random.random((num_rows, 4)) < 0.5)] = NAN
    x[0] = NAN
    x[1] = 1.0
    return x


def known(row):
    return {v: value for v, value in enumerate(row.tolist()) if not math.isnan(value)}


@every_density
@torch.no_grad()
def test_moments_given_a_table_equal_one_row_at_a_time(make):
    p, x = make(), incomplete(9)
    assert len(torch.unique(~x.isnan(), dim=0)) >= 5
    mean = torch.stack([p.mean(known(row)) for row in x])
    variance = torch.stack([p.variance(known(row)) for row in x])
    for copies in (1, 6):  # few rows of one pattern, or many
        table, close = x.repeat(copies, 1), {"rtol": 0, "atol": 1e-10}
        torch.testing.assert_close(p.mean(table), mean.repeat(copies, 1), **close)
        torch.testing.assert_close(p.variance(table), variance.repeat(copies, 1), **close)


def test_tables_come_in_many_forms():
    p, x = squared(), incomplete(5)
    for table in (x.numpy(), x.float(), x.tolist()):
        torch.testing.assert_close(p.mean(table), p.mean(x), rtol=0, atol=0)
        torch.testing.assert_close(p.impute(table), p.impute(x), rtol=0, atol=0)


@every_density
def test_imputing_a_table_equals_one_row_at_a_time(make):
    p, x = make(), incomplete(12, seed=1)
    filled = p.impute(x)
    assert not filled.isnan().any()
    assert not filled.requires_grad
    assert torch.equal(filled[~x.isnan()], x[~x.isnan()])
    alone = torch.cat([p.impute(row[None]) for row in x])
    torch.testing.assert_close(filled, alone, rtol=0, atol=1e-10)
    continuous = torch.tensor([family.num_states is None for family in p.families])
    torch.testing.assert_close(filled[0, continuous], p.mean()[continuous], rtol=0, atol=1e-10)


@every_density
def test_a_complete_table_and_an_empty_one_are_returned(make):
    p = make()
    complete = torch.ones(3, 4)
    assert torch.equal(p.impute(complete), complete.double())
    assert torch.equal(p.impute(complete, sample=True), complete.double())
    assert p.impute(torch.zeros(0, 4)).shape == (0, 4)
    assert p.mean(torch.zeros(0, 4)).shape == (0, 4)
    assert torch.equal(p.mean(complete), complete.double())
    assert torch.equal(p.variance(complete), torch.zeros(3, 4, dtype=torch.float64))


@pytest.mark.parametrize("make", [squared, monotonic])
@pytest.mark.parametrize("family", ["categorical", "binomial"])
def test_discrete_entries_become_the_modes_of_their_own_conditionals(make, family):
    p, d = make("linear", family, outputs=2), 4
    joint = p.log_prob(all_states([NUM_STATES] * d)).exp().reshape([NUM_STATES] * d)
    x = points(family, 20, d)
    x[torch.rand(20, d, generator=torch.Generator().manual_seed(0)) < 0.6] = NAN
    for row, filled in zip(x, p.impute(x), strict=True):
        at = tuple(slice(None) if value.isnan() else int(value) for value in row)
        free = [v for v in range(d) if row[v].isnan()]
        for axis, v in enumerate(free):
            others = [k for k in range(len(free)) if k != axis]
            weights = joint[at].sum(others) if others else joint[at]
            assert filled[v] == weights.argmax()


@pytest.mark.parametrize("make", [squared, monotonic])
def test_sampled_entries_follow_the_joint_conditional_distribution(make):
    """Chi-square over the states of two missing variables; false-alarm rate 1e-4 each."""
    p, n = make("binary", "categorical", outputs=2), 20_000
    row = torch.tensor([[NAN, 2.0, NAN, 0.0]], dtype=torch.float64)
    drawn = p.impute(row.expand(n, -1), sample=True, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn[:, [1, 3]], row[:, [1, 3]].expand(n, -1))
    pairs = all_states([NUM_STATES] * 2)
    chances = p.condition({1: 2.0, 3: 0.0}).log_prob(pairs).exp().detach()
    counts = [(drawn[:, [0, 2]] == pair).all(1).sum().item() for pair in pairs]
    assert stats.chisquare(counts, chances.numpy() * n).pvalue > 1e-4
    again = p.impute(row.expand(n, -1), sample=True, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn, again)


@pytest.mark.parametrize(
    "make", [lambda: squared("linear", "embedding", d=3, outputs=3), monotonic]
)
@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@torch.no_grad()
def test_many_samples_agree_within_their_standard_error(n, make):
    """Five standard errors on 18 or 28 numbers: a false-alarm rate below 2e-5."""
    p = make()
    x = p.sample(n, generator=torch.Generator().manual_seed(7))
    mean, covariance = p.mean(), p.covariance()
    terms = (x - mean)[:, :, None] * (x - mean)[:, None, :]
    for found, exact in ((x, mean), (terms, covariance), (terms.diagonal(0, 1, 2), p.variance())):
        error = found.std(0) / n**0.5
        assert bool(((found.mean(0) - exact).abs() < 5 * error).all())
    share = ((x[:, 0] >= 0.5) & (x[:, 2] <= 1.5)).double()
    exact = p.probability({0: (0.5, None), 2: (None, 1.5)})
    assert abs(share.mean() - exact) < 5 * share.std() / n**0.5


@pytest.mark.parametrize(
    ("find", "weights"), [(square_expectations, "real"), (plain_expectations, "positive")]
)
def test_what_is_not_asked_is_none_and_what_is_observed_is_nan(find, weights):
    circuit = build("binary", "gaussian", weights=weights)
    x = torch.tensor([[0.1, NAN, NAN, 0.3], [NAN, 0.2, NAN, 0.3]], dtype=torch.float64)
    evidence = make_evidence(x, None, circuit.families, circuit.device)
    line = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    answers = find(circuit, evidence, [Moments(), DensityAt(line), None, CumulativeAt(line)])
    assert answers[2] is None
    assert answers[0].isnan().tolist() == [[True, True], [False, False]]
    assert answers[1].isnan().all(1).tolist() == [False, True]
    assert answers[3].isnan().all()
    assert answers[1].shape == (2, 3)
    empty = make_evidence(x[:0], None, circuit.families, circuit.device)
    assert find(circuit, empty, [Moments(), None, None, None])[0].shape == (0, 2)


@pytest.mark.parametrize("make", [squared, monotonic, DENSITIES["regions"]])
def test_small_blocks_of_rows_change_nothing(make, monkeypatch):
    p, x = make(), incomplete(12)
    whole = p.mean(x), p.impute(x)
    monkeypatch.setattr(marginal, "_BLOCK", 200)
    torch.testing.assert_close((p.mean(x), p.impute(x)), whole, rtol=0, atol=1e-12)


# A mixture and a conditional ask their members, mixed types their families, and real weights are
# complex ones without an imaginary part.
LONG = ("squared", "conditional", "mixture", "mixed types")
GRADIENTS = [
    *("complex", "monotonic", "regions"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in LONG),
]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_means_variances_and_distribution_functions_are_exact(name):
    p = DENSITIES[name]()
    x = incomplete(3, seed=2)
    parameters = [t for t in p.parameters() if t.requires_grad]

    def ask(*_):  # gradcheck moves the parameters themselves
        line = torch.tensor([-0.5, 0.7], dtype=torch.float64)
        cdf, pdf = p.cdf(0, line, {1: 1.0}), p.pdf(2, line, {1: 1.0})
        return torch.cat([p.mean(x).flatten(), p.variance(), cdf, pdf])

    settings = {"eps": 1e-6, "rtol": 1e-4, "atol": 1e-7, "fast_mode": True}
    assert torch.autograd.gradcheck(ask, parameters, **settings)


@pytest.mark.parametrize("make", [squared, monotonic, DENSITIES["mixture"]])
def test_the_gradient_of_the_distribution_function_is_the_density(make):
    p = make()
    line = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(p.cdf(1, line, {0: 0.3}).sum(), line)
    torch.testing.assert_close(grad, p.pdf(1, line, {0: 0.3}), rtol=1e-9, atol=1e-12)


def test_members_that_exclude_the_evidence_have_no_say():
    def member(*domain):
        family = sub.Spline(6, domain=domain)
        return sub.SquaredCircuit(of_circuit(sub.linear_tree(2), family))

    low, high = member(0.0, 1.0), member(2.0, 3.0)
    p = sub.Mixture([low, high])
    given = {0: 0.5}
    torch.testing.assert_close(p.mean(given), low.mean(given), rtol=1e-12, atol=0)
    torch.testing.assert_close(p.variance(given), low.variance(given), rtol=1e-9, atol=0)
    torch.testing.assert_close(p.covariance(given), low.covariance(given), rtol=1e-9, atol=0)
    x = torch.tensor([[0.5, NAN], [2.5, NAN]], dtype=torch.float64)
    expected = torch.stack([low.impute(x[:1])[0], high.impute(x[1:])[0]])
    torch.testing.assert_close(p.impute(x), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", [squared, monotonic])
def test_models_in_single_precision_answer_in_double(make):
    p, q, x = make(), make(dtype=torch.float32), incomplete(6)
    for exact, rounded in ((p.mean(x), q.mean(x)), (p.impute(x), q.impute(x))):
        torch.testing.assert_close(rounded, exact, rtol=0, atol=1e-5)
    torch.testing.assert_close(q.covariance(), p.covariance(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "graph", ["linear", *(pytest.param(g, marks=pytest.mark.slow) for g in ("binary", "flat"))]
)
@torch.no_grad()
def test_hundreds_of_variables_are_asked_at_once(graph):
    p = squared(graph, d=120)
    given = {v: 0.1 for v in range(0, 120, 3)}
    evidence = p._given_evidence(given)
    mean = p.mean(given)
    assert mean.isfinite().all()
    assert bool((p.variance(given)[1::3] > 0).all())
    tilt = torch.zeros(120, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (tilted,) = torch.autograd.grad(p.log_tilted(evidence, tilt), tilt)
    free = ~evidence.observed[0]
    torch.testing.assert_close(mean[free], tilted[free], rtol=1e-9, atol=1e-9)


def narrow_pair(density, weights):
    """Two narrow components far apart, around (0, 0, 0) and (1, 1, 1)."""
    circuit = sub.Circuit(
        sub.flat(3), sub.Gaussian(), num_units=2, weights=weights, dtype=torch.float64
    )
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, 1.0]]).expand(3, -1))
        circuit.input_layers[0].log_scale.fill_(math.log(0.01))
        next(circuit.sum_layers[0].weights.parameters()).fill_(0.5)
    return density(circuit)


def test_evidence_between_narrow_components_leaves_both_of_them_to_a_sum():
    p = narrow_pair(sub.MonotonicCircuit, sub.positive_weights)
    torch.testing.assert_close(p.mean({0: 0.0, 1: 1.0})[2].item(), 0.5, rtol=1e-9, atol=0)


def test_evidence_between_narrow_components_leaves_both_of_them_to_a_square():
    p = narrow_pair(sub.SquaredCircuit, sub.real_weights)
    covariance = p.covariance({0: 0.0, 1: 1.0})
    torch.testing.assert_close(covariance[2, 2].item(), 0.25 + 5e-5, rtol=1e-9, atol=0)
    torch.testing.assert_close(p.mean({0: 0.0, 1: 1.0})[2].item(), 0.5, rtol=1e-9, atol=0)


def test_far_evidence_is_no_reason_to_overflow():
    for p in (squared("linear"), monotonic("linear")):
        for far in (1e2, 1e4, 1e6):
            assert p.mean({0: far, 1: -far}).isfinite().all()
            assert p.covariance({0: far, 1: -far}).isfinite().all()


ask_impossible = pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.pdf(4, [0.0]), "unknown variable 4: expected integers from 0 to 3"),
        (lambda p: p.cdf(-1, [0.0]), "unknown variable -1"),
        (lambda p: p.quantile(1.5, [0.5]), "unknown variable 1.5"),
        (lambda p: p.mean({7: 0.0}), "unknown variable 7"),
        (lambda p: p.covariance({"a": 0.0}), "unknown variable 'a'"),
        (lambda p: p.pdf(0, [0.0], {0: 1.0}), "variable 0 is given: it has no distribution left"),
        (lambda p: p.cdf(1, [0.0], {0: 1.0, 1: 1.0}), "variable 1 is given"),
        (lambda p: p.pdf(0, 0.5), r"points must be one row of numbers, got shape \(\). For a"),
        (lambda p: p.cdf(0, torch.zeros(2, 2)), r"points must be .* got shape \(2, 2\)"),
        (lambda p: p.cdf(0, [NAN]), "points must be numbers, got NaN among them"),
        (lambda p: p.cdf(0, "a"), "points must be one row of numbers, got str"),
        (lambda p: p.pdf(0, [math.inf]), "variable 0 is continuous and needs finite values"),
        (lambda p: p.pdf(1, [0.5]), r"variable 1 must hold whole numbers in 0\.\.2, got 0\.5"),
        (lambda p: p.pdf(1, [3]), r"variable 1 must hold whole numbers in 0\.\.2, got 3"),
        (lambda p: p.mean({2: 5.0}), r"probability zero in rows \[0\]"),
        (lambda p: p.covariance({2: 5.0}), r"probability zero in rows \[0\]"),
        (lambda p: p.pdf(0, [0.0], {2: 5.0}), r"probability zero in rows \[0\]"),
        (lambda p: p.mean(torch.tensor([[NAN] * 4, [NAN, NAN, 9.0, NAN]])), r"in rows \[1\]"),
        (lambda p: p.impute(torch.tensor([[NAN, NAN, 9.0, NAN]])), "probability zero in rows"),
        (lambda p: p.impute(torch.zeros(4)), r"x must have shape \(rows, 4\), .* x\[None\]"),
        (lambda p: p.impute(torch.tensor([[0.0, 7.0, 0.0, 0.0]])), "variable 1 must hold whole"),
        (lambda p: p.mean({0: NAN}), "the given value of variable 0 is NaN: leave it out"),
        (lambda p: p.mean({0: "a"}), "the given value of variable 0 must be a number, got 'a'"),
        (lambda p: p.mean(torch.zeros(2, 3)), r"x must have shape \(rows, 4\)"),
        (lambda p: p.covariance(torch.zeros(1, 4)), "given values must be a dictionary .* Tensor"),
    ],
)


@ask_impossible
def test_impossible_questions_say_what_was_expected(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(DENSITIES["mixed types"]())


def test_rows_of_numbers_come_in_many_forms():
    for given in ([0, 1], (0.0, 1.0), np.arange(2), torch.arange(2), torch.tensor([0.0, 1.0])):
        row = as_row(given, "points")
        assert row.dtype == torch.float64
        assert row.tolist() == [0.0, 1.0]


@every_density
def test_weights_and_expectations_of_one_pass_are_those_of_two(make):
    p, x = make(), incomplete(6)
    evidence = make_evidence(x, None, p.families, p.device)
    questions = [Moments(), None, DensityAt(torch.tensor([0.0, 1.0])), Moments()]
    log_weight, answers = p.weigh_and_expect(evidence, questions)
    torch.testing.assert_close(log_weight, p.log_weight(evidence), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        answers, p.expectations(evidence, questions), rtol=1e-12, atol=1e-12, equal_nan=True
    )


@every_density
@pytest.mark.parametrize("kind", [DensityAt, CumulativeAt])
def test_points_of_all_variables_are_answered_as_those_of_one(make, kind):
    p, x = make(), incomplete(6)
    evidence = make_evidence(x, None, p.families, p.device)
    lines = [[0.0], [1.0, 2.0], None, [0.0, 2.0, 1.0]]
    questions = [
        None if line is None else kind(torch.tensor(line, dtype=torch.float64)) for line in lines
    ]
    every = p.expectations(evidence, questions)
    for variable, question in enumerate(questions):
        alone = [question if v == variable else None for v in range(4)]
        found = p.expectations(evidence, alone)[variable]
        torch.testing.assert_close(every[variable], found, rtol=1e-12, atol=0, equal_nan=True)


def test_a_row_that_underflows_has_the_expectations_that_it_has_alone():
    """It is evaluated again, beside leaves that are one row for all rows."""
    circuit = sub.Circuit(
        sub.RegionGraph.from_nested(((0, 1), (2, 3))),
        sub.Gaussian(),
        num_units=2,
        weights=sub.positive_weights,
        dtype=torch.float64,
    )
    with torch.no_grad():
        for layer in circuit.input_layers:  # units at 0 and at 10, far apart for their widths
            layer.mean.copy_(torch.tensor([0.0, 10.0]))
            layer.log_scale.fill_(-2.0)
        for layer in circuit.sum_layers[:-1]:  # that do not mix
            layer.weights.log_value.copy_(torch.tensor([[0.0, -900.0], [-900.0, 0.0]]))
    p = sub.MonotonicCircuit(circuit)
    x = torch.tensor([[0.0, 0.1, torch.nan, 0.0], [0.0, 0.1, torch.nan, 10.0]]).double()
    together = p.mean(x)
    alone = torch.cat([p.mean(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
