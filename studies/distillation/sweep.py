"""Many runs: sizes, kinds, learning rates and starts; their table and their tests."""

from __future__ import annotations

import csv
import io
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from studies.distillation.corpus import PARTS
from studies.distillation.runs import CONTINUED, Data, Plan, run
from subtractive.io.files import write_text

Record = dict[str, Any]
ADDITIVE, LONGER = "MPC", "MPC longer"


@dataclass(frozen=True)
class Variant:
    """A kind of model with its recipes (start, learning rate), which runs take in turn."""

    kind: str
    recipes: tuple[tuple[str, float], ...]
    num_squares: int = 1

    @property
    def is_continued(self) -> bool:
        """Whether runs begin where an additive one has ended."""
        return self.recipes[0][0] in CONTINUED

    @property
    def label(self) -> str:
        """The name in tables: MPC, MPC longer, NPC², or the number of squares."""
        if self.kind == "monotonic":
            return LONGER if self.is_continued else ADDITIVE
        return "NPC²" if self.num_squares == 1 else f"{self.num_squares} squares"


@dataclass(frozen=True)
class Sweep:
    """All runs of an experiment. Every seed is tried at every size before the next one."""

    sizes: tuple[int, ...]
    variants: tuple[Variant, ...]
    num_runs: int
    common: Plan  # batch size, epochs and patience of every run

    def plans(self) -> Iterator[tuple[Variant, Plan, Plan | None]]:
        """Variant, plan, and the additive plan that a continued start needs."""
        for seed in range(self.common.seed, self.common.seed + self.num_runs):
            for size in self.sizes:
                for variant in self.variants:
                    plan = self._plan(variant, size, seed)
                    yield variant, plan, self._first(size, seed) if variant.is_continued else None

    def _plan(self, variant: Variant, size: int, seed: int) -> Plan:
        start, rate = variant.recipes[(seed - self.common.seed) % len(variant.recipes)]
        return replace(
            self.common,
            kind=variant.kind,
            num_units=size,
            num_squares=variant.num_squares,
            start=start,
            learning_rate=rate,
            seed=seed,
        )

    def _first(self, size: int, seed: int) -> Plan:
        for variant in self.variants:
            if variant.kind == "monotonic" and not variant.is_continued:
                return self._plan(variant, size, seed)
        raise ValueError("a start from an additive model needs that model in the sweep.")


def run_sweep(
    sweep: Sweep, data: Data, folder: str | os.PathLike[str], *, progress: bool = True
) -> list[tuple[Variant, Record]]:
    """Do all runs that are not yet in the folder; all records, and the tables beside them."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for variant, plan, first in sweep.plans():
        records.append((variant, run(plan, data, place, first=first, progress=progress)))
        write_tables(records, place)
    return records


def write_tables(records: Sequence[tuple[Variant, Record]], folder: Path) -> None:
    """``runs.csv`` with every run, ``table.csv`` and ``table.md`` with what they come to."""
    rows = [_run_row(variant, record) for variant, record in records]
    summary = summarise(records)
    for name, text in (
        ("runs.csv", _csv(rows)),
        ("table.csv", _csv(summary)),
        ("table.md", _markdown(summary)),
    ):
        write_text(folder / name, text)


def summarise(records: Sequence[tuple[Variant, Record]]) -> list[dict[str, Any]]:
    """One row for each size and variant: medians, the central 90 %, the gap, and the p-value.

    The p-value is that of a one-sided Mann–Whitney U test: that the variant's test scores are
    higher than those of the additive model of the same size, the one trained longer if there is
    one: a squared model that starts from an additive one has had its epochs, too.
    """
    rows = []
    for size in sorted({record["plan"]["num_units"] for _, record in records}):
        longer = _scores(records, size, LONGER, "test")
        additive = longer or _scores(records, size, ADDITIVE, "test")
        for label in dict.fromkeys(variant.label for variant, _ in records):
            test = _scores(records, size, label, "test")
            if not test:
                continue
            teacher = _teacher(records, "test")
            low, high = np.quantile(test, [0.05, 0.95])
            median = statistics.median(test)
            rows.append(
                {
                    "K": size,
                    "model": label,
                    "runs": len(test),
                    "train": statistics.median(_scores(records, size, label, "train")),
                    "test": median,
                    "test 5 %": float(low),
                    "test 95 %": float(high),
                    "gap to teacher": None if teacher is None else teacher - median,
                    "p-value": None if label in (ADDITIVE, LONGER) else p_value(test, additive),
                }
            )
    return rows


def p_value(higher: Sequence[float], lower: Sequence[float]) -> float | None:
    """How likely scores are to be so much higher by chance alone, if there are any to compare."""
    if not higher or not lower:
        return None
    return float(stats.mannwhitneyu(higher, lower, alternative="greater").pvalue)


def _scores(
    records: Sequence[tuple[Variant, Record]], size: int, label: str, part: str
) -> list[float]:
    return [
        record["log_likelihood"][part]
        for variant, record in records
        if variant.label == label and record["plan"]["num_units"] == size
    ]


def _teacher(records: Sequence[tuple[Variant, Record]], part: str) -> float | None:
    return records[0][1]["teacher"].get(part) if records else None


def _run_row(variant: Variant, record: Record) -> dict[str, Any]:
    scores = {part: record["log_likelihood"][part] for part in PARTS}
    facts = ("parameters", "negative_weights", "epochs", "stopped", "seconds")
    return {
        "model": variant.label,
        **record["plan"],
        **scores,
        **{name: record[name] for name in facts},
    }


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    def cell(value: object) -> str:
        if value is None:
            return ""
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[cell(value) for value in row.values()] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
