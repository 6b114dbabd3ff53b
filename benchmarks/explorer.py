"""From a change on the explorer's page to the picture of it, in a real browser.

``python -m benchmarks.explorer`` fits models with the defaults to the penguins and to a table of
30 columns, opens the page in Chromium, drags over a density with 0, 1 and 3 other selections, and
prints what the page has measured: the time from a change to the painted picture of its answer.
Beside it are the CPU times of the server (the median answer) and of all of the browser's processes
(the mean per change, with what is drawn after the picture), which other programs inflate less.

With ``--models FOLDER`` the models are kept there, and used again. On a busy machine,
``nice -n -18 taskset -c 1 python -m benchmarks.explorer --models FOLDER`` has one core nearly to
itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from playwright.sync_api import Page, sync_playwright

import subtractive as sub
from subtractive.explorer.answers import Answers
from subtractive.explorer.launch import running

BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chrome-headless-shell",
)
SELECTIONS = (0, 1, 3)


def thirty_columns(num_rows: int = 4000) -> pd.DataFrame:
    """27 columns of numbers, some of them skewed, and 3 of categories, from six hidden factors."""
    random = np.random.default_rng(0)
    factors = random.normal(size=(num_rows, 6))
    numbers = factors @ random.normal(size=(6, 27)) + 0.5 * random.normal(size=(num_rows, 27))
    numbers[:, ::5] = np.exp(numbers[:, ::5] / 3)
    table = pd.DataFrame(numbers.round(3), columns=[f"x{k:02d}" for k in range(27)])
    for k in range(3):
        group = np.digitize(factors[:, k], [-1.0, -0.3, 0.3, 1.0])
        table[f"group{k}"] = np.array(list("abcde"))[group]
    return table


class Timed:
    """Counts the CPU seconds of answers."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.seconds = answers, []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the answers have
        if name != "curves":
            return getattr(self.answers, name)

        def curves(request: dict[str, Any]) -> Any:  # noqa: ANN401
            start = time.thread_time()
            answer = self.answers.curves(request)
            self.seconds.append(time.thread_time() - start)
            return answer

        return curves


def browser_seconds() -> float:
    """The CPU seconds of the browser's processes so far; NaN where the system does not tell."""
    if not Path("/proc/self/stat").exists():
        return float("nan")
    parents, seconds, names = {}, {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition(" (")[2].rpartition(") ")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        number = int(entry.parent.name)
        parents[number], names[number] = int(fields[1]), name
        seconds[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(number: int) -> bool:
        while number in parents and number != os.getpid():
            number = parents[number]
        return number == os.getpid()

    return sum(spent for n, spent in seconds.items() if "chrom" in names[n].lower() and is_ours(n))


def select(page: Page, keys: list[str], table: pd.DataFrame) -> None:
    """Select the middle of some columns by a link, and wait for everything that follows."""
    given = {
        key: {"range": [round(float(end), 3) for end in table[key].quantile([0.2, 0.8])]}
        for key in keys
    }
    page.evaluate("(hash) => { location.hash = hash; }", json.dumps({"given": given}))
    page.wait_for_function(
        "(given) => document.body.dataset.settled === JSON.stringify(given)",
        arg=given,
        timeout=120_000,
    )


def drag(page: Page, key: str, steps: int) -> list[float]:
    """Drag over a column step by step, each after the picture of the last; milliseconds."""
    page.evaluate("performance.clearMeasures()")
    box = page.locator(f"[data-key='{key}'] .u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    count = "performance.getEntriesByName('change to picture').length"
    for step in range(1, steps + 1):
        before = page.evaluate(count)
        page.mouse.move(box["x"] + (0.2 + 0.5 * step / steps) * box["width"], middle)
        page.wait_for_function(f"(n) => {count} > n", arg=before, timeout=60_000)
    found = page.evaluate(
        "performance.getEntriesByName('change to picture').map((entry) => entry.duration)"
    )
    page.mouse.up()
    return [float(duration) for duration in found]


def fitted(table: pd.DataFrame, file: Path | None) -> sub.SubtractiveMixture:
    """A model with the defaults, from a file if there is one."""
    if file is not None and file.exists():
        return sub.load(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sub.SubtractiveMixture(random_state=0).fit(table)
    if file is not None:
        model.save(file)
    return model


def measure(name: str, table: pd.DataFrame, file: Path | None, steps: int) -> None:
    model = fitted(table, file)
    numbers = [str(c) for c in table.select_dtypes("number").columns if table[c].nunique() > 20]
    timed = Timed(Answers.of(model, table, None))
    path = next(path for browser in BROWSERS if (path := shutil.which(browser)))
    with sync_playwright() as playwright, running(timed) as (address, _):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_selector("body[data-settled]", timeout=120_000)
        for count in SELECTIONS:
            select(page, numbers[1 : 1 + count], table)
            timed.seconds.clear()
            start = browser_seconds()
            found = drag(page, numbers[0], steps)
            drawing = 1000 * (browser_seconds() - start) / len(found)
            cpu = [1000 * seconds for seconds in timed.seconds[-len(found) :]]
            print(
                f"| {name} | {count} | {statistics.median(found):.0f} | {max(found):.0f} | "
                f"{statistics.median(cpu):.0f} | {drawing:.0f} | {len(found)} |",
                flush=True,
            )
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=25, help="changes of each drag")
    parser.add_argument("--models", type=Path, help="a folder in which models are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = Path("/proc/loadavg").read_text().split()[0] if os.path.exists("/proc/loadavg") else "?"
    print(f"one thread, load average {load} at the start\n")
    print(
        "| table | other selections | median ms | worst ms | server's CPU | browser's | changes |"
    )
    print("|---|---|---|---|---|---|---|")
    tables = {"penguins": sub.data.penguins(), "thirty": thirty_columns()}
    for name, table in tables.items():
        file = None if options.models is None else options.models / f"{name}.model"
        measure(f"{name}, {table.shape[1]} columns", table, file, options.steps)


if __name__ == "__main__":
    main()
