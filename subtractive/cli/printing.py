"""Answers on standard output: JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from subtractive.io.files import plain


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object, in which a number that JSON does not know is null."""
    print(json.dumps(plain(answer), indent=2, default=str, allow_nan=False))
