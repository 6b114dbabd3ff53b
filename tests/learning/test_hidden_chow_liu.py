"""Hidden Chow-Liu trees: the density they stand for, their start, and what EM makes of them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import subtractive as sub
from subtractive.learning.hidden_chow_liu import (
    HiddenTree,
    clusters,
    clusters_within,
    determined_variables,
    hidden_chow_liu_tree,
)

STATES = [sub.Categorical(2), sub.Categorical(3), sub.Categorical(2), sub.Categorical(2)]


def dependent_rows(count=400):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    first = (x[:, 0] < 0.5).double()
    second = torch.where(x[:, 1] < 0.8, 2 * first, (3 * x[:, 1]).floor().clamp(max=2))
    third = torch.where(x[:, 2] < 0.9, first, 1 - first)
    fourth = torch.where(x[:, 3] < 0.9, third, 1 - third)
    return torch.stack([first, second, third, fourth], 1)


def test_it_is_the_sum_over_all_hidden_states():
    rows = dependent_rows()
    density = hidden_chow_liu_tree(rows, STATES, 2, dtype=torch.float64)
    circuit, tree = density.circuit, HiddenTree.of(density.circuit.graph)
    tables = {}
    for layer in circuit.input_layers:
        for place, (variable,) in enumerate(layer.scopes):
            tables[variable] = layer.get_tensor("logits")[place].softmax(-1).detach()
    transitions = [circuit.weight_of(region).detach() for region in tree.regions]
    total = torch.zeros(len(rows), dtype=torch.float64)
    for hidden in itertools.product(range(2), repeat=4):
        joint = torch.ones(len(rows), dtype=torch.float64)
        for variable, parent in enumerate(tree.parents):
            above = 0 if parent is None else hidden[parent]
            joint = joint * transitions[variable][above, hidden[variable]]
            joint = joint * tables[variable][hidden[variable]][rows[:, variable].long()]
        total += joint
    torch.testing.assert_close(density.log_prob(rows).exp(), total, rtol=1e-9, atol=1e-12)


def test_it_finds_what_depends_on_what():
    rows = dependent_rows()
    density = hidden_chow_liu_tree(rows, STATES, 4, dtype=torch.float64)
    sub.learning.fit_em(density, rows, max_epochs=20, batch_size=100, progress=False)
    counts = torch.stack([rows[:, 2] * 2 + rows[:, 3]]).long()[0].bincount(minlength=4) / 400
    states = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1.0]], dtype=torch.float64)
    found = density.marginal([2, 3]).log_prob(states).exp().detach()
    torch.testing.assert_close(found, counts.double(), rtol=0, atol=0.01)


@pytest.mark.parametrize("num_variables", [1, 2, 5])
def test_mixed_columns_with_gaps_start_and_train(num_variables):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, num_variables, generator=generator, dtype=torch.float64).cumsum(1)
    families = [sub.Gaussian() for _ in range(num_variables)]
    families[0] = sub.WithAtoms(sub.Gaussian(), (0.0,), non_negative=True)
    rows[::3, 0] = 0.0
    rows[::7, -1] = math.nan
    density = hidden_chow_liu_tree(rows, families, 4, dtype=torch.float64)
    history = sub.learning.fit_em(density, rows, max_epochs=5, batch_size=50, progress=False)
    assert history.best_epoch > 0
    torch.testing.assert_close(
        density.log_partition(), torch.zeros((), dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_it_is_saved_sampled_and_conditioned(tmp_path):
    rows = dependent_rows()
    density = hidden_chow_liu_tree(rows, STATES, 3, dtype=torch.float64)
    density.save(tmp_path / "tree")
    loaded = sub.load(tmp_path / "tree")
    torch.testing.assert_close(loaded.log_prob(rows), density.log_prob(rows), rtol=0, atol=0)
    rows[::2, 1] = math.nan
    torch.testing.assert_close(loaded.log_prob(rows), density.log_prob(rows), rtol=0, atol=0)
    drawn = density.sample(2000, given={0: 1.0}, generator=torch.Generator().manual_seed(0))
    assert bool((drawn[:, 0] == 1).all())
    expected = density.condition({0: 1.0}).mean()[0]
    assert abs(float(drawn[:, 1].mean()) - float(expected.detach())) < 0.1


def test_clusters_are_near_their_points():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    which = torch.randint(3, (300,), generator=generator)
    points = centres[which] + 0.1 * torch.randn(300, 2, generator=generator)
    found = clusters(points, 12, generator)
    for label in found.unique():
        assert len(which[found == label].unique()) == 1
    assert len(clusters(torch.zeros(10, 2), 4, generator).unique()) == 1


def named_codes(count=4000, num_codes=12):
    """Codes, of which the first are rare, their names in another order, and a number."""
    generator = torch.Generator().manual_seed(0)
    shares = torch.arange(1, num_codes + 1).double() ** 2
    codes = torch.multinomial(shares, count, replacement=True, generator=generator)
    names = torch.randperm(num_codes, generator=generator)[codes]
    numbers = torch.randn(count, generator=generator, dtype=torch.float64) + 0.2 * codes
    return torch.stack([codes.double(), names.double(), numbers], 1)


def test_codes_and_their_names_determine_each_other_however_rare():
    rows = named_codes()
    families = [sub.Categorical(12), sub.Categorical(12), sub.Gaussian()]
    density = hidden_chow_liu_tree(rows, families, 32, dtype=torch.float64)
    sub.learning.fit_em(density, rows, max_epochs=5, pseudocount=0.01, progress=False)
    pairs = torch.unique(rows[:, :2], dim=0)
    x = torch.cat([pairs, torch.zeros(len(pairs), 1).double()], 1)
    code, name = torch.tensor([True, False, False]), torch.tensor([False, True, False])
    for query, given in ((code, name), (name, code)):
        assert density.log_conditional(x, query, given).exp().min() > 0.99


def test_columns_are_determined_by_neighbours_that_tell_nearly_all_of_them():
    rows = named_codes()
    families = [sub.Categorical(12), sub.Categorical(12), sub.Gaussian()]
    tree = HiddenTree.of(sub.chow_liu_tree(rows.numpy()))
    assert determined_variables(rows, families, tree) == {0, 1}
    tree = HiddenTree.of(sub.chow_liu_tree(dependent_rows().numpy()))
    assert determined_variables(dependent_rows(), STATES, tree) == set()


def test_clusters_within_codes_hold_rows_of_one_code_each():
    rows = named_codes()
    codes = torch.where(rows[:, 0] == 3, math.nan, rows[:, 0])  # missing is a code like any other
    generator = torch.Generator().manual_seed(0)
    labels = clusters_within(codes, rows[:, 2:].float(), 32, generator)
    assert int(labels.max()) < 32
    for label in labels.unique():
        assert len(torch.nan_to_num(codes[labels == label], nan=-1.0).unique()) == 1
    few = clusters_within(codes, rows[:, 2:].float(), 16, torch.Generator().manual_seed(0))
    plain = clusters(rows[:, 2:].float(), 16, torch.Generator().manual_seed(0))
    assert bool((few == plain).all())  # too few for codes of their own
