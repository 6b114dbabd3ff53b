"""
Synthetic data, and how good it is
==================================

Samples from the model form a table like yours, with the same columns, types and units, but without
gaps. They are exact draws from the fitted density. Whether that density is right is another
question, which this page asks in several ways.
"""

# %%
# Half of the penguins are used for training, the other half only for comparison.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

import subtractive as sub

table = sub.data.penguins().dropna().sample(frac=1, random_state=0).reset_index(drop=True)
train, test = table[:166], table[166:]
model = sub.SubtractiveMixture(max_epochs=40, random_state=0).fit(train)
synthetic = model.sample(len(test), random_state=0)
print(synthetic.head(3).T)
print("equal types:", list(synthetic.dtypes) == list(table.dtypes))

# %%
# **Single columns and pairs.** Rows that the model has never seen, and rows that it made.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharex=True, sharey=True)
for ax, (name, rows) in zip(axes, {"held-out rows": test, "synthetic rows": synthetic}.items()):
    for color, species in zip(
        ["#440154", "#d95f02", "#1f9e89"], ["Adelie", "Chinstrap", "Gentoo"]
    ):
        some = rows[rows["species"] == species]
        ax.scatter(some["bill_length_mm"], some["bill_depth_mm"], s=12, color=color, label=species)
    ax.set(title=name, xlabel="bill length in mm")
axes[0].set(ylabel="bill depth in mm")
axes[0].legend(frameon=False, fontsize=8)

# %%
# **Can a classifier tell them apart?** 0.5 is chance. For comparison, we do the same with a table
# whose columns were shuffled one by one, so that only single columns are right.


def detectability(first, second):
    both = pd.get_dummies(pd.concat([first, second]))
    label = np.repeat([0, 1], [len(first), len(second)])
    forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=0)
    chance = cross_val_predict(forest, both, label, cv=5, method="predict_proba")[:, 1]
    return roc_auc_score(label, chance)


rng = np.random.default_rng(0)
shuffled = train.apply(lambda column: rng.permutation(column))
print(f"area under the curve, shuffled columns: {detectability(test, shuffled):.2f}")
print(f"area under the curve, synthetic rows:   {detectability(test, synthetic):.2f}")
print(f"area under the curve, training rows:    {detectability(test, train):.2f}")

# %%
# **Do answers agree with held-out rows?** ``check`` asks a few hundred random questions and
# counts the answers that are within chance of the rows.

print(model.check(test))

# %%
# **No memorised rows.** Synthetic rows should not be closer to their nearest training row than
# held-out rows are.

numbers = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
scale = train[numbers].std()
for name, rows in {"held-out": test, "synthetic": synthetic}.items():
    gaps = (rows[numbers].to_numpy()[:, None] - train[numbers].to_numpy()) / scale.to_numpy()
    nearest = np.sqrt((gaps**2).sum(2)).min(1)
    print(f"{name:10s} median distance {np.median(nearest):.2f}, least {nearest.min():.2f}")
