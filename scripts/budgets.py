"""Print the style budgets of the package: what a reader has to hold in mind, measured.

Being over budget is no error but needs a reason; ``--strict`` makes it one.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import subtractive as sub

PACKAGE = Path(__file__).resolve().parents[1] / "subtractive"
CORE = ("circuits", "inference")  # folders whose lines are counted together
MAX_CULPRITS = 40

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SILENT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


@dataclass(frozen=True)
class Source:
    """One file of the package, parsed once."""

    name: str
    tree: ast.Module
    num_lines: int
    code_lines: frozenset[int]  # the lines that hold more than blanks and comments


@dataclass(frozen=True)
class Function:
    """A function or method that does something; declarations without a body are not counted."""

    name: str
    num_lines: int  # of code: signature and body, without docstring, comments and blank lines
    num_parameters: int  # without self and cls


@dataclass(frozen=True)
class Budget:
    """One row of the table; ``found`` is ``None`` where the measurement was impossible."""

    name: str
    limit: float
    found: float | None
    culprits: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.found is None:
            return "?"
        return "OK" if self.found <= self.limit else "OVER"


def read_sources(root: Path) -> list[Source]:
    """Every Python file below ``root``."""
    return [read_source(path, root.parent) for path in sorted(root.rglob("*.py"))]


def read_source(path: Path, base: Path) -> Source:
    """One file, named by its path below ``base``."""
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = [(t.start[0], t.end[0]) for t in tokens if t.type not in SILENT_TOKENS]
    lines = frozenset(line for first, last in spans for line in range(first, last + 1))
    name = path.relative_to(base).as_posix()
    return Source(name, ast.parse(text), len(text.splitlines()), lines)


def functions_of(source: Source) -> Iterator[Function]:
    """The functions of a file, nested ones too."""
    for node in ast.walk(source.tree):
        if isinstance(node, FunctionNode) and has_body(node):
            name = f"{source.name}:{node.lineno} {node.name}"
            yield Function(name, count_code_lines(node, source), count_parameters(node))


def statements(node: FunctionNode) -> list[ast.stmt]:
    """The body without the docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def has_body(node: FunctionNode) -> bool:
    """Whether a function does something, as a declaration does not."""
    return not all(
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is ...
        for statement in statements(node)
    )


def count_code_lines(node: FunctionNode, source: Source) -> int:
    """The lines of signature and body that hold code."""
    lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1)) & source.code_lines
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def count_parameters(node: FunctionNode) -> int:
    """All that a caller may pass."""
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def class_depths(sources: Iterable[Source]) -> dict[str, int]:
    """How many classes of our own one reads to know a class, itself included."""
    bases: dict[str, set[str]] = {}
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base_name(base) for base in node.bases} - {node.name}

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases), default=0)

    return {name: depth(name) for name in bases}


def base_name(node: ast.expr) -> str:
    """``Layer`` of ``Layer``, ``layers.Layer`` and ``Layer[T]``."""
    if isinstance(node, ast.Subscript):
        return base_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def static_budgets(root: Path) -> list[Budget]:
    """What can be counted without running anything."""
    sources = read_sources(root)
    functions = [function for source in sources for function in functions_of(source)]
    lengths = [function.num_lines for function in functions]
    return [
        largest("lines in a file", 330, {s.name: s.num_lines for s in sources}),
        Budget(f"lines in {' and '.join(CORE)}", 3200, sum(_core_lines(sources))),
        largest("code lines in a function", 40, {f.name: f.num_lines for f in functions}),
        Budget("median of these", 8, statistics.median(lengths) if lengths else 0),
        largest("parameters of a function", 6, {f.name: f.num_parameters for f in functions}),
        largest("classes down to the root", 2, class_depths(sources)),
    ]


def _core_lines(sources: Iterable[Source]) -> Iterator[int]:
    return (s.num_lines for s in sources if s.name.split("/")[1] in CORE)


def largest(name: str, limit: int, sizes: dict[str, int]) -> Budget:
    """A budget for the largest of many things; all that exceed it are named, the worst first."""
    over = sorted((k for k in sizes if sizes[k] > limit), key=lambda k: (-sizes[k], k))
    return Budget(
        name, limit, max(sizes.values(), default=0), [f"{sizes[k]:5d}  {k}" for k in over]
    )


