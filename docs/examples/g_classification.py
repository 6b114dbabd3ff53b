"""
Classification with missing values
==================================

``SubtractiveClassifier`` fits one density to each class and applies Bayes' rule. It is a
scikit-learn classifier, and it needs no imputation: values that are missing when a row is to be
classified are integrated out.
"""

# %%
# Wines of three growers: thirteen measurements, 178 bottles.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import subtractive as sub

x, y = load_wine(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=0)
mixture = sub.SubtractiveMixture(4, structure="chow-liu", max_epochs=30)
model = sub.SubtractiveClassifier(mixture, random_state=0).fit(x_train, y_train)
forest = make_pipeline(SimpleImputer(), RandomForestClassifier(random_state=0))
forest.fit(x_train, y_train)
print(f"accuracy, nothing missing: {model.score(x_test, y_test):.3f}")
print(f"random forest:             {forest.score(x_test, y_test):.3f}")

# %%
# Now measurements go missing from the test rows, more and more of them. Both models were trained
# on complete rows. A random forest depends on imputed means; the density just leaves out what it
# does not know.

rng = np.random.default_rng(0)
shares = [0.0, 0.2, 0.4, 0.6, 0.8]
curves = {"subtractive": [], "random forest, mean imputation": []}
for share in shares:
    gaps = [np.where(rng.random(x_test.shape) < share, np.nan, x_test) for _ in range(5)]
    for name, fitted in zip(curves, (model, forest)):
        curves[name].append(np.mean([fitted.score(rows, y_test) for rows in gaps]))

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for color, (name, accuracy) in zip(["#440154", "#999999"], curves.items()):
    ax.plot(100 * np.array(shares), accuracy, "o-", color=color, label=name)
ax.set(xlabel="measurements missing in %", ylabel="accuracy", ylim=(0.3, 1.02))
ax.legend(frameon=False)

# %%
# ``predict_proba`` says how sure it is: the less is known of a row, the less it claims.

for share in shares:
    rows = np.where(rng.random(x_test.shape) < share, np.nan, x_test)
    said = model.predict_proba(rows).max(1).mean()
    right = model.score(rows, y_test)
    print(f"{share:4.0%} missing: mean probability of its answer {said:.2f}, right {right:.2f}")
