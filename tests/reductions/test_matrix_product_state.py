"""Matrix-product states as circuits agree with dense tensors and with quimb, and come back."""

import itertools

import numpy as np
import pytest
import torch
from oracles import all_states

import subtractive as sub

PRODUCTS = {"Hadamard": sub.HadamardLayer, "Kronecker": sub.KroneckerLayer}
every_product = pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
NUMBERS = {"real": np.float64, "complex": np.complex128}
all_numbers = pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
# Numbers of states, and bonds between them: narrow and wide, few and many states, ends only.
CHAINS = {
    "one": ([3], []),
    "two": ([2, 3], [4]),
    "uniform": ([2, 2, 2, 2, 2], [3, 3, 3, 3]),
    "many states": ([5, 6, 4, 5], [2, 2, 2]),
    "wide bonds": ([2, 3, 2, 2], [2, 7, 5]),
    "bonds of one": ([2, 3, 4], [1, 1]),
}
every_chain = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


def random_cores(chain, number, seed=0):
    """Cores (left, v, right) with standard normal entries."""
    rng = np.random.default_rng(seed)
    states, bonds = chain
    edges = [1, *bonds, 1]
    shapes = [(edges[t], v, edges[t + 1]) for t, v in enumerate(states)]
    cores = [rng.normal(size=shape).astype(number) for shape in shapes]
    if number is np.complex128:
        cores = [core + 1j * rng.normal(size=core.shape) for core in cores]
    return cores


def dense(cores):
    """The tensor ψ with one axis per variable."""
    psi = cores[0]
    for core in cores[1:]:
        psi = np.tensordot(psi, core, 1)
    return psi[0, ..., 0]


def born(cores):
    """|ψ|² / Z as a tensor, and Z."""
    square = np.abs(dense(cores)) ** 2
    return square / square.sum(), square.sum()


def assert_density_and_marginals(density, expected):
    """Compare with a tensor of probabilities: all states, and all ways to leave variables out."""
    counts = expected.shape
    x = all_states(counts)
    for kept in itertools.product([True, False], repeat=len(counts)):
        gone = tuple(d for d, keep in enumerate(kept) if not keep)
        truth = np.broadcast_to(expected.sum(gone, keepdims=True), counts)
        actual = density.log_marginal(x, torch.tensor(kept)).exp().detach()
        torch.testing.assert_close(
            actual, torch.from_numpy(truth.ravel().copy()), rtol=1e-10, atol=1e-14
        )


@every_product
@all_numbers
@every_chain
def test_a_born_machine_is_a_squared_circuit(chain, number, product):
    cores = random_cores(chain, number)
    density = sub.reductions.squared_matrix_product_state(
        cores, product=product, dtype=torch.float64
    )
    expected, partition = born(cores)
    assert_density_and_marginals(density, expected)
    torch.testing.assert_close(
        density.log_partition().item(), float(np.log(partition)), rtol=1e-12, atol=1e-12
    )


@every_product
@every_chain
def test_a_state_without_negative_entries_is_a_monotonic_circuit(chain, product):
    cores = [np.abs(core) for core in random_cores(chain, np.float64)]
    cores[0][0, 0] = 0  # whole rows and single entries may be zero
    cores[-1][0] *= np.arange(cores[-1].shape[1])[:, None] > 0
    density = sub.reductions.monotonic_matrix_product_state(
        cores, product=product, dtype=torch.float64
    )
    psi = dense(cores)
    assert_density_and_marginals(density, psi / psi.sum())
    torch.testing.assert_close(
        density.log_partition().item(), float(np.log(psi.sum())), rtol=1e-12, atol=1e-12
    )


@every_product
@all_numbers
@every_chain
def test_a_state_comes_back_from_its_circuit(chain, number, product):
    cores = random_cores(chain, number)
    density = sub.reductions.squared_matrix_product_state(
        cores, product=product, dtype=torch.float64
    )
    back, order = sub.reductions.matrix_product_state(density)
    assert order == list(range(len(cores)))
    np.testing.assert_allclose(
        dense([c.numpy() for c in back]), dense(cores), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]], ids=str)
@every_product
def test_the_state_of_a_circuit_has_its_values(product, order):
    circuit = sub.Circuit(
        sub.linear_tree(4, order=order),
        sub.Embedding(3),
        num_units=3,
        num_input_units=2,
        product=product,
        weights=sub.complex_weights,
        seed=0,
        dtype=torch.float64,
    )
    state = sub.reductions.matrix_product_state(sub.SquaredCircuit(circuit))
    assert state.order == order
    psi = dense([core.numpy() for core in state.cores])
    # The axes of ψ are in the order of the chain, the columns of x in that of the variables.
    x = all_states([3] * 4)
    values = torch.from_numpy(psi[tuple(x[:, order].long().numpy().T)])
    torch.testing.assert_close(circuit(x)[:, 0].detach(), values, rtol=1e-12, atol=1e-12)


