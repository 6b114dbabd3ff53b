"""
Conditionals and what-if
========================

One fitted model answers every conditional question: any columns given values, intervals or sets of
any others. Nothing is trained again.
"""

# %%
# A joint density of eight columns, some of them text.

import matplotlib.pyplot as plt
import numpy as np

import subtractive as sub

penguins = sub.data.penguins()
model = sub.SubtractiveMixture(max_epochs=40, random_state=0).fit(penguins)

# %%
# How heavy is a penguin? It depends on what else is known. Each line adds evidence.

evidence = {
    "any penguin": {},
    "Gentoo": {"species": "Gentoo"},
    "Gentoo, male": {"species": "Gentoo", "sex": "male"},
    "Gentoo, male, flipper under 215 mm": {
        "species": "Gentoo",
        "sex": "male",
        "flipper_length_mm": (None, 215),
    },
}
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for color, (name, given) in zip(["#bbbbbb", "#35b779", "#31688e", "#440154"], evidence.items()):
    curves = model.marginals(given=given or None)
    curve = curves[curves["column"] == "body_mass_g"]
    ax.plot(curve["value"], curve["density"], color=color, label=name)
    low, high = model.interval("body_mass_g", 0.9, given=given or None)
    print(f"{name:35s} 90 % of the mass between {low:.0f} and {high:.0f} g")
ax.set(xlabel="body mass in g", xlim=(2500, 6800), yticks=[])
ax.legend(frameon=False, fontsize=8)

# %%
# The other direction: which species is it, given a bill of this length? ``predict_proba`` takes
# a table with what is known, here one column.

lengths = np.arange(32, 60, 0.5)
known = penguins.reindex(range(1000, 1000 + len(lengths)))  # rows without any value
known["bill_length_mm"] = lengths
species = model.predict_proba(known, "species")

figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
colors = ["#fde725", "#35b779", "#31688e"]
ax.stackplot(lengths, *species.to_numpy().T, labels=list(species), colors=colors)
ax.set(xlabel="bill length in mm", ylabel="P(species | length)", xlim=(32, 59.5), ylim=(0, 1))
ax.legend(loc="upper left", fontsize=8)

# %%
# What if a penguin were heavier? ``condition`` returns a density that answers the same
# questions.

for mass in (4500, 5500):
    heavy = model.condition({"species": "Gentoo", "body_mass_g": mass})
    print(f"{mass} g:", heavy.mean()[["bill_length_mm", "flipper_length_mm"]].round(1).to_dict())
    print("        P(male) =", round(heavy.probability({"sex": ["male"]}), 3))
