"""Homogeneous chains of many states beside n-grams, their squares, and their teacher."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch

from studies.distillation.clone_learning import expectation_maximisation, start_from_states
from studies.distillation.clone_paths import Scores, Tokens
from studies.distillation.clone_squares import log_square_probs
from studies.distillation.clones import CloneChain, log_values
from studies.distillation.contexts import cluster, context_features, shares
from studies.distillation.corpus import PARTS, read_corpus
from studies.distillation.llama import read_llama
from studies.distillation.ngrams import witten_bell_log_probs
from studies.distillation.square_learning import Ascent, learn_square
from studies.distillation.vocabulary import Vocabulary, make_vocabulary
from studies.grid.experiment import Place, Record, Run, Staged
from studies.grid.outputs import Page
from studies.grid.records import identify
from subtractive.io.files import write_atomically

NGRAM, ADDITIVE, LONGER, SQUARE = "n-gram", "additive", "additive, longer", "square"


class Texts(NamedTuple):
    """Sequences as states of a vocabulary, part by part, and the teacher's mean score of each."""

    vocabulary: Vocabulary
    states: dict[str, Tokens]
    teacher: dict[str, float]


@final
@dataclass(frozen=True)
class Clones(Staged):
    """Chains of ``sizes`` states from the folder ``data`` of texts, whose teacher is in it.

    A square starts from the square root of its additive twin. ``additive, longer`` is that twin
    after ``longer`` further steps of EM, each of them a pass over all texts.
    """

    name: ClassVar[str] = "clones"
    title: ClassVar[str] = "Homogeneous chains of many states against n-grams"

    data: str = ""
    teacher: str = "stories260K.bin"
    orders: tuple[int, ...] = (1, 2, 3, 4, 5)
    sizes: tuple[int, ...] = (1024,)
    squared: tuple[int, ...] = (1024,)  # the sizes that are squared, too
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8)
    most: int = 256  # clones of one token
    contexts: int = 30_000  # texts whose contexts are clustered
    future: float = 0.3  # weight of what comes after the next token
    steps: int = 8  # of EM
    strengths: tuple[float, ...] = (0.5, 1.0, 2.0)
    longer: int = 70  # further steps of EM
    square_steps: int = 100
    square_rows: int = 20_000  # texts in each of these steps
    square_rate: float = 0.8
    rows: int = 0  # texts to learn from; 0 are all
    tokens: int = 512  # of the teacher's vocabulary

    def runs(self) -> Sequence[Run]:
        grams = [{"model": NGRAM, "order": order} for order in self.orders]
        chains = [
            {"model": ADDITIVE, "states": size, "seed": seed}
            for seed in self.seeds
            for size in self.sizes
        ]
        return [*grams, *chains]

    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        return [
            {"model": model, "states": size, "seed": seed}
            for seed in self.seeds
            for size in self.squared
            for model in (SQUARE, LONGER)
        ]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        start = time.process_time()
        result = self._perform(run, place)
        return {**result, "cpu_seconds": round(time.process_time() - start, 2)}

    def _perform(self, run: Run, place: Place) -> dict[str, Any]:
        texts = read_texts(self.data, self.rows, self.tokens)
        if run["model"] == NGRAM:
            return self._ngram(run, texts)
        if run["model"] == ADDITIVE:
            return self._additive(run, texts, place)
        first = {**run, "model": ADDITIVE}
        chain = read_chain(place("npz").with_name(f"{identify(first)}.npz"))
        if run["model"] == SQUARE:
            return self._square(run, texts, chain, place)
        return self._learn(texts, chain, self.longer, place)

    def _ngram(self, run: Run, texts: Texts) -> dict[str, Any]:
        train, count = texts.states["train"], texts.vocabulary.num_states
        return scores(texts, lambda x: witten_bell_log_probs(train, x, run["order"], count))

    def _additive(self, run: Run, texts: Texts, place: Place) -> dict[str, Any]:
        train = texts.states["train"]
        counts = np.bincount(train.ravel(), minlength=texts.vocabulary.num_states)
        clones = shares(counts, run["states"], self.most)
        offsets = np.concatenate([[0], np.cumsum(clones)])
        features = self._features(place("npz").parent, texts)
        some = train[: len(features)]
        flat = features.reshape(some.size, -1).astype(np.float32)
        labels = cluster(flat, some.ravel(), clones.tolist(), run["seed"])
        states = (offsets[some.ravel()] + labels).reshape(some.shape)
        chain = start_from_states(states, offsets, self.strengths[0])
        return self._learn(texts, chain, self.steps, place)

    def _features(self, folder: Path, texts: Texts) -> np.ndarray[Any, Any]:
        """Features of the first contexts, computed once for all runs of a folder."""
        path = folder / "contexts.npy"
        if not path.exists():
            model = read_llama(Path(self.data) / self.teacher)
            rows = read_corpus(self.data).train[: self.contexts]
            found = context_features(model, rows, self.future)
            write_atomically(path, lambda partial: _save(partial, found))
        kept: np.ndarray[Any, Any] = np.load(path)
        return kept

    def _learn(self, texts: Texts, chain: CloneChain, steps: int, place: Place) -> dict[str, Any]:
        train, valid = texts.states["train"], texts.states["valid"]
        fitted = expectation_maximisation(chain, train, valid, steps, self.strengths)
        write_chain(place("npz"), fitted.chain)
        return {
            **scores(texts, lambda x: log_values(fitted.chain, x)),
            "states": chain.num_states,
            "parameters": chain.transition.size,
            "valid_history": [round(score, 4) for score in fitted.valid],
            "strength": fitted.strength,
        }

    def _square(self, run: Run, texts: Texts, chain: CloneChain, place: Place) -> dict[str, Any]:
        settings = Ascent(self.square_steps, self.square_rows, self.square_rate)
        train, valid = texts.states["train"], texts.states["valid"]
        fitted = learn_square(chain, train, valid, settings, run["seed"])
        write_chain(place("npz"), fitted.chain)
        return {
            **scores(texts, lambda x: log_square_probs(fitted.chain, x)),
            "states": chain.num_states,
            "parameters": chain.transition.size,
            "valid_history": [round(score, 4) for score in fitted.valid],
            "negative": float((fitted.chain.transition < 0).mean()),
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        columns = ["model", "order or states", "seed", *PARTS, "seconds"]
        rows = [
            [r.run["model"], r.run.get("order", r.run.get("states")), r.run.get("seed")]
            + [r.result[part] for part in PARTS]
            + [r.seconds]
            for r in records
        ]
        teacher = records[0].result["teacher"]
        rows.append(["teacher", None, None, *(teacher.get(part) for part in PARTS), None])
        outputs.table("clones", "Mean log-likelihoods of texts in nats.", columns, rows)


@cache
def read_texts(folder: str, rows: int, num_tokens: int) -> Texts:
    """The texts of a folder; tokens that occur once at most share one state."""
    corpus = read_corpus(folder)
    corpus = corpus.head(rows) if rows else corpus
    vocabulary = make_vocabulary(corpus.train, num_tokens, min_count=2)
    states = {
        part: vocabulary.states(table).numpy()
        for part, table in zip(PARTS, corpus[:3], strict=True)
    }
    return Texts(vocabulary, states, corpus.teacher)


def scores(texts: Texts, log_probs: Any) -> dict[str, Any]:  # noqa: ANN401 - of states (n, d)
    """The mean log-likelihood of the teacher's own tokens, part by part."""

    def score(part: str) -> float:
        rows = texts.states[part]
        share: Scores = texts.vocabulary.log_share(torch.from_numpy(rows)).numpy()
        return float(np.mean(log_probs(rows) + share))

    return {part: score(part) for part in PARTS} | {"teacher": texts.teacher}


def write_chain(path: Path, chain: CloneChain) -> None:
    """Keep a chain in a file."""

    def write(partial: str) -> None:
        with open(partial, "wb") as stream:
            np.savez_compressed(
                stream,
                offsets=chain.offsets,
                initial=chain.initial,
                transition=chain.transition,
            )

    write_atomically(path, write)


def read_chain(path: Path) -> CloneChain:
    """A chain that was kept."""
    with np.load(path) as file:
        return CloneChain(file["offsets"], file["initial"], file["transition"])


def _save(partial: str, array: np.ndarray[Any, Any]) -> None:
    with open(partial, "wb") as stream:
        np.save(stream, array)


FULL = Clones()
QUICK = Clones(
    sizes=(256,),
    squared=(256,),
    seeds=(0,),
    contexts=2_000,
    steps=2,
    rows=5_000,
    longer=3,
    square_steps=10,
)
