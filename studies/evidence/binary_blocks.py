"""The table of binary sets, and what expectation maximisation brings there."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from studies.data.binary import SETS
from studies.evidence.formats import number, spread, table, tests
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.models.kinds import MPC
from studies.real_data.debd import LONGER, MODELS
from studies.real_data.em import ADAM, EM, ROOT, SQUARED, chosen, difference_rows

GROUP = "debd/ours"
ADDITIVE = (MPC, LONGER)


def binary_table(store: Store) -> str:
    """A row for each set and tree that has records."""
    rows = []
    for name in SETS:
        for tree in dict.fromkeys(r.run["tree"] for r in store.select(GROUP, set=name)):
            groups = [store.select(GROUP, set=name, tree=tree, model=model) for model in MODELS]
            cells = [spread(tests(group), 3) if group else "" for group in groups]
            rows.append([name, tree, *cells])
    return table(["set", "tree", *MODELS], rows)


def binary_summary(store: Store) -> str:
    """How many runs there are, of which sets, and where squares are ahead."""
    records = store.group(GROUP)
    names = [name for name in SETS if store.select(GROUP, set=name)]
    ahead = 0
    places = {(r.run["set"], r.run["tree"]) for r in records}
    for name, tree in places:
        medians = {
            model: median(tests(group))
            for model in MODELS
            if (group := store.select(GROUP, set=name, tree=tree, model=model))
        }
        ahead += max(medians, key=lambda model: medians[model]) not in ADDITIVE
    seeds = len({r.run["seed"] for r in records})
    return (
        f"{len(records)} runs on {len(names)} of {len(SETS)} sets ({', '.join(names)}), up to "
        f"{seeds} seed{'s' if seeds > 1 else ''}; medians, least and largest in brackets. A model "
        f"that can subtract is the best in the median in {ahead} of {len(places)} rows."
    )


def em_verdict(store: Store) -> str:
    """What each method gains on another, set by set, seed by seed."""
    records = store.group("em/ours")
    best = chosen(records, min(r.run["seed"] for r in records))
    kept = [r for r in records if best[r.run["set"], r.run["method"]] == r.run["setting"]]
    rows = difference_rows(kept)
    lines = []
    for first, second in ((EM, ADAM), (ROOT, EM), (ROOT, SQUARED)):
        pairs = [row for row in rows if row[1:3] == [first, second]]
        if pairs:
            ahead = sum(row[5] > 0 for row in pairs)
            behind = sum(row[6] < 0 for row in pairs)
            lines.append(
                f"- **{first} against {second}**: ahead with every seed on {ahead} of "
                f"{len(pairs)} sets, behind with every seed on {behind}. {_gains(pairs)}."
            )
    return "\n".join(lines)


def _gains(pairs: list[list[Any]]) -> str:
    return "; ".join(
        f"`{name}` {'+' if mean > 0 else ''}{number(mean, 3)} nats in {cost} times the processor "
        f"time ({seeds} {'seed' if seeds == 1 else 'seeds'})"
        for name, _, _, seeds, mean, _, _, cost in pairs
    )


BLOCKS: Mapping[str, Block] = {
    "debd/table": binary_table,
    "debd/summary": binary_summary,
    "em/verdict": em_verdict,
}
