"""Mixtures in which some columns share full covariances, beside columns of any other kind.

With one hidden variable z, a group g of continuous columns, and the other columns v,

    p(x) = Σ_z p(z) N(x_g; μ_z, Σ_z) Π_v p(x_v | z).

As a circuit it is monotonic and flat: the group is one of its regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import positive_weights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inputs.base import InputFamily
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.inputs.statistics import FAR, Sample, location_and_spread
from subtractive.learning.expected_flows import Flows, update
from subtractive.learning.hidden_chow_liu import clusters, coordinates
from subtractive.learning.sufficient_statistics import count
from subtractive.regions.trees import flat


def covariance_group(
    data: Tensor,
    families: Sequence[InputFamily],
    group: Sequence[int],
    num_states: int,
    *,
    weights: Tensor | None = None,
    seed: int = 0,
) -> MonotonicCircuit:
    """A mixture whose columns ``group`` share full covariances, from rows (n, d).

    Its states start as clusters of the rows. Atoms of columns in the group are holes, where it is
    zero: mix it with a density that has them. Rows with an atom, a gap or a number far away in the
    group say nothing about the start. Train it by :func:`fit_em`.

    >>> rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    >>> rows[:, 0] = (rows[:, 0] > 0).double()
    >>> families = [sub.Categorical(2), sub.Gaussian(), sub.Gaussian()]
    >>> density = sub.learning.covariance_group(rows, families, [1, 2], num_states=4)
    >>> history = sub.learning.fit_em(density, rows, max_epochs=5, progress=False)
    >>> density.sample(2).shape
    torch.Size([2, 3])
    """
    together = MultivariateGaussian(holes=tuple(families[v].atoms for v in group))
    others = [[v] for v in range(len(families)) if v not in group]
    circuit = Circuit(
        flat([list(group), *others]),
        [together if v in group else family for v, family in enumerate(families)],
        num_units=num_states,
        weights=positive_weights,
        dtype=torch.float64,
        seed=seed,
    )
    usable = _usable(data.double(), families, group)
    rows = data[usable].double()
    shares = torch.ones(len(data)) if weights is None else weights
    shares = shares[usable].double() / shares[usable].sum()
    places = torch.cat([coordinates(rows[:, v], family) for v, family in enumerate(families)], 1)
    labels = clusters(places, num_states, as_generator(seed))
    hot = torch.nn.functional.one_hot(labels, num_states) * shares[:, None]  # (n, i)
    inputs = []
    for layer in circuit.input_layers:
        x = rows[:, layer.variables].movedim(0, 1)  # (f, n, s)
        known = ~x.isnan().any(-1, keepdim=True)
        x = x.nan_to_num()[..., 0] if layer.family.is_univariate else x
        inputs.append(count(layer.family, x, hot * known))
    update(circuit, Flows([hot.sum(0)[None, None]], inputs), 1 / len(rows))
    return MonotonicCircuit(circuit)


def _usable(data: Tensor, families: Sequence[InputFamily], group: Sequence[int]) -> Tensor:
    """Which rows (n, d) have neither atoms nor gaps nor numbers far away in the group, (n,)."""
    x = data[:, list(group)]
    usable = ~x.isnan().any(1)
    for variable in group:
        atoms = torch.tensor(families[variable].atoms, dtype=torch.float64)
        usable &= ~torch.isin(data[:, variable], atoms)
    centre, unit = location_and_spread(Sample(x, usable.double()))
    near = usable & ((x - centre).abs() <= FAR * unit).all(1)
    return near if bool(near.any()) else usable
