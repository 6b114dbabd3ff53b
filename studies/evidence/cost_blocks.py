"""Sentences on what circuits cost, and on the signs of their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studies.evidence.formats import number
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.grid.experiment import Record
from studies.models.kinds import MPC, NPC2
from studies.paper.cost_parts import PARTITION, QUANTITIES, VALUE
from studies.paper.training_cost import EACH_BEST, SAME

SHOWN_BATCH, SHOWN_UNITS = 512, (64, 128, 256)


def cost_verdict(store: Store) -> str:
    """How Z compares with c(x) on the paper's batches."""
    words = []
    for units in SHOWN_UNITS:
        times, memory = (_z_over_c(store, NPC2, units, quantity) for quantity in QUANTITIES)
        words.append(f"{number(times, 1)} times the time and {number(memory, 1)} times the memory")
    first, second, third = (
        f"{text} at K = {units}" for text, units in zip(words, SHOWN_UNITS, strict=True)
    )
    share = _z_over_c(store, MPC, SHOWN_UNITS[-1], "seconds")
    return (
        f"Z of NPC² takes, of what c²(x) takes on {SHOWN_BATCH} rows, {first}, {second}, and "
        f"{third}. Z of MPC takes {number(share)} times the time of c(x) at K = {SHOWN_UNITS[-1]}."
    )


def _z_over_c(store: Store, model: str, units: int, quantity: str) -> float:
    runs = {"model": model, "units": units}
    value = store.one("cost/ours", part=VALUE, batch=SHOWN_BATCH, **runs)
    total = store.one("cost/ours", part=PARTITION, **runs)
    return float(total.result[quantity] / value.result[quantity])


def training_verdict(store: Store) -> str:
    """How steps of squared and of additive circuits compare, set by set."""
    words = []
    for settings, name in ((SAME, "With the same settings"), (EACH_BEST, "With the best")):
        pairs = _pairs(store.select("training-cost/ours", settings=settings))
        values = [a.result["value_seconds"] / b.result["value_seconds"] for a, b in pairs]
        totals = [a.result["partition_seconds"] / b.result["value_seconds"] for a, b in pairs]
        steps = [_step_seconds(a) / _step_seconds(b) for a, b in pairs]
        words.append(
            f"{name}, NPC² takes {_each(values, pairs)} times as long as MPC for c on a batch. "
            f"Its Z takes {_each(totals, pairs)} times as long as c(x) of MPC, "
            f"and both together {_each(steps, pairs)} times as long as for MPC."
        )
    return " ".join(words)


def _pairs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The squared and the additive model of each set, the smallest first."""
    found = {(record.run["set"], record.run["model"]): record for record in records}
    order = ("gas", "hepmass", "miniboone", "bsds300")
    return [(found[name, NPC2], found[name, MPC]) for name in order if (name, NPC2) in found]


def _step_seconds(record: Record) -> float:
    return float(record.result["value_seconds"] + record.result["partition_seconds"])


def _each(ratios: Sequence[float], pairs: Sequence[tuple[Record, Record]]) -> str:
    names = [pair[0].run["set"] for pair in pairs]
    parts = [f"{number(r, 1)} ({name})" for r, name in zip(ratios, names, strict=True)]
    return ", ".join(parts)


def weights_verdict(store: Store) -> str:
    """Which shares of the weights became negative."""
    records = store.select("weights/ours", model=NPC2)
    shares = [record.result["negative"] for record in records]
    return (
        f"Of the weights of {len(shares)} squared circuits {100 * min(shares):.0f} % to "
        f"{100 * max(shares):.0f} % are negative."
    )


BLOCKS: Mapping[str, Block] = {
    "cost/verdict": cost_verdict,
    "training-cost/verdict": training_verdict,
    "weights/verdict": weights_verdict,
}
