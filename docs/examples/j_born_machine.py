"""
A Born machine: bars and stripes
================================

In quantum mechanics the probability of an outcome is the squared amplitude, p(x) = \\|ψ(x)\\|².
A Born machine learns a matrix-product state ψ whose squares are the probabilities of data. Here
it is a squared circuit over a linear tree.
"""

# %%
# The usual test: images of 4 × 4 pixels in which whole rows or whole columns are
# black. Of 65,536 images, 30 are of this kind.

import itertools
import math

import matplotlib.pyplot as plt
import torch

import subtractive as sub

bars = [torch.tensor(row).repeat(4, 1) for row in itertools.product([0, 1], repeat=4)]
patterns = torch.stack([image.flatten() for bar in bars for image in (bar, bar.T)]).unique(dim=0)
print(len(patterns), "patterns")

# %%
# The same chain of tables, bonds of 16, once with a square and once without: a Born machine and,
# with non-negative numbers, a hidden Markov model. Log-likelihood can be at best −log 30.

graph = sub.linear_tree(16)
born = sub.SquaredCircuit(
    sub.Circuit(
        graph,
        sub.Embedding(2),
        num_units=16,
        initialise=sub.init.normal(),  # amplitudes of either sign
        seed=0,
        dtype=torch.float64,
    )
)
markov = sub.MonotonicCircuit(
    sub.Circuit(
        graph,
        sub.Categorical(2),
        num_units=16,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
)
models = {"Born machine": born, "hidden Markov model": markov}
histories = {}
for name, model in models.items():
    histories[name] = sub.fit(
        model, patterns, max_epochs=400, learning_rate=0.05, batch_size=30, progress=False
    )
    with torch.no_grad():
        mass = model.log_prob(patterns).exp().sum()
    print(f"{name:20s} gives the 30 patterns a probability of {mass:.4f}")

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for color, (name, history) in zip(["#440154", "#35b779"], histories.items()):
    ax.plot([epoch.train for epoch in history.epochs], color=color, label=name)
ax.axhline(-math.log(30), color="#999999", linestyle=":", label="−log 30, the best there is")
ax.set(xlabel="epoch", ylabel="log-likelihood", ylim=(-12, -3))
ax.legend(frameon=False)

# %%
# Samples of the Born machine, and the patterns that remain when the first pixels are measured.

generator = torch.Generator().manual_seed(0)
drawn = born.sample(10, generator=generator)
given = born.sample(10, given={0: 1.0, 1: 0.0}, generator=generator)
figure, axes = plt.subplots(2, 10, figsize=(8, 1.9), layout="constrained")
for line, name, images in zip(axes, ("samples", "first pixels 1, 0"), (drawn, given)):
    for ax, image in zip(line, images):
        ax.imshow(image.reshape(4, 4).numpy(), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    line[0].set_title(name, fontsize=8, loc="left")

# %%
# The squared norm of the state is Z. :doc:`/reductions` describes how to turn the circuit into the
# cores of a matrix-product state, and back.

cores = sub.reductions.matrix_product_state(born).cores
print([tuple(core.shape) for core in cores[:4]], "...")
print(f"log of the squared norm: {born.log_partition():.4f}")
