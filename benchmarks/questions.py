"""Random questions about real tables: how many answers held-out rows agree with.

A question is the probability of an event given another: states, intervals, single values of one or
two columns each, with 30 held-out rows or more that match what is given. An answer agrees if a
two-sided binomial test with those rows does not reject it at the 5 % level. No model can be
expected to agree much more often than the training table itself would: with four times as many
rows to learn from as to test, its own frequencies would be rejected in 8 % of all questions, not
in 5 %.

    python -m benchmarks.questions --data ../shared/data/mixed
    python -m benchmarks.questions --data ../shared/data/mixed weather cars --effort balanced

A table is NAME.csv.gz, of which a fifth is held out, or NAME_train.csv.gz with NAME_test.csv.gz.
At most 3,000 held-out rows are asked. Every run is kept in benchmarks/records/questions.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import subtractive as sub
from benchmarks.recording import keep

RECORDS = Path(__file__).parent / "records" / "questions.json"
TABLES = ["weather", "randhie", "diamonds", "titanic", "survey", "cars", "airquality"]
TABLES += ["adult", "shoppers", "magic"]
QUESTIONS, MOST_ROWS = 300, 3000


def read(folder: Path, name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to fit, and held-out ones."""
    paths = [folder / f"{name}_{part}.csv.gz" for part in ("train", "test")]
    if paths[0].is_file():
        train, test = (pd.read_csv(path) for path in paths)
        return train, test.sample(frac=1, random_state=seed).head(MOST_ROWS)
    frame = pd.read_csv(folder / f"{name}.csv.gz").sample(frac=1, random_state=seed)
    cut = int(0.8 * len(frame))
    return frame[:cut].reset_index(drop=True), frame[cut:].head(MOST_ROWS)


def run(folder: Path, name: str, seed: int, effort: str | float) -> dict[str, Any]:
    """Fit one table and ask."""
    train, test = read(folder, name, seed)
    start = time.process_time()
    model = sub.SubtractiveMixture(effort=effort, random_state=seed).fit(train)
    seconds = time.process_time() - start
    check = model.check(test, n_questions=QUESTIONS)
    agreed, asked = check.counts()
    worst = check.to_frame().head(3)
    return {
        "table": name,
        "seed": seed,
        "effort": effort,
        "fit seconds": round(seconds, 1),
        "training rows": len(train),
        "held-out rows": len(test),
        "questions": asked,
        "agree": round(agreed / asked, 4),
        "worst": worst[["question", "probability", "share", "rows"]].round(4).values.tolist(),
    }


def main() -> None:
    """Print one line per table, and record it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    effort = float(options.effort) if options.effort[0].isdigit() else options.effort
    for name in options.tables:
        for seed in options.seeds:
            record = run(options.data, name, seed, effort)
            print(json.dumps(record), flush=True)
            keep(RECORDS, [record], ("table", "seed", "effort"))


if __name__ == "__main__":
    main()
