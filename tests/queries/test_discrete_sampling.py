"""Samples of discrete and mixed models against enumeration; how samples may be asked for."""

import itertools

import pytest
import torch
from oracles import all_states
from registry import DISCRETE, GRAPHS, LAYERS, NUM_STATES, WEIGHTS, build
from scipy import stats

import subtractive as sub
from subtractive.inputs import drawing
from subtractive.queries import marginal

NUM_DRAWS = 100_000
RATE = 1e-3
STATES = all_states([NUM_STATES] * 3)
KINDS = list(itertools.product(GRAPHS, DISCRETE, LAYERS, WEIGHTS))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def counts(x):
    """How often each joint state of three variables was drawn."""
    place = torch.tensor([NUM_STATES**2, NUM_STATES, 1], dtype=torch.float64)
    return torch.bincount((x @ place).long(), minlength=len(STATES))


@torch.no_grad()
def chi_square(density, x, states=STATES, number=counts):
    """The p-value of the counts of states under their probabilities."""
    expected = density.log_prob(states).exp().numpy() * len(x)
    # States so rare that a chi-square distribution does not describe them count together.
    rare = expected < 5
    observed = number(x).numpy()
    cells = [*zip(observed[~rare], expected[~rare], strict=True)]
    if expected[rare].sum() > 0:
        cells.append((observed[rare].sum(), expected[rare].sum()))
    observed, expected = zip(*cells, strict=True)
    scale = sum(observed) / sum(expected)
    return stats.chisquare(observed, [e * scale for e in expected]).pvalue


@pytest.mark.parametrize(("graph", "family", "layer", "weights"), KINDS)
def test_states_are_drawn_with_their_probabilities(graph, family, layer, weights):
    """Fixed seeds; all kinds together raise a false alarm at a rate of 1e-3."""
    circuit = build(graph, family, layer=layer, weights=weights, outputs=2, d=3)
    density = sub.SquaredCircuit(circuit)
    x = density.sample(NUM_DRAWS, generator=seeded())
    assert chi_square(density, x) > RATE / len(KINDS)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_latent_variable_sampler_draws_states_with_their_probabilities(graph, layer):
    circuit = build(graph, "categorical", layer=layer, weights="positive", outputs=2, d=3)
    density = sub.MonotonicCircuit(circuit)
    x = density.sample(NUM_DRAWS, generator=seeded())
    assert chi_square(density, x) > RATE / 10
    given = density.condition({1: 2})
    rest = all_states([NUM_STATES] * 2)
    x = density.sample(NUM_DRAWS, given={1: 2}, generator=seeded())[:, [0, 2]]
    place = torch.tensor([NUM_STATES, 1], dtype=torch.float64)
    p_value = chi_square(
        given, x, rest, lambda rows: torch.bincount((rows @ place).long(), minlength=len(rest))
    )
    assert p_value > RATE / 10


def test_a_wrong_probability_is_caught():
    right, wrong = (
        sub.SquaredCircuit(build("binary", "embedding", d=3, seed=seed)) for seed in (0, 1)
    )
    assert chi_square(wrong, right.sample(NUM_DRAWS, generator=seeded())) < 1e-10


@pytest.mark.parametrize("graph", GRAPHS)
def test_rows_with_different_gaps_are_filled_given_their_own_evidence(graph):
    """Each of eight patterns of evidence in one table, against enumeration."""
    density = sub.SquaredCircuit(build(graph, "embedding", outputs=2, d=3))
    patterns = torch.tensor(list(itertools.product([False, True], repeat=3)))
    value = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    table = torch.where(patterns, value, torch.nan).repeat(20_000, 1)
    x = density.sample(given=table, generator=seeded())
    known = ~table.isnan()
    assert torch.equal(x[known], table[known])
    for k, pattern in enumerate(patterns[:-1]):
        given = {v: value[v].item() for v in range(3) if pattern[v]}
        free = [v for v in range(3) if not pattern[v]]
        rows = x[k::8][:, free]
        conditional = density.condition(given) if given else density
        states = all_states([NUM_STATES] * len(free))
        place = NUM_STATES ** torch.arange(len(free) - 1, -1, -1, dtype=torch.float64)
        p_value = chi_square(
            conditional,
            rows,
            states,
            lambda drawn, place=place, states=states: torch.bincount(
                (drawn @ place).long(), minlength=len(states)
            ),
        )
        assert p_value > RATE / 35, pattern


