"""Test functions of one variable and their expectations, against sums and quadrature."""

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid
from registry import ATOMS, CONTINUOUS, DISCRETE, FAMILIES, axis
from scipy import stats

import subtractive as sub
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.test_functions import CumulativeAt, DensityAt, Moments

LINE = gauss_legendre(-10.0, 10.0, 160)
PLANE = np.linspace(-9.0, 9.0, 121), np.full(121, 0.15)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
ALL_FAMILIES = FAMILIES | {
    "additive spline": sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True)
}
every_family = pytest.mark.parametrize("name", ALL_FAMILIES)


def tensors(name, *, units=3, size=1, seed=0):
    """The tensors of one region, in float64."""
    family = ALL_FAMILIES.get(name, sub.MultivariateGaussian())
    layer = InputLayer(
        [family],
        [range(size)],
        num_units=units,
        generator=torch.Generator().manual_seed(seed),
    )
    p = {key: t.detach() for key, t in layer.tensors(slice(None), torch.float64).items()}
    if "lower" in p:
        p["lower"] = 0.5 * torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 3, 2, 2)))
    return family, p


def rule(name):
    if name == "additive spline":
        name = "spline"
    nodes, weights = LINE if name in ("gaussian", "rbf", "atoms") else axis(name)
    if name == "atoms":
        nodes, weights = np.append(nodes, ATOMS), np.append(weights, np.ones(len(ATOMS)))
    return torch.from_numpy(nodes), torch.from_numpy(weights)


def functions_and_formulas(name):
    """Test functions beside plain ones, as functions of x (n,) with values (n, q)."""
    yield Moments(), lambda x: torch.stack([x, x.square()], -1)
    if name in DISCRETE:
        points = torch.arange(3, dtype=torch.float64)
        yield DensityAt(points), lambda x: (x[:, None] == points).double()
        yield CumulativeAt(points - 0.5), lambda x: (x[:, None] <= points - 0.5).double()


def environments(count, units=3, seed=0):
    """Random positive semi-definite matrices (n, i, j), the second of rank one."""
    root = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, units, units)))
    root[1, :, 1:] = 0
    return root @ root.mT


@every_family
def test_expectations_are_integrals_against_functions_and_products(name):
    family, p = tensors(name)
    x, w = rule(name)
    f = family.values(p, x[None, :, None]).value()[0]  # (n, i)
    for question, function in functions_and_formulas(name):
        weights = w[:, None] * function(x)  # (n, q)
        functions = question.of_functions(family, p).value()[0]
        products = question.of_products(family, p).value()[0]
        assert functions.shape == (question.count, 3)
        torch.testing.assert_close(functions, weights.T @ f, **CLOSE)
        expected = torch.einsum("nq,ni,nj->qij", weights, f, f)
        torch.testing.assert_close(products, expected, **CLOSE)


@pytest.mark.parametrize("name", ["gaussian", "rbf", "spline", "additive spline"])
def test_continuous_families_know_their_density_and_distribution_function(name):
    family, p = tensors(name)
    ends = torch.tensor([-0.9, -0.1, 0.6, 1.8], dtype=torch.float64)
    values = family.values(p, ends[None, :, None]).value()[0]
    density, below = DensityAt(ends), CumulativeAt(ends)
    torch.testing.assert_close(density.of_functions(family, p).value()[0], values, **CLOSE)
    torch.testing.assert_close(
        density.of_products(family, p).value()[0],
        values[:, :, None] * values[:, None, :],
        **CLOSE,
    )
    left = -1.0 if "spline" in name else -10.0
    knots = [left, *(k for k in (-0.25, 0.5, 1.25) if "spline" in name)]
    for q, end in enumerate(ends.tolist()):
        cuts = [*(k for k in knots if k < end), end]
        parts = [gauss_legendre(a, b, 80) for a, b in zip(cuts, cuts[1:], strict=False)]
        x, w = (torch.from_numpy(np.concatenate(t)) for t in zip(*parts, strict=True))
        f = family.values(p, x[None, :, None]).value()[0]
        torch.testing.assert_close(below.of_functions(family, p).value()[0, q], w @ f, **CLOSE)
        torch.testing.assert_close(
            below.of_products(family, p).value()[0, q], (f * w[:, None]).T @ f, **CLOSE
        )


