"""Expectations of anything
========================

A product of functions of single variables changes only the inputs of a circuit. So the
expectation of a polynomial, or of any sum of such products, takes one pass through the circuit,
without samples, and so does the expectation of another circuit on the same tree.
"""

# %%
# A density of three variables: a twisted curve in space.

import matplotlib.pyplot as plt
import torch

import subtractive as sub


def twisted(count, seed):
    generator = torch.Generator().manual_seed(seed)
    t = 4 * torch.rand(count, generator=generator, dtype=torch.float64) - 2
    noise = 0.15 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return torch.stack([t, torch.sin(2 * t), torch.cos(2 * t)], 1) + noise


train, valid = twisted(3000, 0), twisted(600, 1)
graph = sub.linear_tree(3)
circuit = sub.Circuit(graph, sub.Gaussian(), num_units=24, seed=0, dtype=torch.float64)
p = sub.SquaredCircuit(circuit)
sub.initialise(p, train)
sub.fit(p, train, valid, max_epochs=40, progress=False)

# %%
# Powers are in closed form, other functions by quadrature of fourteen digits. Samples agree with
# them, slowly: the band is two standard errors wide.

functions = {
    "E[x y]": {0: 1, 1: 1},
    "E[x² z⁴]": {0: 2, 2: 4},
    "E[sin(2x) y]": {0: lambda x: torch.sin(2 * x), 1: 1},
}
rows = p.sample(10_000, generator=torch.Generator().manual_seed(0))
values = {
    "E[x y]": rows[:, 0] * rows[:, 1],
    "E[x² z⁴]": rows[:, 0] ** 2 * rows[:, 2] ** 4,
    "E[sin(2x) y]": torch.sin(2 * rows[:, 0]) * rows[:, 1],
}
counts = torch.arange(100, 10_001, 100)
figure, axes = plt.subplots(1, 3, figsize=(10, 2.7), layout="constrained")
for ax, (name, f) in zip(axes, functions.items()):
    exact = p.expectation(f).item()
    means = values[name].cumsum(0)[counts - 1] / counts
    error = 2 * values[name].std() / counts.sqrt()
    ax.fill_between(counts, exact - error, exact + error, color="#e9e2f1")
    ax.plot(counts, means, color="#5b2a86", lw=1)
    ax.axhline(exact, color="#c7772e", lw=1)
    ax.set(title=f"{name} = {exact:.4f}", xlabel="samples")
    print(f"{name} exact {exact:.5f}, by 10,000 samples {means[-1]:.5f} ± {error[-1]:.5f}")

# %%
# Sums of products are lists of terms, and everything can be asked given the values of some
# variables.

polynomial = [(1.0, {1: 2}), (1.0, {2: 2})]  # y² + z²
for x in (-1.0, 0.0, 1.0):
    print(f"E[y² + z² | x = {x:+.0f}] = {p.expectation(polynomial, {0: x}):.4f}")

# %%
# Another circuit on the same tree: E[c₂(x)], by integrals of three functions at the inputs.

other = sub.Circuit(graph, sub.Gaussian(), num_units=8, seed=1, dtype=torch.float64)
with torch.no_grad():
    print(f"exact {p.expectation(other)[0]:.6f}, samples {other(rows).mean():.6f}")

# %%
# What variables say about each other: exact marginals inside one estimator.

for pair in ([0], [1]), ([0], [1, 2]), ([1], [2]):
    information = p.mutual_information(*pair, num_samples=4000)
    print(f"I({pair[0]}; {pair[1]}) = {information.value:.3f} ± {information.standard_error:.3f}")
left = p.conditional_entropy([1, 2], [0], num_samples=4000)
print(f"H(y, z | x) = {left.value:.3f} ± {left.standard_error:.3f} nats")

# %%
# Entropy and mode may be asked given evidence: how uncertain y and z are where x is known, and
# their most likely values, beside the curve (sin 2x, cos 2x) that the rows were drawn around.

for x in (-1.0, 0.0, 1.0):
    entropy = p.entropy(4000, given={0: x})
    _, y, z = p.mode({0: x}, generator=torch.Generator().manual_seed(0)).tolist()
    t = torch.tensor(2 * x)
    print(
        f"x = {x:+.0f}: entropy {entropy.value:.2f} ± {entropy.standard_error:.2f}, "
        f"mode ({y:+.2f}, {z:+.2f}), curve ({t.sin():+.2f}, {t.cos():+.2f})"
    )
