"""Hidden Chow-Liu trees by EM
===========================

A Chow-Liu tree joins the columns that say most about each other. Hang every column on a hidden
variable of its own, let these form the tree, and learn all tables by expectation maximisation:
that is a monotonic circuit, for columns of any kind, and often the best additive one.
"""

# %%
# Binary pixels: which of the 64 are dark in the digits of scikit-learn.

import time

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import subtractive as sub

images = (torch.tensor(load_digits().data) > 7).double()
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = images[order].split([1078, 360, 359])
graph = sub.chow_liu_tree(train.numpy())

# %%
# Two trainings of equal circuits, of eight states for each hidden variable: gradients from the
# usual start, and EM from clusters of the rows.


def by_adam():
    circuit = sub.Circuit(
        graph, sub.Categorical(2), num_units=8, weights=sub.positive_weights, seed=0
    )
    density = sub.MonotonicCircuit(circuit)
    sub.initialise(density, train)
    options = {"learning_rate": 0.1, "max_epochs": 20, "patience": 5, "progress": False}
    return density, sub.fit(density, train, valid, **options)


def by_em():
    density = sub.learning.hidden_chow_liu_tree(
        train, [sub.Categorical(2)] * 64, num_states=8, graph=graph
    )
    options = {"pseudocount": 1.0, "batch_size": 256, "max_epochs": 20, "progress": False}
    return density, sub.learning.fit_em(density, train, valid, **options)


figure, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name, train_it in (("Adam", by_adam), ("EM", by_em)):
    start = time.process_time()
    density, history = train_it()
    seconds = time.process_time() - start
    with torch.no_grad():
        score = density.log_prob(test).mean().item()
    print(f"{name:5s} {score:7.2f} nats on test images, {seconds:.1f} s of processor time")
    ax.plot(range(1, len(history.valid) + 1), history.valid, "o-", ms=3, label=name)
ax.set(xlabel="epoch", ylabel="log-likelihood of validation images", ylim=(-24, None))
ax.legend(frameon=False)

# %%
# Images that were drawn, and images completed from their left half.

drawn = density.sample(8, generator=torch.Generator().manual_seed(1))
given = test[:8].clone().reshape(8, 8, 8)
given[:, :, 4:] = torch.nan
completed = density.sample(given=given.flatten(1), generator=torch.Generator().manual_seed(1))
figure, axes = plt.subplots(3, 8, figsize=(7, 2.8), layout="constrained")
for line, pictures in zip(axes, (drawn, given.flatten(1), completed)):
    for ax, picture in zip(line, pictures):
        ax.imshow(picture.reshape(8, 8).nan_to_num(0.5).numpy(), cmap="Greys", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
