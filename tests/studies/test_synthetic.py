"""The paper's synthetic sets are standardised, and their densities are known."""

import numpy as np
import pytest
import torch
from oracles import integral_over_rectangle

import subtractive as sub
from studies.data.synthetic import SHAPES, draw, find_map
from studies.models.training import PaperSchedule, train_ensemble
from studies.paper.synthetic_continuous import SyntheticContinuous
from studies.paper.synthetic_models import build
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


def test_the_paper_s_protocol_starts_uniform_and_ends_by_patience(tmp_path):
    small = {"sets": ("banana",), "shown_units": (2,), "models": ("NPC²",), "seeds": (0, 1)}
    experiment = SyntheticContinuous(**small, rows=(300, 100, 100), num_bases=6)
    changes = experiment.paper() | {"units": (2,), "models": ("NPC²",), "epochs": 10}
    chosen = experiment.changed(changes | {"patience": 3, "learning_rate": 1e-9})
    assert (chosen.protocol, chosen.batch_size) == ("paper", 256)
    assert experiment.paper()["learning_rate"] == 0.001
    result = chosen.perform(chosen.runs()[0], lambda ending: tmp_path / f"run.{ending}")
    # At so small a rate no score improves by a thousandth within three epochs of the start.
    assert [member["epoch"] for member in result["members"]] == [0, 0]
    table = sub.load(tmp_path / "run.model").circuit.input_layers[0].get_tensor("coefficient")
    table = table.detach()
    assert 0 < float(table.min()) < float(table.max()) <= 1


def test_members_lose_patience_one_by_one():
    splines = [sub.Spline(6, domain=(-3.0, 3.0))] * 2
    rows = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).clamp(-3, 3).double()
    members = [build("NPC²", splines, 2, seed) for seed in (0, 1)]
    data = (rows, rows[:100], rows[100:])
    long = train_ensemble(members, data, PaperSchedule(30, 0.02, 100, 30), seeds=[0, 1])
    assert all(fitted.epoch > 5 for fitted in long)
    members = [build("NPC²", splines, 2, seed) for seed in (0, 1)]
    for fitted in train_ensemble(members, data, PaperSchedule(30, 1e-6, 100, 2), seeds=[0, 1]):
        assert fitted.epoch == 0
