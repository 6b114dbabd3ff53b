"""The README's Python blocks run as they are pasted."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_an_example():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_readme_block_runs(block):
    torch.manual_seed(0)
    names = {}
    exec(block, names)
    filled = names["p"].impute(names["x"])
    assert not filled.isnan().any()
    torch.testing.assert_close(filled[1], names["x"][1].double(), rtol=0, atol=0)
