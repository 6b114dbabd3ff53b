"""Densities as modules of PyTorch: transforms of functions, copies, precisions, devices."""

import copy
import itertools
import math

import pytest
import torch
from registry import every_kind
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

import subtractive as sub

REAL = torch.float64
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def circuit(**options):
    settings = {"num_units": 3, "num_outputs": 2, "seed": 0, "dtype": REAL} | options
    return sub.Circuit(sub.random_binary_tree(4, seed=1), sub.Gaussian(), **settings)


def flat_members():
    return sub.Mixture(
        [
            sub.SquaredCircuit(
                sub.Circuit(sub.flat(4), sub.Gaussian(), num_units=3, seed=seed, dtype=REAL)
            )
            for seed in range(2)
        ]
    )


DENSITIES = {
    "squared": lambda: sub.SquaredCircuit(circuit()),
    "kronecker": lambda: sub.SquaredCircuit(circuit(product=sub.KroneckerLayer)),
    "complex": lambda: sub.SquaredCircuit(circuit(weights=sub.complex_weights)),
    "monotonic": lambda: sub.MonotonicCircuit(circuit(weights=sub.positive_weights)),
    "mixture": flat_members,
    "conditional": lambda: sub.SquaredCircuit(
        sub.Circuit(sub.linear_tree(5), sub.Gaussian(), num_units=3, seed=0, dtype=REAL)
    ).condition({2: 0.3}),
}
every_density = pytest.mark.parametrize("name", DENSITIES)


def rows(count=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 4, generator=generator, dtype=REAL)


def log_prob_of(p):
    """log p of one row as a function of the parameters and the row."""

    def log_prob(parameters, row):
        return functional_call(p, parameters, (row[None],))[0]

    return log_prob


def parameters_of(p):
    return {name: parameter.detach() for name, parameter in p.named_parameters()}


@every_density
def test_calling_a_density_is_its_log_density(name):
    p, x = DENSITIES[name](), rows()
    assert torch.equal(p(x), p.log_prob(x))


@every_density
def test_functional_call_uses_the_parameters_that_it_gets(name):
    p, x = DENSITIES[name](), rows()
    other = copy.deepcopy(p)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=torch.Generator()))
    found = functional_call(p, parameters_of(other), (x,))
    torch.testing.assert_close(found, other.log_prob(x).detach(), **CLOSE)
    assert not torch.equal(found, p.log_prob(x))


@every_density
def test_vmap_over_rows_gives_what_one_call_gives(name):
    p, x = DENSITIES[name](), rows()
    mapped = vmap(lambda row: p(row[None])[0])(x)
    torch.testing.assert_close(mapped, p.log_prob(x), **CLOSE)


@every_density
def test_gradients_per_sample_are_those_of_single_rows(name):
    p, x = DENSITIES[name](), rows()
    parameters = parameters_of(p)
    found = vmap(grad(log_prob_of(p)), in_dims=(None, 0))(parameters, x)
    for row in range(len(x)):
        p.zero_grad()
        p.log_prob(x[row : row + 1]).sum().backward()
        for name_of, parameter in p.named_parameters():
            torch.testing.assert_close(found[name_of][row], parameter.grad, **CLOSE)


@every_density
def test_jacobians_are_those_of_single_outputs(name):
    p, x = DENSITIES[name](), rows(3)
    parameters = parameters_of(p)
    found = jacrev(lambda values: functional_call(p, values, (x,)))(parameters)
    for row in range(len(x)):
        p.zero_grad()
        p.log_prob(x)[row].backward()
        for name_of, parameter in p.named_parameters():
            torch.testing.assert_close(found[name_of][row], parameter.grad, **CLOSE)


def test_jacobians_and_hessians_in_x_agree_with_autograd():
    p, x = DENSITIES["squared"](), rows(1)[0]

    def log_prob(row):
        return p(row[None])[0]

    expected = torch.autograd.functional.jacobian(log_prob, x)
    torch.testing.assert_close(jacrev(log_prob)(x), expected, **CLOSE)
    expected = torch.autograd.functional.hessian(log_prob, x)
    torch.testing.assert_close(jacrev(jacrev(log_prob))(x), expected, **CLOSE)


@every_density
def test_a_mask_says_what_is_missing_under_vmap(name):
    p, x = DENSITIES[name](), rows()
    observed = torch.tensor([True, False, True, False])
    expected = p.log_marginal(x, observed)
    x[:, 1] = math.nan
    mapped = vmap(lambda row: p.log_marginal(row[None], observed)[0])(x)
    torch.testing.assert_close(mapped, expected, **CLOSE)


