"""Entropies and divergences by samples, overlaps by inner products."""

import itertools
import math

import pytest
import torch
from oracles import all_states, grid
from registry import GRAPHS, NUM_STATES, WEIGHTS, axis, build, every_kind

import subtractive as sub
from subtractive.inference.divergence import estimate

FAR = 4.0  # standard errors: a false-alarm rate of 6e-5 for each comparison


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def squared(family="categorical", graph="binary", **options):
    return sub.SquaredCircuit(build(graph, family, **options))


def monotonic(family="categorical", graph="binary", **options):
    return sub.MonotonicCircuit(build(graph, family, weights="positive", **options))


DENSITIES = {
    **{f"squared {w}": (lambda w=w: squared("embedding", weights=w, outputs=3)) for w in WEIGHTS},
    "monotonic": lambda: monotonic(),
    "mixture": lambda: sub.Mixture([squared(), monotonic(seed=1)]),
    "marginal": lambda: squared("binomial", d=6).marginal([5, 0, 2, 3]),
    "conditional": lambda: squared("binomial", "linear", d=6).condition({1: 0, 4: 2}),
}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


def domain(axes):
    return grid([axis(family) for family in axes])


@every_density
@torch.no_grad()
def test_the_entropy_is_within_its_standard_error(make):
    p = make()
    log_prob = p.log_prob(all_states([NUM_STATES] * 4))
    exact = -(log_prob.exp() * log_prob).sum().item()
    value, error = p.entropy(4000, generator=seeded(0))
    assert 0 < error < 0.05
    assert abs(value - exact) < FAR * error


@every_density
@torch.no_grad()
def test_the_divergence_is_within_its_standard_error(make):
    p, q = make(), squared(seed=5)
    x = all_states([NUM_STATES] * 4)
    exact = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum().item()
    value, error = p.kl(q, 4000, generator=seeded(1))
    assert exact > 0
    assert abs(value - exact) < FAR * error


@torch.no_grad()
def test_the_entropy_of_a_gaussian_is_the_textbook_one():
    circuit = sub.Circuit(
        sub.flat(3), sub.Gaussian(), num_units=1, weights=sub.positive_weights, dtype=torch.float64
    )
    p = sub.MonotonicCircuit(circuit)
    scales = circuit.input_layers[0].log_scale
    exact = (scales + 0.5 * math.log(2 * math.pi * math.e)).sum().item()
    value, error = p.entropy(generator=seeded(2))
    assert abs(value - exact) < FAR * error
    # log p is a constant minus half of a chi-square variable of three degrees of freedom.
    torch.testing.assert_close(error, math.sqrt(1.5 / 10_000), rtol=0.05, atol=0)


@every_density
def test_a_density_does_not_differ_from_itself(make):
    p = make()
    assert p.kl(p, 50) == (0.0, 0.0)


def test_the_same_seed_gives_the_same_estimate_without_gradient():
    p, q = squared("gaussian"), squared("gaussian", seed=1)
    assert p.kl(q, 20, generator=seeded(3)) == p.kl(q, 20, generator=seeded(3))
    assert p.entropy(20, generator=seeded(3)) == p.entropy(20, generator=seeded(3))
    assert isinstance(p.entropy(20).value, float)


def test_the_divergence_from_a_density_that_excludes_a_sample_is_infinite():
    def spline(*domain):
        family = sub.Spline(6, domain=domain)
        circuit = sub.Circuit(
            sub.flat(2), family, num_units=2, seed=0, weights=sub.positive_weights
        )
        return sub.SquaredCircuit(circuit)

    wide, narrow = spline(0.0, 2.0), spline(0.0, 1.0)
    assert wide.kl(narrow, 100, generator=seeded(0)).value == math.inf
    assert math.isfinite(narrow.kl(wide, 100, generator=seeded(0)).value)


def test_an_estimate_is_a_mean_and_its_standard_error():
    terms = torch.tensor([1.0, 2.0, 3.0, 6.0])
    value, error = estimate(terms)
    assert value == 3.0
    torch.testing.assert_close(error, math.sqrt(14 / 3 / 4), rtol=1e-6, atol=0)


