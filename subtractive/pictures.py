"""Pictures of densities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]


@torch.no_grad()
def draw_density(axes: Axes, log_density: LogDensity, *, extent: float, points: int = 161) -> None:
    """Shade a density of two variables over the square [-extent, extent]²."""
    line = torch.linspace(-extent, extent, points, dtype=torch.float64)
    rows = torch.cartesian_prod(line, line)
    density = log_density(rows).exp().reshape(points, points).T
    axes.imshow(
        density.numpy(),
        origin="lower",
        extent=(-extent, extent, -extent, extent),
        cmap="viridis",
        vmin=0,
    )
    axes.set_xticks([])
    axes.set_yticks([])


def side_by_side(
    panels: dict[str, LogDensity], *, extent: float, notes: dict[str, str] | None = None
) -> Figure:
    """A row of densities with a title above and a note below each."""
    figure = Figure(figsize=(2.7 * len(panels), 3.2), layout="constrained")
    for axes, (title, log_density) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        draw_density(axes, log_density, extent=extent)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel((notes or {}).get(title, ""), fontsize=9)
    return figure
