"""Training improves, keeps the best weights, and survives what goes wrong."""

import copy
import io
import math
import os
import signal
import time

import pytest
import torch

import subtractive as sub
from subtractive.learning import run, step
from subtractive.learning.objective import negative_log_likelihood


def model(seed=0, d=2):
    graph = sub.random_binary_tree(d, seed=0)
    return sub.SquaredCircuit(
        sub.Circuit(graph, sub.Gaussian(), num_units=4, seed=seed, dtype=torch.float64)
    )


def table(n=200, d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * 0.5 + 1


def test_training_reaches_the_likelihood_of_the_truth():
    density = model()
    sub.fit(density, table(2000), learning_rate=0.05, max_epochs=15, progress=False)
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


def break_steps(monkeypatch, is_broken):
    """Make the loss of some steps, by their number, not a number."""
    calls = iter(range(10**6))

    def objective(density, batch):
        loss = negative_log_likelihood(density, batch)
        return loss * math.nan if is_broken(next(calls)) else loss

    monkeypatch.setattr(step, "negative_log_likelihood", objective)


def same(before, density):
    return all(torch.equal(before[name], value) for name, value in density.state_dict().items())


def test_steps_that_are_not_finite_are_skipped_and_counted(monkeypatch):
    density = model()
    break_steps(monkeypatch, lambda number: number % 2)
    history = sub.fit(density, table(100), batch_size=10, max_epochs=2, progress=False)
    assert history.skipped_steps == 10
    assert history.restarts == 0
    assert all(parameter.isfinite().all() for parameter in density.parameters())


def test_steps_at_which_z_cancels_are_skipped(monkeypatch):
    density = model()

    def cancelled(model, batch):
        raise sub.CancellationError

    monkeypatch.setattr(step, "negative_log_likelihood", cancelled)
    before = copy.deepcopy(density.state_dict())
    history = sub.fit(density, table(100), batch_size=50, max_epochs=1, progress=False)
    assert history.skipped_steps == 2
    assert history.train == [-math.inf]
    assert same(before, density)


def test_repeated_failures_restart_from_the_best_weights_at_a_smaller_rate(monkeypatch):
    density = model()
    break_steps(monkeypatch, lambda number: 20 <= number < 30)
    with pytest.warns(sub.TrainingWarning, match="10 steps in a row .* learning rate of 0.006"):
        history = sub.fit(density, table(100), batch_size=10, max_epochs=6, progress=False)
    assert history.restarts == 1
    assert history.skipped_steps == 10
    assert [row.learning_rate for row in history.epochs] == pytest.approx([0.03] * 2 + [0.006] * 4)
    assert history.valid[-1] > history.valid[0]


def test_a_restart_scales_the_rates_of_any_scheduler(monkeypatch):
    density = model()
    break_steps(monkeypatch, lambda number: 15 <= number < 25)
    with pytest.warns(sub.TrainingWarning, match="10 steps in a row"):
        history = sub.fit(
            density,
            table(100),
            batch_size=10,
            max_epochs=4,
            scheduler=lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3], gamma=0.5),
            progress=False,
        )
    rates = [row.learning_rate for row in history.epochs]
    assert rates == pytest.approx([0.03, 0.03, 0.006, 0.003])


def test_training_is_given_up_when_every_step_fails(monkeypatch):
    density = model()
    before = copy.deepcopy(density.state_dict())
    break_steps(monkeypatch, lambda number: True)
    with pytest.warns(sub.TrainingWarning) as caught:
        history = sub.fit(
            density, table(100), batch_size=10, max_epochs=99, patience=99, progress=False
        )
    assert history.stopped == "too many failures"
    assert "given up: after 6 restarts" in str(caught[-1].message)
    assert len(history.epochs) == 7
    assert same(before, density)


def test_weights_that_a_step_has_ruined_are_never_kept():
    density = model()
    with pytest.warns(sub.TrainingWarning, match="10 steps in a row"):
        history = sub.fit(
            density,
            table(100),
            batch_size=10,
            max_epochs=3,
            optimizer=lambda p: torch.optim.SGD(p, lr=1e200),
            progress=False,
        )
    assert history.skipped_steps >= 20
    assert density.log_prob(table()).isfinite().all()