def build() -> sub.SquaredCircuit:
    """A small squared circuit."""
    circuit = sub.Circuit(sub.random_binary_tree(4, seed=0), sub.Gaussian(), num_units=4, seed=0)
    return sub.SquaredCircuit(circuit)


def small_model() -> None:
    """Build a small squared circuit and ask it for one log-density."""
    build().log_prob(torch.zeros(1, 4))


def training_step() -> None:
    """Build it and follow the gradient of its log-likelihood once."""
    density = build()
    optimiser = torch.optim.Adam(density.parameters())
    (-density.log_prob(torch.zeros(2, 4))).mean().backward()
    optimiser.step()


def draw_samples() -> None:
    """Build it and draw two samples."""
    build().sample(2)


# What a reader follows: the path, and the most files and lines it may take.
PATHS: dict[str, tuple[Callable[[], None], int, int | None]] = {
    "one log_prob": (small_model, 12, 350),
    "a training step": (training_step, 14, None),
    "sample": (draw_samples, 18, None),
}


def executed_lines(run: Callable[[], None], root: Path) -> dict[str, int]:
    """How many lines below ``root`` are executed by ``run`` inside functions, by file."""
    lines: dict[str, set[int]] = defaultdict(set)

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        # Bodies of modules and classes are not optimised code: they are the import, not the path.
        if not code.co_filename.startswith(f"{root}/") or not code.co_flags & inspect.CO_OPTIMIZED:
            return None
        if event == "line":
            lines[code.co_filename].add(frame.f_lineno)
        return trace

    for name in ("Circuit", "SquaredCircuit", "Gaussian", "random_binary_tree"):
        getattr(sub, name)  # loads it: what runs at import is not the path
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return {Path(p).relative_to(root.parent).as_posix(): len(found) for p, found in lines.items()}


def path_budgets(root: Path) -> list[Budget]:
    """The reader's paths: what runs from building a small model to an answer."""
    budgets = []
    for name, (run, max_files, max_lines) in PATHS.items():
        try:
            counts = executed_lines(run, root)
            reason = "" if counts else f"subtractive was imported from somewhere else than {root}"
        except AttributeError as error:  # the package does not have all of the names yet
            counts, reason = {}, str(error)
        limits = {f"files to {name}": max_files}
        if max_lines is not None:
            limits[f"lines to {name}"] = max_lines
        if reason:
            budgets += [
                Budget(n, at, None, [f"not measured: {reason}"]) for n, at in limits.items()
            ]
            continue
        files = [f"{counts[path]:5d}  {path}" for path in sorted(counts, key=lambda k: -counts[k])]
        found = (len(counts), sum(counts.values()))
        budgets += [
            Budget(n, at, size, files)
            for (n, at), size in zip(limits.items(), found, strict=False)
        ]
    return budgets


def render(budgets: Sequence[Budget]) -> str:
    """The table, with what is over budget below its row, the worst first."""
    rows = [f"{'budget':32}{'limit':>7}{'found':>7}"]
    shown: list[str] = []
    for budget in budgets:
        found = "-" if budget.found is None else f"{budget.found:g}"
        rows.append(f"{budget.name:32}{budget.limit:>7g}{found:>7}  {budget.verdict}")
        if budget.verdict != "OK" and budget.culprits != shown:
            shown = budget.culprits
            rows += [f"    {culprit}" for culprit in shown[:MAX_CULPRITS]]
            if len(shown) > MAX_CULPRITS:
                rows.append(f"    ... and {len(shown) - MAX_CULPRITS} more")
    return "\n".join(rows)


def main() -> int:
    """Print the table; with ``--strict``, fail unless every row is OK."""
    parser = argparse.ArgumentParser(description="Print the style budgets of the package.")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a budget is not kept"
    )
    strict: bool = parser.parse_args().strict
    budgets = static_budgets(PACKAGE) + path_budgets(PACKAGE)
    print(render(budgets))
    return int(strict and any(budget.verdict != "OK" for budget in budgets))


if __name__ == "__main__":
    sys.exit(main())
