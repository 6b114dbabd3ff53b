"""The densities of two variables that the synthetic experiments learn, and who learns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import subtractive as sub
from studies.data.synthetic import SHAPES, LogDensity, SyntheticSet, draw, find_map
from studies.grid.experiment import Place, Run
from studies.models.ensemble import Member
from studies.models.kinds import MPC, MPC2
from studies.models.training import Fitted, Schedule, Training, train_ensemble
from studies.paper.spectral_start import start_from_root
from subtractive.inputs.base import InputFamily

SPECTRAL = "NPC² from √p"


@cache
def load_synthetic(name: str, folder: str, sizes: tuple[int, int, int], seed: int) -> SyntheticSet:
    """One of the four sets: from a folder of arrays, or if that is empty, drawn from a seed."""
    if name not in SHAPES:
        raise ValueError(f"there is no synthetic set {name!r}: choose from {', '.join(SHAPES)}.")
    if not folder:
        return draw(name, sizes, seed)
    file = f"{name}_continuous.npz"
    paths = [Path(folder) / file, Path(folder) / "synthetic2d" / file]
    path = next(filter(Path.is_file, paths), paths[0])
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: the setting data names its folder.")
    with np.load(path) as arrays:
        parts = [torch.from_numpy(arrays[part]).double() for part in ("train", "valid", "test")]
    train, valid, test = (part[:size] for part, size in zip(parts, sizes, strict=True))
    truth = find_map(name, torch.cat(parts)).log_density(SHAPES[name].log_density)
    return SyntheticSet(train, valid, test, truth)


@dataclass(frozen=True)
class Bins:
    """Uniform bins over each of two variables, from edges (2, bins + 1)."""

    edges: Tensor

    @classmethod
    def over(cls, dataset: SyntheticSet, count: int) -> Bins:
        """Bins over all rows of a dataset."""
        low, high = domain_of(dataset, 0.0)
        steps = torch.linspace(0, 1, count + 1, dtype=torch.float64)
        return cls(low[:, None] + (high - low)[:, None] * steps)

    def number(self, x: Tensor) -> Tensor:
        """The bins of rows (n, 2), (n, 2)."""
        inner = self.edges[:, 1:-1].contiguous()
        return torch.searchsorted(inner, x.T.contiguous(), right=True).T

    def log_masses(self, log_density: LogDensity, nodes: int = 12) -> Tensor:
        """Logarithms of the probabilities of all bins, (bins, bins), by Gauss's rule in each."""
        at, weight = np.polynomial.legendre.leggauss(nodes)
        width = self.edges[:, 1] - self.edges[:, 0]
        points = [
            (side[:-1, None] + step * torch.from_numpy((at + 1) / 2)).flatten()
            for side, step in zip(self.edges, width, strict=True)
        ]
        density = log_density(torch.cartesian_prod(*points)).exp()
        count = self.edges.shape[1] - 1
        cells = density.view(count, nodes, count, nodes)
        shares = torch.from_numpy(weight / 2)
        masses = torch.einsum("aibj,i,j->ab", cells, shares, shares) * width.prod()
        return masses.log()


def domain_of(dataset: SyntheticSet, margin: float) -> tuple[Tensor, Tensor]:
    """The least and largest values of each variable in all rows, (2,), a little apart."""
    every = torch.cat(dataset.rows)
    low, high = every.amin(0), every.amax(0)
    return low - margin * (high - low), high + margin * (high - low)


