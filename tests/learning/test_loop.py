"""Training improves, keeps the best weights, and survives what goes wrong."""

import copy
import math

import pytest
import torch

import subtractive as sub
from subtractive.learning import loop
from subtractive.learning.objective import mean_log_likelihood, negative_log_likelihood
from subtractive.queries.evidence import make_evidence


def model(seed=0, d=2):
    graph = sub.random_binary_tree(d, seed=0)
    return sub.SquaredCircuit(
        sub.Circuit(graph, sub.Gaussian(), num_units=4, seed=seed, dtype=torch.float64)
    )


def table(n=200, d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * 0.5 + 1


def evidence(density, x):
    return make_evidence(x, None, density.families, density.device)


def test_the_objective_is_the_mean_negative_log_likelihood():
    density, x = model(), table()
    x[0, 1] = math.nan
    loss = negative_log_likelihood(density, evidence(density, x))
    torch.testing.assert_close(loss, -density.log_prob(x).mean(), rtol=1e-12, atol=1e-12)
    score = mean_log_likelihood(density, evidence(density, x))
    assert score == pytest.approx(-loss.item(), rel=1e-12)


def test_training_reaches_the_likelihood_of_the_truth():
    density = model()
    sub.fit(density, table(2000), learning_rate=0.05, max_epochs=40, progress=False)
    test = table(4000, seed=1)
    truth = torch.distributions.Normal(1.0, 0.5).log_prob(test).sum(1).mean()
    # The standard error of the mean over 4000 rows is 0.016.
    assert density.log_prob(test).mean() > truth - 0.03


def test_the_best_weights_on_validation_are_kept():
    density = model()
    train, valid = table(20), table(200, seed=1)
    history = sub.fit(
        density, train, valid, learning_rate=0.3, max_epochs=30, patience=30, progress=False
    )
    best = max(history.valid)
    assert history.valid[history.best_epoch - 1] == best
    assert density.log_prob(valid).mean().item() == pytest.approx(best, rel=1e-12)


def test_a_start_that_cannot_be_improved_is_kept():
    density = model()
    sub.fit(density, table(500), learning_rate=0.05, max_epochs=30, progress=False)
    before = copy.deepcopy(density.state_dict())
    history = sub.fit(
        density, table(500), table(500, seed=9), learning_rate=5.0, max_epochs=3, progress=False
    )
    assert history.best_epoch == 0
    assert all(torch.equal(before[name], value) for name, value in density.state_dict().items())


def test_training_stops_when_patience_runs_out():
    density = model()
    history = sub.fit(
        density, table(50), learning_rate=1.0, max_epochs=200, patience=3, progress=False
    )
    assert len(history.train) == history.best_epoch + 3 < 200


def test_the_same_seed_trains_to_the_same_weights():
    first, second = model(), model()
    for density in (first, second):
        sub.fit(density, table(), max_epochs=3, seed=7, progress=False)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_steps_that_are_not_finite_are_skipped_and_counted(monkeypatch):
    density = model()
    calls = iter(range(1000))

    def sometimes_broken(model, batch):
        loss = negative_log_likelihood(model, batch)
        return loss * math.nan if next(calls) % 2 else loss

    monkeypatch.setattr(loop, "negative_log_likelihood", sometimes_broken)
    history = sub.fit(density, table(100), batch_size=10, max_epochs=2, progress=False)
    assert history.skipped_steps == 10
    assert all(parameter.isfinite().all() for parameter in density.parameters())


def test_steps_at_which_z_cancels_are_skipped(monkeypatch):
    density = model()

    def cancelled(model, batch):
        raise sub.CancellationError

    monkeypatch.setattr(loop, "negative_log_likelihood", cancelled)
    before = copy.deepcopy(density.state_dict())
    history = sub.fit(density, table(100), batch_size=50, max_epochs=1, progress=False)
    assert history.skipped_steps == 2
    assert all(torch.equal(before[name], value) for name, value in density.state_dict().items())


def test_an_interrupt_keeps_the_best_weights_so_far(monkeypatch):
    density = model()
    start = density.log_prob(table()).mean()
    whole_epoch = loop._epoch
    calls = iter(range(1000))

    def interrupted(*arguments):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return whole_epoch(*arguments)

    monkeypatch.setattr(loop, "_epoch", interrupted)
    history = sub.fit(density, table(), max_epochs=50, progress=False)
    assert len(history.train) == 2
    assert density.log_prob(table()).mean() > start


def test_mixtures_and_monotonic_circuits_train_too():
    positive = sub.Circuit(
        sub.flat(2), sub.Gaussian(), num_units=3, weights=sub.positive_weights, seed=0
    )
    for density in (sub.MonotonicCircuit(positive), sub.Mixture([model(0), model(1)])):
        history = sub.fit(density, table(), max_epochs=3, progress=False)
        assert history.train[-1] > history.train[0]


def test_an_empty_table_is_refused():
    with pytest.raises(ValueError, match="at least one row of data, got an empty table"):
        sub.fit(model(), torch.zeros(0, 2))