@every_family
def test_answers_are_expectations_under_a_quadratic_form(name):
    family, p = tensors(name)
    x, w = rule(name)
    f = family.values(p, x[None, :, None]).value()[0]
    environment = environments(4)
    mass = torch.einsum("mi,nij,mj->nm", f, environment, f) * w  # (n, m)
    for question, function in functions_and_formulas(name):
        expected = mass @ function(x) / mass.sum(-1, keepdim=True)
        rows = torch.zeros(4, 1, dtype=torch.float64)
        (found,) = family.expectations_square(p, environment, rows, [False], [question])
        torch.testing.assert_close(found, expected, **CLOSE)
        # The size of an environment is arbitrary, row by row.
        scale = torch.tensor([1e-90, 1.0, 1e90, 7.0], dtype=torch.float64)[:, None, None]
        (scaled,) = family.expectations_square(p, environment * scale, rows, [False], [question])
        torch.testing.assert_close(scaled, expected, **CLOSE)
    assert family.expectations_square(p, environment, rows, [False], [None]) == [None]


@every_family
def test_answers_are_averages_over_units(name):
    family, p = tensors(name)
    x, w = rule(name)
    f = family.values(p, x[None, :, None]).value()[0]
    densities = w[:, None] * f / (w @ f)  # (m, i)
    shares = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], dtype=torch.float64)
    rows = torch.zeros(2, 1, dtype=torch.float64)
    for question, function in functions_and_formulas(name):
        expected = shares @ densities.T @ function(x)
        (found,) = family.expectations_units(p, shares, rows, [False], [question])
        torch.testing.assert_close(found, expected, **CLOSE)
    assert family.expectations_units(p, shares, rows, [False], [None]) == [None]


@every_family
def test_tilted_integrals_expand_the_exponential_to_second_order(name):
    family, p = tensors(name)
    x, w = rule(name)
    f = family.values(p, x[None, :, None]).value()[0]
    row = torch.zeros(1, 1, dtype=torch.float64)
    for theta in (0.0, 0.3, -1.1):
        tilt = torch.tensor([theta], dtype=torch.float64)
        weights = w * (1 + theta * x + 0.5 * (theta * x).square())
        gram = family.tilted_gram(p, row, [False], tilt).value()
        integral = family.tilted_integral(p, row, [False], tilt).value()
        torch.testing.assert_close(gram[0, 0], (f * weights[:, None]).T @ f, **CLOSE)
        torch.testing.assert_close(integral[0, 0], weights @ f, **CLOSE)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_tail_question_keeps_its_digits(name):
    family, p = tensors(name)
    total = family.gram(p, p, EVERYWHERE).value()[0, 0]
    ends = torch.tensor([-1e300, 1e300], dtype=torch.float64)
    below = CumulativeAt(ends).of_products(family, p).value()[0]
    torch.testing.assert_close(below[0], torch.zeros_like(total), rtol=0, atol=0)
    torch.testing.assert_close(below[1], total, rtol=1e-14, atol=0)


