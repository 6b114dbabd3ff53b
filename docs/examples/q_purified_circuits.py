"""Sums of squares at every region
===============================

A sum of squares at the root smooths what a single square finds hard to learn. A *locally purified*
circuit has such sums at every region: one more variable at every split, a purifier, which is
always summed out. It needs no layer of its own, and every query stays exact.
"""

# %%
# A quad tree over the digits of scikit-learn, 8 x 8 pixels of 17 shades, and the same tree with a
# purifier at every split.

import math

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

images = torch.tensor(load_digits().data)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = images[order].split([1078, 360, 359])
tree = sub.quad_tree(8, 8)
larger = sub.regions.purified(tree)
print(f"{tree.num_variables} pixels, {larger.num_variables - tree.num_variables} purifiers")

# %%
# Three densities with eight units in every layer: additive, one square, and three squares at every
# region, for which every purifier has three states. Thirty epochs are not enough for squares here;
# the study ``python -m studies digits`` trains all to their end, with more units.


def additive():
    circuit = sub.Circuit(
        tree, sub.Categorical(17), num_units=8, weights=sub.positive_weights, seed=0
    )
    density = sub.MonotonicCircuit(circuit)
    sub.initialise(density, train)
    return density


def squared(num_terms):
    graph = tree if num_terms == 1 else larger
    purifiers = graph.num_variables - 64
    families = [sub.Embedding(17)] * 64 + [sub.Embedding(num_terms)] * purifiers
    density = sub.SquaredCircuit(sub.Circuit(graph, families, num_units=8, seed=0))
    unknown = torch.full((len(train), purifiers), math.nan)
    sub.initialise(density, torch.cat([train, unknown], 1))
    return density.marginal(range(64)) if purifiers else density


histories, scores = {}, {}
for name, density, rate in (
    ("additive", additive(), 0.06),
    ("one square", squared(1), 0.006),
    ("three squares at every region", squared(3), 0.006),
):
    options = {"learning_rate": rate, "batch_size": 256, "max_epochs": 30, "progress": False}
    histories[name] = sub.fit(density, train, valid, **options)
    count = sum(parameter.numel() for parameter in density.parameters())
    with torch.no_grad():
        scores[name] = -density.log_prob(test).mean().item() / (64 * math.log(2))
    print(f"{name:30s} {count} parameters, {scores[name]:.3f} bits per pixel on test images")

# %%
# How they learned: bits per pixel of the validation images.

figure, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name, history in histories.items():
    bits = [-score / (64 * math.log(2)) for score in history.valid]
    ax.plot(range(1, len(bits) + 1), bits, label=name)
ax.set(xlabel="epoch", ylabel="bits per pixel", ylim=(None, 2.6))
ax.legend(frameon=False)

# %%
# Whatever is asked is answered exactly: the lower half of an image given its upper half.

given = test[:1].clone()
given[:, 32:] = math.nan
drawn = density.sample(given=given.expand(200, -1), generator=torch.Generator().manual_seed(0))
exact = density.mean(given=given)[0]
print("means of samples and exact means of the fifth line of pixels:")
print(drawn.mean(0)[32:40].numpy().round(2), exact[32:40].detach().numpy().round(2))
