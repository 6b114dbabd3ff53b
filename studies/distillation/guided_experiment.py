"""Texts that must contain whole words, guided by a homogeneous chain, beside the teacher alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch

from studies.distillation.clone_circuit import as_density
from studies.distillation.clone_experiment import read_chain, read_texts
from studies.distillation.comparison import Writer, compare_once
from studies.distillation.teachers import load_teacher
from studies.distillation.tokenizers import load_tokenizer
from studies.grid.experiment import Experiment, Place, Record, Run
from studies.grid.outputs import Page


@final
@dataclass(frozen=True)
class Guided(Experiment):
    """Sets of words; ``chain`` is a file of the experiment ``clones`` on the same ``data``."""

    name: ClassVar[str] = "guided"
    title: ClassVar[str] = "Texts that must contain words"

    data: str = ""
    chain: str = ""
    teacher: str = "stories260K.bin"
    tokenizer: str = "tok512.bin"
    tokens: int = 512
    words: tuple[str, ...] = ("dog ball",)
    number: int = 100
    tries: int = 1000
    seed: int = 0

    def runs(self) -> Sequence[Run]:
        return [{"words": words, "seed": self.seed} for words in self.words]

    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        if not self.chain:
            raise ValueError("which chain guides? Name a file of clones with --set chain=FILE.")
        texts = read_texts(self.data, 0, self.tokens)
        length = texts.states["train"].shape[1]
        chain = read_chain(Path(self.chain))
        tokenizer = load_tokenizer(Path(self.data) / self.tokenizer)
        teacher = load_teacher(Path(self.data) / self.teacher)
        writer = Writer(teacher, as_density(chain, length), texts.vocabulary, tokenizer)
        generator = torch.Generator().manual_seed(run["seed"])
        words = run["words"].split()
        answer = compare_once(writer, words, self.number, self.tries, generator)
        ends = [text.rstrip().endswith((".", "!", "?")) for text in answer["texts"]]
        last = [last_word(text) in words for text in answer["texts"]]
        return {
            "states": chain.num_states,
            "guided": answer["guided"],
            "teacher": answer["teacher"],
            "rejection": answer["rejection"],
            "end_with_a_sentence": sum(ends),
            "end_with_a_required_word": sum(last),
            "texts": answer["texts"][:5],
        }

    def present(self, records: Sequence[Record], outputs: Page) -> None:
        columns = ["words", "texts", "contain them", "log-likelihood", "per token"]
        rows = []
        for record in records:
            for kind in ("guided", "teacher", "rejection"):
                found = record.result[kind]
                rows.append(
                    [f"{record.run['words']}: {kind}", found["number"], found["success_rate"]]
                    + [found["teacher_log_likelihood"], found["per_token"]]
                )
        outputs.table(
            "guided",
            "Shares of texts that contain the words as whole words, and the teacher's mean "
            "log-likelihood of the texts.",
            columns,
            rows,
        )


def last_word(text: str) -> str:
    """The word a text ends with, without its full stop.

    >>> last_word("Tom and his dog played with the ball. ")
    'ball'
    """
    return text.rstrip(" .!?").rpartition(" ")[2]


FULL = QUICK = Guided()
