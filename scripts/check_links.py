"""Check that every link inside a built site leads to a page, a file and an anchor that exist.

Outputs of the gallery are looked at, too: the address of an object says nothing to a reader.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, its anchors, and what it fetches from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.fetched: set[str] = set()
        self.addresses = re.findall(r"&lt;[\w.]+ object at 0x", text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to."""
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.links |= {given[name] for name in ("href", "src") if name in given}
        is_fetched = tag in ("script", "img") or given.get("rel") == "stylesheet"
        self.fetched |= {given[name] for name in ("href", "src") if is_fetched and name in given}


def problems(site: Path) -> list[str]:
    """One line for every link that leads nowhere, and for what no page should fetch or show."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in sorted(pages.items()):
        here = path.relative_to(site)
        found += [f"{here} fetches {url}" for url in sorted(page.fetched) if "//" in url]
        found += [f"{here} shows {unescape(text)}..." for text in page.addresses]
        for link in sorted(page.links):
            target, anchor = _find(site, path, link)
            if target is None:
                continue
            if not target.exists():
                found.append(f"{here} links to {link}, which is not there")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{here} links to {link}, which has no such anchor")
    return found


def _find(site: Path, page: Path, link: str) -> tuple[Path | None, str]:
    """The file that a link of a page means, or None if it is elsewhere, and its anchor."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None, ""
    path = unquote(parts.path)
    target = page if not path else (site / path[1:] if path[0] == "/" else page.parent / path)
    target = target / "index.html" if target.is_dir() else target
    return target.resolve(), unquote(parts.fragment)


def main() -> int:
    """Print the problems of the site in the folder that is named."""
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    print("\n".join(found) or f"check_links: all links inside {sys.argv[1]} are good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
