"""The commands on the page about the paper's experiments name what exists."""

import re
import shlex
from pathlib import Path

import pytest

from studies.registry import EXPERIMENTS, full, quick
from subtractive.cli import make_parser
from subtractive.commands import parse_settings

PAGE = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(subtractive experiment [^#\n]+)", PAGE, re.MULTILINE)


SECTIONS = re.findall(r"^## ([a-z-]+):", PAGE, re.MULTILINE)


def test_every_section_has_its_command():
    named = {shlex.split(command)[2] for command in COMMANDS if len(shlex.split(command)) > 2}
    assert set(SECTIONS) <= named
    assert set(SECTIONS) <= set(EXPERIMENTS)
    assert len(SECTIONS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command):
    options = make_parser().parse_args(shlex.split(command)[1:])
    if options.name not in (None, "all"):
        chosen = (quick if options.quick else full)(options.name)
        changes = parse_settings(options.set)
        if options.data is not None:
            changes["data"] = options.data
        assert chosen.changed(changes).runs()
