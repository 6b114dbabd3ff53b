"""The Python blocks of every page in docs/ run, one after the other, as they are pasted."""

import re
from pathlib import Path

import pytest
import torch
from quick_fits import train_briefly

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def test_there_are_pages():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page, monkeypatch):
    # Where a page trains, one epoch shows that its code runs.
    train_briefly(monkeypatch, 1)
    torch.manual_seed(0)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_of_a_page_exist(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
