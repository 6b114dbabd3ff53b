"""Llama-style transformers from llama2.c checkpoints: a small reader with a key-value cache.

The file holds seven little-endian int32 (dim, hidden, layers, heads, kv heads, vocabulary, max
length; a negative vocabulary says that the classifier is stored apart), then float32 tensors.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


class Shape(NamedTuple):
    """The header of a checkpoint."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    max_length: int

    @property
    def head(self) -> int:
        """The width of one head."""
        return self.dim // self.heads


class Llama(NamedTuple):
    """The weights of a model, by the names of the usual notation, layers first."""

    shape: Shape
    weights: dict[str, Tensor]
    digest: str


def read_llama(path: str | os.PathLike[str]) -> Llama:
    """A checkpoint in the first format of llama2.c, all of it checked against its own size."""
    data = Path(path).read_bytes()
    if len(data) < 28:
        raise ValueError(f"{os.fspath(path)} is no llama2.c checkpoint: it is too short.")
    header = Shape(*struct.unpack("<7i", data[:28]))
    shape = header._replace(vocabulary=abs(header.vocabulary))
    if min(shape) < 1 or shape.dim % shape.heads or shape.heads % shape.kv_heads:
        raise ValueError(
            f"{os.fspath(path)} is no llama2.c checkpoint: its header says {tuple(shape)}."
        )
    expected = _tensor_shapes(shape, is_shared=header.vocabulary > 0)
    count = sum(int(np.prod(size)) for size in expected.values())
    if len(data) != 28 + 4 * count:
        raise ValueError(
            f"{os.fspath(path)} is damaged: {28 + 4 * count} bytes belong to a header of "
            f"{tuple(shape)}, got {len(data)}."
        )
    numbers = torch.from_numpy(np.frombuffer(data, "<f4", offset=28).astype(np.float32))
    parts = numbers.split([int(np.prod(size)) for size in expected.values()])
    weights = {
        name: part.reshape(size)
        for (name, size), part in zip(expected.items(), parts, strict=True)
    }
    weights.setdefault("classifier", weights["embedding"])
    return Llama(shape, weights, hashlib.sha256(data).hexdigest())


@final
class LlamaReading:
    """Texts read side by side; the keys and values of what was read are kept."""

    def __init__(self, model: Llama, num_rows: int, length: int) -> None:
        self.model, self.num_rows, self.position = model, num_rows, 0
        shape = model.shape
        if length > shape.max_length:
            raise ValueError(
                f"the teacher reads up to {shape.max_length} tokens, asked for {length}."
            )
        room = (shape.layers, num_rows, shape.kv_heads, length, shape.head)
        self._keys, self._values = torch.zeros(room), torch.zeros(room)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> Tensor:
        """Go on by one token (n,); the logits (n, v) of what follows."""
        w, shape = self.model.weights, self.model.shape
        x = w["embedding"][tokens]  # (n, dim)
        for layer in range(shape.layers):
            x = x + self._attention(layer, rms_norm(x, w["attention_norm"][layer]))
            inner = rms_norm(x, w["feed_norm"][layer])
            gate = functional.silu(inner @ w["w1"][layer].mT) * (inner @ w["w3"][layer].mT)
            x = x + gate @ w["w2"][layer].mT
        self.position += 1
        return rms_norm(x, w["final_norm"]) @ w["classifier"].mT

    def _attention(self, layer: int, x: Tensor) -> Tensor:
        w, shape, at = self.model.weights, self.model.shape, self.position
        heads = (self.num_rows, -1, shape.head)
        query = _rotated((x @ w["wq"][layer].mT).view(heads), at)  # (n, heads, head)
        self._keys[layer, :, :, at] = _rotated((x @ w["wk"][layer].mT).view(heads), at)
        self._values[layer, :, :, at] = (x @ w["wv"][layer].mT).view(heads)
        keys = self._keys[layer, :, :, : at + 1]  # (n, kv heads, t, head)
        values = self._values[layer, :, :, : at + 1]
        # Heads that share keys stand beside each other.
        grouped = query.unflatten(1, (shape.kv_heads, -1))  # (n, kv heads, group, head)
        scores = (grouped @ keys.mT / shape.head**0.5).softmax(-1)
        mixed: Tensor = (scores @ values).reshape(self.num_rows, -1) @ w["wo"][layer].mT
        return mixed


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Rows (..., dim) of root mean square one, times a weight."""
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


def _rotated(x: Tensor, position: int) -> Tensor:
    """Pairs of neighbours of (n, heads, head) turned by angles that depend on the position."""
    width = x.shape[-1]
    angle = position * 10000.0 ** (-torch.arange(0, width, 2) / width)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2)


def _tensor_shapes(shape: Shape, *, is_shared: bool) -> dict[str, tuple[int, ...]]:
    dim, hidden, layers = shape.dim, shape.hidden, shape.layers
    narrow = shape.kv_heads * shape.head
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocabulary, dim),
        "attention_norm": (layers, dim),
        "wq": (layers, dim, dim),
        "wk": (layers, narrow, dim),
        "wv": (layers, narrow, dim),
        "wo": (layers, dim, dim),
        "feed_norm": (layers, dim),
        "w1": (layers, hidden, dim),
        "w2": (layers, dim, hidden),
        "w3": (layers, hidden, dim),
        "final_norm": (dim,),
        # Tables of cosines and sines, which are computed here.
        "cosines": (shape.max_length, shape.head // 2),
        "sines": (shape.max_length, shape.head // 2),
    }
    if not is_shared:
        shapes["classifier"] = (shape.vocabulary, dim)
    return shapes
