"""A density among torch.distributions
===================================

Every density can be seen as a ``torch.distributions.Distribution``, so that code written for
those takes it: shapes of batches and events, ``log_prob``, ``sample``, ``mean``, ``variance``,
``cdf``. Beside them it keeps what they do not have: marginals, conditionals, missing values.
"""

# %%
# A squared mixture of 24 components learns two half moons.

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons

import subtractive as sub

train = torch.tensor(make_moons(2000, noise=0.1, random_state=0)[0])
valid = torch.tensor(make_moons(500, noise=0.1, random_state=1)[0])
circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=24, seed=0, dtype=torch.float64)
p = sub.SquaredCircuit(circuit)
sub.initialise(p, train)
sub.fit(p, train, valid, max_epochs=20, progress=False)
moons = p.as_distribution()
print(moons.event_shape, moons.batch_shape)

# %%
# ``log_prob`` takes any leading axes: here a grid of 60 x 80 points at once.

x, y = torch.linspace(-1.8, 2.8, 80), torch.linspace(-1.3, 1.8, 60)
grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
with torch.no_grad():
    density = moons.log_prob(grid).exp()
    below = moons.cdf(grid)
print(grid.shape, "->", density.shape)

# %%
# The joint distribution function P(x ≤ a, y ≤ b) is an integral over a box, and exact. It climbs
# from zero to one; the samples are exact, too.

drawn = moons.sample((500,))
figure, axes = plt.subplots(1, 2, figsize=(8.5, 2.9), layout="constrained")
axes[0].pcolormesh(x.numpy(), y.numpy(), density.numpy(), cmap="Purples")
axes[0].plot(*drawn.T.numpy(), ".", ms=2, color="#c7772e")
axes[0].set(title="density, and 500 samples", xlim=(-1.8, 2.8), ylim=(-1.3, 1.8))
levels = axes[1].contour(
    x.numpy(), y.numpy(), below.numpy(), levels=[0.05, 0.2, 0.4, 0.6, 0.8, 0.95]
)
axes[1].clabel(levels, fontsize=8)
axes[1].set(title="P(x ≤ a, y ≤ b)")

# %%
# Shares of samples agree with it:

corner = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
many = moons.sample((20_000,))
shares = (many[:, None] <= corner).all(-1).double().mean(0)
print("exact  ", [f"{number:.4f}" for number in moons.cdf(corner).tolist()])
print("samples", [f"{number:.4f}" for number in shares.tolist()])

# %%
# In a batch the same density stands for every element, as ``expand`` does elsewhere in torch.

batch = moons.expand((3, 1))
print(batch.sample((2,)).shape, batch.log_prob(torch.zeros(4, 2)).shape, batch.mean.shape)
