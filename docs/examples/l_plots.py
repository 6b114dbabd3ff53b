"""
Plots of a table
================

Common plots of a fitted model, each in one line. Every function takes ``ax`` and returns it.
"""

import matplotlib.pyplot as plt

import subtractive as sub

table = sub.data.penguins()
model = sub.SubtractiveMixture(random_state=0).fit(table)

# %%
# One column: the exact density over the histogram of the rows, for all penguins and given that
# they are heavy.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
sub.plots.marginal(model, "bill_length_mm", data=table, ax=left)
sub.plots.marginal(model, "species", data=table, given={"body_mass_g": (4500, None)}, ax=right)

# %%
# Two columns: shading is the exact joint density, dots are rows.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
sub.plots.joint(model, "bill_length_mm", "bill_depth_mm", data=table, ax=left)
sub.plots.joint(model, "species", "flipper_length_mm", data=table, ax=right)

# %%
# How one column changes with another.

sub.plots.slices(model, "body_mass_g", "species")

# %%
# Which columns depend on each other.

sub.plots.dependence(model)

# %%
# Whether the model is right about each column, and how it learned.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
sub.plots.calibration(model, table, ax=left)
sub.plots.training(model.history_, ax=right)
