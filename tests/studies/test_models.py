"""The parts that experiments are made of: ensembles, starts from √p, smoothing, bins, measures."""

import numpy as np
import pytest
import torch
from scipy import integrate

import subtractive as sub
from studies.data.synthetic import SHAPES, draw
from studies.models.ensemble import Ensemble
from studies.models.kinds import MPC, MPC2, NPC2
from studies.models.profiling import cpu_seconds, peak_megabytes
from studies.models.smoothing import smooth_after_steps, smoother
from studies.models.training import Schedule, train, train_ensemble
from studies.paper.overflow import outcome, plain_partition
from studies.paper.spectral_start import nearest_of_rank, start_from_root
from studies.paper.synthetic_models import Bins, build, load_synthetic, splines_over
from studies.paper.weight_histograms import histogram, normalised, plain_values, products

SIZES = (200, 60, 60)


def members(model, seeds=(0, 1, 2)):
    dataset = load_synthetic("funnel", "", SIZES, 0)
    families = splines_over(dataset, model, 7, 0.01)
    made = [build(model, families, 3, seed).double() for seed in seeds]
    return made, dataset


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("model", [MPC, MPC2, NPC2])
def test_a_bundle_is_the_product_of_its_members(model, seeds):
    made, dataset = members(model, seeds)
    ensemble = Ensemble(made)
    own = torch.stack([member.log_prob(dataset.test) for member in made])  # (r, n)
    joint = ensemble.joint.log_prob(ensemble.columns(dataset.test))
    torch.testing.assert_close(joint, own.sum(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ensemble.scores(dataset.test), own.mean(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", [MPC, NPC2])
def test_training_together_is_training_alone(model):
    seeds, schedule = (0, 1), Schedule(epochs=3, learning_rate=0.05, batch_size=32)
    together, dataset = members(model, seeds)
    alone, _ = members(model, seeds)
    fitted = train_ensemble(together, dataset.rows, schedule, seeds=seeds)
    for seed, member, other, result in zip(seeds, alone, together, fitted, strict=True):
        order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(seed))
        history = train(member, (dataset.train[order], dataset.valid), schedule)
        assert history.best_epoch == result.epoch
        scores = [float(each.log_prob(dataset.test).detach().mean()) for each in (member, other)]
        np.testing.assert_allclose(scores, result.test, rtol=1e-8, atol=1e-8)


def test_a_start_of_full_rank_is_the_histogram():
    states = torch.tensor([[0, 1], [0, 1], [1, 0], [2, 2], [2, 1], [0, 0]]).double()
    circuit = sub.Circuit(sub.linear_tree(2), sub.Embedding(3), num_units=3, dtype=torch.float64)
    density = sub.SquaredCircuit(circuit)
    start_from_root(density, states, bandwidth=1e-9, jitter=0.0)
    every = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0)).double()
    counts = (every[:, None] == states).all(-1).double().mean(1)
    torch.testing.assert_close(density.log_prob(every).exp(), counts, rtol=0, atol=1e-12)


def test_a_start_from_splines_is_near_the_truth():
    dataset = load_synthetic("banana", "", (4000, 100, 1000), 1)
    density = build(NPC2, splines_over(dataset, NPC2, 16, 0.0), 6, seed=0)
    start_from_root(density, dataset.train, bandwidth=0.5)
    with torch.no_grad():
        score = float(density.log_prob(dataset.test).mean())
    assert score > float(dataset.log_density(dataset.test).mean()) - 0.1


def test_starts_of_different_seeds_differ_and_other_inputs_are_refused():
    dataset = load_synthetic("banana", "", SIZES, 0)
    starts = []
    for seed in (0, 0, 1):
        density = build(NPC2, splines_over(dataset, NPC2, 8, 0.0), 2, seed=0)
        start_from_root(density, dataset.train, bandwidth=0.5, seed=seed)
        starts.append(density.circuit.input_layers[0].get_tensor("coefficient").detach())
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    gaussian = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(2), sub.Gaussian(), num_units=2))
    with pytest.raises(ValueError, match="needs splines or embeddings, got Gaussian"):
        start_from_root(gaussian, dataset.train, bandwidth=0.5)


def test_the_nearest_function_of_a_rank_is_the_best_of_many():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(9, 8, generator=generator, dtype=torch.float64)
    bases = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (9, 8)]

    def error(left, right):
        return float((values - bases[0] @ left.mT @ right @ bases[1].mT).square().sum())

    left, right = nearest_of_rank(values, bases, 2)
    least = error(left, right)
    for _ in range(200):
        noise = [
            0.05 * torch.randn(2, 4, generator=generator, dtype=torch.float64) for _ in range(2)
        ]
        assert error(left + noise[0], right + noise[1]) > least


