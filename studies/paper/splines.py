"""Splines: their basis, and exact integrals of products against quadrature (paper: App. E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.interpolate import BSpline
from torch import Tensor

import subtractive as sub
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.bsplines import spline_gram, spline_values
from subtractive.plots.style import MODEL, OTHER, quiet


@final
@dataclass(frozen=True)
class Splines(Experiment):
    """Orders and numbers of bases on an interval; random splines are drawn from the seed."""

    name: ClassVar[str] = "splines"
    title: ClassVar[str] = "Splines: the basis, and exact integrals of products"

    orders: tuple[int, ...] = (0, 1, 2, 3)
    bases: tuple[int, ...] = (8, 32, 128, 512)
    domain: tuple[float, float] = (-2.0, 3.0)
    shown_bases: int = 10
    pairs: int = 20
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        return [{"order": order, "bases": b} for order in self.orders for b in self.bases]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        knots = self._knots(run["order"], run["bases"])
        shape = (1, 2 * self.pairs, run["bases"])
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        left, right = drawn.split(self.pairs, 1)
        truth = [
            product_integral(knots[0], run["order"], a, b)
            for a, b in zip(left[0], right[0], strict=True)
        ]
        oracle = torch.tensor(truth, dtype=torch.float64)
        errors = {}
        for dtype in (torch.float64, torch.float32):
            one, other, line = (tensor.to(dtype) for tensor in (left, right, knots))
            gram = spline_gram(one, other, line, EVERYWHERE)[0, 0]
            # Relative to the norms of the splines: a product may happen to integrate to nothing.
            size = self._norms(left, knots) * self._norms(right, knots)
            error = ((gram.diagonal().double() - oracle).abs() / size).max()
            errors[str(dtype).removeprefix("torch.")] = float(error)
        return errors

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        outputs.table(
            "product_integrals",
            f"Largest error of the integral of a product of two splines, relative to their norms, "
            f"over {self.pairs} pairs with normal coefficients on [{self.domain[0]:g}, "
            f"{self.domain[1]:g}]; the other side is adaptive quadrature of scipy's B-splines, "
            "span by span.",
            ["order", "bases", "float64", "float32"],
            [
                [r.run["order"], r.run["bases"], r.result["float64"], r.result["float32"]]
                for r in records
            ],
        )
        outputs.figure(
            "basis",
            f"Left: the {self.shown_bases} quadratic B-splines over uniform knots (dots); they "
            "sum to one. Right: two random splines and their product, whose signed area is known "
            "exactly.",
            self._draw(),
        )

    def _knots(self, order: int, bases: int) -> Tensor:
        return sub.Spline(bases, order=order, domain=self.domain).constants(1)["knots"][None]

    def _norms(self, coefficients: Tensor, knots: Tensor) -> Tensor:
        gram = spline_gram(coefficients, coefficients, knots, EVERYWHERE)[0, 0]
        return gram.diagonal().sqrt()

    def _draw(self) -> Figure:
        figure = Figure(figsize=(8.4, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        knots = self._knots(2, self.shown_bases)
        x = torch.linspace(*self.domain, 801, dtype=torch.float64)
        every = torch.eye(self.shown_bases, dtype=torch.float64)[None]
        values = spline_values(every, knots, x[None])[0]
        left.plot(x, torch.where(values > 0, values, torch.nan), lw=1.3)
        left.plot(knots[0], torch.zeros_like(knots[0]), "o", color="black", ms=3, clip_on=False)
        left.set_title("quadratic B-splines", fontsize=10)
        self._draw_product(right, knots, x)
        for axes in (left, right):
            quiet(axes)
            axes.set_xlim(*self.domain)
            axes.set_xlabel("x", fontsize=9)
        return figure

    def _draw_product(self, axes: Axes, knots: Tensor, x: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        shape = (1, 2, self.shown_bases)
        pair = torch.randn(shape, generator=generator, dtype=torch.float64)
        values = spline_values(pair, knots, x[None])[0]  # (q, 2)
        area = float(spline_gram(pair[:, :1], pair[:, 1:], knots, EVERYWHERE))
        product = values.prod(1)
        axes.plot(x, values[:, 0], color=OTHER, lw=1.3, label="f")
        axes.plot(x, values[:, 1], color="#3b7d8c", lw=1.3, label="g")
        axes.fill_between(x, product, color=MODEL, alpha=0.25, lw=0)
        axes.plot(x, product, color=MODEL, lw=1.3, label="f g")
        axes.axhline(0, color="black", lw=0.6)
        axes.set_title(f"two splines and their product: ∫ f g = {area:.3f}", fontsize=10)
        axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper right")


def product_integral(knots: Tensor, order: int, left: Tensor, right: Tensor) -> float:
    """∫ f g of two splines by adaptive quadrature of scipy's B-splines, span by span."""
    f, g = (BSpline(knots.numpy(), side.numpy(), order) for side in (left, right))
    edges = np.unique(knots.numpy())
    parts = [
        quad(lambda x: f(x) * g(x), a, b, epsabs=1e-15, epsrel=1e-12)[0]
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    ]
    return float(np.sum(parts))


FULL = Splines()
QUICK = Splines(bases=(8, 32), pairs=5)
