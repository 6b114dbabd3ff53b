"""Squares that begin where sums end
==================================

Expectation maximisation finds a good additive mixture quickly. A square can go on from there:
take the square root of every weight and of every input function. The square of the result is the
mixture again, and cross terms between its components, which training may turn negative.
"""

# %%
# A ring, and an additive mixture of four Gaussians with axes along the coordinates, by EM.

import math

import matplotlib.pyplot as plt
import torch

import subtractive as sub

generator = torch.Generator().manual_seed(0)
angle = 2 * math.pi * torch.rand(3000, 1, generator=generator)
radius = 1.5 + 0.15 * torch.randn(3000, 1, generator=generator)
rows = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
train, valid, test = rows.split([2000, 500, 500])

circuit = sub.Circuit(
    sub.flat(2), sub.Gaussian(), num_units=4, weights=sub.positive_weights, seed=1
)
additive = sub.MonotonicCircuit(circuit)
sub.initialise(additive, train)
sub.learning.fit_em(additive, train, valid, max_epochs=60, patience=10, progress=False)

# %%
# Its square root has as many parameters. With one square there are cross terms between all
# components; with purifiers, one square for each component, it is the very same density.

densities = {
    "additive, by EM": additive,
    "square root": sub.learning.square_root(additive),
    "purified root": sub.learning.purified_square_root(additive),
}


def score(density):
    with torch.no_grad():
        return density.log_prob(test).mean().item()


for name, density in densities.items():
    print(f"{name:24s} {score(density):7.3f} nats on test rows")

# %%
# Both are trained by small steps. The purified one cannot end below the additive model on the
# validation rows: its start is a candidate.

pictures = {"additive, by EM": additive}
for name in ("square root", "purified root"):
    density = densities[name]
    sub.fit(density, train, valid, learning_rate=0.03, max_epochs=60, progress=False)
    pictures[f"{name}, trained"] = density
    print(f"{name + ', trained':24s} {score(density):7.3f} nats on test rows")

# %%
# What squares have learned to subtract: the middle of the ring.

side = torch.linspace(-2.5, 2.5, 120)
grid = torch.cartesian_prod(side, side)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
for ax, (name, density) in zip(axes, pictures.items()):
    with torch.no_grad():
        height = density.log_prob(grid).exp().reshape(120, 120).T
    ax.imshow(height.numpy(), origin="lower", extent=(-2.5, 2.5, -2.5, 2.5), cmap="Purples")
    ax.set(title=f"{name}: {score(density):.2f}", xticks=[], yticks=[])