def test_smoothing_solves_the_penalised_equations():
    amounts = torch.tensor([0.0, 0.5, 10.0], dtype=torch.float64)
    rough = np.random.default_rng(0).normal(size=6)
    differences = np.diff(np.eye(6), n=2, axis=0)
    for matrix, amount in zip(smoother(6, amounts).numpy(), amounts.tolist(), strict=True):
        exact = np.linalg.solve(np.eye(6) + amount * differences.T @ differences, rough)
        np.testing.assert_allclose(rough @ matrix, exact, rtol=1e-10, atol=1e-12)


def test_a_step_ends_with_smoothing():
    table = torch.nn.Parameter(torch.randn(2, 1, 5, dtype=torch.float64))
    optimizer = torch.optim.SGD([table], lr=0.5)
    before = table.detach().clone()
    smooth_after_steps(optimizer, table, torch.tensor([0.0, 4.0]))
    table.grad = torch.zeros_like(table)
    optimizer.step()
    torch.testing.assert_close(table[0].detach(), before[0], rtol=1e-14, atol=1e-15)
    expected = before[1] @ smoother(5, torch.tensor([2.0]))[0]
    torch.testing.assert_close(table[1].detach(), expected, rtol=1e-14, atol=1e-15)


def test_bins_number_rows_as_floors_do():
    dataset = load_synthetic("cosine", "", SIZES, 0)
    bins = Bins.over(dataset, 8)
    every = torch.cat(dataset.rows)
    low, high = every.amin(0), every.amax(0)
    expected = ((every - low) / (high - low) * 8).floor().clamp(max=7).long()
    assert torch.equal(bins.number(every), expected)


def test_masses_of_bins_are_integrals_of_the_density():
    dataset = load_synthetic("banana", "", SIZES, 0)
    bins = Bins.over(dataset, 4)
    masses = bins.log_masses(dataset.log_density).exp()
    (a, b), (c, d) = bins.edges[0, 1:3].tolist(), bins.edges[1, 0:2].tolist()

    def density(y, x):
        point = torch.tensor([[x, y]], dtype=torch.float64)
        return float(dataset.log_density(point).exp())

    exact, _ = integrate.dblquad(density, a, b, c, d, epsabs=1e-8, epsrel=1e-8)
    np.testing.assert_allclose(float(masses[1, 0]), exact, rtol=1e-5, atol=0)
    assert 0.9 < float(masses.sum()) < 1


@pytest.mark.parametrize("name", SHAPES)
def test_planes_are_drawn_as_the_data_module_draws_them(name):
    dataset, data = load_synthetic(name, "", SIZES, 3), draw(name, SIZES, 3)
    assert torch.equal(dataset.test, data.test)


def test_plain_numbers_give_z_while_they_can():
    circuit = sub.Circuit(sub.random_binary_tree(5), sub.Gaussian(), num_units=3, seed=0)
    with torch.no_grad():
        exact = sub.SquaredCircuit(circuit).log_partition().exp()
        plain = plain_partition(circuit, torch.float64)
    torch.testing.assert_close(plain, exact, rtol=1e-12, atol=0)
    named = [outcome(value) for value in (1.0, 0.0, float("inf"), float("nan"))]
    assert named == ["finite", "zero", "infinite", "not a number"]


def test_weights_after_squaring_are_those_of_the_written_out_square():
    circuit = sub.Circuit(
        sub.linear_tree(3), sub.Gaussian(), num_units=2, initialise=sub.init.normal(), seed=0
    ).double()
    with torch.no_grad():
        own = [layer.weights() for layer in circuit.sum_layers]
        written = [layer.weights() for layer in sub.materialise_square(circuit).sum_layers]
    squared, expected = products(normalised(own)), plain_values(normalised(written))
    assert squared.total == expected.total
    # Bounds between the weights: rounding does not put one of them on the other side.
    for bound in (-2.3, -0.7, -0.01, 0.0, 0.013, 0.4, 1.9, 50.0):
        assert squared.below(bound) == expected.below(bound)
    assert histogram(squared)["negative"] == histogram(expected)["negative"] > 0


def test_a_histogram_of_products_counts_what_lies_between_its_ends():
    random = np.random.default_rng(0)
    regions = [np.sort(random.normal(0.3, 1, 80)), np.array([-1.0, 0.0, 0.0, 2.0])]
    every = np.concatenate([np.outer(region, region).ravel() for region in regions])
    found = histogram(products(regions))
    counts, _ = np.histogram(every, found["edges"])
    assert found["counts"] == counts.tolist()
    assert found["total"] == len(every)
    assert found["negative"] == (every < 0).mean()
    low, high = np.quantile(every, [0.005, 0.995])
    width = found["edges"][1] - found["edges"][0]
    assert abs(found["edges"][0] - low) < 2 * width
    assert abs(found["edges"][-1] - high) < 2 * width
    assert 0.0 in found["edges"]


def test_measures_see_what_a_function_does():
    def allocate():
        return torch.ones(2**18) + torch.ones(2**18)  # three tensors of one MiB at a time

    assert 2.9 < peak_megabytes(allocate) < 3.5
    times = cpu_seconds({"little": lambda: None, "more": lambda: sum(range(10**5))}, 0.0)
    assert 0 <= times["little"] < times["more"]
