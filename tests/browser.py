"""Pages in a real browser: Chromium without a window, told what to do by its command line."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
# What the loaded page says of itself, written where --dump-dom finds it.
PROBE = """<script>
addEventListener("load", () => {
  const facts = {
    images: [...document.images].map(i => [i.naturalWidth, i.naturalHeight, i.width, i.height]),
    requests: performance.getEntriesByType("resource").map(r => r.name.slice(0, 99)),
    scripts: document.scripts.length - 1,
    width: [document.documentElement.scrollWidth, innerWidth],
  };
  const note = document.createElement("pre");
  note.id = "facts";
  note.textContent = JSON.stringify(facts);
  document.body.append(note);
});
</script>"""


def find_browser() -> str:
    """The path of a browser; without one the test is skipped, unless CI promises one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = f"no Chromium among {', '.join(NAMES)}: see CONTRIBUTING.md"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return found


def run_browser(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Load a page from the disk and do what the options say."""
    command = [
        find_browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={page.parent / 'profile'}",
        *options,
        page.absolute().as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def look_at(page: Path, width: int) -> dict:
    """What a page says of itself in a window so wide, and what the console said."""
    probed = page.with_name(f"probed-{page.name}")
    allowed = "default-src 'none'; script-src 'unsafe-inline'"  # for the probe itself
    source = page.read_text(encoding="utf-8").replace("default-src 'none'", allowed)
    probed.write_text(source + PROBE, encoding="utf-8")
    done = run_browser(probed, "--dump-dom", f"--window-size={width},900")
    facts = re.search(r'<pre id="facts">(.*?)</pre>', done.stdout, re.DOTALL)
    assert facts is not None, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(unescape(facts[1])), "console": console}


def photograph(page: Path, width: int) -> Path:
    """A picture of the page in a window so wide."""
    picture = page.with_suffix(f".{width}.png")
    run_browser(page, f"--screenshot={picture}", f"--window-size={width},2000")
    return picture
