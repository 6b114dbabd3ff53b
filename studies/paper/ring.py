"""The ring: two Gaussians, one of them subtracted, against many added ones (paper: Sec. 1)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from PIL import Image
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from studies.models.kinds import OURS, PAPER
from studies.models.training import PaperSchedule, Schedule, Training, train
from subtractive.data.synthetic import ring, ring_log_density
from subtractive.plots.planes import LogDensity, draw_heat, find_peak, on_grid, side_by_side

TRUTH, SQUARED = "ground truth", "squared"
Model = sub.SquaredCircuit | sub.MonotonicCircuit


@final
@dataclass(frozen=True)
class Ring(Experiment):
    """Additive mixtures of several sizes, and a squared one of two components."""

    name: ClassVar[str] = "ring"
    title: ClassVar[str] = "A ring: subtracting one Gaussian against adding many"
    bulky: ClassVar[tuple[str, ...]] = ("frames",)

    additive: tuple[int, ...] = (2, 4, 16)
    rows: tuple[int, int, int] = (4_000, 1_000, 4_000)
    radius: float = 2.0
    width: float = 0.5
    epochs: int = 40
    learning_rate: float = 0.03
    batch_size: int = 256
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    frames: int = 24
    data_seed: int = 0
    protocol: str = OURS
    squared_rate: float = 1e-3  # of the paper's protocol only
    patience: int = 100

    def paper(self) -> dict[str, Any]:
        """The configuration of the authors' program: the paper itself gives no settings."""
        return {
            "protocol": PAPER,
            "additive": (2, 16),
            "epochs": 1200,
            "learning_rate": 5e-3,
            "batch_size": 64,
        }

    def runs(self) -> Sequence[Run]:
        models = [("squared", 2), *(("additive", count) for count in self.additive)]
        return [
            {"model": model, "components": count, "seed": seed}
            for model, count in models
            for seed in self.seeds
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        rows, valid, test = self._data()
        model = build(run, rows if self.protocol == OURS else None)
        if self.protocol == PAPER:
            draw_all_normal(model.circuit, run)
        frames = [{"epoch": 0, "state": numbers(model)}]
        shown = {round(epoch) for epoch in np.geomspace(1, self.epochs, self.frames)}

        def keep(density: sub.Density, history: sub.History) -> None:
            if len(history.epochs) in shown:
                frames.append({"epoch": len(history.epochs), "state": numbers(density)})

        schedule = self._schedule(run["model"])
        history = train(model, (rows, valid), schedule, callbacks=[keep], seed=run["seed"])
        frames.append({"epoch": history.best_epoch, "state": numbers(model)})
        with torch.no_grad():
            score = float(model.log_prob(test).mean())
            truth = float(self._truth(test).mean())
        count = model.circuit.num_parameters
        return {
            "valid": history.best_score,
            "test": score,
            "truth": truth,
            "parameters": count,
            "epoch": history.best_epoch,
            "state": numbers(model),
            "frames": frames,
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        truth = records[0].result["truth"]
        groups: dict[tuple[str, int], list[Record]] = {}
        for record in records:
            key = (record.run["model"], record.run["components"])
            groups.setdefault(key, []).append(record)
        rows: list[list[Any]] = [[TRUTH, None, None, truth, truth, truth, truth]]
        for (model, count), group in groups.items():
            scores = [record.result["test"] for record in group]
            chosen = best(group).result
            spread = [float(np.median(scores)), min(scores), max(scores)]
            rows.append([model, count, chosen["parameters"], chosen["test"], *spread])
        outputs.table(
            "ring",
            f"Mean test log-likelihood over {len(self.seeds)} seeds; `chosen` is the seed with "
            "the best validation score.",
            ["model", "components", "parameters", "chosen", "median", "least", "most"],
            rows,
        )
        chosen_of = {key: best(group) for key, group in groups.items()}
        self._draw(chosen_of, truth, outputs)

    def _draw(self, chosen: Mapping[tuple[str, int], Record], truth: float, outputs: Page) -> None:
        panels: dict[str, LogDensity] = {TRUTH: self._truth}
        notes = {TRUTH: f"log-likelihood {truth:.3f}"}
        for (model, count), record in chosen.items():
            title = f"{model}, {count} components"
            panels[title] = restored(record).log_prob
            notes[title] = f"log-likelihood {record.result['test']:.3f}"
        extent = self.radius + 4 * self.width
        figure = side_by_side(panels, extent=extent, notes=notes)
        for axes, record in zip(figure.axes[1:], chosen.values(), strict=True):
            draw_components(axes, record.result["state"])
        outputs.figure(
            "ring",
            "Densities after training, all on one colour scale. Ellipses are the components at "
            "two standard deviations, dotted where they are subtracted.",
            figure,
        )
        if not all("frames" in record.result for record in chosen.values()):
            return  # records in git have no frames
        outputs.file(
            "training.gif",
            "Training, epoch by epoch: the squared mixture opens a hole, additive ones line up "
            "around it.",
            self._animate(chosen, extent),
        )

    def _animate(self, chosen: Mapping[tuple[str, int], Record], extent: float) -> bytes:
        ends = [self._truth, *(restored(record).log_prob for record in chosen.values())]
        peak = max(find_peak(on_grid(density, extent=extent)) for density in ends)
        frames = next(iter(chosen.values())).result["frames"][:-1]
        images = []
        for number, frame in enumerate(frames):
            figure = Figure(figsize=(2.4 * len(chosen), 2.9), layout="constrained", dpi=80)
            axes = figure.subplots(1, len(chosen), squeeze=False)[0]
            for panel, ((model, count), record) in zip(axes, chosen.items(), strict=True):
                density = on_grid(restored(record, number).log_prob, extent=extent, points=101)
                draw_heat(panel, density, extent=extent, peak=peak)
                panel.set_title(f"{model}, {count} components", fontsize=9)
            figure.supxlabel(f"epoch {frame['epoch']}", fontsize=9)
            page = io.BytesIO()
            figure.savefig(page, format="png")
            images.append(Image.open(page).convert("P", palette=Image.Palette.ADAPTIVE))
        movie = io.BytesIO()
        times = [250] * (len(images) - 1) + [2000]
        images[0].save(
            movie, "GIF", save_all=True, append_images=images[1:], duration=times, loop=0
        )
        return movie.getvalue()

    def _data(self) -> tuple[Tensor, Tensor, Tensor]:
        parts = [
            ring(count, radius=self.radius, width=self.width, seed=3 * self.data_seed + number)
            for number, count in enumerate(self.rows)
        ]
        return parts[0], parts[1], parts[2]

    def _schedule(self, model: str) -> Training:
        if self.protocol == OURS:
            return Schedule(self.epochs, self.learning_rate, self.batch_size)
        rate = self.squared_rate if model == SQUARED else self.learning_rate
        return PaperSchedule(self.epochs, rate, self.batch_size, self.patience)

    def _truth(self, x: Tensor) -> Tensor:
        return ring_log_density(x, radius=self.radius, width=self.width)


def build(run: Run, rows: Tensor | None = None) -> Model:
    """The model of a run, as it starts from rows (n, 2)."""
    squared = run["model"] == SQUARED
    circuit = sub.Circuit(
        sub.flat(2),
        sub.Gaussian(),
        num_units=run["components"],
        weights=sub.real_weights if squared else sub.positive_weights,
        seed=run["seed"],
        dtype=torch.float64,
    )
    model = sub.SquaredCircuit(circuit) if squared else sub.MonotonicCircuit(circuit)
    if rows is not None and squared:
        subtract_the_middle(circuit, rows, run["seed"])
    elif rows is not None:
        sub.initialise(model, rows, seed=run["seed"])
    return model


@torch.no_grad()
def subtract_the_middle(circuit: sub.Circuit, rows: Tensor, seed: int) -> None:
    """Start from a Gaussian like the data minus a narrower one, both a little out of place."""
    generator = torch.Generator().manual_seed(seed)
    gaussians, root = circuit.input_layers[0], circuit.sum_layers[0].weights
    mean, scale = gaussians.get_tensor("mean"), gaussians.get_tensor("log_scale")  # (2, 2) each
    spread = rows.std(0)[:, None]
    noise = torch.randn(2, *mean.shape, generator=generator, dtype=mean.dtype)
    mean.copy_(rows.mean(0)[:, None] + 0.1 * spread * noise[0])
    scale.copy_((spread * torch.tensor([1.0, 0.7])).log() + 0.1 * noise[1])
    next(root.parameters()).copy_(torch.tensor([[[1.0, -0.5]]]))


@torch.no_grad()
def draw_all_normal(circuit: sub.Circuit, run: Run) -> None:
    """The authors' start: means and log-scales normal, weights uniform, or normal if squared."""
    generator = torch.Generator().manual_seed(run["seed"])
    for name in ("mean", "log_scale"):
        tensor = circuit.input_layers[0].get_tensor(name)
        tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))
    value = next(circuit.sum_layers[0].weights.parameters())
    if run["model"] == SQUARED:
        value.copy_(torch.randn(value.shape, generator=generator, dtype=value.dtype))
    else:  # stored as logarithms
        value.copy_(torch.rand(value.shape, generator=generator, dtype=value.dtype).log())


