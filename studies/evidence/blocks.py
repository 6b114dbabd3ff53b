"""What the pages show of the records beyond the tables of experiments: sentences and numbers."""

from __future__ import annotations

from collections.abc import Mapping

from studies.evidence import (
    binary_blocks,
    cost_blocks,
    distillation_blocks,
    paper_blocks,
    real_data_blocks,
)
from studies.evidence.pages import Block, Picture

BLOCKS: Mapping[str, Block] = {
    **paper_blocks.BLOCKS,
    **cost_blocks.BLOCKS,
    **distillation_blocks.BLOCKS,
    **binary_blocks.BLOCKS,
    **real_data_blocks.BLOCKS,
}
PICTURES: Mapping[str, Picture] = {
    "ring-components.png": Picture("ring/ours", "ring"),
    "drawings.png": Picture("drawings/ours", "drawings"),
    "units.png": Picture("drawings/ours", "units"),
    "networks.png": Picture("drawings/ours", "networks"),
    "overflow.png": Picture("overflow/ours", "partition"),
    "separation.png": Picture("separation/ours", "separation"),
    "cost.png": Picture("cost/ours", "cost"),
    "training-cost.png": Picture("training-cost/ours", "training-cost"),
    "weights.png": Picture("weights/ours", "weights"),
}
