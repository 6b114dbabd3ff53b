"""Input functions of libcirkit as families of this library, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily
from subtractive.inputs.binomial import Binomial
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.layer import InputLayer
from subtractive.interop.cirkit_exchange import Node


class InputFunctions(NamedTuple):
    """Functions ``W f`` of one variable: a family, its tensors (i, ...), and weights or none."""

    family: InputFamily
    tensors: Mapping[str, Tensor]
    weight: Tensor | None = None

    @property
    def num_units(self) -> int:
        """The number i of functions."""
        return len(next(iter(self.tensors.values())))


def input_functions(node: Node, own: Mapping[str, Tensor]) -> InputFunctions:
    """The functions of an input node; what is not normalised there becomes weights here."""
    if node["kind"] == "gaussian":
        tensors = {"mean": own["mean"], "log_scale": own["stddev"].log()}
        height = own.get("log_partition")
        return InputFunctions(Gaussian(), tensors, None if height is None else height.exp().diag())
    if node["kind"] == "categorical":
        logits = own["logits"] if "logits" in own else own["probs"].log()
        mass = logits.logsumexp(-1)
        is_normalised = bool((mass.abs() <= 64 * torch.finfo(mass.dtype).eps).all())
        weight = None if is_normalised else mass.exp().diag()
        return InputFunctions(Categorical(node["num_states"]), {"logits": logits}, weight)
    if node["kind"] == "binomial":
        logit = own["logits"] if "logits" in own else own["probs"].logit()
        return InputFunctions(Binomial(node["total"]), {"logit": logit})
    assert node["kind"] == "embedding", node["kind"]
    table = own["weight"]
    family = Embedding(node["num_states"])
    if not table.is_complex():
        return InputFunctions(family, {"table": table})
    # A complex table is a complex sum of two real ones.
    eye = torch.eye(len(table), dtype=table.dtype)
    return InputFunctions(
        family, {"table": torch.cat([table.real, table.imag])}, torch.cat([eye, 1j * eye], 1)
    )


def input_node(layer: InputLayer, place: slice) -> tuple[Node, dict[str, Tensor]]:
    """The node of one region of an input layer, and its tensors."""
    family = layer.family
    p = {name: tensor[0].detach().clone() for name, tensor in layer.tensors(place).items()}
    node: Node = {"variable": layer.scopes[place.start][0], "num_units": layer.num_units}
    if isinstance(family, Gaussian):
        own = {"mean": p["mean"], "stddev": p["log_scale"].exp()}
        return {"kind": "gaussian", **node}, own
    if isinstance(family, Embedding):
        node["num_states"] = family.num_states
        return {"kind": "embedding", **node}, {"weight": p["table"]}
    if isinstance(family, Categorical):
        node["num_states"] = family.num_states
        return {"kind": "categorical", **node}, {"logits": p["logits"].log_softmax(-1)}
    if isinstance(family, Binomial):
        return {"kind": "binomial", **node, "total": family.total}, {"logits": p["logit"]}
    raise ValueError(
        f"{type(family).__name__} has no counterpart in libcirkit: expected Gaussian, Embedding, "
        "Categorical or Binomial."
    )