def test_gaussian_mixtures_are_answered_in_closed_form():
    weights = torch.tensor([[0.7, 0.3], [1.5, -0.5]], dtype=torch.float64)
    mean = torch.tensor([[0.5, -1.0], [0.0, 0.0]], dtype=torch.float64)
    scale = torch.tensor([1.0, 0.5], dtype=torch.float64)
    points = torch.tensor([-1.0, 0.2, 3.0], dtype=torch.float64)
    parts = [[stats.norm(mean[n, k], scale[k]) for k in range(2)] for n in range(2)]

    def expected(value):
        rows = [sum(weights[n, k].item() * value(parts[n][k]) for k in range(2)) for n in range(2)]
        return torch.tensor(np.array(rows), dtype=torch.float64)

    answers = {
        Moments(): lambda z: np.array([z.mean(), z.var() + z.mean() ** 2]),
        DensityAt(points): lambda z: z.pdf(points),
        CumulativeAt(points): lambda z: z.cdf(points),
    }
    for question, value in answers.items():
        found = question.of_gaussians(weights, mean, scale)
        torch.testing.assert_close(found, expected(value), **CLOSE)
        shared = question.of_gaussians(weights, mean[:1], scale)  # one row of means for all
        torch.testing.assert_close(shared[0], found[0], **CLOSE)


@pytest.mark.parametrize("observed", [(False, False), (True, False), (False, True)])
def test_a_region_of_two_variables_answers_for_those_not_observed(observed):
    family, p = tensors("multivariate", size=2)
    rows = torch.tensor([[0.4, -0.3], [-1.0, 0.8], [0.0, 0.1]], dtype=torch.float64)
    environment = environments(3)
    shares = torch.tensor([[1.0, 2.0, 1.0], [0.0, 4.0, 0.0], [2.0, 1.0, 1.0]]).double() / 4
    points = torch.tensor([-1.0, 0.3], dtype=torch.float64)
    asked = [None, Moments(), DensityAt(points), CumulativeAt(points)]
    for n in range(3):
        line = [
            (rows[n, v : v + 1].numpy(), np.ones(1)) if observed[v] else PLANE for v in range(2)
        ]
        x, w = grid(line)
        f = family.values(p, x[None]).value()[0]
        square = torch.einsum("mi,ij,mj->m", f, environment[n], f) * w
        # The shares are those of the units given what is observed.
        plain = (f / (w @ f)) @ shares[n] * w
        for question in asked:
            for find, mass in (("expectations_square", square), ("expectations_units", plain)):
                weight = environment if find == "expectations_square" else shares
                found = getattr(family, find)(p, weight, rows, observed, [question] * 2)
                for v in range(2):
                    if observed[v] or question is None:
                        assert found[v] is None
                        continue
                    expected = moments_or_marginal(question, x[:, v], mass / mass.sum())
                    torch.testing.assert_close(found[v][n], expected, rtol=0, atol=1e-8)


def moments_or_marginal(question, x, mass):
    """What a question says of a variable whose values x on an even grid have these masses."""
    if isinstance(question, Moments):
        return torch.stack([mass @ x, mass @ x.square()])
    line = torch.from_numpy(PLANE[0])
    heights = torch.stack([mass[x == node].sum() for node in line]) / PLANE[1][0]

    def density(t):  # a smooth function on an even grid is its sinc series
        return torch.special.sinc((t[:, None] - line) / PLANE[1][0]) @ heights

    if isinstance(question, DensityAt):
        return density(question.points)
    parts = [gauss_legendre(-9.0, end, 200) for end in question.points.tolist()]
    return torch.stack([torch.from_numpy(w) @ density(torch.from_numpy(t)) for t, w in parts])


def test_a_written_out_square_cannot_be_asked():
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
    squared = sub.materialise_square(circuit)
    layer = squared.input_layers[0]
    p, row = layer.tensors(slice(0, 1)), torch.zeros(1, 1, dtype=torch.float64)
    for ask in (layer.family.expectations_square, layer.family.expectations_units):
        with pytest.raises(ValueError, match="a written-out square is for study"):
            ask(p, torch.ones(1, 4, 4), row, [False], [Moments()])
    for tilt in (layer.family.tilted_gram, layer.family.tilted_integral):
        with pytest.raises(ValueError, match="Use the SquaredCircuit of the circuit itself"):
            tilt(p, row, [False], torch.zeros(1))


def test_questions_count_their_functions():
    points = torch.zeros(5)
    assert [q.count for q in (Moments(), DensityAt(points), CumulativeAt(points))] == [2, 5, 5]
