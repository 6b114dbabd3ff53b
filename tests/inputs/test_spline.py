import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import BSpline
from torch.autograd import gradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.bsplines import spline_gram, spline_integral, spline_values
from subtractive.inputs.spline import Spline

ORDERS = [0, 1, 2, 3, 5]
UNEVEN = (0.1, 0.15, 0.5, 0.9)


def splines(order):
    """Two regions that fold together: uniform knots, and uneven ones on another interval."""
    size = len(UNEVEN) + order + 1
    knots = tuple(-2 + 5 * knot for knot in UNEVEN)
    return [Spline(size, order), Spline(size, order, domain=(-2.0, 3.0), knots=knots)]


def tensors(families, num_units=3, seed=0):
    """The tensors of several regions, coefficients of both signs."""
    generator = torch.Generator().manual_seed(seed)
    knots = torch.stack([family.constants(num_units)["knots"] for family in families])
    shape = (len(families), num_units, families[0].num_bases)
    coefficient = torch.randn(shape, generator=generator, dtype=torch.float64)
    return {"coefficient": coefficient, "knots": knots}


def scipy_splines(p, order, fold):
    """f_1..f_K of one region as scipy's splines, zero outside."""
    knots = p["knots"][fold].numpy()

    def value(unit, x):
        inside = knots[0] <= x <= knots[-1]
        return float(BSpline(knots, p["coefficient"][fold, unit].numpy(), order)(x)) * inside

    return value


def quadrature(function, knots, lower, upper):
    """∫ between the bounds, span by span."""
    breaks = np.clip(np.unique(knots), lower, upper)
    pieces = zip(breaks[:-1], breaks[1:], strict=True)
    return sum(quad(function, a, b, epsabs=1e-12, epsrel=1e-12)[0] for a, b in pieces if a < b)


