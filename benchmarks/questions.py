"""Random questions about real tables: how many answers held-out rows agree with.

A question is the probability of an event given another: states, intervals, single values of one or
two columns each, with 30 held-out rows or more that match what is given. An answer agrees if a
two-sided binomial test with those rows does not reject it at the 5 % level. No model can be
expected to agree much more often than the training rows themselves: their own frequencies are put
to the same test, in "training rows agree". "missed" counts the wrong answers about each column.

    python -m benchmarks.questions --data ../shared/data/mixed
    python -m benchmarks.questions --data ../shared/data/mixed weather cars --effort balanced

A table is NAME.csv.gz, or NAME_train.csv.gz and NAME_test.csv.gz taken together. Each seed holds
out another fifth of its rows, of which at most 3,000 are asked. Every run is kept in
benchmarks/records/questions.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import subtractive as sub
from benchmarks.recording import keep
from subtractive.tables.asking import Question, count_rows, parse_question
from subtractive.tables.conditions import event_sets
from subtractive.tables.reading import Floats, read_frame
from subtractive.tables.receipts import Check, Receipt
from subtractive.tables.schema import Schema

RECORDS = Path(__file__).parent / "records" / "questions.json"
TABLES = ["weather", "randhie", "diamonds", "titanic", "survey", "cars", "airquality"]
TABLES += ["adult", "shoppers", "magic"]
QUESTIONS, MOST_ROWS = 300, 3000


def read(folder: Path, name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to fit, and held-out ones."""
    paths = [folder / f"{name}.csv.gz"]
    if not paths[0].is_file():
        paths = [folder / f"{name}_{part}.csv.gz" for part in ("train", "test")]
    frame = pd.concat([pd.read_csv(path) for path in paths]).sample(frac=1, random_state=seed)
    cut = int(0.8 * len(frame))
    return frame[:cut].reset_index(drop=True), frame[cut:].head(MOST_ROWS)


def parsed(check: Check, schema: Schema) -> Iterator[tuple[Receipt, Question]]:
    """The receipts of a check with their questions; names with a comma or a bar have none."""
    for receipt in check.receipts:
        with contextlib.suppress(ValueError):
            yield receipt, parse_question(receipt.question, schema)


def share_of_rows(check: Check, schema: Schema, codes: Floats) -> float:
    """The share of questions to which frequencies of rows, codes (n, d), agree as well."""
    agreed = []
    for receipt, question in parsed(check, schema):
        given = event_sets(schema, question.given) if question.given else {}
        event = event_sets(schema, question.event or {})
        found = count_rows(codes, np.ones(len(codes)), given, event)
        answer = found.share if found.rows else 0.0
        agreed.append(bool(replace(receipt, probability=answer).agrees))
    return float(np.mean(agreed))


def missed(check: Check, schema: Schema) -> dict[str, int]:
    """How many wrong answers are about each column, the most first."""
    counts: Counter[str] = Counter()
    for receipt, question in parsed(check, schema):
        if not receipt.agrees:
            counts.update(map(str, {*(question.event or {}), *question.given}))
    return dict(counts.most_common())


def run(folder: Path, name: str, seed: int, effort: str | float) -> dict[str, Any]:
    """Fit one table and ask."""
    train, test = read(folder, name, seed)
    start = time.process_time()
    model = sub.SubtractiveMixture(effort=effort, random_state=seed).fit(train)
    seconds = time.process_time() - start
    check = model.check(test, n_questions=QUESTIONS)
    agreed, asked = check.counts()
    worst = check.to_frame().head(3)
    schema = model.schema_
    codes = schema.encode(read_frame(train).columns, len(train)).x.numpy()
    return {
        "table": name,
        "seed": seed,
        "effort": effort,
        "fit seconds": round(seconds, 1),
        "training rows": len(train),
        "held-out rows": len(test),
        "questions": asked,
        "agree": round(agreed / asked, 4),
        "training rows agree": round(share_of_rows(check, schema, codes), 4),
        "missed": missed(check, schema),
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
