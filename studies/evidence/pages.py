"""Pages whose tables, figures and numbers are what the records in git say.

A page marks what is generated with comments, in a line or around a whole table:

    <!-- evidence ring/table --> ... <!-- /evidence -->

``python -m studies pages`` writes the marked parts anew. Numbers elsewhere need one of two other
marks: ``cited`` for those of other authors, ``no record`` for runs of which no record was kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image

from studies.evidence.store import NoRecordsError, Store
from studies.registry import EXPERIMENTS
from subtractive.io.files import write_atomically, write_text

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "reproduction.md",
    "distillation.md",
    "paper.md",
    "real-data.md",
    "notes-digits.md",
    "notes-em.md",
    "notes-laboratory.md",
    "notes-real-data.md",
)

Block = Callable[[Store], str]

_MARKED = re.compile(
    r"(?P<open><!-- evidence (?P<name>\S+) -->)(?P<body>.*?)(?P<close><!-- /evidence -->)", re.S
)
# What may hold numbers without a record of ours: marked parts, code, links, numbered references.
_EXEMPT = re.compile(
    r"<!-- (evidence|cited|no record)\b[^>]*-->.*?<!-- /\1 -->"
    r"|```.*?```|`[^`\n]*`|\]\([^)\s]*\)|<!--.*?-->"
    r"|\b(Sec|App|Figs?|Tables?|Props?|Defs?|Thm|Eq|Alg|Lemma|Ex)s?\.? [A-Z]?\.?\d+(\.\d+)*",
    re.S,
)
_NUMBER = re.compile(r"(?<![\w.])[−-]?\d+(\.\d+|(\.\d+)? %)")


class Picture(NamedTuple):
    """A figure of a page: what an experiment shows of a group of records under a name."""

    group: str
    name: str


def find_pages(folder: Path = DOCS) -> list[Path]:
    """The pages that quote results, wherever they are below a folder."""
    return [path for path in sorted(folder.rglob("*.md")) if path.name in PAGES]


def regenerate(text: str, blocks: Mapping[str, Block], store: Store) -> str:
    """A page with every marked part as the records say.

    >>> blocks = {"sum": lambda store: "4"}
    >>> regenerate("2 + 2 = <!-- evidence sum -->5<!-- /evidence -->", blocks, Store())
    '2 + 2 = <!-- evidence sum -->4<!-- /evidence -->'
    """

    def fill(match: re.Match[str]) -> str:
        body = find_block(match["name"], blocks, store).strip("\n")
        if "\n" in match["body"] or "\n" in body:
            body = f"\n{body}\n"
        return match["open"] + body + match["close"]

    return _MARKED.sub(fill, text)


def find_block(name: str, blocks: Mapping[str, Block], store: Store) -> str:
    """What belongs into a marked part: a block of its own, or ``experiment/protocol/table``."""
    group, _, table = name.rpartition("/")
    try:
        if name in blocks:
            return blocks[name](store)
        if group.split("/")[0] in EXPERIMENTS and table in (
            tables := store.presented(group).tables
        ):
            return tables[table]
    except NoRecordsError:
        return "*No record yet.*"
    raise ValueError(f"a page names the evidence {name!r}, which nobody generates.")


def unrecorded_numbers(text: str) -> list[str]:
    """The numbers of a page that have neither a record nor a mark that says why.

    >>> unrecorded_numbers("We have −1.74 with `rate=0.03` (Sec. 4.1).")
    ['−1.74']
    """
    return [match[0] for match in _NUMBER.finditer(_EXEMPT.sub(" ", text))]


def outdated_pages(blocks: Mapping[str, Block], store: Store) -> list[Path]:
    """The pages that are not what the records say."""
    return [path for path, before, after in _pages(blocks, store) if after != before]


def update_pages(blocks: Mapping[str, Block], store: Store) -> list[Path]:
    """Write the marked parts of all pages anew; the pages that have changed."""
    changed = []
    for path, before, after in _pages(blocks, store):
        if after != before:
            write_text(path, after)
            changed.append(path)
    return changed


def _pages(blocks: Mapping[str, Block], store: Store) -> Iterator[tuple[Path, str, str]]:
    for path in find_pages():
        before = path.read_text(encoding="utf-8")
        yield path, before, regenerate(before, blocks, store)


def update_pictures(pictures: Mapping[str, Picture], store: Store) -> list[Path]:
    """Draw the pictures whose records have changed; those that were drawn."""
    drawn = []
    for path in outdated_pictures(pictures, store):
        picture = pictures[path.name]
        facts = {"Records": store.digest(picture.group)}
        write_atomically(
            path, _saving(store.presented(picture.group).figures[picture.name], facts)
        )
        drawn.append(path)
    return drawn


def outdated_pictures(pictures: Mapping[str, Picture], store: Store) -> list[Path]:
    """The pictures that are not there, or were drawn from other records."""
    found = []
    for name, picture in pictures.items():
        if picture.group not in store:
            continue  # as it was before there were records
        path = _place(name)
        facts: Mapping[str | tuple[int, int], object] = {}
        if path.exists():
            with Image.open(path) as image:
                facts = image.info
        if facts.get("Records") != store.digest(picture.group):
            found.append(path)
    return found


def _saving(figure: Figure, facts: dict[str, str]) -> Callable[[str], None]:
    return lambda partial: figure.savefig(partial, format="png", dpi=130, metadata=facts)


def _place(name: str) -> Path:
    """Where a picture is below the pages; a new one comes to the folder of the experiments."""
    there: Sequence[Path] = sorted(DOCS.rglob(name))
    return there[0] if there else DOCS / "reproduction" / name
