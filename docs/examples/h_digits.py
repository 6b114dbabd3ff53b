"""
Images of 8 × 8 pixels
======================

A density of images can complete them. The handwritten digits of scikit-learn have 64 pixels with
17 shades of grey; a circuit over a tree of pixels learns their joint distribution in some seconds,
and draws what is missing given any part of an image.
"""

# %%
# A tree over the pixels: the image is cut in two, along rows and columns in turn, until
# single pixels are left. Neighbouring pixels meet early.

import math

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

images = torch.tensor(load_digits().data)  # 1,797 images, 64 pixels, 0 .. 16
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = images[order].split([1400, 197, 200])


def cut(rows, columns):
    if len(rows) * len(columns) == 1:
        return 8 * rows[0] + columns[0]
    if len(rows) >= len(columns):
        half = len(rows) // 2
        return cut(rows[:half], columns), cut(rows[half:], columns)
    half = len(columns) // 2
    return cut(rows, columns[:half]), cut(rows, columns[half:])


graph = sub.RegionGraph.from_nested(cut(range(8), range(8)))

# %%
# Shades are counts from 0 to 16, so binomial distributions suit them
# (:class:`~subtractive.Binomial`). The density is a sum of eight squares.

circuit = sub.Circuit(graph, sub.Binomial(16), num_units=32, num_outputs=8, seed=0)
p = sub.SquaredCircuit(circuit)
sub.initialise(p, train)
sub.fit(p, train, valid, max_epochs=30, learning_rate=0.05, batch_size=64, progress=False)
with torch.no_grad():
    bits = -p.log_prob(test).mean() / math.log(2) / 64
    # Pixels that know nothing of each other, for comparison
    shares = torch.stack([(train == shade).double().mean(0) for shade in range(17)]) + 1e-3
    alone = -(shares / shares.sum(0)).log2().gather(0, test.long()).mean()
print(f"{bits:.2f} bits per pixel on test images; {alone:.2f} if pixels were independent")

# %%
# Digits that nobody wrote:

drawn = p.sample(20, generator=torch.Generator().manual_seed(1))
figure, axes = plt.subplots(2, 10, figsize=(8, 1.8), layout="constrained")
for ax, image in zip(axes.flat, drawn):
    ax.imshow(image.reshape(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=16)
    ax.axis("off")

# %%
# The lower half of test images is hidden. ``impute`` draws it four times, exactly, given the
# upper half. None of these images was in the training set.

shown = test[[3, 5, 8, 12, 14, 19, 22, 29]]
hidden = shown.clone()
hidden[:, 32:] = torch.nan
generator = torch.Generator().manual_seed(0)
draws = [p.impute(hidden, sample=True, generator=generator) for _ in range(4)]
rows = {"image": shown, "seen": hidden} | {f"draw {i + 1}": draw for i, draw in enumerate(draws)}
figure, axes = plt.subplots(len(rows), 8, figsize=(7, 5.4), layout="constrained")
for line, (name, pictures) in zip(axes, rows.items()):
    for ax, image in zip(line, pictures):
        ax.imshow(image.reshape(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, fontsize=9)
