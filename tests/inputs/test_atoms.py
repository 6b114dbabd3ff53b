"""Atoms against brute force: sums over the atoms plus quadrature of what is between them."""

import math

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid, input_values
from scipy import integrate, stats
from torch.autograd import gradcheck

import subtractive as sub
from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.statistics import Sample

ATOMS = (-0.5, 0.0, 2.0)
DOUBLE = torch.float64
SPLINE = sub.Spline(6, order=2, domain=(-1.0, 2.5))
FAMILIES = {
    "gaussian": sub.WithAtoms(sub.Gaussian(), ATOMS),
    "spline": sub.WithAtoms(SPLINE, ATOMS),
    "rbf": sub.WithAtoms(sub.RBF((-1.0, 0.0, 1.0), 0.7), ATOMS),
    "positive": sub.WithAtoms(sub.Gaussian(), ATOMS, non_negative=True),
    "positive spline": sub.WithAtoms(
        sub.Spline(6, domain=(-1.0, 2.5), non_negative=True), ATOMS, non_negative=True
    ),
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tensors(family, regions=1, seed=0):
    """Random parameters; atoms of both signs where that is possible."""
    generator = seeded(seed)
    parts = [family.init(3, generator) | family.constants(3) for _ in range(regions)]
    p = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    if "atom" in p:
        p["atom"] = torch.randn(p["atom"].shape, generator=generator, dtype=DOUBLE)
    return p


def brute_force(family, p, low, high, power):
    """∫ x^power f_i g_j over (low, high], of one region, by scipy and a sum over atoms."""
    numbers = {name: tensor[0].numpy() for name, tensor in p.items()}

    def outer(x, power=power):
        values = np.asarray(input_values(family.base, numbers, [x]))
        return x**power * np.outer(values, values)

    low, high = max(low, -12.0), min(high, 12.0)
    cuts = [c for c in np.linspace(-1.0, 2.5, 5) if low < c < high]
    total = integrate.quad_vec(outer, low, high, points=cuts, epsabs=1e-13, epsrel=1e-13)[0]
    for atom in family.atoms:
        if low < atom <= high:
            values = np.asarray(input_values(family, numbers, [atom]))
            total = total + atom**power * np.outer(values, values)
    return torch.from_numpy(total)


@every_family
def test_values_are_those_of_atoms_at_atoms_and_of_the_base_elsewhere(family):
    p = tensors(family, regions=2)
    x = torch.tensor([[-0.5, 0.0, 0.3, 2.0, 1.99, -0.0]] * 2, dtype=DOUBLE)[..., None]
    found = family.values(p, x).value()
    for region in range(2):
        numbers = {name: tensor[region].numpy() for name, tensor in p.items()}
        expected = [input_values(family, numbers, [v]) for v in x[region, :, 0].tolist()]
        expected = torch.from_numpy(np.array(expected))
        torch.testing.assert_close(found[region], expected, rtol=1e-12, atol=1e-14)


WINDOWS = {
    "everywhere": (-math.inf, math.inf),
    "an atom on the lower border": (-0.5, 1.0),
    "an atom on the upper border": (-0.3, 2.0),
    "one atom alone": (math.nextafter(0.0, -math.inf), 0.0),
    "no atom": (0.1, 1.9),
}


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize(("low", "high"), WINDOWS.values(), ids=WINDOWS)
@every_family
def test_grams_are_sums_over_the_atoms_plus_integrals(family, low, high, power):
    p = tensors(family)
    window = Window(
        torch.full((1, 2), low, dtype=DOUBLE), torch.full((1, 2), high, dtype=DOUBLE), power
    )
    found = family.gram(p, p, window).value()
    expected = brute_force(family, p, low, high, power).expand(1, 2, 3, 3)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    if math.isinf(low):
        open_ended = family.gram(p, p, Window(power=power)).value()
        torch.testing.assert_close(open_ended[0, 0], expected[0, 0], rtol=1e-9, atol=1e-11)


@every_family
def test_integrals_are_sums_over_the_atoms_plus_integrals(family):
    p = tensors(family)
    upper = torch.tensor([[-0.6, -0.5, 0.0, 1.0, 2.0]], dtype=DOUBLE)
    found = family.integral(p, Window(upper=upper)).value()[0]
    numbers = {name: tensor[0].numpy() for name, tensor in p.items()}
    for row, high in zip(found, upper[0].tolist(), strict=True):
        smooth = integrate.quad_vec(
            lambda x: np.asarray(input_values(family.base, numbers, [x])), -12, high, epsabs=1e-12
        )[0]
        atoms = [input_values(family, numbers, [a]) for a in ATOMS if a <= high]
        expected = torch.from_numpy(smooth + np.sum(atoms, axis=0))
        torch.testing.assert_close(row, expected, rtol=1e-8, atol=1e-10)


@every_family
def test_cross_grams_are_blocks_of_the_gram_of_all_functions(family):
    p, q = tensors(family), tensors(family, seed=1)
    if "knots" in p or "centre" in p:
        q = {name: p[name] if name in ("knots", "centre", "log_scale") else q[name] for name in q}
    cuts = [-12.0, *np.linspace(-1.0, 2.5, 5), 12.0]
    spans = [gauss_legendre(a, b, 60) for a, b in zip(cuts, cuts[1:], strict=False)]
    nodes = torch.from_numpy(np.concatenate([*(s[0] for s in spans), ATOMS]))[None, :, None]
    weights = torch.from_numpy(np.concatenate([*(s[1] for s in spans), np.ones(len(ATOMS))]))
    left, right = family.values(p, nodes).value()[0], family.values(q, nodes).value()[0]
    expected = left.mT @ (weights[:, None] * right)
    found = family.gram(p, q, EVERYWHERE).value()[0, 0]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@every_family
def test_gradients_are_exact(family):
    p = tensors(family)
    names = [name for name in family.init(3, seeded())]
    learned = [p[name].clone().requires_grad_() for name in names]
    x = torch.tensor([[[0.0], [0.7], [2.0]]], dtype=DOUBLE)
    bounds = torch.tensor([[-0.4, 0.3]], dtype=DOUBLE), torch.tensor([[0.0, 2.2]], dtype=DOUBLE)
    for of in (
        lambda q: family.values(q, x),
        lambda q: family.gram(q, q, EVERYWHERE),
        lambda q: family.gram(q, q, Window(*bounds, 1)),
        lambda q: family.integral(q, Window(*bounds)),
    ):
        assert gradcheck(
            lambda *t, of=of: of(p | dict(zip(names, t, strict=True))).value(), learned
        )


@every_family
def test_quadratic_forms_are_drawn_with_their_law(family):
    p, n = tensors(family), 4000
    root = torch.randn(3, 2, generator=seeded(2), dtype=DOUBLE)
    form = root @ root.mT
    drawn = family.sample_square(p, form.expand(n, -1, -1), torch.zeros(n, 1), [False], seeded())[
        :, 0
    ]
    cuts = [-math.inf, -0.5, 0.0, 0.8, 2.0, math.inf]
    check_law(family, drawn, cuts, lambda low, high: (form * gram(family, p, low, high)).sum())


@pytest.mark.parametrize("name", ["positive", "positive spline"])
def test_units_are_drawn_with_their_law(name):
    family = FAMILIES[name]
    p, n = tensors(family), 4000
    units = torch.full((1, n), 1)
    drawn = family.sample_units(p, units, torch.zeros(1, n, 1), [False], seeded())[0, :, 0]
    cuts = [-math.inf, -0.5, 0.0, 0.8, 2.0, math.inf]

    def mass(low, high):
        window = Window(*(torch.tensor([[end]], dtype=DOUBLE) for end in (low, high)))
        return family.integral(p, window).value()[0, 0, 1]

    check_law(family, drawn, cuts, mass)


def gram(family, p, low, high):
    window = Window(*(torch.tensor([[end]], dtype=DOUBLE) for end in (low, high)))
    return family.gram(p, p, window).value()[0, 0]


def check_law(family, drawn, cuts, mass):
    """Counts at each atom and between the cuts, by chi-square; a false alarm in 1000."""
    counts, masses = [], []
    for low, high in zip(cuts, cuts[1:], strict=False):
        inside = (drawn > low) & (drawn <= high)
        total = float(mass(low, high))
        for atom in family.atoms:
            if low < atom <= high:
                counts.append(int((drawn == atom).sum()))
                masses.append(float(mass(math.nextafter(atom, -math.inf), atom)))
                inside &= drawn != atom
                total -= masses[-1]
        counts.append(int(inside.sum()))
        masses.append(total)
    expected = np.array(masses) / sum(masses) * len(drawn)
    keep = expected > 1e-6
    assert np.array(counts)[~keep].sum() == 0
    assert stats.chisquare(np.array(counts)[keep], expected[keep]).pvalue > 1e-3


def three(non_negative=False, weights=sub.real_weights, seed=0):
    """Atoms in two of three variables, one of them continuous only."""
    one = sub.WithAtoms(sub.Gaussian(), (0.0,), non_negative=non_negative)
    spline = sub.Spline(5, domain=(-1.0, 2.0), non_negative=non_negative)
    two = sub.WithAtoms(spline, (0.0, 1.0), non_negative=non_negative)
    return sub.Circuit(
        sub.RegionGraph.from_nested(((0, 1), 2)),
        [one, two, sub.Gaussian()],
        num_units=3,
        num_outputs=1 if non_negative else 2,
        weights=weights,
        seed=seed,
        dtype=DOUBLE,
    )


def densities():
    squared = sub.SquaredCircuit(three())
    monotonic = sub.MonotonicCircuit(three(non_negative=True, weights=sub.positive_weights))
    return {
        "squared": squared,
        "complex": sub.SquaredCircuit(three(weights=sub.complex_weights, seed=1)),
        "monotonic": monotonic,
        "mixture": sub.Mixture([squared, monotonic], weights=[1.0, 3.0]),
    }


every_density = pytest.mark.parametrize("name", ["squared", "complex", "monotonic", "mixture"])
LINE = gauss_legendre(-8.0, 8.0, 40)
SPANS = [gauss_legendre(a, a + 1.0, 4) for a in (-1.0, 0.0, 1.0)]
RULES = [
    (np.append(LINE[0], 0.0), np.append(LINE[1], 1.0)),
    (
        np.concatenate([*(s[0] for s in SPANS), [0.0, 1.0]]),
        np.concatenate([*(s[1] for s in SPANS), [1.0, 1.0]]),
    ),
    LINE,
]


@every_density
def test_probabilities_of_three_variables_sum_to_one_and_marginals_are_integrals(name):
    density = densities()[name]
    x, w = grid(RULES)
    mass = density.log_prob(x).exp() * w
    torch.testing.assert_close(mass.sum().item(), 1.0, rtol=0, atol=1e-7)
    at_zero = (x[:, 0] == 0) & (x[:, 1] == 1)
    row = torch.tensor([[0.0, 1.0, math.nan]], dtype=DOUBLE)
    expected = mass[at_zero].sum()
    torch.testing.assert_close(density.log_prob(row).exp()[0], expected, rtol=1e-6, atol=0)
    mean = (mass[:, None] * x).sum(0)
    torch.testing.assert_close(density.mean(), mean, rtol=1e-6, atol=1e-7)
    centred = x - mean
    covariance = centred.mT @ (mass[:, None] * centred)
    torch.testing.assert_close(density.covariance(), covariance, rtol=1e-5, atol=1e-6)


@every_density
def test_conditionals_given_an_atom_are_ratios(name):
    density = densities()[name]
    x, w = grid(RULES[1:])
    given = density.condition({0: 0.0})
    torch.testing.assert_close((given.log_prob(x).exp() * w).sum().item(), 1.0, rtol=0, atol=1e-7)
    rows = torch.cat([torch.zeros(len(x), 1, dtype=DOUBLE), x], 1)
    whole = density.log_prob(torch.tensor([[0.0, math.nan, math.nan]], dtype=DOUBLE))
    torch.testing.assert_close(
        given.log_prob(x), density.log_prob(rows) - whole, rtol=1e-9, atol=1e-9
    )


@every_density
def test_boxes_contain_the_atoms_on_their_borders(name):
    density = densities()[name]
    x, w = grid(RULES)
    mass = density.log_prob(x).exp() * w
    spline_part = (x[:, 1] >= 0.0) & (x[:, 1] <= 1.0)  # both atoms are on its border
    expected = mass[spline_part].sum()
    found = density.probability({1: (0.0, 1.0)})
    torch.testing.assert_close(found.item(), expected.item(), rtol=1e-6, atol=0)
    for atom in (0.0, 1.0):
        alone = density.probability({1: (atom, atom)}).item()
        assert alone == pytest.approx(mass[x[:, 1] == atom].sum().item(), rel=1e-6)


def places(x, first, second):
    """Rows whose first variable is its atom or not, and whose second one is an atom or none."""
    is_atom = (x[:, 1] == 0) | (x[:, 1] == 1)
    return ((x[:, 0] == 0) == first) & (~is_atom if second is None else x[:, 1] == second)


@every_density
def test_samples_equal_atoms_as_often_as_they_are_likely(name):
    density, n = densities()[name], 3000
    drawn = density.sample(n, generator=seeded(3))
    assert drawn.dtype == DOUBLE
    x, w = grid(RULES)
    mass = (density.log_prob(x).exp() * w).detach()
    counts, expected = [], []
    for first in (True, False):
        for second in (0.0, 1.0, None):
            counts.append(int(places(drawn, first, second).sum()))
            expected.append(float(mass[places(x, first, second)].sum()))
    expected = np.array(expected) / sum(expected) * n
    assert stats.chisquare(counts, expected).pvalue > 1e-3  # a false alarm in 1000
    given = density.sample(20, given={0: 0.0}, generator=seeded(4))
    assert (given[:, 0] == 0).all()


@every_density
def test_densities_with_atoms_are_saved(name, tmp_path):
    density = densities()[name]
    density.save(tmp_path / "model")
    loaded = sub.load(tmp_path / "model")
    x = torch.tensor([[0.0, 1.0, 0.3], [0.2, 0.0, math.nan]], dtype=DOUBLE)
    assert torch.equal(loaded.log_prob(x), density.log_prob(x))
    assert loaded.families == density.families


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("name", ["gaussian", "spline", "positive"])
def test_a_start_from_data_has_the_shares_of_the_atoms(name, power):
    family, n = FAMILIES[name], 1000
    column = torch.rand(n, 1, generator=seeded(), dtype=DOUBLE)
    column[:300], column[300:350] = 0.0, 2.0
    column[350] = math.nan
    sample = Sample(column, torch.ones(n, dtype=DOUBLE))
    learned = family.init_from_data(sample, 64, power, seeded())
    p = {k: v[None] for k, v in (learned | family.constants(64)).items()}
    ends = torch.tensor([[-math.inf]]).double(), torch.tensor([[math.inf]]).double()
    whole = family.gram(p, p, Window(*ends)) if power == 2 else family.integral(p, Window(*ends))
    for atom, share in ((-0.5, 0.0), (0.0, 0.3), (2.0, 0.05)):
        low = torch.tensor([[math.nextafter(atom, -math.inf)]], dtype=DOUBLE)
        window = Window(low, torch.tensor([[atom]], dtype=DOUBLE))
        part = family.gram(p, p, window) if power == 2 else family.integral(p, window)
        found = float(part.value().sum() / whole.value().sum())
        assert found == pytest.approx(share, rel=0.35, abs=0.003)


def test_a_column_of_nothing_but_atoms_and_gaps_has_a_finite_start():
    column = torch.tensor([[0.0], [0.0], [math.nan], [2.0]])
    for family in FAMILIES.values():
        for rows in (column, column[:2], column[2:3]):
            start = family.init_from_data(Sample(rows, torch.ones(len(rows))), 3, 2, seeded())
            assert all(tensor.isfinite().all() for tensor in start.values())


def test_rows_learn_the_probability_of_an_atom():
    x = torch.randn(400, 2, generator=seeded())
    x[:100, 0] = 0.25
    family = sub.WithAtoms(sub.Gaussian(), (0.25,))
    density = sub.SquaredCircuit(sub.Circuit(sub.flat(2), family, num_units=4, seed=0))
    sub.fit(density, x, max_epochs=40, progress=False)
    found = density.probability({0: (0.25, 0.25)}).item()
    assert found == pytest.approx(0.25, abs=0.05)


def test_single_precision_keeps_atoms_that_it_cannot_represent():
    family = sub.WithAtoms(sub.Gaussian(), (0.1,))
    density = sub.SquaredCircuit(sub.Circuit(sub.flat(1), family, num_units=3, seed=0))
    wide = sub.SquaredCircuit(sub.Circuit(sub.flat(1), family, num_units=3, seed=0)).double()
    alone = [d.probability({0: (0.1, 0.1)}).item() for d in (density, wide)]
    points = torch.tensor([[0.1]], dtype=DOUBLE)
    for d in (density, wide):
        assert d.log_prob(points).exp().item() == pytest.approx(alone[1], rel=1e-5)
        assert (d.sample(200, generator=seeded()) == 0.1).any()
    assert alone[0] == pytest.approx(alone[1], rel=1e-5)


def test_tables_in_single_precision_hit_the_atoms_of_a_wide_model():
    family = sub.WithAtoms(sub.Gaussian(), (0.1, 0.3))
    p = tensors(family)
    narrow = torch.tensor([[[0.1], [0.3], [0.2]]])
    wide = torch.tensor([[[0.1], [0.3], [0.2]]], dtype=DOUBLE)
    found, expected = family.values(p, narrow.double()), family.values(p, wide)
    assert torch.equal(found.value()[:, :2], expected.value()[:, :2])
    assert not torch.equal(found.value()[:, 2], expected.value()[:, 2])


def test_units_overlap_at_a_common_atom():
    p = {
        "coefficient": torch.zeros(1, 2, 6, dtype=DOUBLE),
        "atom": torch.tensor([[[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]], dtype=DOUBLE),
    }
    assert torch.equal(FAMILIES["spline"].overlap(p)[0], torch.eye(2).bool())
    p["atom"][0, 0, 1] = 3.0
    assert FAMILIES["spline"].overlap(p).all()


def test_atoms_may_lie_where_the_base_is_impossible():
    FAMILIES["spline"].check(torch.tensor([0.0, 7.0]), 0)
    with pytest.raises(ValueError, match="finite"):
        FAMILIES["spline"].check(torch.tensor([math.inf]), 0)


WRONG = {
    "none": (lambda: sub.WithAtoms(sub.Gaussian(), ()), "at least one"),
    "twice": (lambda: sub.WithAtoms(sub.Gaussian(), (1, 1)), "distinct"),
    "infinite": (lambda: sub.WithAtoms(sub.Gaussian(), (math.inf,)), "finite"),
    "discrete": (lambda: sub.WithAtoms(sub.Embedding(3)), "continuous family"),
    "nested": (lambda: sub.WithAtoms(sub.WithAtoms(sub.Gaussian())), "all atoms at once"),
    "multivariate": (lambda: sub.WithAtoms(sub.MultivariateGaussian()), "of one variable"),
    "signed": (lambda: sub.WithAtoms(SPLINE, non_negative=True), "non-negative family"),
}


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_have_atoms_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