@pytest.fixture
def interrupts():
    """Ctrl-C as in a terminal: processes in the background are started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_keeps_the_best_weights_so_far():
    density = model()
    start = density.log_prob(table()).mean()

    def interrupt(density, history):
        if len(history.epochs) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    history = sub.fit(density, table(), max_epochs=50, callbacks=[interrupt], progress=False)
    assert history.stopped == "interrupted"
    assert len(history.epochs) == 2
    assert density.log_prob(table()).mean() > start


def test_an_error_on_the_way_keeps_the_best_weights_and_says_so():
    density = model()
    start = density.log_prob(table()).mean()

    def batches():
        yield from table(64).split(32)
        raise OSError("the disk is gone")

    epochs = iter(range(9))

    def healthy_then_broken():
        return table(64).split(32) if next(epochs) < 3 else batches()

    with pytest.raises(OSError, match="the disk is gone") as caught:
        sub.fit(density, healthy_then_broken, table(), learning_rate=0.1, progress=False)
    assert "best weights so far" in caught.value.__notes__[0]
    assert density.log_prob(table()).mean() > start


def test_training_ends_when_its_time_is_up_in_the_middle_of_an_epoch():
    density = model()
    history = sub.fit(
        density, table(20_000), batch_size=4, max_epochs=9, max_seconds=0.3, progress=False
    )
    assert history.stopped == "max_seconds"
    assert len(history.epochs) == 1
    assert 0.3 <= history.seconds < 10


def test_a_callback_sees_every_epoch_and_may_stop():
    density, seen = model(), []

    def stop_at_three(density, history):
        seen.append((density, len(history.epochs)))
        return len(history.epochs) == 3

    history = sub.fit(density, table(), callbacks=[stop_at_three], progress=False)
    assert seen == [(density, 1), (density, 2), (density, 3)]
    assert history.stopped == "callback"


def test_the_rate_decays_when_the_score_stands_still():
    density = model()
    history = sub.fit(
        density, table(40), learning_rate=1.0, decay=0.1, patience=6, max_epochs=60, progress=False
    )
    rates = [row.learning_rate for row in history.epochs]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] <= 0.1 * rates[0]


def test_without_decay_the_rate_stays():
    history = sub.fit(model(), table(40), learning_rate=1.0, decay=1.0, patience=6, progress=False)
    assert {row.learning_rate for row in history.epochs} == {1.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4),
    ],
    ids=["sgd", "adamw", "fused", "rmsprop", "lbfgs"],
)
def test_any_optimiser_trains(make):
    by_function, by_object = model(), model()
    given = make(by_object.parameters())
    for density, optimizer in ((by_function, make), (by_object, given)):
        history = sub.fit(density, table(), optimizer=optimizer, max_epochs=5, progress=False)
        assert history.best_score > history.epochs[0].train
    pairs = zip(by_function.parameters(), by_object.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    ],
    ids=["cosine", "exponential", "plateau"],
)
def test_any_scheduler_sets_the_rate(make):
    history = sub.fit(model(), table(), scheduler=make, max_epochs=4, progress=False)
    assert len(history.epochs) == 4
    if not isinstance(make(torch.optim.SGD([torch.zeros(1)])), run.ReduceLROnPlateau):
        assert history.epochs[-1].learning_rate < history.epochs[0].learning_rate == 0.03


def test_a_plateau_scheduler_of_the_user_counts_a_falling_score_as_worse():
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau
    history = sub.fit(
        model(),
        table(40),
        learning_rate=1.0,
        patience=8,
        scheduler=lambda o: reference(o, "min", 0.1, patience=2),
        progress=False,
    )
    stale = [row for row in history.epochs if row.epoch > history.best_epoch + 4]
    assert all(row.learning_rate <= 0.1 for row in stale)
    assert stale


def test_a_clipped_gradient_is_no_longer_than_allowed():
    density = model()
    before = copy.deepcopy(density.state_dict())
    sub.fit(
        density,
        table(),
        batch_size=200,
        max_epochs=1,
        clip_norm=1e-3,
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        progress=False,
    )
    moves = [(density.state_dict()[name] - value).flatten() for name, value in before.items()]
    assert torch.cat(moves).norm().item() == pytest.approx(1e-3, rel=1e-4)


def test_the_history_is_a_table():
    history = sub.fit(model(), table(), max_epochs=3, progress=False)
    lines = str(history).splitlines()
    assert lines[0].split() == ["epoch", "train", "valid", "rate", "skipped", "seconds"]
    assert len(lines) == 1 + 3 + 1
    assert lines[-1] == "stopped: max_epochs"
    assert history.epochs[0]._fields[:3] == ("epoch", "train", "valid")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_both_likelihoods(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    sub.fit(model(), table(), table(50, seed=1), max_epochs=2)
    last = shown.getvalue().splitlines()[-1]
    assert "2/2" in last
    assert "train=" in last
    assert "valid=" in last


def test_progress_is_quiet_where_nobody_watches(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    sub.fit(model(), table(), max_epochs=2)
    assert written.getvalue() == ""


def test_mixtures_and_monotonic_circuits_train_too():
    positive = sub.Circuit(
        sub.flat(2), sub.Gaussian(), num_units=3, weights=sub.positive_weights, seed=0
    )
    for density in (sub.MonotonicCircuit(positive), sub.Mixture([model(0), model(1)])):
        history = sub.fit(density, table(), max_epochs=3, progress=False)
        assert history.train[-1] > history.train[0]


def test_missing_entries_train_on_the_marginal_likelihood():
    gaps = torch.rand(1000, 2, generator=torch.Generator().manual_seed(3)) < 0.4
    train = table(1000).masked_fill(gaps, math.nan)
    density = model()
    sub.fit(density, train, learning_rate=0.05, max_epochs=15, progress=False)
    test = table(4000, seed=1)
    truth = torch.distributions.Normal(1.0, 0.5).log_prob(test).sum(1).mean()
    assert density.log_prob(test).mean() > truth - 0.05


def gradient_step(x, weights=None):
    """Minus the gradient of the objective on all rows at once: a step of rate one."""
    density = model()
    before = torch.cat([parameter.detach().flatten() for parameter in density.parameters()])
    options = {"optimizer": lambda p: torch.optim.SGD(p, lr=1.0), "max_epochs": 1}
    seen = []

    def look(density, history):
        seen.extend(parameter.detach().flatten() for parameter in density.parameters())

    sub.fit(
        density, x, weights=weights, batch_size=99, callbacks=[look], progress=False, **options
    )
    return torch.cat(seen) - before


def test_a_row_of_weight_two_counts_as_two_rows():
    x = table(50)
    weights = torch.ones(50)
    weights[:10] = 2
    weights[40:] = 0
    twice = torch.cat([x[:40], x[:10]])
    torch.testing.assert_close(
        gradient_step(x, weights), gradient_step(twice), rtol=1e-12, atol=1e-12
    )
    assert gradient_step(twice).norm() > 0.1


BAD = {
    "an empty table": ((torch.zeros(0, 2),), {}, "at least one row of data: got an empty table"),
    "no weight": ((table(),), {"weights": [0] * 200}, "all weights are zero"),
    "too few weights": ((table(),), {"weights": [1.0]}, r"expected shape \(200,\), got \(1,\)"),
    "a negative weight": ((table(),), {"weights": [-1] * 200}, "finite and not negative"),
    "weights of words": ((table(),), {"weights": ["a"] * 200}, "one per row"),
    "a number": ((3,), {}, "a table of numbers .* got int"),
    "too many columns": ((torch.zeros(4, 3),), {}, r"shape \(rows, 2\)"),
    "an infinite entry": ((torch.full((4, 2), math.inf),), {}, "needs finite values"),
    "an iterator": ((iter([table()]),), {}, "can be read once, but max_epochs is 100"),
    "validation by iterator": ((table(), iter([table()])), {}, "valid is read after every epoch"),
    "weights of a stream": (([table()],), {"weights": [1]}, "a stream brings its own"),
    "weights without valid": ((table(),), {"valid_weights": [1]}, "valid, which is not given"),
    "three arrays": (([(table(), table(), table())],), {}, "batch 0 of the stream: .* 3 arrays"),
    "an empty stream": (([torch.zeros(0, 2)],), {}, "the stream was empty"),
    "batch size": ((table(),), {"batch_size": 0}, "batch_size must be a whole number"),
    "epochs": ((table(),), {"max_epochs": 1.5}, "max_epochs must be a whole number"),
    "patience": ((table(),), {"patience": True}, "patience must be a whole number"),
    "time": ((table(),), {"max_seconds": -1}, "max_seconds must be positive"),
    "clip": ((table(),), {"clip_norm": 0.0}, "clip_norm must be positive"),
    "rate": ((table(),), {"learning_rate": -1.0}, "learning_rate must be a positive number"),
    "decay": ((table(),), {"decay": 2.0}, "decay must be above 0 and at most 1"),
    "resume nowhere": ((table(),), {"resume": True}, "checkpoint=path, which is not given"),
    "an optimiser": ((table(),), {"optimizer": lambda p: 3}, "optimizer must be a torch"),
    "a scheduler": ((table(),), {"scheduler": lambda o: 3}, "scheduler must be a torch"),
    "another model's optimiser": (
        (table(),),
        {"optimizer": torch.optim.SGD([torch.zeros(1)])},
        "none of the density's parameters",
    ),
}


@pytest.mark.parametrize(("data", "options", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_and_nothing_changes(data, options, message):
    density = model()
    before = copy.deepcopy(density.state_dict())
    with pytest.raises(ValueError, match=message):
        sub.fit(density, *data, progress=False, **options)
    assert same(before, density)
