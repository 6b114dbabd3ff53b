"""The public names: few, where the stubs say, and free until they are used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import subtractive as sub

ROOT = Path(__file__).parents[1] / "subtractive"
STUBS = sorted(ROOT.rglob("__init__.pyi"))


def declared(stub):
    """The package of a stub, and for each of its names the module that has it, if any."""
    package = ".".join(stub.parent.relative_to(ROOT.parent).parts)
    for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield package, node.module, alias.name, alias.asname


NAMES = [entry for stub in STUBS for entry in declared(stub)]


@pytest.mark.parametrize(("package", "module", "name", "exported"), NAMES)
def test_every_name_is_where_its_stub_says(package, module, name, exported):
    assert name == exported
    home = import_module(package)
    found = getattr(home, name)
    expected = import_module(f"{package}.{module or name}")
    assert found is (getattr(expected, name) if module else expected)
    assert name in dir(home)
    assert name in home.__all__


def test_a_new_user_meets_few_names():
    own = [name for package, module, name, _ in NAMES if package == "subtractive" and module]
    assert len(own) <= 48
    assert len(set(own)) == len(own)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No subtractive attribute nothing"):
        _ = sub.nothing


def test_importing_the_package_imports_no_torch():
    code = "import sys, subtractive; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, check=True)
