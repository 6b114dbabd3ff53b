"""Whatever the data, training returns a model that is finite."""

import math
import warnings

import pytest
import torch
from registry import covering

import subtractive as sub

NUM_SETS, SEEDS = 50, range(5)


def faults(number):
    """What is wrong with a table, each by whether, or how, it is there."""
    return number % 2, number % 3, *(number % prime == 0 for prime in (4, 5, 7, 11, 13))


# Every pair of faults that occurs together occurs in these; the others are for slow runs.
BY_FAULTS = {faults(number): number for number in range(NUM_SETS)}
FEW = [BY_FAULTS[found] for found in covering(list(BY_FAULTS))]
# For these a seed with every kind of model, and one with the other learning rate.
CASES = [pytest.param(n, (n % 5, n % 5 ^ 1), id=f"{n}") for n in FEW]
CASES += [
    pytest.param(n, SEEDS, id=f"{n}-all seeds", marks=pytest.mark.slow) for n in range(NUM_SETS)
]


def nasty(number):
    """A small table (n, d) with the faults of real ones."""
    generator = torch.Generator().manual_seed(number)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def flags(chance, *shape):
        return torch.rand(*shape, generator=generator) < chance

    n = [20, 60, 150][number % 3]
    d = 2 + number % 4
    x = draw(n, d) @ draw(d, d)
    if number % 2:  # outliers, in both directions
        x = torch.where(flags(0.03, n, d), 1e6 * draw(n, d), x)
    if number % 3 == 0:  # a constant column
        x[:, 0] = draw(1)
    if number % 3 == 1:  # a duplicated one
        x[:, -1] = x[:, 0]
    if number % 5 == 0:  # whole numbers
        x = (3 * x).round()
    if number % 7 == 0:  # far from zero, and hardly any spread
        x[:, 1] = 1e5 + 1e-3 * x[:, 1]
    if number % 4 == 0:  # gaps
        x = x.masked_fill(flags(0.2, n, d), math.nan)
    if number % 11 == 0:  # all rows alike
        x = x[:1].expand(n, d).clone()
    if number % 13 == 0:  # very different units
        x = x * 10.0 ** torch.arange(-6, 2 * d - 6, 2)
    return x


def densities(d, number, seed):
    """A squared model, and for every fifth table an additive one and a mixture."""

    def squared(graph, outputs):
        circuit = sub.Circuit(graph, sub.Gaussian(), num_units=6, num_outputs=outputs, seed=seed)
        return sub.SquaredCircuit(circuit)

    graphs = [sub.random_binary_tree(d, seed=seed), sub.linear_tree(d), sub.flat(d)]
    yield squared(graphs[number % 3], outputs=[1, 4][number % 2])
    if number % 5 == seed:
        positive = sub.Circuit(
            graphs[number % 3],
            sub.Gaussian(),
            num_units=6,
            weights=sub.positive_weights,
            seed=seed,
        )
        yield sub.MonotonicCircuit(positive)
        yield sub.Mixture([squared(graphs[0], 2), squared(graphs[1], 1)])


@pytest.mark.parametrize(("number", "seeds"), CASES)
def test_no_data_set_makes_a_model_that_is_not_finite(number, seeds):
    x = nasty(number)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(number))
    train, valid = x[rows[: len(x) * 3 // 4]], x[rows[len(x) * 3 // 4 :]]
    for seed in seeds:
        for density in densities(x.shape[1], number, seed):
            with warnings.catch_warnings():  # trouble may be reported, but not returned
                warnings.simplefilter("ignore", sub.TrainingWarning)
                warnings.simplefilter("ignore", sub.CancellationWarning)
                sub.initialise(density, train, seed=seed)
                sub.fit(
                    density,
                    train,
                    valid,
                    learning_rate=[0.01, 0.3][seed % 2],
                    batch_size=32,
                    max_epochs=4,
                    seed=seed,
                    progress=False,
                )
                for tensor in density.state_dict().values():
                    assert tensor.isfinite().all()
                assert density.log_partition().isfinite()
                assert density.log_prob(x).isfinite().all()
                assert density.sample(3).isfinite().all()
