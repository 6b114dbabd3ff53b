"""What ``python -m studies distill`` and ``generate`` do."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch

from studies.distillation.comparison import (
    Writer,
    compare_once,
    compare_sets,
    phrases_of,
    text_rules,
)
from studies.distillation.corpus import Corpus, EncodedCorpus, from_samples, read_corpus
from studies.distillation.models import MONOTONIC_STARTS, SQUARED_STARTS, Chained
from studies.distillation.sampling import sample_teacher
from studies.distillation.sweep import Sweep, Variant, summarise
from studies.distillation.teachers import load_teacher
from studies.distillation.tokenizers import load_tokenizer
from studies.distillation.training import ChainSettings, read_chain
from studies.distillation.vocabulary import Vocabulary, make_vocabulary
from studies.grid.records import Records
from studies.grid.running import complete, prepare_folder, present
from subtractive.io.files import read_json
from subtractive.sequences.guided import rules_in_states
from subtractive.sequences.queries import sample_containing

Answer = dict[str, Any]
# The paper's learning rates (App. H), each of which is tried with each of its starts.
PAPER_RATES = (0.005, 0.01, 0.05)


def distill(options: argparse.Namespace, executor: Executor) -> Answer:
    """Sample or read sequences, train models of all sizes, write tables and pictures."""
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    corpus, num_tokens = _sequences(options, folder)
    if options.rows is not None:
        corpus = corpus.head(options.rows)
    vocabulary = make_vocabulary(corpus.train, num_tokens, min_count=options.min_count)
    data = EncodedCorpus.of(corpus, vocabulary)
    settings = {"sequences": data.digest}
    # Sizes and runs may be added later: only the sequences must be the same.
    prepare_folder(folder, {"experiment": "distill", "settings": settings}, resume=True)
    data.write(folder)
    sweep, records = make_sweep(options, folder), Records(folder / "runs")
    complete(sweep, records, executor, progress=not options.quiet)
    present(sweep, records, folder)
    return {
        "folder": str(folder),
        "tokens": vocabulary.num_tokens,
        "states": vocabulary.num_states,
        "teacher": corpus.teacher,
        "table": summarise([records.read(run) for run in records.known(sweep)]),
    }


def make_sweep(options: argparse.Namespace, folder: Path) -> Sweep:
    """All runs that the options ask for."""
    if options.starts == "paper":
        additive = [(start, rate) for start in MONOTONIC_STARTS for rate in PAPER_RATES]
        squared = [(start, rate) for start in SQUARED_STARTS for rate in PAPER_RATES]
        variants = [Variant("monotonic", tuple(additive))]
    else:
        squared = [("root", options.squared_rate)]
        variants = [
            Variant("monotonic", ((start, options.rate),)) for start in ("dirichlet", "again")
        ]
    variants += [Variant("squared", tuple(squared), count) for count in options.squares]
    common = ChainSettings(
        "squared",
        1,
        batch_size=options.batch_size,
        max_epochs=options.epochs,
        patience=options.patience,
        seed=options.seed,
        is_shared=options.shared,
    )
    data = str(folder.absolute())
    return Sweep(data, tuple(options.units), tuple(variants), options.runs, common)


def generate_texts(options: argparse.Namespace) -> Answer:
    """Texts that contain words: from the model alone, or from its teacher under its guidance."""
    if bool(options.must_contain) == (options.concepts is not None):
        raise ValueError("say what is required: either --must-contain dog, or --concepts FILE.")
    model, vocabulary = find_model(Path(options.model))
    tokenizer = load_tokenizer(options.tokenizer)
    generator = torch.Generator().manual_seed(options.seed)
    if options.teacher is None:
        if options.concepts is not None:
            raise ValueError("--concepts compares with a teacher: add --teacher.")
        words = [phrases_of(word, tokenizer, vocabulary) for word in options.must_contain]
        states = [{tuple(map(vocabulary.state, p)) for p in word} for word in words]
        rules = rules_in_states(text_rules(tokenizer), vocabulary.table)
        drawn = sample_containing(model, states, options.number, rules=rules, generator=generator)
        tokens = vocabulary.tokens(drawn, generator)
        return {"texts": [tokenizer.decode(row) for row in tokens.tolist()]}
    writer = Writer(load_teacher(options.teacher), model, vocabulary, tokenizer)
    if options.concepts is None:
        return compare_once(
            writer, options.must_contain, options.number, options.compare, generator
        )
    lines = Path(options.concepts).read_text(encoding="utf-8").splitlines()
    sets = list(dict.fromkeys(tuple(line.split()) for line in lines if line.split()))
    return compare_sets(
        writer, sets[: options.sets], options.number, options.compare or 1000, generator
    )


def find_model(place: Path) -> tuple[Chained, Vocabulary]:
    """A model file, or the best of a folder by its validation score, and its vocabulary."""
    folder = place if place.is_dir() else place.parent.parent
    file = folder / "vocabulary.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: expected a folder written by distill.")
    vocabulary = Vocabulary.from_dict(read_json(file))
    if not place.is_dir():
        return read_chain(place), vocabulary
    scores = {
        path: read_json(path)["result"]["valid"] for path in sorted(folder.glob("runs/*.json"))
    }
    if not scores:
        raise FileNotFoundError(f"{folder} holds no finished run.")
    best = max(scores, key=lambda path: scores[path])
    return read_chain(best.with_suffix(".model")), vocabulary


def _sequences(options: argparse.Namespace, folder: Path) -> tuple[Corpus, int]:
    """The sequences, and the size of the vocabulary that they are written in."""
    if (options.data is None) == (options.teacher is None):
        raise ValueError("give either a file of sequences, or --teacher to draw them from.")
    if options.data is not None:
        corpus = read_corpus(options.data)
        largest = max(int(part.max()) for part in corpus[:3])
        return corpus, options.tokens or largest + 1
    teacher = load_teacher(options.teacher)
    samples = sample_teacher(
        teacher,
        options.samples,
        options.length,
        folder=folder / "samples",
        seed=options.seed,
        progress=not options.quiet,
    )
    return from_samples(samples), teacher.num_tokens
