"""The demo, a story in four parts: a ring, a table, a question, an answer."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

import subtractive as sub
from subtractive.data.synthetic import ring, ring_log_density
from subtractive.plots.planes import LogDensity, side_by_side

EXTENT = 4.5
GENTOO = {"species": "Gentoo"}
EVIDENCE = {
    "any penguin": {},
    "Gentoo": GENTOO,
    "female Gentoo": GENTOO | {"sex": "female"},
    "male Gentoo": GENTOO | {"sex": "male"},
}


def run(folder: str) -> None:
    """Tell the story; pictures, a model and a page go to a folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    draw_ring(out / "ring.png")
    table = sub.data.penguins()
    model = learn_table(table)
    ask(model, table)
    answer(model, out / "answer.png")
    model.save(out / "penguins.model")
    sub.write_report(model, table, out / "penguins.html", title="Penguins")
    say_what_to_open(out)


def draw_ring(path: Path) -> None:
    """Fit a ring by adding and by subtracting, and draw the densities side by side."""
    print("1. A ring. Mixtures that add need many components for a hole; one that subtracts, two.")
    train, valid, test = ring(4000, seed=0), ring(1000, seed=1), ring(4000, seed=2)
    models: dict[str, sub.Density] = {
        "2 added": additive(2),
        "16 added": additive(16),
        "1 minus 1, squared": concentric(radius=2.0),
    }
    panels: dict[str, LogDensity] = {"the truth": ring_log_density}
    for name, model in models.items():
        sub.fit(model, train, valid, learning_rate=0.03, max_epochs=40, progress=False)
        panels[name] = model.log_prob
    with torch.no_grad():
        scores = {name: float(log_density(test).mean()) for name, log_density in panels.items()}
    for name, score in scores.items():
        print(f"   {name:20s} mean test log-likelihood {score:7.3f}")
    notes = {name: f"log-likelihood {score:.3f}" for name, score in scores.items()}
    side_by_side(panels, extent=EXTENT, notes=notes).savefig(path, dpi=150)


def additive(num_components: int) -> sub.MonotonicCircuit:
    """A mixture that can only add."""
    return sub.MonotonicCircuit(
        sub.Circuit(
            sub.flat(2),
            sub.Gaussian(),
            num_units=num_components,
            weights=sub.positive_weights,
            seed=0,
            dtype=torch.float64,
        )
    )


def concentric(radius: float) -> sub.SquaredCircuit:
    """A wide Gaussian minus a narrow one, squared: zero in the middle, high around it."""
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
    gaussians, root = circuit.input_layers[0], circuit.sum_layers[0].weights
    with torch.no_grad():
        gaussians.get_tensor("mean").zero_()
        gaussians.get_tensor("log_scale").copy_(torch.tensor([0.7, 0.5]).mul(radius).log())
        next(root.parameters()).copy_(torch.tensor([[[2.0, -1.0]]]))
    return sub.SquaredCircuit(circuit)


def learn_table(table: pd.DataFrame) -> sub.SubtractiveMixture:
    """Fit a real table with text and gaps."""
    gaps = int(table.isna().sum().sum())
    print(f"\n2. A table. {len(table)} penguins: {table.shape[1]} columns, text, {gaps} gaps.")
    print(indent(table.head(4)))
    # Progress bars are for people who watch: in a file each of their steps would be a line.
    model = sub.SubtractiveMixture(random_state=0, verbose=sys.stderr.isatty()).fit(table)
    print("   One joint density of all columns has been learned.")
    return model


def ask(model: sub.SubtractiveMixture, table: pd.DataFrame) -> None:
    """Ask how likely a heavy penguin is, given more and more, beside the rows of the table."""
    print("\n3. A question. How likely is a penguin of 5 kg or more?")
    rows = table.dropna()
    for name, given in EVIDENCE.items():
        matching = rows[(rows[list(given)] == pd.Series(given)).all(axis=1)]
        share = (matching["body_mass_g"] >= 5000).mean()
        chance = model.probability({"body_mass_g": (5000, None)}, given or None)
        print(f"   {name:14s} {chance:6.1%}   ({share:6.1%} of {len(matching)} rows)")


def answer(model: sub.SubtractiveMixture, path: Path) -> None:
    """Draw the whole conditional densities, and draw penguins of that kind."""
    print(
        "\n4. An answer is more than a number: the density of the mass, and penguins like these,"
    )
    print("   all male Gentoos with flippers of 215 mm:")
    given = EVIDENCE["male Gentoo"] | {"flipper_length_mm": 215}
    print(indent(model.sample(4, given=given, random_state=0).round(1)))
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, known in EVIDENCE.items():
        curves = model.marginals(given=known or None)
        curve = curves[curves["column"] == "body_mass_g"]
        axes.plot(curve["value"], curve["density"], label=name)
    axes.set(xlabel="body mass in g", yticks=[], title="body mass, given what is known")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def say_what_to_open(out: Path) -> None:
    """The last words."""
    installed = shutil.which("subtractive") is not None
    command = "subtractive" if installed else f"{os.path.relpath(sys.executable)} -m subtractive"
    question = '--probability "body_mass_g>5000" --given sex=female'
    print(
        f"""
Open these:
   {out / "penguins.html"}   a report about the table and the model
   {out / "ring.png"}        the ring, four times
   {out / "answer.png"}      the mass of a penguin, given what is known
Then ask something yourself:
   {command} query {out / "penguins.model"} {question}
   {command} --help"""
    )


def indent(table: pd.DataFrame) -> str:
    """A table as text, a little to the right."""
    lines = table.to_string(index=False, na_rep="").splitlines()
    return "\n".join(f"     {line}" for line in lines)
