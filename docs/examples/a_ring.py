"""
Why subtract? A ring
====================

A mixture that may only add needs many components for a shape with a hole. One that may subtract
needs two: a wide Gaussian minus a narrow one, squared so that the density cannot be negative,

.. math:: p(x) = \\frac{(w_1 N(x; \\mu_1, \\sigma_1) + w_2 N(x; \\mu_2, \\sigma_2))^2}{Z},
   \\qquad w_2 < 0.
"""

# %%
# The data: an angle that is uniform, and a radius of about two.

import math

import matplotlib.pyplot as plt
import torch

import subtractive as sub
from subtractive.data.synthetic import ring, ring_log_density

train, valid, test = ring(4000, seed=0), ring(1000, seed=1), ring(4000, seed=2)

# %%
# Two mixtures that add. A circuit over the flat region graph is an ordinary mixture; positive
# weights make it a :class:`~subtractive.MonotonicCircuit`.


def additive(num_components):
    circuit = sub.Circuit(
        sub.flat(2),
        sub.Gaussian(),
        num_units=num_components,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    return sub.MonotonicCircuit(circuit)


# %%
# One that subtracts. The start is given by hand: a wide Gaussian with weight 2, a narrower one
# with weight −1.

circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
gaussians, weights = circuit.input_layers[0], circuit.sum_layers[0].weights
with torch.no_grad():
    gaussians.get_tensor("mean").zero_()
    gaussians.get_tensor("log_scale").copy_(torch.tensor([1.4, 1.0]).log())
    next(weights.parameters()).copy_(torch.tensor([[[2.0, -1.0]]]))
squared = sub.SquaredCircuit(circuit)

models = {
    "2 added": additive(2),
    "16 added": additive(16),
    "1 minus 1, squared": squared,
}
scores = {"the truth": ring_log_density(test).mean().item()}
for name, model in models.items():
    sub.fit(model, train, valid, learning_rate=0.03, max_epochs=30, progress=False)
    scores[name] = model.log_prob(test).mean().item()
for name, score in scores.items():
    print(f"{name:20s} mean test log-likelihood {score:.3f}")

# %%
# Two components that subtract come close to sixteen that add, and they are round.

line = torch.linspace(-4.5, 4.5, 160, dtype=torch.float64)
grid = torch.cartesian_prod(line, line)
panels = {"the truth": ring_log_density} | {name: m.log_prob for name, m in models.items()}
figure, axes = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
for ax, (name, log_density) in zip(axes, panels.items()):
    with torch.no_grad():
        density = log_density(grid).exp().reshape(160, 160).T
    ax.imshow(density.numpy(), origin="lower", extent=(-4.5, 4.5, -4.5, 4.5), vmin=0, vmax=0.06)
    ax.set(title=name, xlabel=f"log-likelihood {scores[name]:.3f}", xticks=[], yticks=[])

# %%
# The density integrates to one, exactly. A sum over a fine grid agrees:

cell = (9 / 159) ** 2
with torch.no_grad():
    print(f"sum over the grid: {squared.log_prob(grid).exp().sum().item() * cell:.6f}")
print(f"mass inside the unit square: {squared.probability({0: (-0.5, 0.5), 1: (-0.5, 0.5)}):.5f}")
assert math.isclose(squared.log_prob(grid).exp().sum().item() * cell, 1, abs_tol=1e-3)
