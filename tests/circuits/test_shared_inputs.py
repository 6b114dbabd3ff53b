"""Inputs that all regions share: the same numbers as copies of them, stored once."""

import pytest
import torch

import subtractive as sub

FAMILIES = {
    "embedding": sub.Embedding(5),
    "binomial": sub.Binomial(4),
    "categorical": sub.Categorical(5),
    "gaussian": sub.Gaussian(),
}


def pair(family, *, dtype=torch.float64, num_outputs=2):
    """A squared circuit with shared inputs, and one whose tables are copies of its own."""
    options = {"num_units": 3, "num_outputs": num_outputs, "seed": 0, "dtype": dtype}
    shared = sub.Circuit(sub.linear_tree(4), family, shared_inputs=True, **options)
    copies = sub.Circuit(sub.linear_tree(4), family, **options)
    with torch.no_grad():
        for ours, theirs in zip(shared.sum_layers, copies.sum_layers, strict=True):
            theirs.weights.value.copy_(ours.weights.value)
        for name in shared.input_layers[0].names:
            tensor = shared.input_layers[0].get_tensor(name)
            assert len(tensor) == 1
            copies.input_layers[0].get_tensor(name).copy_(tensor)
    return sub.SquaredCircuit(shared), sub.SquaredCircuit(copies)


ROWS = torch.tensor([[0.0, 1, 2, 3], [4, 4, 0, 1], [2, 2, 2, 2]])


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_shared_inputs_are_as_good_as_copies(family):
    shared, copies = pair(family)
    gaps = torch.where(torch.eye(3, 4) > 0, torch.nan, ROWS)
    for rows in (ROWS, gaps):
        torch.testing.assert_close(
            shared.log_prob(rows), copies.log_prob(rows), rtol=1e-12, atol=1e-12
        )
    for seed in range(2):
        drawn = [
            model.sample(20, given={1: 2.0}, generator=torch.Generator().manual_seed(seed))
            for model in (shared, copies)
        ]
        torch.testing.assert_close(*drawn, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(shared.mean(), copies.mean(), rtol=1e-10, atol=1e-12)
    box = {0: (0.0, 2.0), 2: (1.0, None)}
    torch.testing.assert_close(
        shared.probability(box), copies.probability(box), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_shared_inputs_is_the_sum_over_copies(dtype):
    shared, copies = pair(sub.Embedding(5), dtype=dtype)
    for model in (shared, copies):
        model.log_prob(ROWS).sum().backward()
    found = shared.circuit.input_layers[0].table.grad
    expected = copies.circuit.input_layers[0].table.grad.sum(0, keepdim=True)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_shared_inputs_are_saved_squared_and_initialised(tmp_path):
    shared, _ = pair(sub.Embedding(5), num_outputs=1)
    shared.save(tmp_path / "model")
    again = sub.load(tmp_path / "model")
    assert again.circuit.input_layers[0].is_shared
    assert torch.equal(again.log_prob(ROWS), shared.log_prob(ROWS))
    written = sub.materialise_square(shared.circuit)
    torch.testing.assert_close(
        written(ROWS), shared.circuit(ROWS).square(), rtol=1e-10, atol=1e-12
    )
    rows = torch.randint(5, (200, 4), generator=torch.Generator().manual_seed(0)).double()
    rows[:, 0] = 3  # one position in four always holds token 3
    sub.initialise(shared, rows)
    table = shared.circuit.input_layers[0].table
    assert table.shape == (1, 3, 5)
    assert table.detach().mean((0, 1)).argmax() == 3
    history = sub.fit(shared, rows, max_epochs=2, progress=False)
    assert history.train[-1] > history.train[0]
