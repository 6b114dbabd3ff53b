"""Means of standardised columns in closed form, against quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from subtractive.tables.affine_means import AffineMean
from subtractive.tables.transforms import Affine

TRANSFORM = Affine(2.0, 3.0, 8.0)


@pytest.mark.parametrize("bounds", [(-math.inf, math.inf), (-0.5, math.inf), (-1.0, 1.5)])
@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (7.5, 1.0), (-9.0, 0.5), (1.0, 3.0)])
def test_a_mean_is_an_integral(bounds, mean, scale):
    question = AffineMean(None, TRANSFORM, bounds)
    row = torch.tensor([[mean]], dtype=torch.float64)
    width = torch.tensor([scale], dtype=torch.float64)
    total, found = question.of_gaussians(torch.full_like(row, 2.0), row, width)[0].tolist()

    def height(code):
        number = TRANSFORM.inverse(np.clip(np.array([code]), *bounds))[0]
        return number * norm.pdf(code, mean, scale)

    ends = mean - 14 * scale, mean + 14 * scale
    bends = [end for end in (*bounds, -8.0, 8.0) if ends[0] < end < ends[1]]
    assert total == 2.0
    assert found == pytest.approx(2 * quad(height, *ends, points=bends, limit=500)[0], rel=1e-9)
