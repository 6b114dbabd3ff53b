"""Our end of the line to libcirkit, and the proof that its circuit is ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

import subtractive as sub
from subtractive.circuits.circuit import Circuit


class Peer:
    """libcirkit in an environment of its own."""

    def __init__(self, python: Path) -> None:
        self.process = subprocess.Popen(
            [str(python), "-m", "benchmarks.peers.cirkit_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, question: str, *arguments: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([question, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"libcirkit gave no answer to {question!r}: too little memory?")
        answer: dict[str, Any] = json.loads(line)
        return answer


def check_same_circuit(peer: Peer) -> None:
    """With our numbers, libcirkit's circuit must be ours: equal c², Z and number of weights."""
    graph = sub.random_binary_tree(5)
    circuit = Circuit(graph, sub.Gaussian(), num_units=3, seed=0, dtype=torch.float64)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mean, scale, weights = {}, {}, {}
    for region, node in enumerate(graph.regions):
        if node.partitions:
            name = " ".join(str(variable) for variable in sorted(node.scope))
            weights[name] = circuit.weight_of(region).tolist()
            continue
        layer, place = circuit.input_of(region)
        p = layer.tensors(place)
        (variable,) = node.scope
        mean[variable], scale[variable] = p["mean"][0].tolist(), p["log_scale"][0].exp().tolist()
    numbers = {
        "mean": [mean[variable] for variable in range(5)],
        "scale": [scale[variable] for variable in range(5)],
        "weights": weights,
        "x": x.tolist(),
    }
    theirs = peer.ask("compare", graph.to_nested(), 3, numbers)
    ours = sub.SquaredCircuit(circuit)
    close = {"rtol": 1e-9, "atol": 1e-9}
    expected = torch.tensor(theirs["log_square"], dtype=torch.float64)
    torch.testing.assert_close(ours.log_square(x), expected, **close)
    log_z = torch.tensor(theirs["log_partition"], dtype=torch.float64)
    torch.testing.assert_close(ours.log_partition(), log_z, **close)
    assert theirs["num_weights"] == sum(w.weights().numel() for w in circuit.sum_layers)
    print("libcirkit's circuit is ours: equal c², Z and number of weights")
