"""Densities as modules: state, copies, precision, threads."""

import copy
import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from registry import FAMILIES, LAYERS, WEIGHTS, build, points
from torch import nn

import subtractive as sub


def squared(seed=0, **options):
    settings = {"graph": "binary", "family": "gaussian", "outputs": 2, "seed": seed}
    return sub.SquaredCircuit(build(**(settings | options)))


def monotonic(seed=0):
    return sub.MonotonicCircuit(build("linear", "gaussian", weights="positive", seed=seed))


def mixture(seed=0):
    weights = [0.2, 0.3, 0.5] if seed == 0 else [1.0, 1.0, 1.0]
    members = [squared(seed), monotonic(seed), squared(seed, graph="flat", weights="complex")]
    return sub.Mixture(members, weights=weights)


def conditional(seed=0):
    return squared(seed, d=6).condition({4: 0.25 + seed}).marginal([3, 0, 4, 1])


def grouped(seed=0):
    graph = sub.random_binary_tree([[0, 2], [1], [3]], seed=0)
    circuit = sub.Circuit(
        graph, sub.MultivariateGaussian(), num_units=3, seed=seed, dtype=torch.float64
    )
    return sub.SquaredCircuit(circuit)


DENSITIES = {
    "squared": squared,
    "complex": lambda seed=0: squared(seed, weights="complex", layer="kronecker"),
    "monotonic": monotonic,
    "mixture": mixture,
    "conditional": conditional,
    "multivariate": grouped,
}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


def some_rows(n=6):
    x = points("gaussian", n, 4)
    x[0, 1] = x[1, 0] = x[1, 3] = torch.nan
    return x


@every_density
def test_the_state_is_everything_a_model_knows(make):
    x = some_rows()
    model, other = make(0), make(1)
    assert (model.log_prob(x) != other.log_prob(x)).any()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    keys = other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert not keys.missing_keys
    assert not keys.unexpected_keys
    torch.testing.assert_close(other.log_prob(x), model.log_prob(x), rtol=0, atol=0)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_weight_is_part_of_the_state(family, layer, weights):
    model, other = (squared(seed, family=family, layer=layer, weights=weights) for seed in (0, 1))
    x = points(family, 5, 4)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.log_prob(x), model.log_prob(x), rtol=0, atol=0)
    learned = {name for name, _ in model.named_parameters()}
    assert all(value.is_floating_point() for value in model.state_dict().values())
    assert learned <= set(model.state_dict())


@every_density
def test_a_copy_is_independent(make):
    model, x = make(), some_rows()
    twin = copy.deepcopy(model)
    before = model.log_prob(x)
    torch.testing.assert_close(twin.log_prob(x), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(model.log_prob(x), before, rtol=0, atol=0)
    assert (twin.log_prob(x) != before).any()


@every_density
def test_single_precision_is_close_and_answers_in_double(make):
    model, x = make(), some_rows()
    exact = model.log_prob(x).detach()
    single = copy.deepcopy(model).to(torch.float32)
    assert all(parameter.dtype == torch.float32 for parameter in single.parameters())
    for rows in (x, x.float()):
        result = single.log_prob(rows)
        assert result.dtype == torch.float64
        torch.testing.assert_close(result, exact, rtol=1e-4, atol=1e-4)
    assert single.log_partition().dtype == torch.float64
    single.log_prob(x).sum().backward()
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in single.parameters()
    )
    back = single.to(torch.float64)
    torch.testing.assert_close(back.log_prob(x), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_family_works_in_single_precision(family, layer):
    model = squared(family=family, layer=layer)
    x = points(family, 6, 4)
    x[0, 1] = x[2, 3] = torch.nan
    exact = model.log_prob(x)
    torch.testing.assert_close(model.float().log_prob(x), exact, rtol=1e-4, atol=1e-4)


@every_density
def test_training_mode_means_nothing(make):
    model, x = make(), some_rows()
    torch.testing.assert_close(model.eval().log_prob(x), model.train().log_prob(x), rtol=0, atol=0)
    with torch.inference_mode():
        assert model.log_prob(x).isfinite().all()


@every_density
def test_sixteen_threads_give_what_one_gives(make):
    model = make()
    batches = [points("gaussian", 8, 4, seed=k) for k in range(16)]
    for k, batch in enumerate(batches):
        batch[torch.rand(8, 4, generator=torch.Generator().manual_seed(k)) < 0.3] = torch.nan
    with torch.no_grad():
        serial = [model.log_prob(batch) for batch in batches]

        def score(batch):
            with torch.no_grad():
                return model.log_prob(batch)

        with ThreadPoolExecutor(16) as pool:
            parallel = list(pool.map(score, batches))
    for one, other in zip(serial, parallel, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@every_density
def test_an_optimiser_improves_the_likelihood(make):
    model, x = make(), some_rows(30)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    start = model.log_prob(x).mean().item()
    for _ in range(10):
        optimiser.zero_grad()
        loss = -model.log_prob(x).mean()
        loss.backward()
        optimiser.step()
    assert model.log_prob(x).mean().item() > start + 0.01


def test_a_density_can_be_part_of_another_module():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.classes = nn.ModuleList([squared(0), mixture(0)])

        def forward(self, x):
            return torch.stack([density.log_prob(x) for density in self.classes], -1)

    classifier = Classifier()
    scores = classifier(some_rows())
    nn.functional.cross_entropy(scores, torch.zeros(6, dtype=torch.long)).backward()
    assert all(parameter.grad is not None for parameter in classifier.parameters())
    names = set(classifier.state_dict())
    assert "classes.0.circuit.layers.0.weights.value" in names
    assert "classes.1.logits" in names


def test_the_same_seed_gives_the_same_model_and_leaves_the_global_one_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = squared(7), squared(7)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    x = some_rows()
    torch.testing.assert_close(first.log_prob(x), second.log_prob(x), rtol=0, atol=0)


def test_asking_does_not_change_the_random_numbers_or_the_state():
    model, x = squared(), some_rows()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model.log_prob(x)
    model.log_conditional(x, torch.arange(4) < 2, torch.arange(4) == 3)
    model.marginal([0, 2]).condition({0: 0.5}).log_prob(x[:, :1])
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_parameters_without_gradients_stay_so():
    model, x = squared(), some_rows()
    for parameter in model.circuit.inputs.parameters():
        parameter.requires_grad_(False)
    model.log_prob(x).sum().backward()
    assert all(parameter.grad is None for parameter in model.circuit.inputs.parameters())
    assert all(parameter.grad is not None for parameter in model.circuit.layers.parameters())