def draw_components(axes: Axes, state: Mapping[str, Any]) -> None:
    """An ellipse for each component, dotted if its weight is negative."""
    named = {name.rsplit(".", 1)[-1]: np.array(value) for name, value in state.items()}
    weights = named.get("value", np.ones(1)).ravel()
    middles, scales = named["mean"].T, np.exp(named["log_scale"]).T  # (k, 2)
    weights = np.broadcast_to(weights, len(middles))
    weights = weights * np.sign(weights[scales[:, 0].argmax()])  # c and -c have one square
    for weight, middle, scale in zip(weights, middles, scales, strict=True):
        style = ":" if weight < 0 else "-"
        width, height = 4 * scale
        axes.add_patch(
            Ellipse(middle, width, height, fill=False, color="#ff6b5e", ls=style, lw=1.2)
        )


def numbers(density: sub.Density) -> dict[str, Any]:
    """The parameters of a density as plain lists."""
    return {name: p.detach().tolist() for name, p in density.named_parameters()}


def restored(record: Record, number: int | None = None) -> Model:
    """The model of a run at its best, or as it was at one of its frames."""
    model = build(record.run)
    result = record.result
    state = result["state"] if number is None else result["frames"][number]["state"]
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in state.items()}
    model.load_state_dict({**model.state_dict(), **tensors})
    return model


def best(records: Sequence[Record]) -> Record:
    """The run with the best validation score."""
    return max(records, key=lambda record: record.result["valid"])


FULL = Ring()
QUICK = Ring(additive=(2, 16), rows=(2_000, 500, 2_000), epochs=15, seeds=(0,), frames=8)