def test_mixed_columns_are_drawn_jointly():
    """The category given the sign of the number, against exact box probabilities (5 sigma)."""
    families = [sub.Gaussian(), sub.Embedding(3), sub.Spline(6, domain=(-1.0, 2.0))]
    circuit = sub.Circuit(
        sub.linear_tree(3), families, num_units=3, num_outputs=2, seed=0, dtype=torch.float64
    )
    density = sub.SquaredCircuit(circuit)
    x = density.sample(NUM_DRAWS, generator=seeded())
    for state in range(3):
        exact = density.probability({0: (0.0, None), 1: {state}, 2: (None, 0.5)}).item()
        share = ((x[:, 0] >= 0) & (x[:, 1] == state) & (x[:, 2] <= 0.5)).double().mean().item()
        assert abs(share - exact) < 5 * (exact * (1 - exact) / NUM_DRAWS) ** 0.5


@pytest.mark.parametrize("family", ["gaussian", "spline", "rbf", "embedding", "binomial"])
def test_the_same_seed_draws_the_same_samples_and_another_does_not(family):
    density = sub.SquaredCircuit(build("binary", family, outputs=2))
    first, again, other = (density.sample(50, generator=seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_small_blocks_draw_from_the_same_distribution(monkeypatch):
    monkeypatch.setattr(marginal, "_BLOCK", 2**12)
    monkeypatch.setattr(drawing, "_CHUNK", 2**8)
    density = sub.SquaredCircuit(build("binary", "embedding", outputs=2, d=3))
    x = density.sample(20_000, generator=seeded())
    assert chi_square(density, x) > RATE


def test_no_samples_are_an_empty_table():
    density = sub.SquaredCircuit(build("binary", "gaussian"))
    assert density.sample(0).shape == (0, 4)
    assert density.sample(given=torch.zeros(0, 4)).shape == (0, 4)


def test_samples_stay_inside_the_domain_of_a_spline():
    density = sub.SquaredCircuit(build("binary", "spline", outputs=2))
    x = density.sample(20_000, generator=seeded())
    assert x.min() >= -1
    assert x.max() <= 2
    assert density.log_prob(x).isfinite().all()


@pytest.mark.parametrize("d", [1, 2])
def test_one_unit_and_few_variables(d):
    circuit = sub.Circuit(sub.flat(d), sub.Gaussian(), num_units=1, seed=0, dtype=torch.float64)
    x = sub.SquaredCircuit(circuit).sample(20_000, generator=seeded())
    layer = circuit.input_layer(0)
    for column, mean, log_scale in zip(x.T, layer.mean, layer.log_scale, strict=True):
        scale = log_scale.exp().item() / 2**0.5  # the square of a Gaussian is narrower
        assert stats.kstest(column, stats.norm(mean.item(), scale).cdf).pvalue > RATE


@pytest.mark.parametrize(
    "graph", [sub.linear_tree(300), sub.random_binary_tree(300)], ids=["linear", "binary"]
)
def test_samples_of_many_narrow_variables_hang_together(graph):
    """Rows are more likely than rows put together from halves of different ones."""
    circuit = sub.Circuit(graph, sub.Gaussian(), num_units=4, num_outputs=2, seed=0)
    with torch.no_grad():
        for layer in circuit.input_layers():
            layer.log_scale.fill_(-6.0)
    density = sub.SquaredCircuit(circuit.double())
    x = density.sample(400, generator=seeded())
    assert x.isfinite().all()
    torn = torch.cat([x[:, :150], x.roll(1, 0)[:, 150:]], 1)
    with torch.no_grad():
        assert density.log_prob(x).median() > density.log_prob(torn).median()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "num_samples must be a whole number of at least 0, got None"),
        ((-1,), {}, "at least 0, got -1"),
        ((2.5,), {}, "at least 0, got 2.5"),
        ((True,), {}, "at least 0, got True"),
        ((3,), {"given": {7: 0.0}}, "unknown variable 7: expected integers from 0 to 3"),
        ((3,), {"given": {0: float("nan")}}, "variable 0 is NaN: leave it out"),
        ((3,), {"given": {0: 5.0}}, "variable 0 must hold whole numbers in 0..2, got 5"),
        (
            (3,),
            {"given": torch.zeros(2, 4)},
            "one sample for each of its 2 rows, got num_samples=3",
        ),
        ((), {"given": torch.zeros(2, 3)}, r"shape \(rows, 4\), one column per variable"),
    ],
)
def test_what_cannot_be_sampled_is_refused(arguments, options, message):
    density = sub.SquaredCircuit(build("binary", "embedding"))
    with pytest.raises(ValueError, match=message):
        density.sample(*arguments, **options)


def test_impossible_evidence_is_refused():
    density = sub.SquaredCircuit(build("binary", "spline"))
    with pytest.raises(ValueError, match=r"probability zero in rows \[0, 1, 2\]: nothing can be"):
        density.sample(3, given={0: 9.0})
