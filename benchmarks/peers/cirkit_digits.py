"""A squared circuit over 8 x 8 images, trained by libcirkit and exported for this library.

It runs in libcirkit's environment: ``python -m benchmarks.peers.cirkit_digits IMAGES.npy FILE``.
As in libcirkit's notebooks on squared circuits: a quad tree, CP layers, real weights, the square
and its integral as circuits of their own, and Adam on −2 log|c(x)| + log Z.
"""

from __future__ import annotations

import sys

import cirkit.symbolic.functional as operators
import numpy as np
import torch
from cirkit.pipeline import PipelineContext
from cirkit.templates.region_graph import QuadTree
from cirkit.templates.utils import (
    Parameterization,
    name_to_input_layer_factory,
    parameterization_to_factory,
)

from subtractive.interop import cirkit_exchange as exchange

NUM_UNITS, NUM_STATES, EPOCHS, BATCH, RATE = 8, 17, 40, 128, 0.01


def main(images: str, file: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = torch.from_numpy(np.load(images)).long()
    start = parameterization_to_factory(Parameterization("uniform"))
    symbolic = QuadTree((1, 8, 8), num_patch_splits=4).build_circuit(
        input_factory=name_to_input_layer_factory(
            "embedding", num_states=NUM_STATES, weight_factory=start
        ),
        sum_product="cp-t",
        sum_weight_factory=start,
        num_input_units=NUM_UNITS,
        num_sum_units=NUM_UNITS,
    )
    context = PipelineContext(
        backend="torch", semiring="complex-lse-sum", fold=True, optimize=True
    )
    with context:
        square = operators.multiply(symbolic, symbolic)
        circuit = context.compile(symbolic)
        partition = context.compile(operators.integrate(square))
    optimiser = torch.optim.Adam(circuit.parameters(), lr=RATE)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in rows[torch.randperm(len(rows))].split(BATCH):
            optimiser.zero_grad()
            loss = partition().real.squeeze() - 2 * circuit(batch).real.mean()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(batch)
        print(epoch, total / len(rows) / 64 / np.log(2), flush=True)
    exchange.write(*exchange.describe(circuit), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
