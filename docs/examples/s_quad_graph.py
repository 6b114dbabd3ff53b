"""Region graphs that are not trees
================================

A tree cuts an image once and for all: two pixels on either side of the first cut meet only at the
root. A region graph may cut every rectangle both ways, and share the halves. Its circuit is a sum
over all ways to cut. It cannot be squared, but as a monotonic circuit it answers every query.
"""

# %%
# Every rectangle of a 4 x 4 image, halved across and along, and a tree for comparison.

import math

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

graphs = {
    "quad graph": sub.regions.quad_graph(4, 4),
    "quad tree": sub.quad_tree(4, 4, num_children=2),
}
for name, graph in graphs.items():
    splits = sum(len(region.partitions) for region in graph.regions)
    print(f"{name}: {len(graph.regions)} regions, {splits} partitions, tree: {graph.is_tree}")

# %%
# Both are trained by EM on the middle of the digits of scikit-learn, 17 shades.

images = torch.tensor(load_digits().images)[:, 2:6, 2:6].flatten(1)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = images[order].split([1078, 360, 359])
densities = {}
for name, graph in graphs.items():
    circuit = sub.Circuit(
        graph, sub.Categorical(17), num_units=8, weights=sub.positive_weights, seed=0
    )
    density = sub.MonotonicCircuit(circuit)
    sub.initialise(density, train)
    options = {"pseudocount": 5.0, "batch_size": 256, "max_epochs": 20, "progress": False}
    sub.learning.fit_em(density, train, valid, **options)
    with torch.no_grad():
        bits = -density.log_prob(test).mean().item() / (16 * math.log(2))
    print(f"{name}: {circuit.num_parameters} parameters, {bits:.3f} bits per pixel")
    densities[name] = density

# %%
# Correlations of neighbours to the right, and below, in the models and in the images. Neighbours
# on either side of the first cut of a tree are nearly independent in the model. The graph comes
# closer to the images elsewhere; that line is left where most of its weight is on one first cut.


def correlations(covariance):
    scale = covariance.diagonal().sqrt()
    table = (covariance / scale[:, None] / scale).reshape(4, 4, 4, 4)
    right = [[table[r, c, r, c + 1].item() for c in range(3)] for r in range(4)]
    below = [[table[r, c, r + 1, c].item() for c in range(4)] for r in range(3)]
    return right, below


figure, axes = plt.subplots(2, 3, figsize=(7, 4), layout="constrained")
tables = {name: density.covariance().detach() for name, density in densities.items()}
tables["images"] = torch.cov(train.T)
for column, (name, table) in zip(axes.T, tables.items()):
    for ax, found, what in zip(column, correlations(table), ("to the right", "below")):
        ax.imshow(found, cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set(title=f"{name}, {what}", xticks=[], yticks=[])

# %%
# Exact samples given any evidence come with it: every row draws which way it was cut.

given = test[:1].clone()
given[:, 8:] = math.nan
density = densities["quad graph"]
drawn = density.sample(given=given.expand(500, -1), generator=torch.Generator().manual_seed(0))
print("means of samples and exact means of the third line of pixels:")
print(
    drawn.mean(0)[8:12].numpy().round(2),
    density.mean(given=given)[0, 8:12].detach().numpy().round(2),
)
