"""The paper's synthetic sets are standardised, and their densities are known."""

import numpy as np
import pytest
import torch
from oracles import integral_over_rectangle

from studies.data.synthetic import SHAPES, draw, find_map
from subtractive.data.synthetic import funnel


@pytest.mark.parametrize("name", SHAPES)
def test_draws_are_standardised_and_keep_their_density(name):
    data = draw(name, (4000, 500, 500), seed=1)
    mean, spread = data.train.mean(0), data.train.std(0, correction=0)
    torch.testing.assert_close(mean, torch.zeros(2).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(spread, torch.ones(2).double(), rtol=0, atol=1e-12)
    assert [len(part) for part in data[:3]] == [4000, 500, 500]
    total = integral_over_rectangle(data.log_density, (-9.001, -9.001), (9.0, 9.0), points=801)
    np.testing.assert_allclose(total, 1, rtol=0, atol=5e-3)
    # The mean of a log-density over its own sample is its negative entropy, whatever the split.
    scores = [data.log_density(part) for part in data[:3]]
    error = sum(float(score.var()) / len(score) for score in scores[:2]) ** 0.5
    assert abs(float(scores[0].mean() - scores[1].mean())) < 5 * error


def test_the_cosine_and_the_funnel_are_turned_by_an_eighth():
    raw, turned = funnel(500, seed=2), draw("funnel", (400, 50, 50), seed=2)
    rotation = torch.tensor([[1.0, -1.0], [1.0, 1.0]]).double() / np.sqrt(2)
    expected = (raw - raw.mean(0)) @ rotation.T + raw.mean(0)  # about the sample mean
    expected = (expected - expected[:400].mean(0)) / expected[:400].std(0, correction=0)
    torch.testing.assert_close(torch.cat(turned[:3]), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    [name if name == "banana" else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES],
)
def test_the_map_of_strange_rows_is_found(name):
    data = draw(name, (3000, 500, 500), seed=4)
    every = torch.cat(data[:3])
    found = find_map(name, every).log_density(SHAPES[name].log_density)
    # Four numbers fitted to 4000 rows gain 4 / 8000 nats, give or take as much again.
    difference = float(found(every).mean() - data.log_density(every).mean())
    assert -1e-4 < difference < 4e-3
