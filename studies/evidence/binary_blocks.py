"""The table of binary sets, beside published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from studies.data.binary import SETS
from studies.evidence.formats import number, spread, table, tests
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.models.kinds import COMPLEX, MPC, MPC2, NPC2, SQUARES

GROUP = "debd/ours"
# Test log-likelihoods as their papers print them: Gens and Domingos 2013 (LearnSPN), Rooshenas
# and Lowd 2014 (ID-SPN), Peharz et al. 2020 (EiNet).
PUBLISHED: dict[str, tuple[float, float, float]] = {
    "nltcs": (-6.11, -6.02, -6.02),
    "msnbc": (-6.11, -6.04, -6.12),
    "kdd": (-2.18, -2.13, -2.18),
    "plants": (-12.98, -12.54, -13.68),
    "baudio": (-40.50, -39.79, -39.88),
    "bnetflix": (-57.33, -56.36, -56.54),
    "tretail": (-11.04, -10.85, -10.92),
    "dna": (-82.52, -81.21, -96.09),
    "kosarek": (-10.99, -10.60, -11.03),
    "msweb": (-10.25, -9.73, -10.03),
    "book": (-35.89, -34.14, -34.74),
    "tmovie": (-52.49, -51.51, -51.71),
    "cr52": (-85.07, -83.35, -87.37),
    "bbc": (-250.69, -248.93, -248.33),
}
MODELS = (MPC, MPC2, NPC2, SQUARES, COMPLEX)


def binary_table(store: Store) -> str:
    """A row for each set and tree that has records."""
    rows = []
    for name in SETS:
        for tree in dict.fromkeys(r.run["tree"] for r in store.select(GROUP, set=name)):
            groups = [store.select(GROUP, set=name, tree=tree, model=model) for model in MODELS]
            cells = [spread(tests(group)) if group else "" for group in groups]
            rows.append([name, tree, *cells, *(number(x) for x in PUBLISHED[name])])
    return table(["set", "tree", *MODELS, "LearnSPN", "ID-SPN", "EiNet"], rows)


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
        ahead += max(medians, key=lambda model: medians[model]) not in (MPC, MPC2)
    seeds = len({r.run["seed"] for r in records})
    return (
        f"{len(records)} runs on {len(names)} of {len(SETS)} sets ({', '.join(names)}), at most "
        f"{seeds} seeds; medians, least and largest in brackets. A model that can subtract is the "
        f"best in the median in {ahead} of {len(places)} rows."
    )


BLOCKS: Mapping[str, Block] = {"debd/table": binary_table, "debd/summary": binary_summary}
