"""The reference shows public names only: other packages' members stay out, types link here."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext import autosummary
from sphinx.util.typing import ExtensionMetadata


@cache
def public_names() -> dict[str, Any]:
    """Every name that users may rely on, and what it stands for: ``subtractive.fit``, ..."""
    found: dict[str, Any] = {}
    top = import_module("subtractive")
    folders = [name for name in top.__all__ if inspect.ismodule(getattr(top, name))]
    for module in ("subtractive", *(f"subtractive.{folder}" for folder in folders)):
        folder = import_module(module)
        for name in getattr(folder, "__all__", None) or vars(folder):
            value = getattr(folder, name)
            home = getattr(value, "__module__", None) or ""
            if not name.startswith("_") and home.startswith("subtractive"):
                known = any(value is other for other in found.values())
                found |= {} if known else {f"{module}.{name}": value}
    return found


def skip_foreign(
    app: Sphinx, kind: str, name: str, member: object, *options: object
) -> bool | None:
    """Leave out what a class inherits from torch or scikit-learn."""
    home = getattr(inspect.unwrap(member) if callable(member) else member, "__module__", None)
    return True if home and not str(home).startswith("subtractive") else None


def escape_bars(
    app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Let docstrings write |c|: in text, reStructuredText takes bars for a substitution."""
    literal = False
    for number, line in enumerate(lines):
        if not line.strip():
            literal = False
        literal = literal or line.lstrip().startswith((">>>", ".. math::"))
        if not literal:
            lines[number] = re.sub(r"(`[^`]*`)|\|", lambda bar: bar[1] or r"\|", line)


def find_public(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Link a type such as ``subtractive.densities.base.Density`` to its public name."""
    homes = {f"{v.__module__}.{v.__qualname__}": n for n, v in public_names().items()}
    target = homes.get(node.get("reftarget", ""))
    if target is None or node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect them."""
    app.setup_extension("sphinx.ext.autodoc")
    # No sentence ends after these: "(Prop. 3)", "x = 0 .. n".
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("Prop.", " .")
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("missing-reference", find_public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
