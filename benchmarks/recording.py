"""Runs of benchmarks, kept as compact JSON in benchmarks/records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.grid.records import commit

Record = dict[str, Any]


def keep(path: Path, records: Sequence[Record], same: Sequence[str]) -> None:
    """Add runs and their commit to a file, in place of earlier ones with the ``same`` facts."""
    known = json.loads(path.read_text()) if path.is_file() else []
    added = {tuple(record[name] for name in same) for record in records}
    kept = [one for one in known if tuple(one[name] for name in same) not in added]
    new = [{**record, "commit": commit()} for record in records]
    lines = ",\n".join(json.dumps(one) for one in [*kept, *new])
    path.write_text(f"[\n{lines}\n]\n")
