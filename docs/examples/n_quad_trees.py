"""Structures for images
=====================

Which pixels meet early matters as much as how large a model is. A quad tree cuts an image into
quarters, until pixels are left; a Chow-Liu tree learns from data which pixels belong together; a
linear tree reads line by line. Each is a region graph; everything else stays the same.
"""

# %%
# The digits of scikit-learn, 8 x 8 pixels with 17 shades, and four trees over them.

import math

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

images = torch.tensor(load_digits().data)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = images[order].split([1078, 360, 359])
graphs = {
    "Chow-Liu tree": sub.chow_liu_tree(train.numpy()),
    "quad tree": sub.quad_tree(8, 8),
    "linear tree": sub.linear_tree(64),
    "random binary tree": sub.random_binary_tree(64, seed=0),
}

# %%
# How far apart are pixels that meet? For each pair of pixels, the number of variables in the
# smallest region that holds both; dark is few. The picture shows it for the pixel marked.

pixel = 8 * 3 + 4
figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), layout="constrained")
for ax, (name, graph) in zip(axes, graphs.items()):
    size = torch.full((64,), 64.0)
    for region in sorted(graph.regions, key=lambda region: -len(region.scope)):
        if pixel in region.scope:
            size[list(region.scope)] = len(region.scope)
    ax.imshow(size.log2().reshape(8, 8).numpy(), cmap="Purples_r")
    ax.plot(pixel % 8, pixel // 8, "o", color="#c7772e")
    ax.set(title=name, xticks=[], yticks=[])

# %%
# One additive model on each, with 8 units everywhere. The structure matters most here; the study
# ``python -m studies digits`` has five seeds, more units, and squares.

scores = {}
for name, graph in graphs.items():
    circuit = sub.Circuit(
        graph, sub.Categorical(17), num_units=8, weights=sub.positive_weights, seed=0
    )
    p = sub.MonotonicCircuit(circuit)
    sub.initialise(p, train)
    sub.fit(p, train, valid, learning_rate=0.1, batch_size=539, max_epochs=25, progress=False)
    with torch.no_grad():
        scores[name] = -p.log_prob(test).mean().item() / (64 * math.log(2))
    print(f"{name:20s} {scores[name]:.3f} bits per pixel on test images")
