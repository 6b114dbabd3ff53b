"""
A family and a layer of your own
================================

A new input family needs two methods: where its parameters start, and its values. Integrals,
samples, marginals and training follow. Here are von Mises densities, for angles such as
directions of the wind; then a layer with gates.
"""

# %%
# The family. Parameters arrive as a dictionary of tensors; values may be given as logarithms.

import math
from dataclasses import dataclass
from typing import final

import matplotlib.pyplot as plt
import torch

import subtractive as sub
from subtractive.inputs import UnivariateFamily
from subtractive.numerics import LeafMessage


@final
@dataclass(frozen=True)
class VonMises(UnivariateFamily):
    """Densities exp(κ cos(x - μ)) / 2π I_0(κ) of an angle; μ and log κ are learned."""

    @property
    def support(self):
        return -math.pi, math.pi

    def init(self, num_units, generator):
        angle = torch.rand(num_units, generator=generator, dtype=torch.float64)
        log_concentration = torch.randn(num_units, generator=generator, dtype=torch.float64)
        return {"mean": (2 * angle - 1) * math.pi, "log_concentration": log_concentration}

    def values(self, p, x):
        mean, concentration = p["mean"][:, None], p["log_concentration"][:, None].exp()
        log_size = torch.special.i0e(concentration).log() + math.log(2 * math.pi)
        return LeafMessage(None, concentration * (torch.cos(x - mean) - 1) - log_size)


# %%
# Direction and speed of the wind: calm air from the east, gales from the west.

generator = torch.Generator().manual_seed(0)
west = torch.rand(3000, generator=generator, dtype=torch.float64) < 0.6
noise = torch.randn(3000, 2, generator=generator, dtype=torch.float64)
direction = torch.where(west, math.pi + 0.5 * noise[:, 0], 0.3 + 0.9 * noise[:, 0])
direction = torch.remainder(direction + math.pi, 2 * math.pi) - math.pi
speed = torch.where(west, 12 + 3 * noise[:, 1], 4 + 1.2 * noise[:, 1]).abs()
wind = torch.stack([direction, speed], 1)

circuit = sub.Circuit(
    sub.flat(2),
    [VonMises(), sub.Gaussian()],
    num_units=8,
    num_outputs=2,
    seed=0,
    dtype=torch.float64,
)
p = sub.SquaredCircuit(circuit)
sub.initialise(p, wind)
sub.fit(p, wind[:2700], wind[2700:], max_epochs=30, learning_rate=0.03, progress=False)

# %%
# Directions meet at ±π without a seam, and every query works: the density over the circle given
# a speed.

angles = torch.linspace(-math.pi, math.pi, 361, dtype=torch.float64)
figure, ax = plt.subplots(
    figsize=(4.6, 4.2), layout="constrained", subplot_kw={"projection": "polar"}
)
with torch.no_grad():
    for color, given in zip(["#35b779", "#31688e", "#440154"], [4.0, 8.0, 13.0]):
        ax.plot(angles, p.pdf(0, angles, given={1: given}), color=color, label=f"{given:g} m/s")
    seam = p.pdf(0, torch.tensor([-math.pi, math.pi], dtype=torch.float64))
ax.set(yticks=[], title="direction given speed")
ax.legend(loc="lower left", bbox_to_anchor=(-0.15, -0.1), fontsize=8)
print("density at −π and at π:", [round(value, 6) for value in seam.tolist()])
print(f"P(westerly and above 10 m/s) = {p.probability({0: (2.0, math.pi), 1: (10.0, None)}):.3f}")

# %%
# A layer says how many products it forms and what they are. Its square, marginals and samples
# follow from that; a product that is not linear in each child is refused.


class GatedLayer(sub.Layer):
    """W (g ⊙ a ⊙ b): a Hadamard product with a learned gate for every region and unit."""

    def __init__(self, weights):
        super().__init__(weights)
        regions, _, num_products = weights().shape
        self.gate = torch.nn.Parameter(torch.ones(regions, num_products))

    @staticmethod
    def num_inputs(widths):
        return widths[0]

    def product(self, factors, folds):
        result = self.gate[folds][:, None]
        for factor in factors:
            result = result * factor
        return result


gated = sub.SquaredCircuit(
    sub.Circuit(
        sub.linear_tree(3),
        sub.Gaussian(),
        num_units=4,
        product=GatedLayer,
        seed=0,
        dtype=torch.float64,
    )
)
x = torch.randn(3, 3, generator=generator, dtype=torch.float64)
print(torch.allclose(gated.log_square(x), gated.circuit(x).square().sum(1).log()))
print(gated.sample(2, given={0: 0.3}, generator=generator))
