"""Squares that begin where sums end
==================================

Expectation maximisation finds a good additive mixture quickly. A square can go on from there:
take the square root of every weight and of every input function. The square of the result is the
mixture again, and cross terms between its components, whose signs training may change.
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
sub.learning.fit_em(additive, train, valid, max_epochs=40, patience=10, progress=False)

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
    sub.fit(density, train, valid, learning_rate=0.03, max_epochs=30, progress=False)
    pictures[f"{name}, trained"] = density
    print(f"{name + ', trained':24s} {score(density):7.3f} nats on test rows")

# %%
# Where the squares have moved probability, as the difference of densities: red is more than in the
# additive mixture, blue is less. Cross terms fill the gaps between components.

side = torch.linspace(-2.5, 2.5, 120)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    heights = {n: p.log_prob(grid).exp().reshape(120, 120).T for n, p in pictures.items()}
figure, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
extent = (-2.5, 2.5, -2.5, 2.5)
for ax, (name, height) in zip(axes, heights.items()):
    if name == "additive, by EM":
        ax.imshow(height.numpy(), origin="lower", extent=extent, cmap="Purples")
    else:
        change = (height - heights["additive, by EM"]).numpy()
        ax.imshow(change, origin="lower", extent=extent, cmap="RdBu_r", vmin=-0.05, vmax=0.05)
    ax.set(title=f"{name}: {score(pictures[name]):.2f}", xticks=[], yticks=[])
