"""
A circuit and its square
========================

A circuit drawn layer by layer, and its square, which has the same layers with pairs of units: K²
where the circuit has K (Algorithm 1 of the paper).
"""

import matplotlib.pyplot as plt
import torch

import subtractive as sub

tree = sub.RegionGraph.from_nested(((0, 1), 2))
circuit = sub.Circuit(tree, sub.Gaussian(), num_units=3, seed=0)
square = sub.materialise_square(circuit)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
names = ["x₁", "x₂", "x₃"]
sub.plots.circuit(circuit, names=names, ax=left).set_title("c(x)", fontsize=11)
sub.plots.circuit(square, names=names, ax=right).set_title("c(x)²", fontsize=11)

# %%
# Both are circuits, and both can be evaluated. The library never writes the square out: it keeps
# Gram matrices of K × K numbers in place of vectors of K² units, which costs K³ in place of K⁴.

x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
print(circuit.double()(x)[:, 0].square().detach())
print(square.double()(x)[:, 0].detach())

# %%
# Over a flat graph the circuit is a mixture, over a linear tree a matrix product state, and a
# Kronecker product multiplies all pairs of units.

figure, axes = plt.subplots(1, 3, figsize=(10, 4.2), layout="constrained")
for ax, (title, graph, product) in zip(
    axes,
    [
        ("a mixture", sub.flat(3), sub.HadamardLayer),
        ("a matrix product state", sub.linear_tree(3), sub.HadamardLayer),
        ("with Kronecker products", sub.linear_tree(3), sub.KroneckerLayer),
    ],
):
    one = sub.Circuit(graph, sub.Gaussian(), num_units=3, product=product, seed=0)
    sub.plots.circuit(one, names=names, ax=ax).set_title(title, fontsize=11)
