"""
Anomalies, and which column is to blame
=======================================

A row is unusual if its density is low. A joint density finds rows whose single values are all
ordinary but do not go together, and conditional densities show which value does not fit.
"""

# %%
# Penguins with three typing errors. No single value is out of range.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import subtractive as sub

penguins = sub.data.penguins().dropna().reset_index(drop=True)
table = penguins.copy()
table.loc[10, "body_mass_g"] = 5700.0  # an Adelie as heavy as a Gentoo
table.loc[200, "bill_depth_mm"] = 20.5  # a Gentoo with the bill of an Adelie
table.loc[300, "flipper_length_mm"] = 225.0  # a Chinstrap with the flippers of a Gentoo

mixture = sub.SubtractiveMixture(max_epochs=40)
detector = sub.SubtractiveOutlierDetector(mixture, contamination=0.03, random_state=0).fit(table)
found = np.flatnonzero(detector.predict(table) == -1)
print("unusual rows:", found)

# %%
# They are among the rows with the lowest density. In this plot of two columns, row 200 looks
# ordinary.

scores = detector.score_samples(table)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
dots = ax.scatter(table["flipper_length_mm"], table["body_mass_g"], c=scores, cmap="viridis", s=14)
flagged = table.loc[found, ["flipper_length_mm", "body_mass_g"]].to_numpy().T
ax.scatter(*flagged, s=90, facecolors="none", edgecolors="#d95f02", label="flagged")
for row in (10, 200, 300):
    place = table.loc[row, ["flipper_length_mm", "body_mass_g"]]
    ax.annotate(f"row {row}", place, xytext=(7, -12), textcoords="offset points", fontsize=8)
figure.colorbar(dots, label="log-density")
ax.set(xlabel="flipper length in mm", ylabel="body mass in g")
ax.legend(frameon=False, loc="upper left")

# %%
# To find the column to blame, integrate out one value at a time. The change in log-density is the
# log of the conditional density of that value given the others. The typing error is the least
# likely value in each row.

model = detector.estimator_
numbers = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
rows = table.loc[[10, 200, 300]]
blame = pd.DataFrame(index=rows.index, columns=numbers, dtype=float)
for column in numbers:
    without = model.score_samples(rows.assign(**{column: np.nan}))
    typical = model.score_samples(penguins) - model.score_samples(
        penguins.assign(**{column: np.nan})
    )
    blame[column] = model.score_samples(rows) - without - np.median(typical)
print(blame.round(1))
print("suggested corrections:", {r: blame.loc[r].idxmin() for r in rows.index})
