"""Circuits of libcirkit as plain nodes and tensors, and as one file (safetensors).

This file needs torch and safetensors, and nothing else of this package: where libcirkit lives in
an environment of its own, copy this one file there. There, ``write(*describe(circuit), path)``
exports a compiled circuit, and ``symbolic_circuit(*read(path))`` makes a symbolic one.

A node is a dictionary with its ``kind``: an input (gaussian, embedding, categorical, binomial) of
one ``variable``, a sum, or a product (hadamard, kronecker) of the nodes ``inputs``, which come
before it. The last node is the output. The tensors of node 3 are named ``3.mean``, ``3.weight``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

Node = dict[str, Any]
Tensors = dict[str, Tensor]

FORMAT = "libcirkit circuit, version 1"
# The name of a layer in libcirkit -> the nodes that it is, in their order.
LAYERS = {
    "TorchSumLayer": ("sum",),
    "TorchHadamardLayer": ("hadamard",),
    "TorchKroneckerLayer": ("kronecker",),
    "TorchCPTLayer": ("hadamard", "sum"),
    "TorchTuckerLayer": ("kronecker", "sum"),
    "TorchGaussianLayer": ("gaussian",),
    "TorchEmbeddingLayer": ("embedding",),
    "TorchCategoricalLayer": ("categorical",),
    "TorchBinomialLayer": ("binomial",),
}


@torch.no_grad()
def describe(circuit: Any) -> tuple[list[Node], Tensors]:  # noqa: ANN401 - of a library not imported
    """The nodes and the tensors of a compiled circuit, with or without folds."""
    if not hasattr(circuit, "address_book"):
        raise ValueError(
            f"expected a compiled circuit of libcirkit, got {type(circuit).__name__}. A symbolic "
            "circuit has no parameters yet: compile it first."
        )
    nodes: list[Node] = []
    tensors: Tensors = {}
    places: list[Tensor] = []  # for each layer, the node of each of its folds
    for entry in circuit.address_book:
        sources = [places[layer] for layer in (entry.in_module_ids or [[]])[0]]
        read = torch.cat(sources)[entry.in_fold_idx[0]].tolist() if sources else None
        if entry.module is None:
            _check_output(read, len(nodes))
            return nodes, tensors
        places.append(torch.tensor([*_nodes(entry.module, read, nodes, tensors)]))
    raise ValueError("the circuit has no output.")


def write(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], path: str | os.PathLike[str]
) -> None:
    """Write a circuit to one file; complex tensors are stored as pairs of real numbers."""
    stored = {}
    for name, tensor in tensors.items():
        if tensor.is_complex():
            name, tensor = f"{name}.complex", torch.view_as_real(tensor.resolve_conj())
        stored[name] = tensor.detach().cpu().contiguous().clone()
    save_file(stored, path, {"format": FORMAT, "nodes": json.dumps(list(nodes))})


def read(path: str | os.PathLike[str]) -> tuple[list[Node], Tensors]:
    """The nodes and tensors of a file."""
    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        if header.get("format") != FORMAT:
            raise ValueError(
                f"{os.fspath(path)} is not an exported circuit of libcirkit: expected the format "
                f"{FORMAT!r}, got {header.get('format')!r}."
            )
        # Copies: what is mapped from a file is gone, or not aligned, once the file is closed.
        stored = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    tensors = {
        name.removesuffix(".complex"): torch.view_as_complex(t) if name.endswith(".complex") else t
        for name, t in stored.items()
    }
    return json.loads(header["nodes"]), tensors


def symbolic_circuit(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401
    """The symbolic circuit of libcirkit with these nodes; its parameters start at the tensors."""
    from cirkit.symbolic.circuit import Circuit

    layers: list[Any] = []
    inputs: dict[Any, list[Any]] = {}
    for number, node in enumerate(nodes):
        own = {
            name.partition(".")[2]: _parameter(tensor)
            for name, tensor in tensors.items()
            if name.startswith(f"{number}.")
        }
        below = [layers[i] for i in node.get("inputs", [])]
        layers.append(_symbolic_layer(node, own, below))
        if below:
            inputs[layers[-1]] = below
    return Circuit(layers, inputs, [layers[-1]])


def _symbolic_layer(node: Node, own: Mapping[str, Any], below: Sequence[Any]) -> Any:  # noqa: ANN401
    import cirkit.symbolic.layers as kinds
    from cirkit.utils.scope import Scope

    if node["kind"] == "sum":
        return kinds.SumLayer(below[0].num_output_units, node["num_units"], **own)
    if below:
        product = kinds.HadamardLayer if node["kind"] == "hadamard" else kinds.KroneckerLayer
        return product(below[0].num_output_units, arity=len(below))
    kind, names = {
        "gaussian": (kinds.GaussianLayer, {}),
        "embedding": (kinds.EmbeddingLayer, {"num_states": "num_states"}),
        "categorical": (kinds.CategoricalLayer, {"num_categories": "num_states"}),
        "binomial": (kinds.BinomialLayer, {"total_count": "total"}),
    }[node["kind"]]
    facts = {theirs: node[ours] for theirs, ours in names.items()}
    return kind(Scope([node["variable"]]), node["num_units"], **facts, **own)


def _nodes(
    layer: Any,  # noqa: ANN401
    read: list[list[int]] | None,
    nodes: list[Node],
    tensors: Tensors,
) -> Iterator[int]:
    """Append the nodes of all folds of a layer; the number of the last node of each fold."""
    name = type(layer).__name__
    if name not in LAYERS:
        raise ValueError(
            f"{name} of libcirkit has no counterpart here: expected layers among "
            f"{', '.join(sorted(LAYERS))}. Pass the circuit itself, not its integral or product."
        )
    own = {key: parameter() for key, parameter in layer.params.items()}
    for fold in range(layer.num_folds):
        inputs = None if read is None else list(read[fold])
        for kind in LAYERS[name]:
            node: Node = {"kind": kind}
            if inputs is None:
                node |= _input_facts(layer, fold)
            else:
                node["inputs"] = inputs
            if kind not in ("hadamard", "kronecker"):
                node["num_units"] = layer.num_output_units
                tensors |= {f"{len(nodes)}.{key}": tensor[fold] for key, tensor in own.items()}
            inputs = [len(nodes)]
            nodes.append(node)
        yield len(nodes) - 1


def _input_facts(layer: Any, fold: int) -> Node:  # noqa: ANN401
    """What an input layer is besides its tensors."""
    scope = layer.scope_idx[fold].tolist()
    if len(scope) != 1:
        raise ValueError(
            f"{type(layer).__name__} over the variables {scope} of libcirkit has no counterpart "
            "here: expected inputs of one variable each."
        )
    facts = {"num_states": "num_states", "num_categories": "num_states", "total_count": "total"}
    found = {facts[key]: value for key, value in layer.config.items() if key in facts}
    return {"variable": scope[0], **found}


def _check_output(read: list[int] | None, num_nodes: int) -> None:
    if read != [num_nodes - 1]:
        raise ValueError(
            f"expected a circuit with one output layer, got {len(read or [])} of them. A circuit "
            "of several outputs has them in one layer (num_classes)."
        )


def _parameter(tensor: Tensor) -> Any:  # noqa: ANN401
    from cirkit.symbolic.dtypes import DataType
    from cirkit.symbolic.initializers import ConstantTensorInitializer
    from cirkit.symbolic.parameters import Parameter, TensorParameter

    array = tensor.detach().cpu().numpy()
    dtype = DataType.COMPLEX if tensor.is_complex() else DataType.REAL
    start = ConstantTensorInitializer(array)
    return Parameter.from_input(TensorParameter(*array.shape, initializer=start, dtype=dtype))