def test_the_papers_example_has_seven_bases():
    knots = Spline(num_bases=7, order=2).constants(1)["knots"]
    expected = torch.tensor([0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(knots, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("order", ORDERS)
def test_values_agree_with_scipy(order):
    families = splines(order)
    p = tensors(families)
    unit = torch.rand(2, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    lower, upper = p["knots"][:, :1], p["knots"][:, -1:]
    x = torch.cat([lower + unit * (upper - lower), p["knots"]], 1)  # the knots themselves too
    mantissa, exponent = families[0].values(p, x[..., None])
    assert exponent is None
    for fold in range(2):
        design = BSpline.design_matrix(x[fold].numpy(), p["knots"][fold].numpy(), order)
        expected = design.toarray() @ p["coefficient"][fold].numpy().T
        torch.testing.assert_close(
            mantissa[fold], torch.from_numpy(expected), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("order", ORDERS)
def test_bases_sum_to_one_on_the_closed_interval(order):
    family = splines(order)[1]
    knots = family.constants(1)["knots"][None]
    x = torch.linspace(-2, 3, 101, dtype=torch.float64)[None]
    values = spline_values(torch.ones(1, 1, family.num_bases).double(), knots, x)
    torch.testing.assert_close(values, torch.ones(1, 101, 1).double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_outside_the_interval_values_and_gradients_are_exactly_zero(order):
    families = splines(order)
    p = tensors(families)
    p["coefficient"].requires_grad_()
    edges = [[-1e-12, 1 + 1e-12, 1e200, -math.inf], [-2 - 1e-12, 3 + 1e-12, math.inf, -1e200]]
    x = torch.tensor(edges, dtype=torch.float64)[..., None].requires_grad_()
    values = families[0].values(p, x).value()
    assert torch.equal(values, torch.zeros(2, 4, 3).double())
    values.sum().backward()
    assert torch.equal(p["coefficient"].grad, torch.zeros_like(p["coefficient"]))
    if order > 0:  # steps do not depend on x at all
        assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("order", ORDERS)
def test_both_ends_belong_to_the_interval(order):
    families = splines(order)
    p = tensors(families)
    ends = torch.tensor([[0.0, 1.0], [-2.0, 3.0]], dtype=torch.float64)
    values = families[0].values(p, ends[..., None]).value()
    expected = p["coefficient"][..., [0, -1]].mT
    torch.testing.assert_close(values, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_at_the_ends_are_one_sided(order):
    families = splines(order)
    p = tensors(families)
    ends = torch.tensor([[0.0, 1.0], [-2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    values = spline_values(p["coefficient"], p["knots"], ends)
    for unit in range(3):
        (slopes,) = torch.autograd.grad(values[..., unit].sum(), ends, retain_graph=True)
        for fold in range(2):
            knots = p["knots"][fold].numpy()
            spline = BSpline(knots, p["coefficient"][fold, unit].numpy(), order)
            expected = torch.from_numpy(spline.derivative()(knots[[0, -1]]))
            torch.testing.assert_close(slopes[fold], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("power", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [0, 2, 3])
def test_integrals_and_grams_agree_with_quadrature(order, power):
    families = splines(order)
    p, q = tensors(families, num_units=2), tensors(families, num_units=3, seed=1)
    gram = families[0].gram(p, q, Window(power=power)).value()
    integral = families[0].integral(p, Window(power=power)).value()
    assert gram.shape == (2, 1, 2, 3)
    assert integral.shape == (2, 1, 2)
    for fold in range(2):
        f, g = scipy_splines(p, order, fold), scipy_splines(q, order, fold)
        knots = p["knots"][fold].numpy()
        whole = (knots[0], knots[-1])
        for i in range(2):
            total = quadrature(lambda x, f=f, i=i: x**power * f(i, x), knots, *whole)
            assert integral[fold, 0, i].item() == pytest.approx(total, rel=1e-11, abs=1e-12)
        for i, j in [(0, 0), (1, 0), (1, 2)]:
            product = lambda x, f=f, g=g, i=i, j=j: x**power * f(i, x) * g(j, x)  # noqa: E731
            total = quadrature(product, knots, *whole)
            assert gram[fold, 0, i, j].item() == pytest.approx(total, rel=1e-11, abs=1e-12)


WINDOWS = {
    "inside one span": (0.52, 0.61),
    "across spans": (0.07, 0.77),
    "on knots": (0.15, 0.5),
    "over the edges": (-4.0, 7.0),
    "open": (-math.inf, math.inf),
    "left edge": (-1.0, 0.3),
    "right edge": (0.7, 1.0),
}


@pytest.mark.parametrize("power", [0, 2])
@pytest.mark.parametrize("order", [0, 2])
def test_windows_per_row_agree_with_quadrature(order, power):
    families = splines(order)
    p, q = tensors(families, num_units=2), tensors(families, num_units=3, seed=1)
    unit = torch.tensor(list(WINDOWS.values()), dtype=torch.float64)  # (m, 2)
    bounds = torch.stack([unit, -2 + 5 * unit])
    window = Window(bounds[..., 0], bounds[..., 1], power)
    gram = families[0].gram(p, q, window).value()
    integral = families[0].integral(p, window).value()
    assert gram.shape == (2, len(WINDOWS), 2, 3)
    assert integral.shape == (2, len(WINDOWS), 2)
    for fold in range(2):
        f, g = scipy_splines(p, order, fold), scipy_splines(q, order, fold)
        knots = p["knots"][fold].numpy()
        for row, (lower, upper) in enumerate(bounds[fold].tolist()):
            total = quadrature(lambda x, f=f: x**power * f(1, x), knots, lower, upper)
            assert integral[fold, row, 1].item() == pytest.approx(total, rel=1e-11, abs=1e-12)
            product = lambda x, f=f, g=g: x**power * f(1, x) * g(2, x)  # noqa: E731
            total = quadrature(product, knots, lower, upper)
            assert gram[fold, row, 1, 2].item() == pytest.approx(total, rel=1e-11, abs=1e-12)


def test_one_open_end_and_bounds_shared_by_all_rows():
    families = splines(2)
    p = tensors(families)
    cut = torch.tensor([[0.3], [1.0]], dtype=torch.float64)
    below = families[0].gram(p, p, Window(upper=cut)).value()
    above = families[0].gram(p, p, Window(lower=cut)).value()
    whole = families[0].gram(p, p, EVERYWHERE).value()
    assert below.shape == whole.shape == (2, 1, 3, 3)
    torch.testing.assert_close(below + above, whole, rtol=1e-13, atol=1e-14)


def test_windows_that_are_empty_give_zero_and_zero_gradients():
    families = splines(2)
    p = tensors(families)
    p["coefficient"].requires_grad_()
    lower = torch.tensor([[0.5, 2.0, -3.0, math.inf], [9.0, 4.0, -9.0, math.inf]]).double()
    upper = torch.tensor([[0.2, 3.0, -1.0, math.inf], [1.0, 6.0, -8.0, math.inf]]).double()
    lower.requires_grad_()
    upper.requires_grad_()
    gram = families[0].gram(p, p, Window(lower, upper, power=1)).value()
    integral = families[0].integral(p, Window(lower, upper)).value()
    assert torch.equal(gram, torch.zeros(2, 4, 3, 3).double())
    assert torch.equal(integral, torch.zeros(2, 4, 3).double())
    (gram.sum() + integral.sum()).backward()
    for tensor in (p["coefficient"], lower, upper):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_integrals_of_bases_have_their_closed_form(order):
    family = Spline(40, order, domain=(-1.0, 2.0))
    knots = family.constants(1)["knots"]
    integrals = spline_integral(torch.eye(40).double()[None], knots[None], EVERYWHERE)
    expected = (knots[order + 1 :] - knots[: -order - 1]) / (order + 1)
    torch.testing.assert_close(integrals[0, 0], expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_the_gram_of_512_quadratic_bases_has_its_closed_form(dtype, rtol):
    family = Spline(512)
    knots = family.constants(1)["knots"][None]
    gram = spline_gram(*[torch.eye(512, dtype=dtype)[None]] * 2, knots.to(dtype), EVERYWHERE)[0, 0]
    middle = slice(5, 500)
    for offset, share in enumerate([66, 26, 1]):  # /120: the quintic B-spline at integers
        diagonal = gram.diagonal(offset)[middle]
        expected = torch.full_like(diagonal, share / 120 / 510)
        torch.testing.assert_close(diagonal, expected, rtol=rtol, atol=0)
    assert torch.equal(gram.triu(3), torch.zeros_like(gram))


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_single_precision_loses_no_digits_with_512_bases(offset):
    """Beyond those of the knots: rounded knots are knots, and both sides use the same ones."""
    p = tensors([Spline(512, domain=(offset - 1, offset + 1))], num_units=4)
    single = {name: tensor.float() for name, tensor in p.items()}
    double = {name: tensor.double() for name, tensor in single.items()}
    cut = torch.tensor([[offset - 0.3, offset + 0.40625]])
    for window in (EVERYWHERE, Window(upper=cut), Window(cut[:, :1], cut[:, 1:], power=2)):
        low = Spline(512).gram(single, single, window).value()
        high = Spline(512).gram(double, double, window).value()
        assert low.dtype == torch.float32
        error = (low.double() - high).norm() / high.norm()
        assert error < 1e-6
    exact = Spline(512).gram(p, p, EVERYWHERE).value()
    rounded = Spline(512).gram(single, single, EVERYWHERE).value()
    assert (rounded.double() - exact).norm() / exact.norm() < 1e-4


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_values_have_exact_gradients(order):
    families = splines(order)
    p = tensors(families, num_units=2)
    p["coefficient"][..., 1] = 0.0
    x = torch.tensor([[0.03, 0.77, 1.5], [-1.9, 2.2, 9.0]], dtype=torch.float64)

    def values(coefficient, x):
        return families[0].values({**p, "coefficient": coefficient}, x[..., None]).value()

    assert gradcheck(values, [p["coefficient"].requires_grad_(), x.requires_grad_()])


@pytest.mark.parametrize("power", [0, 1, 3])
def test_integrals_and_grams_have_exact_gradients_also_in_their_bounds(power):
    families = splines(2)
    p, q = tensors(families, num_units=2), tensors(families, num_units=1, seed=1)
    p["coefficient"][..., 1] = 0.0
    lower = torch.tensor([[0.03, 0.52], [-3.0, 1.1]], dtype=torch.float64)
    upper = torch.tensor([[0.77, 0.55], [2.2, 5.0]], dtype=torch.float64)
    inputs = [p["coefficient"], q["coefficient"], lower, upper]

    def gram(left, right, lower, upper):
        left, right = {**p, "coefficient": left}, {**q, "coefficient": right}
        return families[0].gram(left, right, Window(lower, upper, power)).value()

    def integral(left, lower, upper):
        window = Window(lower, upper, power)
        return families[0].integral({**p, "coefficient": left}, window).value()

    inputs = [tensor.requires_grad_() for tensor in inputs]
    assert gradcheck(gram, inputs)
    assert gradcheck(integral, [inputs[0], *inputs[2:]])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_bound_on_a_knot_has_the_density_as_its_derivative(order):
    """Two spans meet there, of which one may count; at the last knot it is the one inside."""
    p = tensors([splines(order)[1]], num_units=1)
    family = splines(order)[1]
    knots = torch.tensor([[*family.knots, family.domain[1]]], dtype=torch.float64)
    values = family.values(p, knots[..., None]).value()
    for sign, name in [(1, "upper"), (-1, "lower")]:
        bound = knots.clone().requires_grad_()
        family.gram(p, p, Window(**{name: bound})).value().sum().backward()
        expected = sign * values[..., 0] ** 2
        torch.testing.assert_close(bound.grad, expected, rtol=1e-11, atol=1e-13)


def test_non_negative_splines_are_exponentials_of_their_parameters():
    family, real = Spline(6, non_negative=True), Spline(6)
    p = tensors([family])
    positive = {"log_coefficient": p["coefficient"], "knots": p["knots"]}
    p = {**p, "coefficient": p["coefficient"].exp()}
    x = torch.linspace(-0.1, 1.1, 30, dtype=torch.float64)[None, :, None]
    assert family.is_non_negative
    assert not real.is_non_negative
    assert (family.values(positive, x).value() >= 0).all()
    for name, arguments in [("values", (x,)), ("integral", (EVERYWHERE,))]:
        result = getattr(family, name)(positive, *arguments).value()
        expected = getattr(real, name)(p, *arguments).value()
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    result = family.gram(positive, positive, EVERYWHERE).value()
    torch.testing.assert_close(result, real.gram(p, p, EVERYWHERE).value(), rtol=0, atol=0)
    positive["log_coefficient"].requires_grad_()
    gram = lambda log: family.gram(  # noqa: E731
        {**positive, "log_coefficient": log}, positive, EVERYWHERE
    ).value()
    assert gradcheck(gram, [positive["log_coefficient"]])


@pytest.mark.parametrize("non_negative", [False, True])
def test_the_start_is_uniform_and_repeats_with_the_seed(non_negative):
    family = Spline(1000, non_negative=non_negative)
    (start,) = family.init(3, torch.Generator().manual_seed(5)).values()
    (again,) = family.init(3, torch.Generator().manual_seed(5)).values()
    assert start.shape == (3, 1000)
    assert start.dtype == torch.float64
    assert torch.equal(start, again)
    coefficients = start.exp() if non_negative else start
    assert coefficients.min() > 0
    assert coefficients.max() <= 1
    assert abs(coefficients.mean() - 0.5) < 0.03  # five standard errors


def test_units_overlap_where_their_bases_share_a_span():
    coefficient = torch.zeros(1, 4, 8)
    for unit, base in enumerate([0, 2, 3, 7]):
        coefficient[0, unit, base] = -1.0
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]).bool()
    family = Spline(8, order=2)
    assert torch.equal(family.overlap({"coefficient": coefficient})[0], expected)
    # What overlaps is what has a product that is not zero somewhere.
    knots = family.constants(4)["knots"][None]
    x = torch.linspace(0, 1, 200, dtype=torch.float64)[None]
    present = spline_values(coefficient.double(), knots, x)[0] != 0
    assert torch.equal((present[:, :, None] & present[:, None, :]).any(0), expected)
    positive = Spline(8, order=2, non_negative=True)
    logs = torch.where(coefficient != 0, 0.5, -math.inf)
    assert torch.equal(positive.overlap({"log_coefficient": logs})[0], expected)


def test_intervals_and_knots_do_not_keep_splines_from_folding():
    first, second = splines(2)
    assert first.fold_key == second.fold_key
    others = [Spline(8), Spline(7, order=1), Spline(7, non_negative=True)]
    assert len({first.fold_key, *(family.fold_key for family in others)}) == 4
    assert first.num_states is None


def test_quantile_knots_follow_the_data():
    data = np.random.default_rng(0).exponential(size=(1000,))
    with_gaps = np.concatenate([data, [math.nan] * 10])
    family = Spline.from_quantiles(with_gaps, 12, order=3, margin=0.1)
    spread = data.max() - data.min()
    expected = (data.min() - 0.1 * spread, data.max() + 0.1 * spread)
    assert family.domain == pytest.approx(expected, rel=1e-14, abs=0)
    levels = np.arange(1, 9) / 9
    assert family.knots == pytest.approx(np.quantile(data, levels), rel=1e-14, abs=0)
    assert family.order == 3
    assert family == Spline.from_quantiles(torch.from_numpy(with_gaps), 12, order=3, margin=0.1)


@pytest.mark.parametrize(
    "column",
    [
        [0.0] * 90 + list(range(10)),
        [5.0] * 7,
        [0.0],
        [-3.0, math.nan],
        [1e6, 1e6, 1e6 + 1],
        [0, 1],
    ],
)
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_repeated_values_still_give_distinct_knots(column, margin):
    if margin == 0 and len(set(filter(lambda v: v == v, column))) == 1:
        with pytest.raises(ValueError, match="domain must be a finite interval"):
            Spline.from_quantiles(column, 12, margin=margin)
        return
    family = Spline.from_quantiles(column, 12, margin=margin)
    knots = family.constants(1)["knots"]
    assert len(family.knots) == 9
    assert (knots[2:-2].diff() > 0).all()
    p = {name: tensor[None] for name, tensor in family.init(2, None).items()}
    p["knots"] = knots[None]
    single = {name: tensor.float() for name, tensor in p.items()}
    for tensors_ in (p, single):
        gram = family.gram(tensors_, tensors_, EVERYWHERE).value()
        assert gram.isfinite().all()
        assert (gram.diagonal(dim1=-2, dim2=-1) > 0).all()


def test_non_negative_splines_can_have_quantile_knots():
    assert Spline.from_quantiles([0.0, 1.0, 2.0], 5, non_negative=True).is_non_negative


@pytest.mark.parametrize("column", [[], [math.nan], [0.0, math.inf]])
def test_quantiles_of_nothing_are_refused(column):
    with pytest.raises(ValueError, match=r"quantiles need finite values, got .* Give domain="):
        Spline.from_quantiles(column, 5)


@pytest.mark.parametrize("domain", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_intervals_that_are_none_are_refused(domain):
    with pytest.raises(ValueError, match=r"domain must be a finite interval a < b, got \("):
        Spline(5, domain=domain)


@pytest.mark.parametrize(
    "knots", [(0.5, 0.2), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0), (0.5, math.nan)]
)
def test_knots_that_do_not_increase_inside_the_domain_are_refused(knots):
    with pytest.raises(ValueError, match="knots must increase strictly and lie inside the domain"):
        Spline(5, knots=knots)


def test_a_wrong_number_of_knots_is_refused():
    with pytest.raises(ValueError, match="5 bases of order 2 need 2 interior knots .* got 3"):
        Spline(5, knots=(0.2, 0.4, 0.6))


def test_too_few_bases_and_negative_orders_are_refused():
    with pytest.raises(ValueError, match="num_bases must be a whole number of at least 3, got 2"):
        Spline(2)
    with pytest.raises(ValueError, match="num_bases must be a whole number of at least 3, got 2"):
        Spline.from_quantiles([0.0, 1.0], 2)
    with pytest.raises(ValueError, match="order must be a whole number of at least 0, got -1"):
        Spline(2, order=-1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match="variable 3 is continuous and needs finite values, got"):
        Spline(5).check(torch.tensor([0.0, value]), 3)


def test_values_outside_the_interval_are_impossible_but_no_mistake():
    Spline(5).check(torch.tensor([-1.0, 2.0]), 0)
