"""Tables and numbers of the page on distillation."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from studies.distillation.clone_experiment import ADDITIVE, LONGER, NGRAM, SQUARE
from studies.distillation.guided_experiment import last_word
from studies.distillation.sweep import p_value
from studies.evidence.formats import number, spread, table, tests
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.grid.experiment import Record

GROUP = "clones/ours"
NAMES = {2: "bigram", 3: "trigram"}
_FEWEST = 5  # runs of each model that a test is worth something with


def clones_table(store: Store) -> str:
    """N-grams, chains and their squares, by size; the teacher last."""
    rows = []
    for order in sorted(r.run["order"] for r in store.select(GROUP, model=NGRAM)):
        record = store.one(GROUP, model=NGRAM, order=order)
        name = NAMES.get(order, f"{order}-gram")
        rows.append([f"{name}, Witten–Bell", "", "", "", *_parts([record])])
    for size in _sizes(store):
        for model in (ADDITIVE, LONGER, SQUARE):
            runs = store.select(GROUP, model=model, states=size)
            if runs:
                parameters = f"{runs[0].result['parameters']:,}"
                rows.append([model, f"{size:,}", parameters, str(len(runs)), *_parts(runs)])
    teacher = store.group(GROUP)[0].result["teacher"]
    scores = [number(teacher[part]) for part in ("train", "valid", "test")]
    rows.append(["teacher", "", "", "", *scores, ""])
    columns = ["model", "K", "parameters", "runs", "train", "valid", "test", "CPU seconds"]
    return table(columns, rows)


def _parts(records: list[Record]) -> list[str]:
    """The scores of runs, and their seconds."""
    first, second = (
        number(median(r.result[part] for r in records)) for part in ("train", "valid")
    )
    timed = all("cpu_seconds" in r.result for r in records)
    return [first, second, spread(tests(records)), f"{_seconds(records):,.0f}" if timed else ""]


def _seconds(records: list[Record]) -> float:
    return median(float(r.result["cpu_seconds"]) for r in records)


def _sizes(store: Store) -> list[int]:
    return sorted({r.run["states"] for r in store.select(GROUP, model=ADDITIVE)})


def four_gram(store: Store) -> str:
    """The test score of the 4-gram."""
    return number(store.one(GROUP, model=NGRAM, order=4).result["test"])


def teacher_score(store: Store) -> str:
    """The teacher's own test score."""
    return number(store.group(GROUP)[0].result["teacher"]["test"])


def verdict(store: Store) -> str:
    """Whether the aim, to be better than a 4-gram, is reached, and by which model."""
    aim = store.one(GROUP, model=NGRAM, order=4).result["test"]
    chains = [r for r in store.group(GROUP) if r.run["model"] != NGRAM]
    best = max(chains, key=lambda r: r.result["valid"])
    score = best.result["test"]
    kind = f"The best chain by validation, {best.run['model']} with K = {best.run['states']:,},"
    if score > aim:
        return f"{kind} has {number(score)}: better than the 4-gram's {number(aim)}."
    return f"{kind} has {number(score)}: the 4-gram's {number(aim)} is not reached."


def square_verdict(store: Store) -> str:
    """Squares against additive chains of equal size and at least as much work."""
    words = []
    for size in _sizes(store):
        squares = store.select(GROUP, model=SQUARE, states=size)
        longer = store.select(GROUP, model=LONGER, states=size)
        if squares and longer:
            words.append(
                f"- **K = {size:,}**: {_compared(squares, longer)}{_beside(store, squares)}"
            )
    return "\n".join(words)


def _compared(squares: list[Record], longer: list[Record]) -> str:
    """Which of two models of one size is ahead, by how much, and how certain that is."""
    ours, theirs = tests(squares), tests(longer)
    gain = median(ours) - median(theirs)
    side = "ahead of" if gain > 0 else "behind"
    text = (
        f"the square is {side} the additive chain trained on by {number(abs(gain))} nats, "
        f"{_seconds(squares):,.0f} CPU seconds against {_seconds(longer):,.0f}"
    )
    if min(len(ours), len(theirs)) < _FEWEST:
        return f"{text} ({len(ours)} and {len(theirs)} runs: too few for a test)."
    better = p_value(ours, theirs) if gain > 0 else p_value(theirs, ours)
    apart = min(ours) > max(theirs) or max(ours) < min(theirs)
    every = "; no run of one is within the range of the other" if apart else ""
    return (
        f"{text} ({len(ours)} and {len(theirs)} runs, one-sided Mann–Whitney test: "
        f"p = {better:.1e}{every})."
    )


def _beside(store: Store, squares: list[Record]) -> str:
    """Which n-grams the median square is ahead of, and behind which it stays."""
    grams = sorted(store.select(GROUP, model=NGRAM), key=lambda r: r.run["order"])
    names = [
        (NAMES.get(r.run["order"], f"{r.run['order']}-gram"), r.result["test"]) for r in grams
    ]
    score = median(tests(squares))
    beaten = [name for name, test in names if test < score]
    others = [name for name, test in names if test >= score]
    ahead = f" It is ahead of the {', '.join(beaten)}." if beaten else ""
    return ahead + (f" It stays behind the {', '.join(others)}." if others else "")


def guided_table(store: Store) -> str:
    """Guided texts, the teacher alone, and what rejection keeps of its texts."""
    rows = []
    names = {
        "guided": "guided",
        "teacher": "teacher alone",
        "rejection": "rejection (the teacher's hits)",
    }
    for record in store.group("guided/ours"):
        for kind, name in names.items():
            found = record.result[kind]
            likelihood = found["teacher_log_likelihood"]
            rows.append(
                [record.run["words"], name, str(found["number"])]
                + [f"{100 * found['success_rate']:.1f} %" if found["number"] else ""]
                + [number(likelihood, 1) if likelihood is not None else ""]
                + [number(found["per_token"]) if likelihood is not None else ""]
            )
    columns = ["words", "", "texts", "contain them whole", "log-likelihood", "per token"]
    return table(columns, rows)


def guided_text(store: Store) -> str:
    """How the texts end, and the first of them as they came."""
    record = store.group("guided/ours")[0]
    count, number_of = record.result["end_with_a_sentence"], record.result["guided"]["number"]
    texts = record.result["texts"]
    required = record.run["words"].split()
    last = sum(last_word(text) in required for text in texts)
    words = (
        f"{count} of {number_of} guided texts end with a sentence. The first {len(texts)}, "
        f"of which {last} have a required word as their last:"
    )
    return "\n\n".join([words, *[f"> {' '.join(text.split())}" for text in texts]])


BLOCKS: Mapping[str, Block] = {
    "clones/table": clones_table,
    "clones/four-gram": four_gram,
    "clones/teacher": teacher_score,
    "clones/verdict": verdict,
    "clones/squares": square_verdict,
    "guided/table": guided_table,
    "guided/text": guided_text,
}