def test_a_monotonic_circuit_has_a_state_too():
    circuit = sub.Circuit(
        sub.linear_tree(3),
        sub.Categorical(2),
        num_units=3,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    cores = sub.reductions.matrix_product_state(sub.MonotonicCircuit(circuit)).cores
    psi = torch.from_numpy(dense([core.numpy() for core in cores]).ravel())
    actual = circuit(all_states([2] * 3))[:, 0].detach()
    torch.testing.assert_close(actual, psi, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("states", "bond"), [(2, 5), (6, 3), (4, 4)])
def test_the_width_is_the_smaller_of_both_bounds_of_the_paper(states, bond):
    cores = random_cores(([states] * 6, [bond] * 5), np.float64)
    hadamard = sub.reductions.squared_matrix_product_state(cores)
    assert hadamard.circuit.input_layers[0].num_units == min(bond * bond, states * bond)
    kronecker = sub.reductions.squared_matrix_product_state(cores, product=sub.KroneckerLayer)
    weights = sum(layer.weights().numel() for layer in kronecker.circuit.sum_layers)
    assert weights <= sum(core.size for core in cores) + bond * states**2


def test_the_ends_may_leave_out_their_bond():
    cores = random_cores(([2, 3, 2], [3, 4]), np.float64)
    short = [cores[0][0], cores[1], cores[2][..., 0]]
    expected, _ = born(cores)
    density = sub.reductions.squared_matrix_product_state(short, dtype=torch.float64)
    assert_density_and_marginals(density, expected)
    single = sub.reductions.squared_matrix_product_state(
        [np.array([3.0, 4.0])], dtype=torch.float64
    )
    assert_density_and_marginals(single, np.array([0.36, 0.64]))


@pytest.mark.parametrize("number", [np.float64, np.complex128], ids=["real", "complex"])
@every_product
@pytest.mark.parametrize("length", [1, 2, 6])
def test_the_norm_of_quimb_is_our_partition_function(length, product, number):
    tensors = pytest.importorskip("quimb.tensor", reason="quimb is an optional extra")
    state = tensors.MPS_rand_state(length, 4, phys_dim=3, dtype=number, seed=0) * 1.7
    density = sub.reductions.from_quimb(state, product=product, dtype=torch.float64)
    norm = (state.H @ state).real
    assert norm == pytest.approx(1.7**2, rel=1e-12)
    assert density.log_partition().exp().item() == pytest.approx(norm, rel=1e-12)
    psi = state.to_dense().reshape((3,) * length)
    if length <= 2:
        assert_density_and_marginals(density, np.abs(psi) ** 2 / norm)
    truth = torch.from_numpy((np.abs(psi) ** 2 / norm).ravel())
    actual = density.log_prob(all_states([3] * length)).exp().detach()
    torch.testing.assert_close(actual, truth, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circuit_becomes_a_state_of_quimb(length):
    pytest.importorskip("quimb.tensor", reason="quimb is an optional extra")
    circuit = sub.Circuit(
        sub.linear_tree(length),
        sub.Embedding(2),
        num_units=3,
        weights=sub.complex_weights,
        seed=0,
        dtype=torch.float64,
    )
    density = sub.SquaredCircuit(circuit)
    state = sub.reductions.to_quimb(density)
    norm = (state.H @ state).real
    assert norm == pytest.approx(density.log_partition().exp().item(), rel=1e-12)
    psi = torch.from_numpy(state.to_dense().ravel())
    actual = circuit(all_states([2] * length))[:, 0].detach()
    torch.testing.assert_close(actual, psi, rtol=1e-12, atol=1e-12)


def test_quimb_sites_in_any_layout_are_understood():
    tensors = pytest.importorskip("quimb.tensor", reason="quimb is an optional extra")
    state = tensors.MPS_rand_state(4, 3, phys_dim=2, seed=1)
    state.permute_arrays("plr")
    expected = np.abs(state.to_dense().reshape((2,) * 4)) ** 2
    density = sub.reductions.from_quimb(state, dtype=torch.float64)
    assert_density_and_marginals(density, expected / expected.sum())


def test_long_chains_stay_finite():
    cores = random_cores(([2] * 500, [3] * 499), np.float64)
    density = sub.reductions.squared_matrix_product_state(cores, dtype=torch.float64)
    # The same norm by transfer matrices, rescaled at each step.
    transfer, log_norm = np.ones((1, 1)), 0.0
    for core in cores:
        transfer = np.einsum("ab,axc,bxd->cd", transfer, core, core)
        log_norm += np.log(np.abs(transfer).max())
        transfer /= np.abs(transfer).max()
    expected = log_norm + np.log(transfer[0, 0])
    assert density.log_partition().item() == pytest.approx(expected, rel=1e-12)


def test_a_state_can_be_saved_and_trained_further(tmp_path):
    density = sub.reductions.squared_matrix_product_state(
        random_cores(CHAINS["uniform"], np.float64)
    )
    density.save(tmp_path / "state.safetensors")
    again = sub.load(tmp_path / "state.safetensors")
    x = all_states([2] * 5)
    torch.testing.assert_close(again.log_prob(x), density.log_prob(x), rtol=0, atol=0)
    before = density.log_prob(x[:4]).mean().item()
    sub.fit(density, x[:4], max_epochs=5, progress=False)
    assert density.log_prob(x[:4]).mean().item() > before


def test_a_monotonic_state_with_zeros_can_be_saved(tmp_path):
    density = sub.reductions.monotonic_matrix_product_state([np.eye(2), np.eye(2)])
    density.save(tmp_path / "state.safetensors")
    again = sub.load(tmp_path / "state.safetensors")
    x = all_states([2, 2])
    torch.testing.assert_close(again.log_prob(x), density.log_prob(x), rtol=0, atol=0)


BAD_CORES = {
    "none": ([], "at least one core"),
    "bonds": ([np.ones((1, 2, 3)), np.ones((2, 2, 1))], r"core 1 .* shape \(3, states, 1\)"),
    "open": ([np.ones((1, 2, 3)), np.ones((3, 2, 3))], r"shape \(3, states, 1\).*got \(3, 2, 3\)"),
    "no states": ([np.ones((1, 0, 1))], r"core 0 .*got \(1, 0, 1\)"),
    "a matrix inside": ([np.ones((2, 3)), np.ones((3, 3)), np.ones((3, 2))], "core 1 of a matrix"),
    "nan": ([np.full((1, 2, 1), np.nan)], "core 0 holds numbers that are not finite"),
}


@pytest.mark.parametrize(("cores", "message"), BAD_CORES.values(), ids=BAD_CORES)
def test_cores_that_do_not_fit_are_refused(cores, message):
    for reduce in (
        sub.reductions.squared_matrix_product_state,
        sub.reductions.monotonic_matrix_product_state,
    ):
        with pytest.raises(ValueError, match=message):
            reduce(cores)


@pytest.mark.parametrize("number", [-1.0, 1j])
def test_a_monotonic_circuit_refuses_negative_and_complex_entries(number):
    with pytest.raises(ValueError, match="core 1 has some"):
        sub.reductions.monotonic_matrix_product_state([np.ones((2, 1)), np.array([[1.0, number]])])


def test_other_products_are_refused():
    with pytest.raises(ValueError, match="HadamardLayer or KroneckerLayer"):
        sub.reductions.squared_matrix_product_state([np.ones(2)], product=sub.SumLayer)


def circuit_over(graph, family=None, **options):
    return sub.SquaredCircuit(sub.Circuit(graph, family or sub.Embedding(2), **options))


def test_only_chains_of_tables_have_a_state():
    with pytest.raises(ValueError, match="needs a linear tree"):
        sub.reductions.matrix_product_state(circuit_over(sub.random_binary_tree(4), num_units=2))
    with pytest.raises(ValueError, match="needs a linear tree"):
        sub.reductions.matrix_product_state(circuit_over(sub.flat(3), num_units=2))
    with pytest.raises(ValueError, match="the circuit has 2 outputs"):
        sub.reductions.matrix_product_state(
            circuit_over(sub.linear_tree(3), num_units=2, num_outputs=2)
        )
    with pytest.raises(ValueError, match="tables or splines.*got Gaussian"):
        sub.reductions.matrix_product_state(
            circuit_over(sub.linear_tree(3), sub.Gaussian(), num_units=2)
        )


def test_what_is_no_state_of_quimb_is_refused():
    with pytest.raises(ValueError, match="expected a quimb MatrixProductState, got list"):
        sub.reductions.from_quimb([np.ones(2)])
    tensors = pytest.importorskip("quimb.tensor", reason="quimb is an optional extra")
    ring = tensors.MPS_rand_state(4, 2, phys_dim=2, cyclic=True, seed=0)
    with pytest.raises(ValueError, match="closed to a ring"):
        sub.reductions.from_quimb(ring)


def test_without_quimb_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "quimb.tensor", None)
    density = circuit_over(sub.linear_tree(2), num_units=2)
    with pytest.raises(ImportError, match=r"subtractive\[reductions\]"):
        sub.reductions.to_quimb(density)