def splines_over(
    dataset: SyntheticSet, model: str, num_bases: int, margin: float
) -> list[InputFamily]:
    """A spline family for each variable, on the domain of the data."""
    low, high = domain_of(dataset, margin)
    positive = model in (MPC, MPC2)
    return [
        sub.Spline(num_bases, domain=(a, b), non_negative=positive)
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def build(model: str, families: list[InputFamily], num_units: int, seed: int) -> Member:
    """A mixture of products: two regions, K input functions each, one sum."""
    positive = model in (MPC, MPC2)
    circuit = sub.Circuit(
        sub.linear_tree(2),
        families,
        num_units=num_units,
        weights=sub.positive_weights if positive else sub.real_weights,
        seed=seed,
    )
    return sub.MonotonicCircuit(circuit) if model == MPC else sub.SquaredCircuit(circuit)


def runs_of(
    sets: Sequence[str],
    shown: Sequence[int],
    units: Sequence[int],
    inputs: Sequence[str],
    models: Sequence[str],
) -> list[Run]:
    """All combinations, those of the shown K, in the order of the sets, first."""
    if len(shown) != len(sets):
        raise ValueError(f"shown_units needs one K for each of {len(sets)} sets, got {shown}.")
    first = dict(zip(sets, shown, strict=True))
    runs = [
        {"set": name, "inputs": kind, "model": model, "units": number}
        for name in sets
        for number in sorted({*units, first[name]})
        for kind in inputs
        for model in models
    ]
    return sorted(runs, key=lambda run: run["units"] != first[str(run["set"])])


@dataclass(frozen=True)
class RootGrid:
    """What is tried for starts from √p before the seeds, and chosen by validation."""

    bandwidths: tuple[float, ...]
    smoothings: tuple[float, ...]


def learn(
    make: Callable[[int], Member],
    rows: tuple[Tensor, Tensor, Tensor],
    schedule: Schedule,
    *,
    seeds: Sequence[int],
    place: Place,
) -> dict[str, Any]:
    """Fit a model of each seed; the scores of all, and the best by validation as a file."""
    members = [make(seed) for seed in seeds]
    for member, seed in zip(members, seeds, strict=True):
        sub.initialise(member, rows[0], seed=seed)
    return fit_members(members, rows, schedule, seeds=seeds, place=place)


def fit_members(
    members: Sequence[Member],
    rows: tuple[Tensor, Tensor, Tensor],
    schedule: Training,
    *,
    seeds: Sequence[int],
    place: Place,
) -> dict[str, Any]:
    """Fit models from where they stand; the scores of all, and the best by validation."""
    return _kept(members, train_ensemble(members, rows, schedule, seeds=seeds), seeds, place)


def learn_from_root(
    make: Callable[[int], Member],
    rows: tuple[Tensor, Tensor, Tensor],
    schedule: Schedule,
    grid: RootGrid,
    *,
    seeds: Sequence[int],
    place: Place,
) -> dict[str, Any]:
    """The same from √p; bandwidth and smoothing are those that serve the first seed best."""

    def begin(seed: int, bandwidth: float) -> Member:
        member = make(seed)
        assert isinstance(member, sub.SquaredCircuit)
        start_from_root(member, rows[0], bandwidth=bandwidth, seed=seed)
        return member

    points = list(product(grid.bandwidths, grid.smoothings))
    tried = train_ensemble(
        [begin(seeds[0], bandwidth) for bandwidth, _ in points],
        rows,
        schedule,
        seeds=[seeds[0]] * len(points),
        smoothing=[smoothing for _, smoothing in points],
    )
    best = max(range(len(points)), key=lambda number: tried[number].valid)
    bandwidth, smoothing = points[best]
    members = [begin(seed, bandwidth) for seed in seeds]
    strengths = [smoothing] * len(seeds)
    fitted = train_ensemble(members, rows, schedule, seeds=seeds, smoothing=strengths)
    chosen = {"bandwidth": bandwidth, "smoothing": smoothing}
    return chosen | _kept(members, fitted, seeds, place)


def _kept(
    members: Sequence[Member], fitted: Sequence[Fitted], seeds: Sequence[int], place: Place
) -> dict[str, Any]:
    best = max(range(len(fitted)), key=lambda number: fitted[number].valid)
    members[best].save(place("model"))
    return {
        "parameters": members[0].circuit.num_parameters,
        "members": [
            {"seed": seed, **asdict(result)} for seed, result in zip(seeds, fitted, strict=True)
        ],
    }
