"""Imports point one way through the layers of the package, and every module says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "subtractive"

# Each folder or module may import from itself and from those before it. Two places are not
# obvious: inference stands before densities, because a density's methods are its queries; programs
# stand after __init__, because they are written, as a user's are, with the public names.
ORDER = [
    "regions",
    "numerics",
    "io",
    "inputs",
    "init",
    "circuits",
    "inference",
    "densities",
    "sequences",
    "reductions",
    "interop",
    "learning",
    "storage",
    "tables",
    "plots",
    "report",
    "explorer",
    "data",
    "__init__",
    "cli",
    "__main__",
]
# What a layer keeps out although it is installed.
FORBIDDEN = {"regions": {"torch"}}
# What lies beside the package is not installed with it.
BESIDE = {"studies", "benchmarks", "tests"}


def modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def layer_of(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def absolute_base(node: ast.ImportFrom, path: Path, root: Path) -> tuple[str, ...]:
    """The dotted name after ``from``, with leading dots resolved."""
    name = tuple(node.module.split(".")) if node.module else ()
    if node.level == 0:
        return name
    package = path.relative_to(root.parent).parent.parts
    return package[: len(package) - node.level + 1] + name


def imported_names(node: ast.AST, path: Path, root: Path) -> list[tuple[str, ...]]:
    """The dotted names that one statement imports, the last part perhaps not being a module."""
    if isinstance(node, ast.Import):
        return [tuple(alias.name.split(".")) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute_base(node, path, root)
        return [(*base, alias.name) for alias in node.names]
    return []


def imported_layer(name: tuple[str, ...], root: Path) -> str:
    """The folder or module that a name lives in; a public name lives in ``__init__``."""
    first = name[1] if len(name) > 1 else "__init__"
    is_module = (root / first).is_dir() or (root / f"{first}.py").is_file()
    return first if is_module else "__init__"


def violations(root: Path) -> Iterator[str]:
    """One sentence for each import that breaks the layering of the package at ``root``."""
    for path in modules(root):
        here, tree = layer_of(path, root), ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(root.parent).as_posix()
        if here not in ORDER:
            yield f"{where}: {here} has no place in ORDER"
            continue
        for node in ast.walk(tree):
            for name in imported_names(node, path, root):
                if name[0] in BESIDE | FORBIDDEN.get(here, set()):
                    yield f"{where}: {here} must not import {name[0]}"
                if name[0] == root.name:
                    layer = imported_layer(name, root)
                    if layer not in ORDER[: ORDER.index(here) + 1]:
                        yield f"{where}: {here} must not import {layer}"
        for name in names_imported_inside_functions(tree, path, root):
            if name[0] == root.name:
                yield f"{where}: import {'.'.join(name)} at the top of the file"


def names_imported_inside_functions(
    tree: ast.Module, path: Path, root: Path
) -> set[tuple[str, ...]]:
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inside = [node for function in functions for node in ast.walk(function)]
    return {name for node in inside for name in imported_names(node, path, root)}


def modules_without_a_first_line(root: Path) -> Iterator[str]:
    """The modules that do not say what they are; an empty ``__init__`` has nothing to say."""
    for path in modules(root):
        text = path.read_text(encoding="utf-8")
        if path.name == "__init__.py" and not text.strip():
            continue
        docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
        if not docstring.split("\n")[0].strip():
            yield path.relative_to(root.parent).as_posix()


def test_imports_point_one_way():
    assert list(violations(ROOT)) == []


def test_every_module_begins_by_saying_what_it_is():
    assert list(modules_without_a_first_line(ROOT)) == []
    assert list(modules_without_a_first_line(ROOT.with_name("studies"))) == []


PLANTED = {
    "upwards": (
        "numerics/messages.py",
        "import planted.circuits",
        "numerics must not import circuits",
    ),
    "upwards from": (
        "circuits/circuit.py",
        "from planted.densities.squared import SquaredCircuit",
        "circuits must not import densities",
    ),
    "upwards from the package": (
        "inputs/base.py",
        "from planted import circuits",
        "inputs must not import circuits",
    ),
    "relative": (
        "regions/graph.py",
        "from ..inputs import base",
        "regions must not import inputs",
    ),
    "relative from the package": (
        "regions/graph.py",
        "from .. import inputs",
        "regions must not import inputs",
    ),
    "relative in an __init__": (
        "regions/__init__.py",
        "from ..inputs.base import InputFamily",
        "regions must not import inputs",
    ),
    "only for types": (
        "regions/graph.py",
        "if TYPE_CHECKING:\n    from planted.circuits import circuit",
        "regions must not import circuits",
    ),
    "the front door": (
        "densities/squared.py",
        "from planted import Circuit",
        "densities must not import __init__",
    ),
    "the front door by name": (
        "densities/squared.py",
        "import planted as sub",
        "densities must not import __init__",
    ),
    "local": (
        "densities/squared.py",
        "def f():\n    from ..circuits import circuit",
        "import planted.circuits.circuit at the top of the file",
    ),
    "torch": ("regions/graph.py", "from torch import Tensor", "regions must not import torch"),
    "torch inside": (
        "regions/graph.py",
        "def f():\n    import torch.nn",
        "regions must not import torch",
    ),
    "studies": ("cli/demo.py", "from studies.data import real", "cli must not import studies"),
    "unknown": ("helpers/misc.py", "", "helpers has no place in ORDER"),
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A small package that keeps the rules."""
    root = tmp_path / "planted"
    sources = {
        "__init__.py": "from planted.densities.squared import SquaredCircuit",
        "regions/__init__.py": "from .graph import RegionGraph",
        "regions/graph.py": "import numpy",
        "inputs/base.py": "import torch\nfrom ..regions import graph",
        "circuits/circuit.py": "from planted.inputs import base\nfrom . import layers",
        "circuits/layers.py": "",
        "densities/squared.py": "from planted import circuits\ndef f():\n    import scipy",
        "cli/demo.py": "import planted as sub",
    }
    for name, source in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'"""What {name} is."""\n{source}\n')
    return root


def test_a_package_that_keeps_the_rules_passes(planted: Path):
    assert list(violations(planted)) == []
    assert list(modules_without_a_first_line(planted)) == []


@pytest.mark.parametrize(("name", "source", "message"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_found(planted: Path, name: str, source: str, message: str):
    (planted / name).parent.mkdir(exist_ok=True)
    (planted / name).write_text(source)
    assert list(violations(planted)) == [f"planted/{name}: {message}"]


@pytest.mark.parametrize("source", ["import numpy", '"""\nToo late."""', "# A comment."])
def test_a_module_without_a_first_line_is_found(planted: Path, source: str):
    (planted / "regions/graph.py").write_text(source)
    assert list(modules_without_a_first_line(planted)) == ["planted/regions/graph.py"]


def test_an_empty_init_needs_no_first_line(planted: Path):
    (planted / "regions/__init__.py").write_text("")
    assert list(modules_without_a_first_line(planted)) == []
