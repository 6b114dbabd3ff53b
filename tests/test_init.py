"""The public names: where they come from, and that they cost nothing until they are used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import subtractive as sub

ROOT = Path(__file__).parents[1]


def declared():
    """The imports that type checkers see."""
    tree = ast.parse((ROOT / "subtractive" / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        name.name: node.module.removeprefix("subtractive.")
        for node in imports
        for name in node.names
        if node.module.startswith("subtractive.")
    }


def test_type_checkers_and_python_see_the_same_names():
    assert declared() == sub._PLACES
    assert list(sub._PLACES.items()) == sorted(sub._PLACES.items(), key=lambda item: item[::-1])


@pytest.mark.parametrize("name", sub._PLACES)
def test_every_name_is_where_it_is_said_to_be(name):
    assert getattr(sub, name) is getattr(import_module(f"subtractive.{sub._PLACES[name]}"), name)
    assert name in dir(sub)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'subtractive' has no attribute 'nothing'"):
        _ = sub.nothing


def test_importing_the_package_imports_no_torch():
    code = "import sys, subtractive; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
