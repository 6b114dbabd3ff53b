"""EM of monotonic circuits against classical EM, enumeration and gradients."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from sklearn.mixture import GaussianMixture

import subtractive as sub
from subtractive.learning.em import fit_em
from subtractive.learning.expected_flows import own_flows, update
from subtractive.learning.objective import paired_gain

ATOMS = sub.WithAtoms(sub.Gaussian(), (0.0, 2.0), non_negative=True)
MIXED = [sub.Gaussian(), sub.Categorical(3), ATOMS, sub.Binomial(4)]


def circuit_of(graph, families, num_units=3, **settings):
    return sub.Circuit(
        graph,
        families,
        num_units=num_units,
        weights=sub.positive_weights,
        dtype=torch.float64,
        seed=1,
        **settings,
    )


def mixed_rows(count=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(2, (count,), generator=generator).double()
    normal = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    uniform = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    atoms = torch.where(uniform[:, 0] < 0.3 + 0.4 * z, 2 * z, normal[:, 1] - z)
    whole = (4 * uniform[:, 1]).floor() + z
    states = (uniform[:, 0] * 2 + z).floor()
    return torch.stack([normal[:, 0] + 3 * z, states, atoms, whole], 1)


def classical(density, rows, epochs, **settings):
    return fit_em(
        density,
        rows,
        batch_size=settings.pop("batch_size", len(rows)),
        batches_per_step=math.inf,
        max_epochs=epochs,
        patience=epochs,
        progress=False,
        **settings,
    )


GRAPHS = {
    "flat": sub.flat(4),
    "linear": sub.linear_tree(4),
    "binary": sub.random_binary_tree(4, seed=0),
}


@pytest.mark.parametrize("product", [sub.HadamardLayer, sub.KroneckerLayer])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_likelihood_never_falls(graph, product):
    rows = mixed_rows()
    rows[::5, 0], rows[1::7, 2], rows[::9, 1] = math.nan, math.nan, math.nan
    density = sub.MonotonicCircuit(circuit_of(graph, MIXED, product=product))
    scores = torch.tensor(classical(density, rows, 15).train)
    assert bool((scores.diff() >= -1e-9).all())
    assert scores[-1] > scores[0] + 0.1
    torch.testing.assert_close(
        density.log_partition(), torch.zeros((), dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_a_step_is_that_of_a_gaussian_mixture():
    rows = mixed_rows()[:, [0, 3]]
    density = sub.MonotonicCircuit(circuit_of(sub.flat(2), sub.Gaussian(), num_units=2))
    layer = density.circuit.input_layers[0]
    means, scales = layer.get_tensor("mean"), layer.get_tensor("log_scale")
    weight = density.circuit.sum_layers[0].weights()[0, 0].detach()
    mixture = GaussianMixture(
        2,
        covariance_type="diag",
        max_iter=1,
        reg_covar=0,
        weights_init=(weight / weight.sum()).numpy(),
        means_init=means.detach().mT.numpy(),
        precisions_init=(-2 * scales.detach().mT).exp().numpy(),
    )
    with pytest.warns(UserWarning, match="did not converge"):
        mixture.fit(rows.numpy())
    classical(density, rows, 1)
    expected = torch.from_numpy(mixture.means_.T)
    torch.testing.assert_close(means.detach(), expected, rtol=1e-9, atol=1e-9)
    variance = torch.from_numpy(mixture.covariances_.T)
    torch.testing.assert_close((2 * scales.detach()).exp(), variance, rtol=1e-7, atol=1e-9)
    found = density.circuit.sum_layers[0].weights()[0, 0].detach()
    torch.testing.assert_close(found, torch.from_numpy(mixture.weights_), rtol=1e-9, atol=1e-9)


def test_a_step_is_that_of_enumerated_hidden_states():
    """A chain z → z' with x_0 given z and x_1, x_2 given z': all states written out."""
    graph = sub.RegionGraph.from_nested((0, (1, 2)))
    density = sub.MonotonicCircuit(circuit_of(graph, sub.Categorical(2), num_units=2))
    circuit = density.circuit
    prior = circuit.weight_of(graph.root)[0].detach()
    inner = next(r for r, region in enumerate(graph.regions) if region.scope == {1, 2})
    change = circuit.weight_of(inner).detach()  # (z, z')
    change = change / change.sum(1, keepdim=True)
    prior = prior * circuit.weight_of(inner).detach().sum(1)
    prior = prior / prior.sum()
    tables = {}
    for region in graph.input_regions:
        layer, place = circuit.input_of(region)
        (variable,) = graph.regions[region].scope
        tables[variable] = layer.tensors(place)["logits"][0].softmax(-1).detach()  # (z, v)
    rows = torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 1, 1.0]], dtype=torch.float64)
    x = rows.long()
    joint = (prior[:, None] * change)[None] * tables[0][:, x[:, 0]].mT[:, :, None]
    joint = joint * (tables[1][:, x[:, 1]] * tables[2][:, x[:, 2]]).mT[:, None]  # (n, z, z')
    posterior = joint / joint.sum((1, 2), keepdim=True)
    classical(density, rows, 1)
    expected = posterior.sum(0) / posterior.sum((0, 2))[:, None]
    torch.testing.assert_close(circuit.weight_of(inner).detach(), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        circuit.weight_of(graph.root)[0].detach(), posterior.mean(0).sum(1), rtol=1e-9, atol=1e-12
    )
    heads = (posterior.sum(1) * x[:, 1:2]).sum(0) / posterior.sum((0, 1))
    layer, place = circuit.input_of(
        next(r for r in graph.input_regions if graph.regions[r].scope == {1})
    )
    found = layer.tensors(place)["logits"][0].softmax(-1)[:, 1].detach()
    torch.testing.assert_close(found, heads, rtol=1e-9, atol=1e-12)


def test_a_row_of_weight_two_is_two_rows():
    rows = mixed_rows(30)
    rows[::4, 1] = math.nan
    twice, weighted = (
        sub.MonotonicCircuit(circuit_of(sub.linear_tree(4), MIXED)) for _ in range(2)
    )
    classical(twice, torch.cat([rows, rows[:10]]), 3)
    weights = torch.ones(30).double()
    weights[:10] = 2
    classical(weighted, rows, 3, weights=weights)
    torch.testing.assert_close(twice.log_prob(rows), weighted.log_prob(rows), rtol=1e-9, atol=1e-9)


def test_batches_of_one_step_are_one_batch():
    rows = mixed_rows(30)
    rows[::4, 1] = math.nan
    whole, parts = (sub.MonotonicCircuit(circuit_of(sub.linear_tree(4), MIXED)) for _ in "ab")
    classical(whole, rows, 3)
    classical(parts, rows, 3, batch_size=7)
    torch.testing.assert_close(whole.log_prob(rows), parts.log_prob(rows), rtol=1e-9, atol=1e-9)


def test_own_flows_are_a_fixed_point():
    circuit = circuit_of(sub.random_binary_tree(4, seed=2), MIXED)
    density, rows = sub.MonotonicCircuit(circuit), mixed_rows()
    before = density.log_prob(rows).detach()
    update(circuit, own_flows(circuit), 0.0)
    torch.testing.assert_close(density.log_prob(rows), before, rtol=1e-9, atol=1e-9)


def test_members_of_a_mixture_share_the_rows():
    rows = mixed_rows()
    members = [sub.MonotonicCircuit(circuit_of(graph, MIXED)) for graph in GRAPHS.values()]
    density = sub.Mixture(members)
    scores = torch.tensor(classical(density, rows, 12).train)
    assert bool((scores.diff() >= -1e-9).all())
    assert float((density.logits.detach().softmax(0) - 1 / 3).abs().max()) > 1e-3


def test_small_batches_come_near_to_classical_em():
    rows = mixed_rows(1000)
    whole, batches = (sub.MonotonicCircuit(circuit_of(sub.linear_tree(4), MIXED)) for _ in "ab")
    classical(whole, rows, 40)
    history = fit_em(batches, rows, batch_size=100, max_epochs=10, progress=False)
    assert history.best_score > float(whole.log_prob(rows).mean().detach()) - 0.03


def test_steps_are_halved_after_epochs_without_a_better_score():
    rows = mixed_rows(200)
    density = sub.MonotonicCircuit(circuit_of(sub.linear_tree(4), MIXED))
    best = []
    options = {"batch_size": 50, "max_epochs": 60, "patience": 4, "progress": False}
    options["callbacks"] = [lambda _, history: best.append(history.best_epoch)]
    history = fit_em(density, rows[:150], rows[150:], step_size=0.5, **options)
    sizes, changed = [epoch.learning_rate for epoch in history.epochs], 0
    for number, (size, following) in enumerate(pairwise(sizes), 1):
        is_waiting = number - max(best[number - 1], changed) < 2
        assert following == (size if is_waiting else size / 2)
        changed = changed if is_waiting else number
    assert sizes[0] == 0.5
    assert sizes[-1] < 0.5


def test_pseudocounts_keep_units_apart_from_single_rows():
    rows = torch.cat([torch.zeros(20, 1), torch.full((1, 1), 50.0)]).double()
    density = sub.MonotonicCircuit(circuit_of(sub.flat(1), sub.Gaussian(), num_units=3))
    classical(density, rows + 0.01 * torch.randn(21, 1), 20, pseudocount=0.5)
    assert float(
        density.circuit.input_layers[0].get_tensor("log_scale").detach().min()
    ) > math.log(0.1)


def test_shared_inputs_learn_from_all_their_columns():
    rows = mixed_rows()[:, [0, 2]].nan_to_num()
    circuit = circuit_of(sub.flat(2), sub.Gaussian(), shared_inputs=True)
    scores = torch.tensor(classical(sub.MonotonicCircuit(circuit), rows, 10).train)
    assert bool((scores.diff() >= -1e-9).all())


def test_what_em_cannot_train_is_refused():
    squared = sub.SquaredCircuit(sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2))
    with pytest.raises(ValueError, match="EM takes a MonotonicCircuit"):
        fit_em(squared, torch.zeros(3, 1))
    family = sub.Spline(4, domain=(0, 1), non_negative=True)
    with pytest.raises(ValueError, match="does not know the input family"):
        fit_em(sub.MonotonicCircuit(circuit_of(sub.flat(1), family)), torch.zeros(3, 1))
    density = sub.MonotonicCircuit(circuit_of(sub.flat(1), sub.Gaussian()))
    with pytest.raises(ValueError, match="pseudocount must not be negative"):
        fit_em(density, torch.zeros(3, 1), pseudocount=-1.0)
    with pytest.raises(ValueError, match="at least one batch"):
        fit_em(density, torch.zeros(3, 1), batches_per_step=0)
    for size in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="step_size must be above 0 and at most 1"):
            fit_em(density, torch.zeros(3, 1), step_size=size)


def test_one_impossible_row_does_not_say_which_epoch_was_best():
    """A row far from all units costs thousands of nats, more where units are narrower."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 1, dtype=torch.float64, generator=generator).sign() * 3
    x = x + 0.3 * torch.randn(400, 1, dtype=torch.float64, generator=generator)
    valid = torch.cat([x[300:], torch.full((1, 1), 1e3, dtype=torch.float64)])
    circuit = sub.Circuit(
        sub.flat(1),
        sub.Gaussian(),
        num_units=2,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    density = sub.MonotonicCircuit(circuit)
    with torch.no_grad():  # one broad unit for all rows: the best for the row that is far
        circuit.input_layers[0].mean.copy_(torch.tensor([[-2.0, 2.0]]))
        circuit.input_layers[0].log_scale.fill_(2.0)
    start = density.log_prob(valid).mean().item()
    options = {"batches_per_step": math.inf, "patience": 60, "progress": False}
    history = fit_em(density, x[:300], valid, max_epochs=60, **options)
    assert history.best_epoch > 5
    assert history.best_score < start - 10  # the mean, of which the far row is most
    assert density.log_prob(x[300:]).mean().item() > -1.5


def test_no_row_counts_for_much_more_than_most_rows():
    before = torch.zeros(100, dtype=torch.float64)
    after = torch.full((100,), 0.01, dtype=torch.float64)
    weights = torch.ones(100, dtype=torch.float64)
    assert paired_gain(after, before, weights) == pytest.approx(0.01, rel=1e-9)
    after[0] = -1e6  # counts as one nat
    assert paired_gain(after, before, weights) == pytest.approx((0.99 - 1.0) / 100, rel=1e-9)
    after[0] = -torch.inf
    assert paired_gain(after, before, weights) == pytest.approx((0.99 - 1.0) / 100, rel=1e-9)
    # Where all rows differ much, each may.
    assert paired_gain(before + 3.0, before, weights) == pytest.approx(3.0, rel=1e-9)
