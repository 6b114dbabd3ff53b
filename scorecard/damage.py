"""Damage to files: bytes that are not as they were written, and forged descriptions."""

from __future__ import annotations

import copy
import random
from typing import Any, TypeVar

Plain = TypeVar("Plain", dict[str, Any], list[Any])

NUMBERS = [-1, 0, 1, 7, 0.5, 2**40, 10**400, 1e308, -1e308, float("nan"), float("inf")]
WORDS = ["", "x", "a", "low", "object", "int64", "squared", "Gaussian", "SumLayer", "__class__"]
PARTS = [[], {}, [0], [[]], [[1]], {"a": 1}, {"kind": "mixture"}, [{"scope": [0]}]]
OTHERS = [None, True, *NUMBERS, *WORDS, *PARTS]


def flip_bit(content: bytes, generator: random.Random) -> bytes:
    """A copy in which one bit is another."""
    damaged = bytearray(content)
    damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return bytes(damaged)


def spoil(content: bytes, generator: random.Random) -> bytes:
    """A copy with some bytes changed, cut, inserted, repeated, moved, or another first number."""
    damaged = bytearray(content)
    start = generator.randrange(len(damaged))
    stop = min(len(damaged), start + generator.randint(1, 64))
    action = generator.randrange(6)
    if action == 0:
        damaged[start:stop] = generator.randbytes(stop - start)
    elif action == 1:
        del damaged[start:stop]
    elif action == 2:
        damaged[start:start] = generator.randbytes(stop - start)
    elif action == 3:
        damaged[start:start] = damaged[start:stop]
    elif action == 4:
        damaged = damaged[start:] + damaged[:start]
    else:
        damaged[:8] = generator.randbytes(8)
    return bytes(damaged)


def forge(description: Plain, generator: random.Random) -> Plain:
    """A copy of plain data with one entry removed, repeated or replaced, anywhere in it."""
    changed = copy.deepcopy(description)
    node: Any = changed
    while True:
        key = generator.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[key], dict | list) and node[key] and generator.random() < 0.85:
            node = node[key]
            continue
        action = generator.randrange(5)
        if action == 0:
            del node[key]
        elif action == 1 and isinstance(node, list):
            node.insert(generator.randrange(len(node) + 1), copy.deepcopy(node[key]))
        else:
            node[key] = copy.deepcopy(generator.choice(OTHERS))
        return changed
