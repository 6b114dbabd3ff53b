"""
Events and risk
===============

What is the chance of a bad year? A question about risk asks for the probability of an event, often
a rare one, and often given something else. Here every such probability is an integral that is
computed exactly, even if a simulation would hardly ever produce the event.
"""

# %%
# Insurance claims, drawn from a known distribution so that answers can be checked: young drivers
# have more accidents, most policies have none at all, and damages have a long tail.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import subtractive as sub


def draw(rng, size):
    young = rng.random(size) < 0.3
    km = rng.lognormal(np.where(young, 9.2, 9.6), 0.4)
    accident = rng.random(size) < np.where(young, 0.15, 0.05) * np.sqrt(km / 15_000)
    damage = np.where(accident, rng.lognormal(np.where(young, 8.0, 7.6), 0.9), 0.0)
    age = np.where(young, "under 25", "25 and over")
    return pd.DataFrame({"age": age, "km": km.round(-2), "damage": damage.round()})


policies = draw(np.random.default_rng(0), 5000)
print(policies.sample(5, random_state=1).to_string(index=False))

model = sub.SubtractiveMixture(effort="fast", random_state=0).fit(policies)

# %%
# The damages have an *atom*: zero has a positive probability, and the rest is continuous and
# positive. The library found this in the data.

print(model.schema_)

# %%
# Probabilities of events, next to their shares among a million policies from the true
# distribution. Among the 5,000 rows that the model has seen, few or none show the last event.

truth = draw(np.random.default_rng(1), 1_000_000)
young = truth["age"] == "under 25"
questions = [
    ("an accident", {"damage": (1, None)}, {}, truth["damage"] > 0),
    (
        "an accident, under 25",
        {"damage": (1, None)},
        {"age": "under 25"},
        truth["damage"][young] > 0,
    ),
    ("more than 10,000", {"damage": (10_000, None)}, {}, truth["damage"] > 10_000),
    (
        "more than 10,000, under 25",
        {"damage": (10_000, None)},
        {"age": "under 25"},
        truth["damage"][young] > 10_000,
    ),
]
for name, event, given, happened in questions:
    chance = model.probability(event, given=given or None)
    print(f"{name:28s} {chance:.4f}   truth {happened.mean():.4f}")

# %%
# Quantiles of the damage given an accident, for both age groups: the value at risk at each level.

levels = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for color, age in zip(["#440154", "#35b779"], ["under 25", "25 and over"]):
    at_risk = model.quantile("damage", levels, given={"age": age, "damage": (1, None)})
    damages = truth["damage"][(truth["age"] == age) & (truth["damage"] > 0)]
    ax.plot(100 * levels, at_risk, "o-", color=color, label=f"{age}, model")
    ax.plot(100 * levels, damages.quantile(levels), "x:", color=color, label=f"{age}, truth")
ax.set(xlabel="level in %", ylabel="damage, given an accident", yscale="log")
ax.legend(frameon=False, fontsize=8)
