"""The demo: a ring with two components, exact answers from circles, and a real table."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import subtractive as sub
from subtractive.data.synthetic import ring, ring_log_density, rings
from subtractive.plots.planes import LogDensity, samples_and_slice, side_by_side

EXTENT = 4.5


def concentric(radius: float) -> sub.SquaredCircuit:
    """A wide Gaussian minus a narrow one, squared: zero in the middle, high around it."""
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
    gaussians, root = circuit.input_layers[0], circuit.sum_layers[0].weights
    with torch.no_grad():
        gaussians.get_tensor("mean").zero_()
        gaussians.get_tensor("log_scale").copy_(torch.tensor([0.7, 0.5]).mul(radius).log())
        next(root.parameters()).copy_(torch.tensor([[[2.0, -1.0]]]))
    return sub.SquaredCircuit(circuit)


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


def draw_ring(out: Path) -> None:
    """Fit a ring by adding and by subtracting, and draw the densities side by side."""
    print("1. A ring: additive mixtures against a squared mixture with one negative weight")
    train, valid, test = ring(4000, seed=0), ring(1000, seed=1), ring(4000, seed=2)
    panels: dict[str, LogDensity] = {"ground truth": ring_log_density}
    scores = {"ground truth": float(ring_log_density(test).mean())}
    models: dict[str, sub.Density] = {
        "additive, 2 components": additive(2),
        "additive, 16 components": additive(16),
        "squared, 2 components": concentric(radius=2.0),
    }
    for name, model in models.items():
        sub.fit(model, train, valid, learning_rate=0.03, max_epochs=40, progress=False)
        panels[name] = model.log_prob
        with torch.no_grad():
            scores[name] = float(model.log_prob(test).mean())
    for name, score in scores.items():
        print(f"   {name:25s} test log-likelihood {score:7.3f}")
    notes = {name: f"log-likelihood {score:.3f}" for name, score in scores.items()}
    save(side_by_side(panels, extent=EXTENT, notes=notes), out / "ring.png")


def circles(num_rows: int, seed: int) -> Tensor:
    """A table of two numbers and a category: points on three circles, and which circle."""
    points, circle = rings(num_rows, seed=seed)
    return torch.cat([points, circle[:, None].double()], 1)


def fit_circles() -> sub.SquaredCircuit:
    """A squared circuit over two splines and an embedding, fitted to a table with gaps."""
    train, valid = circles(8000, seed=0), circles(1000, seed=1)
    train[::20, 1] = math.nan
    spline = sub.Spline(32, domain=(-6.5, 6.5))
    graph = sub.RegionGraph.from_nested(((0, 1), 2))
    circuit = sub.Circuit(
        graph, [spline, spline, sub.Embedding(3)], num_units=16, num_outputs=2, seed=0
    )
    model = sub.SquaredCircuit(circuit)
    sub.fit(model, train, valid, learning_rate=0.03, max_epochs=20)
    return model


def answer_questions(out: Path) -> None:
    """Fit a table of mixed types with missing entries, and ask it what samples alone cannot."""
    print("2. Three circles as a table (x, y, circle), every 20th y missing: exact answers")
    model = fit_circles()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        print(f"   test log-likelihood {float(model.log_prob(circles(2000, seed=3)).mean()):.3f}")
        chance = float(model.probability({0: (None, 0.0), 2: {2}}))
        print(f"   P(x <= 0 and outermost circle) = {chance:.4f}   (truth 5/18 = {5 / 18:.4f})")
        posterior = model.pdf(2, torch.arange(3), given={0: 2.5, 1: 1.5})
        shares = ", ".join(f"{share:.3f}" for share in posterior.tolist())
        print(f"   P(circle | x = 2.5, y = 1.5)   = {shares}")
    picture = samples_and_slice(model, variable=0, given={1: 0.8}, extent=6.5)
    save(picture, out / "circles.png")
    show_imputation(model, generator)


def show_imputation(model: sub.SquaredCircuit, generator: torch.Generator) -> None:
    """Print a table with gaps, its conditional means and modes, and one joint draw."""
    table = circles(6, seed=4)
    table[0, 2] = table[1, 2] = table[2, 1] = table[3, 0] = math.nan
    table[4, 1:] = math.nan
    table[5] = math.nan
    filled = model.impute(table)
    drawn = model.impute(table, sample=True, generator=generator)
    print("   a table with gaps | means, modes of the circle | one joint draw of what is missing")
    for row in zip(table.tolist(), filled.tolist(), drawn.tolist(), strict=True):
        print("   " + "  |".join(" ".join(cell(value) for value in part) for part in row))


def learn_penguins(out: Path) -> None:
    """Fit a real table with text and gaps, ask it, and write a page about it."""
    print("3. A real table: 344 penguins, text and numbers with gaps")
    table = sub.data.penguins()
    model = sub.SubtractiveMixture(random_state=0, verbose=True).fit(table)
    gentoo = {"species": "Gentoo"}
    heavy = {"body_mass_g": (5000, None)}
    for given in ({}, gentoo, gentoo | {"sex": "female"}, gentoo | {"sex": "male"}):
        rows = table.dropna()
        for name, value in given.items():
            rows = rows[rows[name] == value]
        said = ", ".join(given.values()) or "any penguin"
        share = (rows["body_mass_g"] >= 5000).mean()
        chance = model.probability(heavy, given or None)
        print(
            f"   P(mass >= 5 kg | {said:14s}) = {chance:.3f}   ({share:.3f} of {len(rows)} rows)"
        )
    print("   three draws given species = Gentoo and a flipper of 215 mm:")
    drawn = model.sample(3, given=gentoo | {"flipper_length_mm": 215}, random_state=0)
    print("\n".join(f"     {line}" for line in drawn.round(1).to_string(index=False).splitlines()))
    model.save(out / "penguins.model")
    sub.write_report(model, table, out / "penguins.html")
    print(f"   written: {out / 'penguins.model'} (subtractive info ...), {out / 'penguins.html'}")


def cell(value: float) -> str:
    """A number in seven characters, a gap as a dot."""
    return f"{'.':>7s}" if math.isnan(value) else f"{value:7.2f}"


def save(figure: Figure, path: Path) -> None:
    """Write a figure and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"   drawn: {path}")


def run(folder: str) -> None:
    """Run the demo, its pictures going to a folder."""
    out = Path(folder)
    draw_ring(out)
    answer_questions(out)
    learn_penguins(out)
