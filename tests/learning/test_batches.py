"""Tables and streams give the same batches, whatever they are made of."""

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import subtractive as sub
from subtractive.learning.batches import InMemory, Streamed, as_batches
from subtractive.learning.distributed import Group
from subtractive.learning.objective import negative_log_likelihood, row_scores

ROWS = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], dtype=torch.float64)


def model():
    circuit = sub.Circuit(
        sub.flat(2), sub.Gaussian(), num_units=3, num_outputs=2, seed=0, dtype=torch.float64
    )
    return sub.SquaredCircuit(circuit)


def batches(data, weights=None, group=None):
    return as_batches(data, weights, model(), group or Group())


TABLES = {
    "tensor": ROWS,
    "float32": ROWS.float(),
    "integers": ROWS.int(),
    "array": ROWS.numpy(),
    "lists": ROWS.tolist(),
    "tuples": [tuple(row) for row in ROWS.tolist()],
    "list of arrays": list(ROWS.numpy()),
    "list of rows": list(ROWS),
}
STREAMS = {
    "list of tables": [ROWS[:2], ROWS[2:]],
    "list of arrays": [ROWS[:2].numpy(), ROWS[2:].numpy()],
    "pairs": [(ROWS[:2], torch.ones(2)), (ROWS[2:], [1.0])],
    "loader": DataLoader(TensorDataset(ROWS), batch_size=2),
    "loader of pairs": DataLoader(TensorDataset(ROWS, torch.ones(3)), batch_size=2),
    "function": lambda: iter([ROWS[:2], ROWS[2:]]),
}


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES)
def test_a_table_may_be_any_table_of_numbers(data):
    found = batches(data)
    assert isinstance(found, InMemory)
    (batch,) = found.in_order(10)
    assert torch.equal(batch.evidence.x.double(), ROWS)
    assert batch.total == 3


def test_a_data_frame_is_a_table():
    pandas = pytest.importorskip("pandas")
    (batch,) = batches(pandas.DataFrame(ROWS.numpy(), columns=["a", "b"])).in_order(10)
    assert torch.equal(batch.evidence.x, ROWS)


@pytest.mark.parametrize("data", STREAMS.values(), ids=STREAMS)
def test_a_stream_may_be_any_iterable_of_tables(data):
    found = batches(data)
    assert isinstance(found, Streamed)
    for _ in range(2):
        first, second = found.in_order(10)
        assert torch.equal(first.evidence.x.double(), ROWS[:2])
        assert torch.equal(second.evidence.x.double(), ROWS[2:])
        assert (first.total, second.total) == (2, 1)


def test_a_stream_larger_than_memory_is_read_batch_by_batch():
    alive = []

    def endless():
        for number in range(1000):
            alive.append(number)
            yield torch.full((10, 2), float(number))

    iterator = batches(endless).in_order(10)
    next(iterator)
    next(iterator)
    assert alive == [0, 1]


def test_training_on_a_stream_equals_training_on_its_table():
    from_table, from_stream = model(), model()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sub.fit(from_table, x, batch_size=64, max_epochs=5, progress=False)
    # One batch of a table is shuffled: sums differ in their last digits.
    sub.fit(from_stream, [x], max_epochs=5, progress=False)
    for a, b in zip(from_table.parameters(), from_stream.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_one_epoch_of_an_iterator_trains():
    density = model()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    history = sub.fit(density, iter(x.split(8)), max_epochs=1, progress=False)
    assert history.valid == history.train
    assert history.best_epoch == 1


def test_rows_of_weight_zero_are_never_looked_at():
    impossible = ROWS.clone()
    (batch,) = batches(impossible, [1, 0, 3]).in_order(10)
    assert torch.equal(batch.evidence.x, ROWS[[0, 2]])
    assert batch.weights.tolist() == [1, 3]
    (streamed,) = batches([(impossible, [1, 0, 3])]).in_order(10)
    assert torch.equal(streamed.evidence.x, ROWS[[0, 2]])


def test_an_epoch_visits_every_row_once_in_an_order_of_its_own():
    x = torch.arange(20.0).reshape(10, 2)
    found, generator = batches(x), torch.Generator().manual_seed(0)
    passes = [torch.cat([b.evidence.x for b in found.shuffled(3, generator)]) for _ in range(2)]
    for seen in passes:
        assert sorted(seen[:, 0].tolist()) == x[:, 0].tolist()
    assert not torch.equal(*passes)


def test_the_objective_is_the_mean_negative_log_likelihood():
    density, x = model(), ROWS.clone()
    x[0, 1] = math.nan
    (batch,) = batches(x).in_order(10)
    loss = negative_log_likelihood(density, batch)
    torch.testing.assert_close(loss, -density.log_prob(x).mean(), rtol=1e-12, atol=1e-12)
    assert row_scores(density, [batch]).mean(Group(0, 1)) == pytest.approx(-loss.item(), rel=1e-12)


def test_the_objective_weighs_rows():
    density, weights = model(), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    (batch,) = batches(ROWS, weights).in_order(10)
    expected = -np.average(density.log_prob(ROWS).detach(), weights=weights)
    loss = negative_log_likelihood(density, batch).item()
    assert loss == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 4])
def test_the_parts_of_all_processes_add_up_to_the_objective(size):
    density, weights = model(), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    parts = [next(batches(ROWS, weights, Group(k, size)).in_order(10)) for k in range(size)]
    (whole,) = batches(ROWS, weights).in_order(10)
    total = sum(negative_log_likelihood(density, part) for part in parts)
    expected = negative_log_likelihood(density, whole)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
