"""Many samples against exact distribution functions, and the tests against planted mistakes.

Rosenblatt's transform turns samples into independent uniform numbers: each coordinate goes through
its distribution function given those before it, by the forward pass that integrates, which the
sampler does not use; the variables are taken in an order in which they were not drawn. Discrete
models are compared with the enumeration of all states. Samples are 30,000 unless a test says
otherwise, and seeds are fixed; were they not, one run of this file in a thousand would fail by
chance.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import all_states, naive_log_square
from registry import CONTINUOUS, DISCRETE, GRAPHS, LAYERS, NUM_STATES, build, every_kind
from scipy import stats

import subtractive as sub
from subtractive.circuits import layers
from subtractive.circuits.evaluation import evaluate, reference
from subtractive.inference import vector_descent
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import labels, plain_leaf, square_leaf
from subtractive.inputs.base import Window
from subtractive.numerics.messages import LeafMessage, log_sum, log_sum_of_squares

DOUBLE = torch.float64
MANY, FEWER = 30_000, 10_000
# The false-alarm rate of one comparison: 1e-3 for all, of which there are fewer than 800.
LEVEL = 1e-3 / 800


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def log_mass(p, x, known, variable, bound):
    """log ∫ of the weight over x_variable <= bound and over all that is not known, (n,)."""
    if not isinstance(p, sub.SquaredCircuit | sub.MonotonicCircuit):
        upper = torch.full_like(x, math.inf)
        upper[:, variable] = bound
        return p.log_weight(Evidence(x, known.expand_as(x), None, upper))
    # The same with one gram per row at the variable only: the others are integrated once.
    leaf, finish = (
        (square_leaf, log_sum_of_squares)
        if isinstance(p, sub.SquaredCircuit)
        else (plain_leaf, log_sum)
    )
    circuit, evidence = p.circuit, Evidence(x, known.expand_as(x))
    (region,) = (
        r for r in circuit.graph.input_regions if circuit.graph.regions[r].scope == {variable}
    )
    schedule = circuit.refold(labels(circuit, evidence) | {region: "cut"})

    def source(call, rows, dtype):
        layer = circuit.input_layers[call.layer]
        some = slice(None) if rows is None else rows
        if call.label != "cut":
            return leaf(layer, call, evidence.rows(torch.arange(len(x))[some]), dtype)
        window = Window(upper=bound[None, some])
        return (layer.gram if leaf is square_leaf else layer.integral)(call.folds, window)

    return finish(evaluate(schedule, circuit.sum_layers, source))[0]


@torch.no_grad()
def rosenblatt(p, x, given=(), seed=99):
    """Uniform numbers (n, k) from samples x (n, d), the last variable first; ties are broken."""
    known = torch.zeros(x.shape[1], dtype=torch.bool)
    known[list(given)] = True
    numbers = []
    for variable in reversed(range(x.shape[1])):
        if known[variable]:
            continue
        column = x[:, variable]
        total = p.log_weight(Evidence(x, known.expand_as(x)))
        uniform = (log_mass(p, x, known, variable, column) - total).exp()
        if p.families[variable].num_states is not None:
            low = (log_mass(p, x, known, variable, column - 0.5) - total).exp()
            noise = torch.rand(len(x), generator=seeded(seed + variable), dtype=DOUBLE)
            uniform = low + (uniform - low) * noise
        numbers.append(uniform)
        known[variable] = True
    return torch.stack(numbers, 1)


def smallest_p_value(uniform):
    """Of Kolmogorov-Smirnov tests of each column, and of all columns together."""
    columns = [*uniform.T, uniform.flatten()]
    return min(stats.kstest(column.numpy(), "uniform").pvalue for column in columns)


def assert_uniform(uniform):
    assert smallest_p_value(uniform) > LEVEL


def chi_square_p_value(drawn, states, log_probs):
    """The p-value of counts of states against their probabilities; rare states are pooled."""
    digits = NUM_STATES ** torch.arange(states.shape[1])
    numbers = (states.long() * digits).sum(1)
    counts = torch.bincount((drawn.long() * digits).sum(1), minlength=NUM_STATES ** len(digits))
    observed = counts[numbers].numpy().astype(float)
    assert observed.sum() == len(drawn)
    expected = log_probs.softmax(0).numpy() * len(drawn)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 1
    assert observed[~keep].sum() <= 20
    observed, expected = observed[keep], expected[keep]
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


def check_states(p, count, log_probs=None):
    states = all_states([NUM_STATES] * p.num_variables)
    drawn = p.sample(count, generator=seeded(1))
    log_probs = p.log_prob(states).detach() if log_probs is None else log_probs
    assert chi_square_p_value(drawn, states, log_probs) > LEVEL


SQUARES = [
    *itertools.product(GRAPHS, CONTINUOUS, ["hadamard"], ["real"], [1, 3]),
    *itertools.product(["nested", "binary"], CONTINUOUS, ["kronecker"], ["real"], [2]),
    *itertools.product(["linear"], CONTINUOUS, LAYERS, ["complex"], [2]),
    *itertools.product(["chow-liu"], ["gaussian"], LAYERS, ["positive"], [2]),
]


@every_kind(("graph", "family", "layer", "weights", "outputs"), SQUARES, together=1)
def test_samples_of_squares(graph, family, layer, weights, outputs):
    """10,000 samples."""
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs, d=3)
    p = sub.SquaredCircuit(circuit)
    assert_uniform(rosenblatt(p, p.sample(FEWER, generator=seeded(1))))


DISCRETE_SQUARES = [
    *itertools.product(GRAPHS, DISCRETE, ["hadamard"], ["real"], [1, 3]),
    *itertools.product(["binary"], DISCRETE, LAYERS, ["complex", "positive"], [2]),
]


@every_kind(("graph", "family", "layer", "weights", "outputs"), DISCRETE_SQUARES, together=1)
def test_samples_of_discrete_squares_against_enumeration(graph, family, layer, weights, outputs):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs)
    expected = naive_log_square(circuit, all_states([NUM_STATES] * 4))
    check_states(sub.SquaredCircuit(circuit), MANY, expected)


NON_NEGATIVE = {
    "gaussian": sub.Gaussian(),
    "rbf": sub.RBF((-1.0, 0.3, 1.2), 0.8),
    "spline": sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True),
}


def additive(graph, family, *, layer="hadamard", outputs=1, d=3, units=3):
    return sub.MonotonicCircuit(
        sub.Circuit(
            GRAPHS[graph](d),
            family,
            num_units=units,
            num_outputs=outputs,
            weights=sub.positive_weights,
            product=LAYERS[layer],
            seed=0,
            dtype=DOUBLE,
        )
    )


ADDITIVE = [*itertools.product(GRAPHS, ["hadamard"]), ("nested", "kronecker")]


@every_kind(("place", "family"), list(itertools.product(ADDITIVE, NON_NEGATIVE)), together=1)
def test_samples_of_additive_circuits(place, family):
    """10,000 samples."""
    graph, layer = place
    p = additive(graph, NON_NEGATIVE[family], layer=layer, outputs=2)
    assert_uniform(rosenblatt(p, p.sample(FEWER, generator=seeded(4))))


@pytest.mark.parametrize("family", ["categorical", "binomial"])
@pytest.mark.parametrize(
    ("graph", "layer"), [*itertools.product(GRAPHS, ["hadamard"]), ("nested", "kronecker")]
)
def test_samples_of_discrete_additive_circuits_against_enumeration(graph, layer, family):
    check_states(additive(graph, DISCRETE[family], layer=layer, outputs=2, d=4), MANY)


MIXED = [sub.Gaussian(), sub.Embedding(4), sub.Spline(5, domain=(0.0, 2.0)), sub.Binomial(6)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_samples_of_continuous_and_discrete_variables_together(graph):
    """10,000 samples."""
    circuit = sub.Circuit(
        GRAPHS[graph](4),
        MIXED,
        num_units=3,
        num_outputs=2,
        initialise=sub.init.normal(),
        seed=0,
        dtype=DOUBLE,
    )
    p = sub.SquaredCircuit(circuit)
    assert_uniform(rosenblatt(p, p.sample(FEWER, generator=seeded(5))))


def other_densities():
    squared = sub.SquaredCircuit(build("binary", "gaussian", outputs=2))
    monotonic = additive("linear", sub.Gaussian(), d=4)
    mixture = sub.Mixture([squared, monotonic], weights=[0.3, 0.7])
    return {
        "mixture": mixture,
        "marginal": squared.marginal([3, 1]),
        "conditional": squared.condition({1: 0.4}),
        "marginal of a mixture": mixture.marginal([2, 0]),
        "conditional mixture": mixture.condition({0: 1.1, 2: -0.3}),
        "conditional marginal": squared.marginal([3, 0, 1]).condition({1: 0.2}),
        "mixture of conditionals": sub.Mixture(
            [squared.condition({1: 0.4}), monotonic.marginal([0, 1, 3])]
        ),
    }


@pytest.mark.parametrize("name", list(other_densities()))
def test_samples_of_mixtures_and_restrictions(name):
    """10,000 samples."""
    p = other_densities()[name]
    assert_uniform(rosenblatt(p, p.sample(FEWER, generator=seeded(6))))


def evidences(p, count=20):
    """Rows of p, each with another choice of gaps: at least one, at most all but one."""
    rows = p.sample(count, generator=seeded(7))
    choices = list(itertools.product([False, True], repeat=p.num_variables))
    patterns = [c for c in choices if 0 < sum(c) < p.num_variables]
    for k, row in enumerate(rows):
        row[torch.tensor(patterns[k % len(patterns)])] = math.nan
    return rows


GIVEN = {
    "squared": lambda: sub.SquaredCircuit(build("binary", "gaussian", outputs=2)),
    "linear": lambda: sub.SquaredCircuit(build("linear", "gaussian")),
    "additive": lambda: additive("binary", sub.Gaussian(), d=4),
}


@pytest.mark.parametrize("name", GIVEN)
def test_samples_given_twenty_evidences_in_one_table(name):
    """2,000 samples for each evidence, drawn together."""
    p = GIVEN[name]()
    rows = evidences(p)
    order = torch.randperm(20 * 2000, generator=seeded(8)) % 20
    drawn = p.sample(given=rows[order], generator=seeded(9))
    for k, row in enumerate(rows):
        given = (~row.isnan()).nonzero()[:, 0].tolist()
        assert (drawn[order == k][:, given] == row[given]).all()
        assert_uniform(rosenblatt(p, drawn[order == k], given))


def test_samples_given_evidence_by_name():
    """3,000 samples for each evidence."""
    p = GIVEN["squared"]()
    for row in evidences(p)[:6]:
        given = {v: value for v, value in enumerate(row.tolist()) if not math.isnan(value)}
        drawn = p.sample(3000, given=given, generator=seeded(10))
        assert_uniform(rosenblatt(p, drawn, list(given)))


@pytest.mark.parametrize("kind", ["squared", "additive"])
def test_samples_given_twenty_evidences_against_enumeration(kind):
    """2,000 samples for each evidence, drawn together."""
    if kind == "squared":
        p = sub.SquaredCircuit(build("binary", "embedding", outputs=2))
    else:
        p = additive("linear", DISCRETE["categorical"], d=4)
    rows = evidences(p)
    drawn = p.sample(given=rows.repeat(2000, 1), generator=seeded(11)).reshape(2000, 20, 4)
    states = all_states([NUM_STATES] * 4)
    for k, row in enumerate(rows):
        possible = states[((states == row) | row.isnan()).all(1)]
        log_probs = p.log_prob(possible).detach()
        assert chi_square_p_value(drawn[:, k], possible, log_probs) > LEVEL


def gaussian_terms(circuit):
    """Σ_t w_t N(x; m_t, S_t), the density of a square of few Gaussians, written out.

    A square over two input regions of K units has K² products of units, and as many times K²
    products of these; ``w`` is (t,), ``m`` (t, d) and ``S`` (t, d, d).
    """
    units, scopes = [], []
    for layer in circuit.input_layers:
        factor = layer.lower.tril(-1) + layer.log_diagonal.exp().diag_embed()
        for mean, f, scope in zip(layer.mean, factor, layer.scopes, strict=True):
            units.append([(m, g @ g.T) for m, g in zip(mean, f, strict=True)])
            scopes.append(list(scope))
    choices = list(itertools.product(*map(range, map(len, units))))
    coefficients = coefficients_of(circuit, torch.tensor(choices))  # (t, s)
    d = circuit.num_variables
    weights, means, covariances = [], [], []
    for (a, first), (b, second) in itertools.product(enumerate(choices), repeat=2):
        log_weight, mean, covariance = 0.0, torch.zeros(d).double(), torch.zeros(d, d).double()
        for region, scope in enumerate(scopes):
            (m, s), (n, t) = units[region][first[region]], units[region][second[region]]
            log_weight += stats.multivariate_normal.logpdf(m, n, s + t)
            inverse = torch.linalg.inv(s + t)
            mean[scope] = t @ inverse @ m + s @ inverse @ n
            covariance[np.ix_(scope, scope)] = s @ inverse @ t
        weights.append(
            (coefficients[a] * coefficients[b].conj()).sum().real * math.exp(log_weight)
        )
        means.append(mean)
        covariances.append(covariance)
    return torch.stack(weights), torch.stack(means), torch.stack(covariances)


def coefficients_of(circuit, choices):
    """The coefficient of each product of units, (t, s): one unit of each region is switched on."""
    leaves, at = [], 0
    for layer in circuit.input_layers:
        picked = choices[:, at : at + len(layer.scopes)].T  # (f, t)
        at += len(layer.scopes)
        on = torch.nn.functional.one_hot(picked, layer.num_units).double()
        leaves.append(LeafMessage(on, None))

    def source(call, rows, dtype):
        return leaves[call.layer]

    sign, log_abs = reference(circuit.schedule, circuit.sum_layers, source)
    return (sign * log_abs.exp())[0]


def rosenblatt_of_terms(terms, x):
    """Uniform numbers from samples of a signed mixture of Gaussians, the last variable first."""
    weights, means, covariances = terms
    log_share, numbers = torch.zeros(len(x), len(weights), dtype=DOUBLE), []
    before = []
    for variable in reversed(range(x.shape[1])):
        cross = covariances[:, before][:, :, [variable]]  # (t, k, 1)
        solved = torch.linalg.solve(covariances[:, before][:, :, before], cross)[..., 0]
        deviation = x[:, None, before] - means[:, before]  # (n, t, k)
        centre = means[:, variable] + (deviation * solved).sum(-1)
        variance = covariances[:, variable, variable] - (cross[..., 0] * solved).sum(-1)
        z = (x[:, None, variable] - centre) / variance.sqrt()
        shares = weights * log_share.exp()
        numbers.append((shares * torch.special.ndtr(z)).sum(1) / shares.sum(1))
        log_share = log_share - 0.5 * z.square() - 0.5 * variance.log()
        before.append(variable)
    return torch.stack(numbers, 1)


MULTIVARIATE = {
    "one region": (sub.flat([[0, 1, 2]]), "hadamard"),
    "two regions": (sub.flat([[0, 2], [1, 3]]), "hadamard"),
    "Kronecker": (sub.RegionGraph.from_nested(({0, 2}, 1)), "kronecker"),
}


def multivariate(name):
    graph, layer = MULTIVARIATE[name]
    circuit = sub.Circuit(
        graph,
        sub.MultivariateGaussian(),
        num_units=3,
        num_outputs=2,
        product=LAYERS[layer],
        initialise=sub.init.normal(),
        seed=0,
        dtype=DOUBLE,
    ).requires_grad_(False)
    for inputs in circuit.input_layers:
        noise = torch.randn(inputs.lower.shape, generator=seeded(1), dtype=DOUBLE)
        inputs.lower.copy_(0.5 * noise)
    return circuit


@pytest.mark.parametrize("name", MULTIVARIATE)
def test_samples_of_regions_of_several_variables(name):
    """10,000 samples."""
    circuit = multivariate(name)
    drawn = sub.SquaredCircuit(circuit).sample(FEWER, generator=seeded(12))
    assert_uniform(rosenblatt_of_terms(gaussian_terms(circuit), drawn))


def test_samples_of_regions_that_are_partly_given():
    """10,000 samples, given x_1 and in half of the rows x_2 too."""
    circuit = multivariate("two regions")
    p = sub.SquaredCircuit(circuit)
    table = torch.full((FEWER, 4), math.nan, dtype=DOUBLE)
    table[:, 1] = 0.3
    table[::2, 2] = -0.5
    drawn = p.sample(given=table, generator=seeded(13))
    terms = gaussian_terms(circuit)
    for rows, given in ((slice(0, None, 2), [2, 1]), (slice(1, None, 2), [1])):
        order = [v for v in range(4) if v not in given] + given  # given ones come first
        weights, means, covariances = terms
        swapped = (weights, means[:, order], covariances[:, order][:, :, order])
        numbers = rosenblatt_of_terms(swapped, drawn[rows][:, order])
        assert_uniform(numbers[:, len(given) :])


def test_additive_regions_of_several_variables():
    """10,000 samples of Σ_k w_k N_k, drawn by units and as a sum of squares of √N_k."""
    one, both = twins(sub.MultivariateGaussian(), sub.flat([[0, 1, 2]]))
    circuit = both.circuit
    terms = gaussian_terms(circuit)
    for p in (one, both):
        drawn = p.sample(FEWER, generator=seeded(14))
        assert_uniform(rosenblatt_of_terms(terms, drawn))


def twins(family, graph, units=3):
    """A mixture Σ_k w_k f_k as an additive circuit, and as a sum of K squares of √(w_k f_k)."""
    monotonic = sub.Circuit(
        graph,
        family,
        num_units=units,
        weights=sub.positive_weights,
        seed=0,
        dtype=DOUBLE,
    ).requires_grad_(False)
    is_table = isinstance(family, sub.Categorical)
    squared = sub.Circuit(
        graph,
        sub.Embedding(family.num_states) if is_table else family,
        num_units=units,
        num_outputs=units,
        dtype=DOUBLE,
    ).requires_grad_(False)
    log_weight = monotonic.sum_layers[0].weights()[0, 0].log()
    for inputs, roots in zip(monotonic.input_layers, squared.input_layers, strict=True):
        if is_table:
            roots.table.copy_(inputs.logits.softmax(-1).sqrt())
            continue
        # The root of a Gaussian is one of twice the variance, times (8π σ²)^¼.
        inputs.lower.copy_(
            0.5 * torch.randn(inputs.lower.shape, generator=seeded(1), dtype=DOUBLE)
        )
        roots.mean.copy_(inputs.mean)
        roots.lower.copy_(inputs.lower * math.sqrt(2))
        roots.log_diagonal.copy_(inputs.log_diagonal + 0.5 * math.log(2))
        size = inputs.mean.shape[-1]
        volume = inputs.log_diagonal.sum(-1) + 0.5 * size * math.log(8 * math.pi)
        log_weight = log_weight + volume.sum(0)
    squared.sum_layers[0].weights.value.copy_((0.5 * log_weight).exp().diag_embed()[None])
    return sub.MonotonicCircuit(monotonic), sub.SquaredCircuit(squared)


def test_latent_units_and_environments_sample_the_same_mixture():
    graph = sub.flat([[0], [1], [2]])
    for family in (sub.MultivariateGaussian(), DISCRETE["categorical"]):
        by_units, by_environment = twins(family, graph)
        drawn = by_units.sample(MANY, generator=seeded(15))
        torch.testing.assert_close(
            by_units.log_prob(drawn[:100]), by_environment.log_prob(drawn[:100]), rtol=0, atol=1e-9
        )
        assert_uniform(rosenblatt(by_environment, drawn))
        drawn = by_environment.sample(MANY, generator=seeded(16))
        assert_uniform(rosenblatt(by_units, drawn))


@pytest.mark.slow
def test_a_shift_of_two_hundredths_of_a_standard_deviation_is_found():
    """100,000 samples."""
    p = sub.SquaredCircuit(build("binary", "gaussian", d=3))
    shift = 0.02 * p.variance().detach().sqrt()
    for seed in range(8):
        drawn = p.sample(100_000, generator=seeded(seed)) + shift
        assert smallest_p_value(rosenblatt(p, drawn)) < LEVEL


@pytest.fixture(params=["integrated", "drawn"])
def a_sibling_left_out(request, monkeypatch):
    """Siblings that are integrated out, or those that are drawn, no longer weigh the units."""

    def forgetful(above, siblings):
        is_kept = {True: request.param == "drawn", False: request.param == "integrated"}
        kept = [sibling for sibling in siblings if is_kept[sibling.dim() == 4]]
        return honest(above, kept) if kept else above

    def forgetful_beside(inside, parent, region, above, known):
        vector, gram = honest_beside(inside, parent, region, above, known)
        return (vector, None) if request.param == "integrated" else (above, gram)

    honest, honest_beside = layers.below_hadamard, vector_descent.beside
    monkeypatch.setattr(layers, "below_hadamard", forgetful)
    monkeypatch.setattr(vector_descent, "beside", forgetful_beside)


@pytest.mark.slow
@pytest.mark.usefixtures("a_sibling_left_out")
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_sibling_left_out_is_found(graph):
    """10,000 samples are enough."""
    p = sub.SquaredCircuit(build(graph, "gaussian", d=3))
    for seed in range(8):
        drawn = p.sample(10_000, generator=seeded(seed))
        assert smallest_p_value(rosenblatt(p, drawn)) < LEVEL


@pytest.mark.usefixtures("a_sibling_left_out")
@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_sibling_left_out_is_found_by_counts_of_states(graph, times):
    """10,000 samples are enough."""
    p = sub.SquaredCircuit(build(graph, "embedding"))
    states = all_states([NUM_STATES] * 4)
    log_probs = p.log_prob(states).detach()
    for seed in range(times):
        drawn = p.sample(10_000, generator=seeded(seed))
        assert chi_square_p_value(drawn, states, log_probs) < LEVEL
