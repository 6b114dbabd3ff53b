"""A circuit from libcirkit
========================

`libcirkit <https://github.com/april-tools/cirkit>`_ builds and trains circuits of many kinds. You
can import a tree circuit with its parameters and then ask more of it: exact samples of its square
given any evidence, missing values, boxes, quantiles.
"""

# %%
# The file was written in libcirkit's own environment. There a squared circuit over a quad tree
# of 8 x 8 pixels (``QuadTree``, ``cp-t``, embeddings, 8 units) was trained on handwritten digits,
# as in its notebooks, and exported by one file of this library, ``cirkit_exchange.py``, that can
# be copied there::
#
#     from cirkit_exchange import describe, write
#     write(*describe(compiled_circuit), "libcirkit_digits.safetensors")
#
# If both libraries are in one environment, use ``sub.from_cirkit(compiled_circuit)``.

import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

folders = (Path(), Path("docs/examples"))  # of this page, or of the repository
circuit = sub.from_cirkit(next(f for folder in folders for f in folder.glob("libcirkit_*")))
p = sub.SquaredCircuit(circuit)
images = torch.tensor(load_digits().data)
with torch.no_grad():
    bits = -p.log_prob(images).mean() / (64 * math.log(2))
print(f"{circuit.graph!r}, {bits:.2f} bits per pixel")

# %%
# The upper half of four digits is given. The lower half is drawn three times, exactly from
# p(lower | upper): no chain, no rejection.

given = images[[0, 2, 4, 13]].clone()
given[:, 32:] = torch.nan
generator = torch.Generator().manual_seed(0)
rows = [images[[0, 2, 4, 13]], *(p.sample(given=given, generator=generator) for _ in range(3))]
figure, axes = plt.subplots(4, 4, figsize=(4.6, 4.6), layout="constrained")
names = ("image", "drawn", "drawn", "drawn")
for line, pictures, name in zip(axes, rows, names):
    for ax, picture in zip(line, pictures):
        ax.imshow(picture.reshape(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=16)
        ax.axhline(3.5, color="#c7772e", lw=1)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, fontsize=9)

# %%
# The mean of all pixels given the upper half, in one pass, and the probability that the pixel in
# the middle of the last row is dark.

means = p.mean(given)
print("mean of the last row:", [round(number, 1) for number in means[0, 56:].tolist()])
seen = {v: value for v, value in enumerate(given[0].tolist()) if not math.isnan(value)}
print(f"P(pixel 60 > 8 | upper half) = {p.probability({60: (9, 16)}, given=seen):.3f}")

# %%
# And back: ``sub.to_cirkit(circuit)`` makes a symbolic circuit where libcirkit is installed;
# ``sub.interop.write_cirkit(circuit, path)`` writes a file for it.
