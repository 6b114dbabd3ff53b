"""What the pages show of the records: tables and numbers by name, and figures by file."""

from __future__ import annotations

from collections.abc import Mapping

from studies.evidence.pages import Block, Picture

BLOCKS: Mapping[str, Block] = {}
PICTURES: Mapping[str, Picture] = {}
