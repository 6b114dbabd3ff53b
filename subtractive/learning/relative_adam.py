"""Adam with steps in the units of what is learned: narrow functions move by little."""

from __future__ import annotations

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inputs.layer import InputLayer


def relative_adam(density: Density, learning_rate: float = 0.03) -> torch.optim.Adam:
    """Adam for the parameters of a density: the optimiser of :func:`fit`.

    Adam moves every parameter by about the learning rate, whatever its unit. Here means of
    Gaussian inputs move in units of their scales (of several variables: the scale of one given
    the others), and what is below the diagonal of a Cholesky factor in units of the diagonal.
    Else columns that nearly determine each other are torn apart before anything is learned.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4, seed=0)
    >>> density = sub.SquaredCircuit(circuit)
    >>> optimizer = sub.learning.relative_adam(density, learning_rate=0.01)
    >>> history = sub.fit(
    ...     density, torch.randn(100, 2), optimizer=optimizer, max_epochs=3, progress=False
    ... )
    """
    optimizer = torch.optim.Adam(density.parameters(), lr=learning_rate, fused=True)
    layers = [module for module in density.modules() if isinstance(module, InputLayer)]
    before: list[tuple[Tensor, Tensor, Tensor]] = []  # parameter, its value, its unit

    def remember(*_: object) -> None:
        before.clear()
        for layer in layers:
            for name, unit in layer.update_scale().items():
                parameter = layer.get_tensor(name)
                before.append((parameter, parameter.detach().clone(), unit))

    @torch.no_grad()
    def measure(*_: object) -> None:
        for parameter, value, unit in before:
            parameter.copy_(torch.lerp(value, parameter, unit))

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(measure)
    return optimizer
