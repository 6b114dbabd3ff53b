"""The commands on the page about the paper's experiments name what exists."""

import re
import shlex
from pathlib import Path

import pytest

from studies.__main__ import parse
from studies.commands import chosen_experiment
from studies.registry import EXPERIMENTS

PAGE = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m studies([^#\n]*)", PAGE, re.MULTILINE)
SECTIONS = re.findall(r"^## ([a-z-]+):", PAGE, re.MULTILINE)


def test_every_section_has_its_command():
    named = {name for command in COMMANDS for name in shlex.split(command)[:1]}
    assert set(SECTIONS) <= named
    assert set(SECTIONS) <= set(EXPERIMENTS)
    assert len(SECTIONS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command):
    options = parse(shlex.split(command))
    if options.name not in (None, "all"):
        assert chosen_experiment(options.name, options).runs()
