"""Densities of two variables as shades, side by side and in slices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

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
    """The top of a colour scale; single points above it do not count."""
    return float(density.quantile(0.999))


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
