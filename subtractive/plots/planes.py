"""Densities of two variables as shades, side by side and in slices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from subtractive.densities.base import Density

LogDensity = Callable[[Tensor], Tensor]


@torch.no_grad()
def on_grid(log_density: LogDensity, *, extent: float, points: int = 161) -> Tensor:
    """A density of two variables over the square [-extent, extent]², (points, points), y first."""
    line = torch.linspace(-extent, extent, points, dtype=torch.float64)
    rows = torch.cartesian_prod(line, line)
    return log_density(rows).exp().reshape(points, points).T


def draw_heat(axes: Axes, density: Tensor, *, extent: float, peak: float) -> AxesImage:
    """Shade the values of a density over the square [-extent, extent]², (y, x), up to a peak."""
    axes.set_xticks([])
    axes.set_yticks([])
    return axes.imshow(
        density.numpy(),
        origin="lower",
        extent=(-extent, extent, -extent, extent),
        cmap="viridis",
        vmin=0,
        vmax=peak,
    )


def find_peak(density: Tensor) -> float:
    """The top of a colour scale: a density may have a pole in a single point."""
    return float(density.quantile(0.999))


def draw_density(axes: Axes, log_density: LogDensity, *, extent: float) -> None:
    """Shade a density of two variables over the square [-extent, extent]²."""
    density = on_grid(log_density, extent=extent)
    draw_heat(axes, density, extent=extent, peak=find_peak(density))


def side_by_side(
    panels: dict[str, LogDensity], *, extent: float, notes: dict[str, str] | None = None
) -> Figure:
    """A row of densities on one colour scale, with a title above and a note below each."""
    figure = Figure(figsize=(2.7 * len(panels), 3.2), layout="constrained")
    grids = {title: on_grid(panel, extent=extent) for title, panel in panels.items()}
    peak = max(map(find_peak, grids.values()))
    for axes, (title, density) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], grids.items(), strict=True
    ):
        draw_heat(axes, density, extent=extent, peak=peak)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel((notes or {}).get(title, ""), fontsize=9)
    return figure


def draw_samples(axes: Axes, rows: Tensor) -> None:
    """Dots for the first two variables of samples (n, d)."""
    axes.scatter(rows[:, 0], rows[:, 1], s=1.5, c="white", alpha=0.35, linewidths=0)


def draw_slice(axes: Axes, points: Tensor, density: Tensor, samples: Tensor) -> None:
    """A density (q,) over points (q,) of one variable, and a histogram of samples (n,) of it."""
    axes.hist(samples, bins=80, density=True, color="#7ad151", label="samples")
    axes.plot(points, density, color="#440154", linewidth=1.2, label="exact density")
    axes.legend(fontsize=8, frameon=False)
    axes.set_yticks([])


def samples_and_slice(
    density: Density, *, variable: int, given: dict[int, float], extent: float, seed: int = 0
) -> Figure:
    """Samples of a density over the density of its first two variables; the same for a slice."""
    generator = torch.Generator().manual_seed(seed)
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    pair = density.marginal([0, 1]) if density.num_variables > 2 else density
    for axes, title in ((left, "density"), (middle, "10,000 exact samples")):
        draw_density(axes, pair.log_prob, extent=extent)
        axes.set_title(title, fontsize=10)
    draw_samples(middle, density.sample(10_000, generator=generator))
    points = torch.linspace(-extent, extent, 801, dtype=torch.float64)
    with torch.no_grad():
        curve = density.pdf(variable, points, given)
    drawn = density.sample(10_000, given=given, generator=generator)[:, variable]
    draw_slice(right, points, curve, drawn)
    known = ", ".join(f"x{v} = {value:g}" for v, value in given.items())
    right.set_title(f"x{variable} given {known}", fontsize=10)
    return figure
