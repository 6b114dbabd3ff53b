import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import subtractive.inputs.gaussian_log_density as module
from subtractive.inputs.gaussian import pair_product
from subtractive.inputs.gaussian_log_density import (
    log_densities,
    log_density,
    log_overlaps,
)

REAL = torch.float64
CLOSE = {"rtol": 1e-13, "atol": 1e-13}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=REAL)


def units(regions, count, seed=0):
    return draw(regions, count, seed=seed), 0.5 * draw(regions, count, seed=seed + 1)


def slopes(function, tensors, weights):
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad((function(*tensors) * weights).sum(), tensors)


@pytest.mark.parametrize("chunk", [1, 20, 2**17])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (2, 1, 3), (2, 3, 1)])
def test_log_densities_and_their_slopes_are_those_of_the_formula(shape, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    regions, rows, count = shape
    inputs = [draw(regions, rows, 1, seed=5), *units(regions, count)]

    def formula(x, mean, log_scale):
        return log_density(x, mean[:, None], log_scale[:, None])

    torch.testing.assert_close(log_densities(*inputs), formula(*inputs), **CLOSE)
    weights = draw(*shape, seed=9)
    found, expected = (slopes(f, inputs, weights) for f in (log_densities, formula))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("chunk", [1, 20, 2**17])
@pytest.mark.parametrize("widths", [(3, 4), (1, 1), (5, 1)])
def test_log_overlaps_and_their_slopes_are_those_of_the_product(widths, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    inputs = [*units(3, widths[0]), *units(3, widths[1], seed=3)]

    def found(mean, log_scale, *others):
        return log_overlaps(mean, log_scale, others)

    def formula(mean, log_scale, *others):
        p, q = (
            dict(zip(("mean", "log_scale"), pair, strict=True))
            for pair in ((mean, log_scale), others)
        )
        return pair_product(p, q).log_weight[:, 0]

    torch.testing.assert_close(found(*inputs), formula(*inputs), **CLOSE)
    weights = draw(3, *widths, seed=9)
    for one, other in zip(
        slopes(found, inputs, weights), slopes(formula, inputs, weights), strict=True
    ):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("chunk", [1, 2**17])
def test_log_densities_are_differentiable_twice(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    inputs = [t.requires_grad_() for t in (draw(2, 3, 1, seed=5), *units(2, 2))]
    assert gradcheck(log_densities, inputs, rtol=1e-6, atol=1e-8)
    assert gradgradcheck(log_densities, inputs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("chunk", [1, 2**17])
def test_log_overlaps_are_differentiable_twice(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    inputs = [t.requires_grad_() for t in (*units(2, 2), *units(2, 3, seed=3))]

    def function(mean, log_scale, *others):
        return log_overlaps(mean, log_scale, others)

    assert gradcheck(function, inputs, rtol=1e-6, atol=1e-8)
    assert gradgradcheck(function, inputs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("away", [1e4, 1e8])
def test_densities_far_away_keep_their_digits(away):
    mean, log_scale = torch.tensor([[0.3]], dtype=REAL), torch.tensor([[-2.0]], dtype=REAL)
    x = mean[:, None] + away * math.exp(-2.0)
    with mpmath.workdps(50):
        z = (mpmath.mpf(x.item()) - mpmath.mpf(0.3)) * mpmath.exp(2)
        expected = float(-(z**2) / 2 + 2 - mpmath.log(2 * mpmath.pi) / 2)
        steep = float(z * mpmath.exp(2))
    found = log_densities(x, mean, log_scale)
    torch.testing.assert_close(found.item(), expected, rtol=1e-14, atol=0)
    slope = slopes(log_densities, (x, mean, log_scale), torch.ones(1, 1, 1))[1]
    torch.testing.assert_close(slope.item(), steep, rtol=1e-14, atol=0)


def test_single_precision_keeps_its_digits_far_from_zero():
    x, mean = torch.tensor([[[10000.5]]]), torch.tensor([[10000.0]])
    log_scale = torch.zeros(1, 1)
    expected = -0.125 - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(
        log_densities(x, mean, log_scale).item(), expected, rtol=1e-6, atol=0
    )
    slope = slopes(log_densities, (x, mean, log_scale), torch.ones(1, 1, 1))
    torch.testing.assert_close(slope[1].item(), 0.5, rtol=1e-6, atol=0)
    torch.testing.assert_close(slope[2].item(), -0.75, rtol=1e-6, atol=0)


@pytest.mark.parametrize("log_scale", [(-290.0, 290.0), (-900.0, -400.0), (500.0, 1000.0)])
def test_overlaps_of_very_narrow_and_wide_units_are_exact(log_scale):
    pair = torch.zeros(1, 2, dtype=REAL), torch.tensor([log_scale], dtype=REAL)
    found = log_overlaps(*pair, pair)
    with mpmath.workdps(700):
        for i in range(2):
            for j in range(2):
                total = mpmath.exp(2 * log_scale[i]) + mpmath.exp(2 * log_scale[j])
                expected = float(-mpmath.log(2 * mpmath.pi * total) / 2)
                torch.testing.assert_close(found[0, i, j].item(), expected, rtol=1e-14, atol=0)


def test_only_log_scales_of_a_common_range_are_taken():
    near, far = torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [0.0, 601.0]])
    assert log_overlaps(near, near, (near, near)) is not None
    assert log_overlaps(near, near, (near, far)) is None


@pytest.mark.parametrize("chunk", [1, 2**17])
def test_overlaps_of_units_with_themselves_have_the_slopes_of_both_sides(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    inputs = [t.requires_grad_() for t in units(3, 4)]

    def alone(mean, log_scale):
        return log_overlaps(mean, log_scale, (mean, log_scale))

    def copied(mean, log_scale):
        return log_overlaps(mean, log_scale, (mean.clone(), log_scale.clone()))

    weights = draw(3, 4, 4, seed=9)  # not symmetric
    torch.testing.assert_close(alone(*inputs), copied(*inputs), **CLOSE)
    for one, other in zip(
        slopes(alone, inputs, weights), slopes(copied, inputs, weights), strict=True
    ):
        torch.testing.assert_close(one, other, **CLOSE)
    assert gradgradcheck(alone, inputs, rtol=1e-6, atol=1e-8)
