"""Checks 24 and 25: long tables, long lives and many threads."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from scorecard.check import Outcome, Size, check
from scorecard.processes import run_program
from scorecard.tables import random_table, small

MEMORY = """
import resource, sys
import numpy as np, subtractive as sub
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
random = np.random.default_rng(0)
model = sub.SubtractiveMixture(4, max_epochs=1, structure="binary", random_state=0)
model.fit(random.normal(size=(500, 20)))
table = random.normal(size=(int(sys.argv[1]), 20))
before = peak()
assert np.isfinite(model.score_samples(table)).all()
scored = peak() - before
del table
def ask(number):
    values = random.normal(size=3)
    given = {0: values[0], 1: values[1], 2: (values[2], None)}
    chance = model.probability({3: (0, None)}, given=given)
    assert 0 <= chance <= 1
for number in range(200):
    ask(number)
before = peak()
for number in range(int(sys.argv[2])):
    ask(number)
print(scored, peak() - before)
"""

COMMAND = """
import resource, sys
from subtractive.cli.main import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
"""

SOAK = """
import gc, sys, time, warnings
import numpy as np, subtractive as sub
from scorecard.tables import random_table, small
warnings.simplefilter("ignore")
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
table = random_table(3)
end, sizes, calls = time.monotonic() + float(sys.argv[1]), [], 0
while time.monotonic() < end or len(sizes) < 5:
    model = small(random_state=calls % 7).fit(table)
    for _ in range(20):
        model.score_samples(table)
        model.sample(50, random_state=calls)
        gaps = np.random.default_rng(calls).random((20, table.shape[1])) < 0.3
        model.impute(table.head(20).mask(gaps))
        calls += 3
    sizes.append(resident())
fifth = max(1, len(sizes) // 5)
print(np.median(sizes[fifth:2 * fifth]), np.median(sizes[-fifth:]), calls)
"""


@check(
    24,
    "load: scores of 1,000,000 × 20, 10,000 conditionals, 5,000,000 rows through the command "
    "line, a soak",
    "< 400 MB, < 50 MB, < 1,500 MB, growth < 1 %",
)
def load(size: Size) -> Outcome:
    """Memory as the system counts it, each time in a process of its own; the soak beside them."""
    seconds = 1.0 if size.quick else size.soak_seconds
    with ThreadPoolExecutor(1) as pool:
        soak = pool.submit(run_program, SOAK, str(seconds))
        scored, asked, rows, streamed = _in_one_go(size)
        start, end, calls = map(float, soak.result().split())
    growth = end / start - 1
    figure = (
        f"{scored:.0f} MB more, {asked:.0f} MB more, {rows:,} rows in {streamed:.0f} MB, "
        f"{100 * growth:+.2f} % in {seconds:.0f} s and {calls:.0f} calls"
    )
    limit = 0.1 if size.quick else 0.01
    return Outcome(figure, scored < 400 and asked < 50 and streamed < 1500 and growth < limit)


def _in_one_go(size: Size) -> tuple[float, float, int, float]:
    """Megabytes of scoring and of conditionals, a number of rows, and megabytes of these."""
    scored, asked = map(
        float,
        run_program(MEMORY, str(size.of(1_000_000, 100_000)), str(size.of(10_000, 50))).split(),
    )
    rows = size.of(5_000_000, 50_000)
    return scored, asked, rows, _stream(rows)


def _stream(rows: int) -> float:
    """The peak memory, in megabytes, of scoring so many rows of ten columns by the command."""
    random = np.random.default_rng(0)
    names = [f"c{k}" for k in range(10)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small(n_components=4).fit(pd.DataFrame(random.normal(size=(300, 10)), columns=names)).save(
            folder / "model"
        )
        with open(folder / "rows.csv", "w") as file:
            for start in range(0, rows, 50_000):
                values = random.normal(size=(min(50_000, rows - start), 10)).round(4)
                pd.DataFrame(values, columns=names).to_csv(file, index=False, header=start == 0)
        peak = run_program(COMMAND, "score", "model", "rows.csv", "-o", "out.csv", folder=name)
        with open(folder / "out.csv") as file:
            assert sum(1 for _ in file) == rows + 1
    return float(peak)


@check(25, "threads: 16 threads ask one model", "equal to serial answers, bit by bit")
def threads(size: Size) -> Outcome:
    """Score and sample in sixteen threads at once."""
    table = random_table(3)
    model = small().fit(table)
    expected, drawn = model.score_samples(table), model.sample(10, random_state=0)
    count = size.of(256, 32)
    with ThreadPoolExecutor(16) as pool:
        scores = list(pool.map(lambda _: model.score_samples(table), range(count)))
        samples = list(pool.map(lambda _: model.sample(10, random_state=0), range(count // 4)))
    same = sum(np.array_equal(score, expected) for score in scores)
    same += sum(sample.equals(drawn) for sample in samples)
    total = len(scores) + len(samples)
    return Outcome(f"{same} of {total} equal", same == total)
