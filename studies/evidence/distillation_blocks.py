"""Tables and numbers of the page on distillation."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from studies.distillation.clone_experiment import ADDITIVE, LONGER, NGRAM, SQUARE
from studies.distillation.guided_experiment import last_word
from studies.evidence.formats import number, seconds, spread, table, tests
from studies.evidence.pages import Block
from studies.evidence.store import Store
from studies.grid.experiment import Record

GROUP = "clones/ours"
NAMES = {2: "bigram", 3: "trigram"}


def clones_table(store: Store) -> str:
    """N-grams, chains and their squares, by size; the teacher last."""
    rows = []
    for order in sorted(r.run["order"] for r in store.select(GROUP, model=NGRAM)):
        record = store.one(GROUP, model=NGRAM, order=order)
        name = NAMES.get(order, f"{order}-gram")
        rows.append([f"{name}, Witten–Bell", "", "", *_parts([record]), seconds([record])])
    for size in _sizes(store):
        for model in (ADDITIVE, LONGER, SQUARE):
            runs = store.select(GROUP, model=model, states=size)
            if runs:
                count = str(len(runs))
                rows.append([model, f"{size:,}", count, *_parts(runs), seconds(runs)])
    teacher = store.group(GROUP)[0].result["teacher"]
    scores = [number(teacher[part]) for part in ("train", "valid", "test")]
    rows.append(["teacher", "", "", *scores, ""])
    return table(["model", "K", "runs", "train", "valid", "test", "seconds"], rows)


def _parts(records: list[Record]) -> list[str]:
    first, second = (
        number(median(r.result[part] for r in records)) for part in ("train", "valid")
    )
    return [first, second, spread(tests(records))]


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
    """Squares against additive chains of equal size and work."""
    words = []
    for size in _sizes(store):
        squares = store.select(GROUP, model=SQUARE, states=size)
        longer = store.select(GROUP, model=LONGER, states=size)
        if not squares or not longer:
            continue
        gain = median(tests(squares)) - median(tests(longer))
        side = "ahead of" if gain > 0 else "behind"
        words.append(
            f"With K = {size:,} the square is {side} the additive chain trained on by "
            f"{number(abs(gain))} nats ({len(squares)} and {len(longer)} runs)."
        )
    return " ".join(words)


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