def test_missing_values_that_vmap_hides_are_not_taken_for_numbers():
    p, x = DENSITIES["squared"](), rows()
    x[2, 1] = math.nan
    mapped = vmap(lambda row: p(row[None])[0])(x)
    assert mapped.isnan().tolist() == [False, False, True, False, False]


def test_rows_far_out_are_exact_under_transforms():
    p, x = DENSITIES["squared"](), rows()
    x[1], x[2, ::2] = 300.0, -1000.0
    mapped = vmap(lambda row: p(row[None])[0])(x)
    torch.testing.assert_close(mapped, p.log_prob(x), rtol=1e-12, atol=1e-10)


def test_an_ensemble_of_models_is_one_call():
    models = [sub.SquaredCircuit(circuit(seed=seed)) for seed in range(3)]
    x = rows()
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0])

    def log_prob(values, fixed):
        return functional_call(base, (values, fixed), (x,))

    found = vmap(log_prob)(parameters, buffers)
    expected = torch.stack([model.log_prob(x) for model in models])
    torch.testing.assert_close(found, expected, **CLOSE)


@every_density
def test_a_copy_has_the_same_answers_and_shares_nothing(name):
    p, x = DENSITIES[name](), rows()
    before = p.log_prob(x).detach()
    twin = copy.deepcopy(p)
    assert torch.equal(twin.log_prob(x), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(twin.log_prob(x), before)
    assert torch.equal(p.log_prob(x), before)


@every_density
def test_the_state_of_a_density_makes_a_round_trip(name):
    p, other, x = DENSITIES[name](), DENSITIES[name](), rows()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(other.log_prob(x), p.log_prob(x))
    other.load_state_dict(p.state_dict())
    assert torch.equal(other.log_prob(x), p.log_prob(x))


@every_density
def test_changing_the_precision_changes_the_last_digits_only(name):
    p, x = DENSITIES[name](), rows()
    single = copy.deepcopy(p).to(torch.float32)
    assert {t.dtype for t in single.parameters()} == {torch.float32}
    assert single.log_prob(x).dtype == REAL  # results are always
    torch.testing.assert_close(single.log_prob(x), p.log_prob(x), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(single.double().log_prob(x), p.log_prob(x), rtol=1e-5, atol=1e-4)


@every_kind(
    ("name", "dtype"),
    list(itertools.product(DENSITIES, [torch.bfloat16, torch.float16])),
    together=1,
)
def test_autocast_takes_no_digit(name, dtype):
    for p in (DENSITIES[name](), DENSITIES[name]().float()):
        x = rows().to(next(p.parameters()).dtype)
        x[0, 1] = math.nan
        expected = p.log_prob(x)
        with torch.autocast("cpu", dtype=dtype):
            assert torch.equal(p.log_prob(x), expected)
            assert torch.equal(p.log_normaliser(), copy.deepcopy(p).log_normaliser())
            mean, covariance = p.mean(), p.covariance()
            drawn = p.sample(5, generator=torch.Generator().manual_seed(0))
        assert torch.equal(mean, p.mean())
        assert torch.equal(covariance, p.covariance())
        assert torch.equal(drawn, p.sample(5, generator=torch.Generator().manual_seed(0)))


def test_gradients_and_inner_products_keep_their_digits_under_autocast():
    p, x = DENSITIES["squared"]().float(), rows().float()
    expected = torch.autograd.grad(p.log_prob(x).sum(), list(p.parameters()))
    product = sub.inner(p.circuit, p.circuit)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = p.log_prob(x).sum()
        assert torch.equal(sub.inner(p.circuit, p.circuit), product)
    for one, other in zip(torch.autograd.grad(value, list(p.parameters())), expected, strict=True):
        assert torch.equal(one, other)


@every_density
def test_the_meta_device_has_no_numbers_and_says_so(name):
    p = DENSITIES[name]().to("meta")
    for ask in (
        lambda: p.log_prob(rows()),
        p.log_partition,
        lambda: p.sample(2),
        p.mean,
        p.covariance,
    ):
        with pytest.raises(ValueError, match=r"meta device and has no numbers"):
            ask()


def test_parameters_can_be_found_by_name_and_frozen():
    p = DENSITIES["squared"]()
    names = [name for name, _ in p.named_parameters()]
    assert "circuit.layers.0.weights.value" in names
    p.circuit.inputs.requires_grad_(requires_grad=False)
    grads = torch.autograd.grad(
        p.log_prob(rows()).sum(), [t for t in p.parameters() if t.requires_grad]
    )
    assert all(bool((g != 0).any()) for g in grads)
