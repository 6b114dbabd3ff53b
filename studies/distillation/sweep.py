"""A grid of distilled models: sizes, kinds, learning rates and starts; their tables and tests."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from scipy import stats

from studies.distillation.corpus import PARTS, EncodedCorpus
from studies.distillation.figures import likelihood_figure, weight_figure
from studies.distillation.models import sum_weights
from studies.distillation.training import CONTINUED, ChainSettings, read_chain, train_chain
from studies.grid.experiment import Place, Record, Run, Staged
from studies.grid.outputs import Page
from studies.grid.records import identify

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


@final
@dataclass(frozen=True)
class Sweep(Staged):
    """All models of one corpus in the folder ``data``. Every size is tried before the next seed.

    Additive models come first: others begin where they have ended.
    """

    name: ClassVar[str] = "distill"
    title: ClassVar[str] = "Distilled models against their teacher"

    data: str
    sizes: tuple[int, ...]
    variants: tuple[Variant, ...]
    num_runs: int
    common: ChainSettings  # batch size, epochs and patience of every run

    def runs(self) -> Sequence[Run]:
        continued = [variant for variant in self.variants if variant.is_continued]
        first = [variant for variant in self.variants if not variant.is_continued]
        if continued and not any(variant.kind == "monotonic" for variant in first):
            raise ValueError("a start from an additive model needs that model in the sweep.")
        return [asdict(settings) for settings in self._settings(first)]

    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        additive = {
            (record.run["num_units"], record.run["seed"]): identify(record.run)
            for record in records
            if record.run["kind"] == "monotonic"
        }
        continued = [variant for variant in self.variants if variant.is_continued]
        return [
            {**asdict(settings), "additive": additive[settings.num_units, settings.seed]}
            for settings in self._settings(continued)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        settings = ChainSettings(**{k: v for k, v in run.items() if k != "additive"})
        model = place("model")
        additive = model.with_name(f"{run['additive']}.model") if "additive" in run else None
        return train_chain(
            settings,
            read_encoded(self.data),
            checkpoint=place("checkpoint"),
            model_file=model,
            additive_file=additive,
        )

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        rows = summarise(records)
        outputs.table(
            "table",
            "Mean log-likelihoods, medians over runs; the p-value is that of a one-sided "
            "Mann-Whitney U test against the additive model of the same size.",
            list(rows[0]),
            [list(row.values()) for row in rows],
        )
        runs = [_run_row(record) for record in records]
        outputs.table("runs", "All runs.", list(runs[0]), [list(row.values()) for row in runs])
        outputs.figure(
            "likelihood",
            "Median and central 90 % of the runs of each model against K.",
            likelihood_figure(records, label_of),
        )
        outputs.figure(
            "weights",
            "Weights of sums of the largest models, the central 99 % of each.",
            weight_figure(_largest_weights(records)),
        )

    def _settings(self, variants: Sequence[Variant]) -> list[ChainSettings]:
        seeds = range(self.common.seed, self.common.seed + self.num_runs)
        return [
            self._of(variant, size, seed)
            for seed in seeds
            for size in self.sizes
            for variant in variants
        ]

    def _of(self, variant: Variant, size: int, seed: int) -> ChainSettings:
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


@cache
def read_encoded(folder: str) -> EncodedCorpus:
    """The sequences in a folder of ``distill``, read once per process."""
    return EncodedCorpus.read(Path(folder))


def label_of(run: Run) -> str:
    """The name in tables: MPC, MPC longer, NPC², or the number of squares.

    >>> label_of({"kind": "squared", "num_squares": 4, "start": "root"})
    '4 squares'
    """
    if run["kind"] == "monotonic":
        return LONGER if run["start"] in CONTINUED else ADDITIVE
    return "NPC²" if run["num_squares"] == 1 else f"{run['num_squares']} squares"


def summarise(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each size and model: medians, the central 90 %, the gap, and the p-value.

    The p-value is that of a one-sided Mann-Whitney U test: that the model's test scores are
    higher than those of the additive model of the same size, the one trained longer if there is
    one: a squared model that starts from an additive one has had its epochs, too.
    """
    teacher = records[0].result["teacher"].get("test") if records else None
    rows = []
    for size in sorted({record.run["num_units"] for record in records}):
        longer = _scores(records, size, LONGER, "test")
        additive = longer or _scores(records, size, ADDITIVE, "test")
        for label in dict.fromkeys(label_of(record.run) for record in records):
            test = _scores(records, size, label, "test")
            if not test:
                continue
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
    """How likely scores are to be so much higher by chance alone, if there are any to compare.

    >>> round(p_value([3.0, 4.0, 5.0], [0.0, 1.0, 2.0]), 4)  # one order of twenty
    0.05
    """
    if not higher or not lower:
        return None
    is_tied = len({*higher, *lower}) < len(higher) + len(lower)
    method = "asymptotic" if is_tied else "exact"
    found = stats.mannwhitneyu(higher, lower, alternative="greater", method=method)
    return float(found.pvalue)


def _scores(records: Sequence[Record], size: int, label: str, part: str) -> list[float]:
    return [
        record.result[part]
        for record in records
        if label_of(record.run) == label and record.run["num_units"] == size
    ]


def _run_row(record: Record) -> dict[str, Any]:
    names = (*PARTS, "parameters", "negative_weights", "epochs", "stopped")
    settings = {name: value for name, value in record.run.items() if name != "additive"}
    results = {name: record.result[name] for name in names}
    return {"model": label_of(record.run), **settings, **results, "seconds": record.seconds}


def _largest_weights(records: Sequence[Record]) -> dict[str, Any]:
    """The sum weights of the first run of the largest model of each kind."""
    size = max(record.run["num_units"] for record in records)
    first: dict[str, Record] = {}
    for record in records:
        if record.run["num_units"] == size:
            first.setdefault(label_of(record.run), record)
    return {label: sum_weights(read_chain(r.file("model"))) for label, r in first.items()}
