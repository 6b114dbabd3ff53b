"""Where the states of a chain begin: contexts that the teacher sees as alike.

What a teacher has read is in its hidden layers. Directions that predict the tokens to come are
found by regression, and the positions at which a token stands are clustered in them: a cluster
is a clone of the token (latent variable distillation, Liu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional

from studies.distillation.llama import Llama, rms_norm

Tokens = npt.NDArray[np.int64]
Features = npt.NDArray[np.float32]


@torch.no_grad()
def hidden_layers(model: Llama, rows: Tensor) -> Tensor:
    """All hidden layers (n, d, layers * dim) after each token of sequences (n, d)."""
    w, shape = model.weights, model.shape
    start = torch.ones(len(rows), 1, dtype=torch.long)
    x = w["embedding"][torch.cat([start, rows], 1)]  # (n, t, dim)
    angle = torch.arange(x.shape[1])[:, None] * 10000.0 ** (
        -torch.arange(0, shape.head, 2) / shape.head
    )
    turn = torch.polar(torch.ones_like(angle), angle)  # (t, head / 2)
    found = []
    for layer in range(shape.layers):
        inner = rms_norm(x, w["attention_norm"][layer])
        query = _rotated(inner @ w["wq"][layer].mT, shape.head, turn)
        key = _rotated(inner @ w["wk"][layer].mT, shape.head, turn)
        value = (inner @ w["wv"][layer].mT).unflatten(2, (-1, shape.head)).transpose(1, 2)
        groups = shape.heads // shape.kv_heads
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2) @ w["wo"][layer].mT
        inner = rms_norm(x, w["feed_norm"][layer])
        gate = functional.silu(inner @ w["w1"][layer].mT) * (inner @ w["w3"][layer].mT)
        x = x + gate @ w["w2"][layer].mT
        found.append(rms_norm(x, torch.ones(())))
    found.append((rms_norm(x, w["final_norm"]) @ w["classifier"].mT).softmax(-1).sqrt())
    return torch.cat(found, -1)[:, 1:]


def _rotated(x: Tensor, head: int, turn: Tensor) -> Tensor:
    """Queries or keys (n, t, heads * head) turned by their positions, (n, heads, t, head)."""
    pairs = torch.view_as_complex(x.unflatten(2, (-1, head // 2, 2)).contiguous())
    return torch.view_as_real(pairs * turn[:, None]).flatten(-2).transpose(1, 2)


def context_features(model: Llama, rows: Tensor, future: float) -> Features:
    """What the teacher expects after each token of sequences (n, d): (n, d, f) in half precision.

    The square roots of its next-token probabilities, in their principal directions, and beside
    them, with the weight ``future``, what its layers say about the tokens after the next.
    """
    some = rows[:2500]
    hidden = hidden_layers(model, some).numpy()
    count = model.shape.vocabulary
    expected = hidden[..., -count:].reshape(-1, count)
    _, _, right = np.linalg.svd(expected[::7] - expected[::7].mean(0), full_matrices=False)
    near, far = right[:40].T, future * future_directions(hidden, some.numpy(), count, 32)
    parts = []
    for block in rows.split(500):
        hidden = hidden_layers(model, block).numpy()
        found = np.concatenate([hidden[..., -count:] @ near, hidden @ far], -1)
        parts.append(found.astype(np.float16))
    return np.concatenate(parts)


def future_directions(hidden: Features, rows: Tokens, num_tokens: int, width: int) -> Features:
    """Directions (f, width) of hidden layers (n, d, f) that predict what comes after the next.

    A regression of the tokens two to six positions later, rare ones weighted up, reduced to the
    rank that explains most.
    """
    reach = 6
    length = rows.shape[1] - reach
    inputs = hidden[:, :length].reshape(-1, hidden.shape[2]).astype(np.float64)
    targets = np.zeros((len(inputs), num_tokens))
    for back in range(2, reach + 1):
        targets += np.eye(num_tokens)[rows[:, back : length + back].ravel()]
    targets = targets / np.sqrt(targets.mean(0) + 1e-3) / np.sqrt(reach - 1)
    centred, aims = inputs - inputs.mean(0), targets - targets.mean(0)
    gram = centred.T @ centred + 1e-3 * len(centred) * np.eye(centred.shape[1])
    slope = np.linalg.solve(gram, centred.T @ aims)  # (f, v)
    values, vectors = np.linalg.eigh(slope.T @ gram @ slope)
    found: Features = (slope @ vectors[:, ::-1][:, :width]).astype(np.float32)
    return found


def shares(counts: Tokens, num_states: int, most: int) -> Tokens:
    """How many clones each token has: by the root of its count, at least one, at most ``most``."""
    low, high = 0.0, float(num_states)
    for _ in range(60):
        middle = (low + high) / 2
        clones = np.clip(np.round(middle * np.sqrt(counts)), 1, most)
        low, high = (middle, high) if clones.sum() <= num_states else (low, middle)
    return np.clip(np.round(low * np.sqrt(counts)), 1, most).astype(np.int64)


def cluster(features: Features, tokens: Tokens, clones: Sequence[int], seed: int) -> Tokens:
    """The clone (n,) of every position, of features (n, f), that k-means gives it."""
    labels = np.zeros(len(tokens), dtype=np.int64)
    draw = np.random.default_rng(seed)
    for token, count in enumerate(clones):
        members = np.flatnonzero(tokens == token)
        if count == 1 or len(members) == 0:
            continue
        some = draw.permutation(members)[: 200 * count]
        count = min(count, len(np.unique(features[some], axis=0)))
        fitted = KMeans(count, n_init=1, max_iter=15, random_state=seed).fit(features[some])
        labels[members] = fitted.predict(features[members])
    return labels
