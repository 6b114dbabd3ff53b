"""Tables and numbers of the page on the paper's experiments."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from studies.evidence.formats import number, spread, table
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.models.kinds import MPC, MPC2, NPC2
from studies.paper.synthetic_models import SPECTRAL
from studies.paper.synthetic_pages import scores

# What the authors' program reached on the same arrays: no record was kept of these runs.
AUTHORS = {
    ("rings", MPC): -1.995,
    ("rings", NPC2): -1.742,
    ("cosine", MPC): -2.281,
    ("cosine", NPC2): -1.841,
    ("funnel", MPC): -2.498,
    ("funnel", NPC2): -2.369,
    ("banana", MPC): -2.522,
    ("banana", NPC2): -2.390,
}


def planes(store: Store) -> str:
    """The four planes by both protocols, beside the authors' program and the truth."""
    rows = []
    for name in ("rings", "cosine", "funnel", "banana"):
        for model in (MPC, MPC2, NPC2, SPECTRAL):
            cells = [_cell(store, protocol, name, model) for protocol in ("paper", "ours")]
            if any(cells):
                units = "12" if name == "cosine" else "8" if name == "rings" else "4"
                known = AUTHORS.get((name, model))
                theirs = "" if known is None else number(known, 3)
                rows.append([name, units, model, cells[0], theirs, cells[1]])
    columns = ["set", "K", "model", "protocol paper", "authors' program", "protocol ours"]
    return table(columns, rows)


def _cell(store: Store, protocol: str, name: str, model: str) -> str:
    group = f"synthetic-continuous/{protocol}"
    units = {"rings": 8, "cosine": 12}.get(name, 4)
    if group not in store:
        return ""
    found = store.select(group, set=name, model=model, units=units)
    if not found:
        return ""
    values = scores(found[0])
    return f"{spread(values, 3)}, {len(values)} seeds"


def overflow_difference(store: Store) -> str:
    """How far two kinds of stable arithmetic differ."""
    return store.presented("overflow/ours").texts[0]


def spline_errors(store: Store) -> str:
    """The largest errors of integrals of products."""
    runs = store.group("splines/ours")
    double, single = (max(r.result[name] for r in runs) for name in ("float64", "float32"))
    orders, bases = ({r.run[name] for r in runs} for name in ("order", "bases"))
    return (
        f"The integral of a product of two random splines, relative to their norms, differs from "
        f"adaptive quadrature of scipy's B-splines by at most {double:.1e} in double and "
        f"{single:.1e} in single precision, for orders {min(orders)} to {max(orders)} and "
        f"{min(bases)} to {max(bases)} bases."
    )


def ring_verdict(store: Store) -> str:
    """Where the squared mixture stands among additive ones."""
    group = store.group("ring/ours")
    medians = {
        (model, count): median(
            r.result["test"]
            for r in group
            if (r.run["model"], r.run["components"]) == (model, count)
        )
        for model, count in {(r.run["model"], r.run["components"]) for r in group}
    }
    square = medians.pop(("squared", 2))
    below = [count for (_, count), score in medians.items() if score < square]
    above = [count for (_, count), score in medians.items() if score >= square]
    words = f"Two components that subtract have {number(square, 3)} in the median"
    if below:
        words += f", more than {max(below)} additive ones"
    if above:
        words += f", less than {min(above)}"
    return words + "."


BLOCKS: Mapping[str, Block] = {
    "planes/table": planes,
    "overflow/difference": overflow_difference,
    "splines/errors": spline_errors,
    "ring/verdict": ring_verdict,
}