@every_kind(
    ("graph", "family", "weights"),
    list(itertools.product(GRAPHS, ["gaussian", "spline", "embedding", "binomial"], WEIGHTS)),
)
@torch.no_grad()
def test_the_overlap_is_a_normalised_integral(graph, family, weights):
    first, second = (build(graph, family, weights=weights, d=2, seed=seed) for seed in (0, 1))
    x, w = domain([family] * 2)
    a, b = first(x)[:, 0], second(x)[:, 0]
    cross = (a * b.conj() * w).sum().abs()
    sizes = [(c.abs().square() * w).sum().sqrt() for c in (a, b)]
    expected = cross / sizes[0] / sizes[1]
    close = {"rtol": 0, "atol": 1e-10 if family in ("embedding", "binomial") else 1e-6}
    torch.testing.assert_close(sub.inference.fidelity(first, second), expected.square(), **close)
    torch.testing.assert_close(
        sub.inference.cauchy_schwarz(first, second), -expected.log(), **close
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_overlap_is_symmetric_bounded_and_blind_to_scale(seed):
    first, second = (build("binary", "gaussian", seed=seed + k, d=20) for k in (0, 1))
    overlap = sub.inference.fidelity(first, second)
    assert 0 <= overlap <= 1
    torch.testing.assert_close(sub.inference.fidelity(second, first), overlap, rtol=1e-12, atol=0)
    with torch.no_grad():
        second.sum_layers[-1].weights.value *= -1e150
    torch.testing.assert_close(sub.inference.fidelity(first, second), overlap, rtol=1e-9, atol=0)
    for circuit in (first, second):
        assert sub.inference.fidelity(circuit, circuit) <= 1
        assert sub.inference.cauchy_schwarz(circuit, circuit) >= 0
        torch.testing.assert_close(
            sub.inference.fidelity(circuit, circuit).item(), 1.0, rtol=0, atol=1e-12
        )


def test_orthogonal_circuits_do_not_overlap():
    first, second = (build("flat", "embedding", d=1, num_units=1) for _ in range(2))
    with torch.no_grad():
        first.input_layers[0].table.copy_(torch.tensor([1.0, 1.0, 0.0]))
        second.input_layers[0].table.copy_(torch.tensor([1.0, -1.0, 0.0]))
    assert sub.inference.fidelity(first, second) == 0
    assert sub.inference.cauchy_schwarz(first, second) == math.inf


def test_gradients_of_the_overlap_are_exact():
    first, second = (build("binary", "gaussian", seed=k) for k in (0, 1))
    assert torch.autograd.gradcheck(
        lambda *_: sub.inference.fidelity(first, second),
        [*first.parameters(), *second.parameters()],
        fast_mode=True,
    )


@pytest.mark.parametrize("measure", [sub.inference.fidelity, sub.inference.cauchy_schwarz])
def test_overlaps_need_two_circuits_of_one_output(measure):
    one, three = build("flat", "gaussian"), build("flat", "gaussian", outputs=3)
    for pair, counts in (((one, three), "1 and 3"), ((three, three), "3 and 3")):
        with pytest.raises(ValueError, match=f"circuits of one output, got {counts}"):
            measure(*pair)
    with pytest.raises(ValueError, match="two circuits on the same region graph"):
        measure(one, build("linear", "gaussian"))
    with pytest.raises(ValueError, match="takes two circuits, got SquaredCircuit"):
        measure(one, sub.SquaredCircuit(one))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.entropy(1), "needs at least 2 samples, got num_samples=1"),
        (lambda p: p.kl(p, 0), "needs at least 2 samples, got num_samples=0"),
        (lambda p: p.entropy(-5), "num_samples must be a whole number of at least 0, got -5"),
        (lambda p: p.kl(p, 2.5), "num_samples must be a whole number of at least 0, got 2.5"),
        (lambda p: p.kl(p.circuit, 10), "kl compares with another density, got Circuit"),
        (lambda p: p.kl(p.marginal([0]), 10), r"x must have shape \(rows, 1\)"),
    ],
)
def test_estimates_that_cannot_be_made_say_why(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(squared())
