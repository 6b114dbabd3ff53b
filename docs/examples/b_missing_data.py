"""
Missing data
============

Most tables have gaps. You need not prepare them: rows with gaps are used for training, because
missing values are integrated out exactly, and a gap can be filled with its conditional mean or
with draws from its conditional distribution.
"""

# %%
# We hide a quarter of the numbers in a table of penguins. The model sees only the rest.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import subtractive as sub

table = sub.data.penguins().dropna().reset_index(drop=True)
numbers = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
hidden = np.random.default_rng(0).random((len(table), 4)) < 0.25
gappy = table.copy()
gappy[numbers] = table[numbers].mask(hidden)
print(hidden.sum(), "gaps;", len(gappy.dropna()), "of", len(gappy), "rows have none")

model = sub.SubtractiveMixture(max_epochs=40, random_state=0).fit(gappy)

# %%
# ``impute`` fills gaps with conditional means (or the most likely category). These are the errors,
# in standard deviations of each column, compared with the column's mean and with scikit-learn's
# ``IterativeImputer``, which regresses every column on all others:

coded = pd.get_dummies(gappy, columns=["species", "island", "sex"], dtype=float)
linear = IterativeImputer(random_state=0).set_output(transform="pandas").fit_transform(coded)
filled = {
    "column mean": gappy.fillna(gappy[numbers].mean()),
    "iterative regression": linear,
    "subtractive": model.impute(gappy),
}
errors = pd.DataFrame(
    {
        name: [
            np.sqrt(np.mean((f[c] - table[c])[hidden[:, i]] ** 2)) / table[c].std()
            for i, c in enumerate(numbers)
        ]
        for name, f in filled.items()
    },
    index=numbers,
)
print(errors.round(2))

# %%
# A single number hides how uncertain it is. ``n_draws`` fills the table several times, each time
# with exact draws given everything that is known about the row. You can also get the density
# itself.

row = gappy.index[gappy["body_mass_g"].isna()][3]
known = gappy.loc[row].dropna().to_dict()
print(known)
curves = model.marginals(given=known)  # of every column that is not known
mass = curves[curves["column"] == "body_mass_g"]
draws = model.impute(gappy.loc[[row] * 2000], n_draws=1, random_state=0)[0]["body_mass_g"]

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.hist(draws, bins=np.arange(2700, 6400, 50), density=True, color="#b5dfc4", label="2,000 draws")
ax.plot(mass["value"], mass["density"], color="#440154", label="conditional density")
ax.axvline(table.loc[row, "body_mass_g"], color="#d95f02", label="the hidden value")
ax.set(xlabel="body mass in g, given the rest of the row", yticks=[])
ax.legend(frameon=False)
