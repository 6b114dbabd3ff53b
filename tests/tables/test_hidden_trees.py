"""Mixtures of hidden trees of tables: what they cost, what they withstand, what they are."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from frames import validation_rows

import subtractive as sub
from subtractive.learning.history import History
from subtractive.tables import model_selection, tree_training
from subtractive.tables.broad_component import BROAD_SHARE
from subtractive.tables.effort import EFFORTS, Budget, EndOf, seconds_of
from subtractive.tables.hidden_trees import (
    LUCK,
    MEMBERS,
    REACH_OF_TRIAL,
    WORTHWHILE,
    HiddenTrees,
)
from subtractive.tables.schema import Schema
from subtractive.tables.training_data import Data, encode_rows
from subtractive.tables.tree_training import TreeTraining
from subtractive.tables.validation import read_table


def frame_of(count=600, seed=0):
    random = np.random.default_rng(seed)
    group = random.choice(["a", "b", "c"], count)
    place = np.select([group == "a", group == "b"], [0.0, 4.0], -3.0)
    size = np.where(random.random(count) < 0.4, 0.0, np.exp(random.normal(size=count)))
    return pd.DataFrame({"group": group, "place": place + random.normal(size=count), "size": size})


# Trained briefly; real tables are learned to the end where slow tests run.
BRIEF = {"effort": 20, "max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return sub.SubtractiveMixture(**BRIEF).fit(frame_of())


def test_a_mixed_table_is_a_mixture_of_trees_and_a_broad_component(fitted):
    assert isinstance(fitted.density_, sub.Mixture)
    assert all(isinstance(part, sub.MonotonicCircuit) for part in fitted.density_.members)
    weights = fitted.density_.logits.detach().softmax(0)
    assert weights[-1] == pytest.approx(BROAD_SHARE)
    total = fitted.density_.log_partition().detach()
    torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-9)


def test_it_knows_what_depends_on_what(fitted):
    at = fitted.mean(given={"group": "b"})["place"]
    assert at == pytest.approx(4.0, abs=0.4)
    drawn = fitted.sample(2000, random_state=0)
    assert (drawn["size"] == 0).mean() == pytest.approx(0.4, abs=0.06)
    assert drawn.groupby("group")["place"].mean()["c"] == pytest.approx(-3.0, abs=0.4)


def test_the_score_of_the_history_is_that_of_held_out_rows(fitted):
    fresh = frame_of(2000, seed=1)
    assert fitted.history_.best_score == pytest.approx(fitted.score(fresh), abs=0.5)


def test_the_same_seed_gives_the_same_model():
    frame, settings = frame_of(100), {**BRIEF, "max_epochs": 1}
    one, two = (sub.SubtractiveMixture(**settings).fit(frame) for _ in "ab")
    np.testing.assert_allclose(one.score_samples(frame), two.score_samples(frame), rtol=1e-12)


@pytest.mark.parametrize("where", ["train", "validation"])
def test_one_row_far_away_changes_little(where, fitted):
    """1,000 standard deviations away, in a row that is learned from or that judges."""
    frame, fresh = frame_of(), frame_of(300, seed=1)
    held_out = set(validation_rows(fitted, frame)[0].index)
    row = next(k for k in range(len(frame)) if (k in held_out) == (where == "validation"))
    frame.loc[row, "place"] = 4000.0
    model = sub.SubtractiveMixture(**BRIEF).fit(frame)
    assert abs(model.score(fresh) - fitted.score(fresh)) < 0.02 * 3  # columns
    assert model.score_samples(frame.loc[[row]])[0] > -60


def test_one_row_far_away_costs_tens_of_nats(fitted):
    far = frame_of().iloc[:1].assign(place=4000.0)
    assert fitted.score_samples(far)[0] > -60


def test_a_budget_is_of_processor_time():
    budget = Budget(0.05)
    assert budget.left > 0
    while budget.left > 0:
        sum(range(1000))
    assert budget.used >= 0.05


@pytest.mark.parametrize("effort", ["slow", 0, -1.0, True, float("inf"), float("nan"), None])
def test_an_effort_is_a_word_or_seconds(effort):
    with pytest.raises(ValueError, match="effort must be one of 'fast', 'balanced', 'best'"):
        seconds_of(effort)
    with pytest.raises(ValueError, match="effort must be one of"):
        sub.SubtractiveMixture(effort=effort).fit(frame_of(60))


def test_larger_tables_take_longer_unless_seconds_are_given():
    assert seconds_of("balanced", 10) == seconds_of("balanced")
    assert seconds_of("balanced", 1_200_000) == 2 * seconds_of("balanced")
    assert seconds_of(7, 1_200_000) == 7


@pytest.mark.parametrize("errors", [0.0, math.inf])
def test_squares_replace_sums_where_held_out_rows_prefer_them(errors, monkeypatch):
    """By so many standard errors: sums that have learned little are easy to improve."""
    monkeypatch.setitem(EFFORTS, "best", 6.0)
    monkeypatch.setattr(model_selection, "ERRORS", errors)
    monkeypatch.setattr(model_selection, "RATE_OF_SQUARES", 0.03)
    monkeypatch.setattr(tree_training, "MAX_EPOCHS", 1)
    frame = frame_of(400)
    model = sub.SubtractiveMixture(effort="best", random_state=0).fit(frame)
    squares = [part for part in model.density_.members if isinstance(part, sub.SquaredCircuit)]
    history = model.history_
    assert history.num_squared == len(squares)
    assert (len(squares) > 0) == (errors == 0)
    assert history.gain_of_squares > 0
    kept = f"{len(squares)} kept" if squares else "not kept"
    assert f"squares against sums: {history.gain_of_squares:+.4f} nats, {kept}" in str(history)
    assert History.from_dict(history.to_dict()) == history
    held_out = validation_rows(model, frame)[0]
    assert history.best_score == pytest.approx(model.score(held_out), abs=1e-4)


def test_squares_are_tried_with_much_time_only(fitted):
    assert fitted.history_.gain_of_squares is None
    assert "squares" not in str(fitted.history_)


def test_a_step_of_all_rows_gives_single_columns_their_shares():
    """Small batches leave them off by the noise of the last ones."""
    frame = frame_of()
    table, weights = read_table(frame), np.ones(len(frame))
    schema = Schema.of(table, weights, None, "missing")
    data = Data.of(schema.variables, encode_rows(schema, table, weights), None, 0)
    training = TreeTraining(data, max_epochs=2, seed=0)
    tree = training.tree(8, 0, 1.0)
    column, known = schema.place["group"], data.train.weights / data.train.weights.sum()
    states = torch.full((3, 3), math.nan, dtype=torch.float64)
    states[:, column] = torch.arange(3.0)
    shares = torch.stack([known[data.train.x[:, column] == state].sum() for state in range(3)])
    errors = []
    for train in (training.by_small_steps, training.by_whole_steps):
        train(tree, 0, Budget(100.0))
        errors.append(float((tree.log_prob(states).detach().exp() - shares).abs().max()))
    assert errors[0] > 0.005
    assert errors[1] < 0.001


def test_rare_classes_have_places_of_their_own():
    """Forty of 1,500 rows are far from all others in two columns."""
    random = np.random.default_rng(0)
    rare = np.arange(1500) < 40
    x = np.where(rare, -1.5, random.normal(2.0, 2.0, 1500)) + random.normal(0, 0.5, 1500)
    y = np.where(rare, -2.0, 0.5 * x) + random.normal(0, 0.7, 1500)
    other = random.choice(["sun", "rain", "fog"], 1500, p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame({"x": x, "y": y, "kind": np.where(rare, "snow", other)})
    model = sub.SubtractiveMixture(effort=8, random_state=0).fit(frame)
    for column in "xy":
        own = frame.loc[rare, column]
        error = own.std() / math.sqrt(len(own))
        mean = model.mean(given={"kind": "snow"})[column]
        assert abs(mean - own.mean()) < 4 * error


class Clock:
    """Processor time that passes only when it is told to."""

    now = 0.0

    def __call__(self):
        return self.now


def test_training_ends_before_an_epoch_that_would_last_too_long(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("subtractive.tables.effort.time.process_time", clock)
    budget = Budget(10.0, used=1.0)
    end = EndOf(budget, epochs=1)
    history = History()
    seen = []
    for _ in range(4):
        clock.now += 2.5
        history.epochs.append(None)
        seen.append(end(None, history))
    assert seen == [False, False, True, True]  # 6.5, 4 and 1.5 seconds are left, of 2.5 each
    assert budget.left == pytest.approx(-1.0)


class Search(SimpleNamespace):
    """A search whose trials take ``seconds`` and have ``scores``, nats per column, by states."""

    is_large = True

    def _tried(self, states):
        self.cost = self.seconds[states]
        self.budget.left -= self.cost
        return SimpleNamespace(states=states, scores=self.scores[states])

    def _is_hopeless(self, reach):
        return self.rival - self.members[0].scores > reach

    def _is_better(self, scores, others, by):
        return scores - others > by


def chosen_states(num_rows=20_000, left=2000, scores=(0.0, 0.1, 0.2, 0.3), rival=0.0):
    states = (64, 128, 256, 512)
    search = Search(
        num_rows=num_rows,
        budget=SimpleNamespace(left=left),
        seconds=dict(zip(states, (2.0, 3.0, 9.0, 28.0), strict=True)),  # measured on one table
        scores=dict(zip(states, scores, strict=True)),
        rival=rival,
    )
    HiddenTrees._choose_states(search, REACH_OF_TRIAL)
    return search.members[0].states


@pytest.mark.parametrize(("seconds", "expected"), [(20, 64), (40, 128), (120, 256), (2000, 512)])
def test_states_are_doubled_only_while_there_is_time_for_two_members(seconds, expected):
    # One large tree is worse than several smaller ones, however fast the machine is.
    assert chosen_states(left=seconds) == expected


def test_states_are_doubled_only_while_each_has_enough_rows():
    assert [chosen_states(rows) for rows in (1_000, 5_000, 10_000)] == [64, 128, 256]


@pytest.mark.parametrize(("rival", "expected"), [(0.1, 512), (0.5, 64)])
def test_states_are_doubled_unless_another_model_is_far_ahead(rival, expected):
    assert chosen_states(rival=rival) == expected


class Training(Search):
    """A search whose tree has 0 after its trial and ``end`` to the end, as all other members."""

    num_states, distant, cost, epoch, bar, first = 64, 0.0, 1.0, 1.0, nullcontext(), None
    _add_members, _keep_start = HiddenTrees._add_members, HiddenTrees._keep_start

    def _choose_states(self, reach):
        self.members = [SimpleNamespace(scores=torch.zeros(1))]

    def _add_covariances(self):
        pass

    def _start(self, states, number):
        pass

    def _trained(self, tree, number, *, is_begun=False):
        return SimpleNamespace(scores=torch.full((1,), self.end))


def num_members(**options):
    search = Training(**options)
    HiddenTrees.search(search, SimpleNamespace(left=2000))
    return len(search.members)


@pytest.mark.parametrize(("end", "expected"), [(0.05, 1), (0.15, MEMBERS - 1)])
def test_a_tree_behind_another_model_is_judged_after_its_training(end, expected):
    """A trial is short: covariances that had much time are ahead of it, and behind the tree."""
    assert num_members(end=end, rival=0.19, worthwhile=-LUCK) == expected


def test_with_much_time_members_are_added_unless_held_out_rows_lose():
    """Equal members gain nothing; of the first two, which start differently, one is kept."""
    assert num_members(end=0.0, rival=0.0, worthwhile=-LUCK) == MEMBERS - 1
    assert num_members(end=0.0, rival=0.0, worthwhile=WORTHWHILE) == 2


def test_trees_that_are_a_little_worse_each_time_are_not_taken():
    # As the one before, each would pass for as good as the last.
    assert chosen_states(scores=(0.0, -0.0006, -0.0012, -0.0018)) == 128
