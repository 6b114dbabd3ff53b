"""Tables and numbers of the page on the paper's experiments."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from statistics import median

from studies.evidence.formats import number, spread, table
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.grid.experiment import Record
from studies.models.kinds import MPC, MPC2, NPC2, OURS, PAPER
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


# The K that the paper draws.
SHOWN = {"rings": 8, "cosine": 12, "funnel": 4, "banana": 4}


def planes(store: Store) -> str:
    """The four planes by both protocols, beside the authors' program and the truth."""
    rows = []
    for name, units in SHOWN.items():
        for model in (MPC, MPC2, NPC2, SPECTRAL):
            found = [_plane(store, protocol, name, model) for protocol in (PAPER, OURS)]
            if any(found):
                known = AUTHORS.get((name, model))
                theirs = "" if known is None else number(known, 3)
                truth = next(record.result["truth"] for record in found if record)
                first, second = map(_cell, found)
                rows.append([name, str(units), model, first, theirs, second, number(truth, 3)])
    columns = ["set", "K", "model", "protocol paper", "authors' program", "protocol ours", "truth"]
    return table(columns, rows)


def _plane(store: Store, protocol: str, name: str, model: str) -> Record | None:
    """The run of a set at the K that the paper draws, if it is recorded."""
    group = f"synthetic-continuous/{protocol}"
    if group not in store:
        return None
    found = store.select(group, set=name, model=model, units=SHOWN[name])
    return found[0] if found else None


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    values = scores(record)
    return f"{spread(values, 3)}, {len(values)} {'seed' if len(values) == 1 else 'seeds'}"


def planes_verdict(store: Store) -> str:
    """Whether the order of the models, and the authors' numbers, come out again."""
    words = []
    for protocol in (PAPER, OURS):
        medians = _medians(store, protocol)
        whole = [n for n in SHOWN if {(n, m) for m in (MPC, MPC2, NPC2)} <= medians.keys()]
        if whole:
            squaring = sum(medians[n, MPC2] > medians[n, MPC] for n in whole)
            subtracting = sum(medians[n, NPC2] > medians[n, MPC2] for n in whole)
            words.append(
                f"By the protocol `{protocol}` squaring helps on {squaring} of {len(whole)} sets "
                f"(MPC² over MPC, in the median), and subtracting helps more on {subtracting} "
                f"(NPC² over MPC²)."
            )
    medians = _medians(store, PAPER)
    for model in (MPC, NPC2):
        apart = {n: medians[n, model] - AUTHORS[n, model] for n in SHOWN if (n, model) in medians}
        if apart:
            parts = ", ".join(f"{name} {_signed(gap)}" for name, gap in apart.items())
            words.append(f"{model} by `paper`, less the authors' program: {parts} nats.")
    return " ".join(words) or "*No record yet.*"


def _medians(store: Store, protocol: str) -> dict[tuple[str, str], float]:
    found = {(n, m): _plane(store, protocol, n, m) for n in SHOWN for m in (MPC, MPC2, NPC2)}
    return {key: median(scores(record)) for key, record in found.items() if record}


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value, 3)}"


def bins(store: Store) -> str:
    """The planes in bins by the paper's protocol, as far as they are recorded."""
    group = "synthetic-discrete/paper"
    if group not in store:
        return "*No record yet.*"
    rows = []
    for name, inputs in product(SHOWN, ("embedding", "binomial")):
        for model in (MPC, MPC2, NPC2):
            for record in store.select(group, set=name, inputs=inputs, model=model):
                truth, units = record.result["truth"], str(record.run["units"])
                rows.append([name, inputs, units, model, _cell(record), number(truth, 3)])
    return table(["set", "inputs", "K", "model", "protocol paper", "truth"], rows)


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
    "planes/verdict": planes_verdict,
    "bins/table": bins,
    "overflow/difference": overflow_difference,
    "splines/errors": spline_errors,
    "ring/verdict": ring_verdict,
}
