"""Squared tensor trains over splines have the density that scipy's B-splines say they have."""

import numpy as np
import pytest
import torch
from oracles import gauss_legendre
from scipy.interpolate import BSpline

import subtractive as sub

PRODUCTS = {"Hadamard": sub.HadamardLayer, "Kronecker": sub.KroneckerLayer}
every_product = pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
SPLINES = [
    sub.Spline(6, domain=(-1.0, 2.0)),
    sub.Spline(5, order=3, domain=(0.0, 1.0)),
    sub.Spline(6, domain=(0.0, 4.0), knots=(0.5, 1.0, 3.5)),
]


def random_train(number=np.float64, bonds=(3, 4), seed=0):
    rng = np.random.default_rng(seed)
    edges = [1, *bonds, 1]
    shapes = [(edges[t], spline.num_bases, edges[t + 1]) for t, spline in enumerate(SPLINES)]
    cores = [rng.normal(size=shape) for shape in shapes]
    if number is np.complex128:
        cores = [core + 1j * rng.normal(size=core.shape) for core in cores]
    return cores


def basis(spline):
    """All B-splines of a variable as one function of scipy, (n,) to (n, b)."""
    inner = np.linspace(*spline.domain, spline.num_bases - spline.order + 1)[1:-1]
    inner = inner if spline.knots is None else spline.knots
    ends = [[end] * (spline.order + 1) for end in spline.domain]
    return BSpline(
        np.concatenate([ends[0], inner, ends[1]]), np.eye(spline.num_bases), spline.order
    )


def basis_gram(spline):
    """∫ B_b B_c by quadrature between knots."""
    function = basis(spline)
    knots = np.unique(function.t)
    rules = [gauss_legendre(a, b, 8) for a, b in zip(knots[:-1], knots[1:], strict=True)]
    return sum(np.einsum("g,gb,gc->bc", w, function(x), function(x)) for x, w in rules)


def coefficients(cores):
    psi = np.tensordot(np.tensordot(cores[0], cores[1], 1), cores[2], 1)
    return psi[0, ..., 0]


def rows(n=50, seed=1):
    low, high = np.array([spline.domain for spline in SPLINES]).T
    return low + (high - low) * np.random.default_rng(seed).uniform(size=(n, 3))


@every_product
@pytest.mark.parametrize("number", [np.float64, np.complex128], ids=["real", "complex"])
def test_density_partition_function_and_marginals_are_those_of_the_train(product, number):
    cores, x = random_train(number), rows()
    density = sub.reductions.squared_tensor_train(
        cores, SPLINES, product=product, dtype=torch.float64
    )
    psi, grams = coefficients(cores), [basis_gram(spline) for spline in SPLINES]
    values = [basis(spline)(x[:, d]) for d, spline in enumerate(SPLINES)]
    outer = [np.einsum("nb,nc->nbc", value, value) for value in values]
    whole = [np.broadcast_to(gram, value.shape) for gram, value in zip(grams, outer, strict=True)]
    partition = np.einsum("abc,def,ad,be,cf->", psi, psi.conj(), *grams).real
    assert density.log_partition().item() == pytest.approx(np.log(partition), abs=1e-10)
    for kept in [(True, True, True), (True, False, True), (False, True, False)]:
        forms = [o if keep else w for o, w, keep in zip(outer, whole, kept, strict=True)]
        square = np.einsum("abc,def,nad,nbe,ncf->n", psi, psi.conj(), *forms).real
        actual = density.log_marginal(torch.from_numpy(x), torch.tensor(kept)).detach()
        expected = torch.from_numpy(np.log(square / partition))
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@every_product
def test_a_train_comes_back_from_its_circuit(product):
    cores = random_train()
    density = sub.reductions.squared_tensor_train(
        cores, SPLINES, product=product, dtype=torch.float64
    )
    back = [core.numpy() for core in sub.reductions.matrix_product_state(density).cores]
    np.testing.assert_allclose(coefficients(back), coefficients(cores), rtol=1e-12, atol=1e-12)


def test_a_train_can_be_sampled():
    density = sub.reductions.squared_tensor_train(random_train(), SPLINES, dtype=torch.float64)
    x = density.sample(200, generator=torch.Generator().manual_seed(0))
    assert density.log_prob(x).isfinite().all()


CORES = random_train()
BAD = {
    "too few": ((CORES, SPLINES[:2]), "expected 3, got"),
    "no splines": ((CORES, [sub.Gaussian()] * 3), "needs one Spline"),
    "coefficients": ((CORES, sub.Spline(6)), "core 1 has 5 coefficients for 6 basis functions"),
    "signs": (([np.ones(6)], sub.Spline(6, non_negative=True)), "leave out non_negative=True"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_bases_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        sub.reductions.squared_tensor_train(*given)
