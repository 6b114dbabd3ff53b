"""Squares on real data beside their additive twins and a flow, from runs of the frozen recipes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median, stdev
from typing import NamedTuple

from scipy import stats

from studies.evidence.formats import number, spread, table
from studies.evidence.formats import seconds as median_seconds
from studies.evidence.pages import Block
from studies.evidence.store import NoRecordsError, Store
from studies.grid.experiment import Record, Run
from studies.models.baselines import NSF
from studies.models.evaluation import grouped, score
from studies.real_data.real_data import (
    ADDITIVE,
    CONFIRMATION,
    FRAMES,
    GROUPED,
    LARGER,
    MPC_FRAMES,
    RECIPES,
    START,
    TREES,
    recipe_of,
)

GROUP = "real-data/ours"
# What squares are compared with, and how the page calls it.
RIVALS = {FRAMES: (MPC_FRAMES, LARGER, NSF), TREES: (ADDITIVE, NSF)}
OPPONENTS = {
    "their additive twins": (MPC_FRAMES, ADDITIVE),
    "additive frames of as many parameters": (LARGER,),
    "the flow": (NSF,),
}
CONFIDENCE = 0.95
AHEAD, BEHIND, UNDECIDED = "ahead", "behind", "undecided"
NO_PAIR = "*No pair of models is recorded yet.*"


class Pair(NamedTuple):
    """Squares and what they are compared with on a set: gains in nats, one for each seed."""

    name: str
    squares: str
    against: str
    gains: tuple[float, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the mean gain of all seeds is, by Student's t; one seed does not say it."""
        count = len(self.gains)
        if count < 2 or not all(map(math.isfinite, self.gains)):
            return None
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
        middle, reach = fmean(self.gains), quantile * stdev(self.gains) / math.sqrt(count)
        return middle - reach, middle + reach

    @property
    def side(self) -> str:
        """Whether the interval is above zero, below it, or neither."""
        if self.interval is None:
            return UNDECIDED
        least, largest = self.interval
        return AHEAD if least > 0 else BEHIND if largest < 0 else UNDECIDED


def real_table(store: Store) -> str:
    """A row for each recipe that was run, over all seeds."""
    rows = []
    for group in grouped(recorded(store), recipe_of).values():
        run = group[0].run
        units = str(run["units"]) if run["model"] in START else ""
        rows.append(
            [
                run["set"],
                run["model"],
                units,
                parts(run),
                f"{median(r.result['parameters'] for r in group):,.0f}",
                str(len(group)),
                spread([score(r) for r in group], 3),
                median_seconds(group),
            ]
        )
    columns = ["set", "model", "K", "frames or trees", "parameters", "seeds"]
    return table([*columns, "test, median (least .. largest)", "seconds"], rows)


def pairs_table(store: Store) -> str:
    """A row for each comparison of squares, seed by seed."""
    rows = []
    for pair in pairs(store):
        won = sum(gain > 0 for gain in pair.gains)
        ends = "" if pair.interval is None else " .. ".join(map(signed, pair.interval))
        mean = signed(fmean(pair.gains))
        facts = [pair.name, status(pair.name), pair.squares, pair.against, mean, ends]
        rows.append([*facts, f"{won} of {len(pair.gains)}"])
    columns = ["set", "development or confirmation", "squares", "against", "mean difference"]
    columns += [f"{100 * CONFIDENCE:.0f} % interval", "seeds won"]
    return table(columns, rows) if rows else NO_PAIR


def verdict(store: Store) -> str:
    """In how many comparisons squares are ahead, behind, or neither."""
    found = pairs(store)
    lines = [
        f"- **Squares against {opponent}**, {counts(some)}."
        for opponent, models in OPPONENTS.items()
        if (some := [pair for pair in found if pair.against in models])
    ]
    return "\n".join(lines) or NO_PAIR


def counts(some: Sequence[Pair]) -> str:
    """How many comparisons end which way, and where; those of confirmation once more."""
    words = _tally(some)
    confirming = [pair for pair in some if pair.name in CONFIRMATION]
    if confirming:
        words += f"; on sets of confirmation, {_tally(confirming)}"
    return words


def _tally(some: Sequence[Pair]) -> str:
    words = []
    for side in (AHEAD, BEHIND, UNDECIDED):
        places = [f"{pair.squares} on `{pair.name}`" for pair in some if pair.side == side]
        words.append(f"{side} in {len(places)}" + (f" ({', '.join(places)})" if places else ""))
    count = f"{len(some)} comparison{'s' if len(some) > 1 else ''}"
    return f"{count}: {', '.join(words)}"


def pairs(store: Store) -> list[Pair]:
    """All comparisons of squares that have a seed in common, set by set."""
    found = []
    for name, group in grouped(recorded(store), lambda run: run["set"]).items():
        scores = {
            model: {r.run["seed"]: score(r) for r in some}
            for model, some in grouped(group, lambda run: run["model"]).items()
        }
        for squares, rivals in RIVALS.items():
            for against in rivals:
                one, other = scores.get(squares, {}), scores.get(against, {})
                seeds = sorted(one.keys() & other.keys())
                if seeds:
                    gains = tuple(one[seed] - other[seed] for seed in seeds)
                    found.append(Pair(name, squares, against, gains))
    return found


def recorded(store: Store) -> list[Record]:
    """The runs of the recipes, in the order of these; runs with other settings do not count."""
    frozen = [
        recipe_of({"set": name, **asdict(recipe)})
        for name, recipes in RECIPES.items()
        for recipe in recipes
    ]
    place = {recipe: number for number, recipe in enumerate(frozen)}
    found = [record for record in store.group(GROUP) if recipe_of(record.run) in place]
    if not found:
        raise NoRecordsError(f"no run of {GROUP!r} is one of the recipes.")
    return sorted(found, key=lambda record: (place[recipe_of(record.run)], record.run["seed"]))


def parts(run: Run) -> str:
    """What a model is mixed of.

    >>> parts({"model": "frames", "frames": 8, "trees": 1, "members": 5})
    '5 × 8 frames'
    """
    if run["model"] in (FRAMES, MPC_FRAMES, LARGER):
        count, kind = run["frames"], "frame"
    elif run["model"] in (TREES, GROUPED, ADDITIVE):
        count, kind = run["trees"], "tree"
    else:
        return ""
    members = f"{run['members']} × " if run["members"] > 1 else ""
    return f"{members}{count} {kind}{'s' if count > 1 else ''}"


def status(name: str) -> str:
    """What a set was used for."""
    return "confirmation" if name in CONFIRMATION else "development"


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(0.1234), signed(-0.5), signed(-0.0001)
    ('+0.123', '−0.500', '0.000')
    """
    rounded = round(value, 3) + 0.0  # a zero without a sign: no difference is no loss
    return f"{'+' if rounded > 0 else ''}{number(rounded, 3)}"


BLOCKS: Mapping[str, Block] = {
    "real-data/table": real_table,
    "real-data/pairs": pairs_table,
    "real-data/verdict": verdict,
}
