"""Runs, sweeps and the two commands, on data small enough to be done in seconds."""

import csv
import json

import numpy as np
import pytest
import torch
from scipy import stats

import subtractive as sub
from studies.__main__ import main
from studies.distillation import sampling, training
from studies.distillation.commands import find_model
from studies.distillation.comparison import text_contains
from studies.distillation.corpus import EncodedCorpus, split
from studies.distillation.models import (
    log_probs,
    monotonic_chain,
    negative_share,
    square_root_chain,
    squared_chain,
    sum_weights,
)
from studies.distillation.sweep import Sweep, Variant, label_of, p_value, summarise
from studies.distillation.tokenizers import LlamaTokenizer
from studies.distillation.training import ChainSettings, read_chain, start_chain, train_chain
from studies.distillation.vocabulary import make_vocabulary
from studies.grid.executors import SerialExecutor
from studies.grid.experiment import Record
from studies.grid.records import Records, identify
from studies.grid.running import complete, present

LENGTH, TOKENS = 5, 9
ADDITIVE = Variant("monotonic", (("dirichlet", 0.1),))
LONGER = Variant("monotonic", (("again", 0.1),))
SQUARED = Variant("squared", (("root", 0.01),))
COMMON = ChainSettings("squared", 1, batch_size=64, max_epochs=2)


def sequences(count=200, seed=0):
    """A random walk over the tokens: neighbours depend on each other."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-1, 2, (count, LENGTH), generator=generator)
    return (torch.randint(TOKENS, (count, 1), generator=generator) + steps.cumsum(1)) % TOKENS


@pytest.fixture
def data():
    tokens = sequences()
    corpus = split(tokens, torch.full((len(tokens),), -4.0, dtype=torch.float64))
    return EncodedCorpus.of(corpus, make_vocabulary(corpus.train, TOKENS + 1))


def test_chains_start_as_they_are_told():
    positive = squared_chain(4, num_states=6, num_units=3, start="uniform")
    table = positive.circuit.input_layers[0].table.detach()
    assert 0 <= float(table.min()) < float(table.max()) <= 0.1
    assert negative_share(positive) == 0
    signed = squared_chain(4, num_states=6, num_units=8, num_squares=2, start="normal")
    assert 0.3 < negative_share(signed) < 0.7
    assert sum_weights(signed).shape == (2 * 8 + 2 * 64,)
    first, again = (squared_chain(4, 6, 3, seed=7) for _ in range(2))
    assert torch.equal(sum_weights(first), sum_weights(again))
    with pytest.raises(ValueError, match=r"unknown start 'zero': expected one of uniform, normal"):
        squared_chain(4, 6, 3, start="zero")
    with pytest.raises(ValueError, match=r"unknown start 'normal': expected one of uniform, log"):
        monotonic_chain(4, 6, 3, start="normal")


def test_the_square_root_of_a_model_with_one_path_is_that_model():
    additive = monotonic_chain(4, num_states=6, num_units=1, seed=3)
    rows = torch.randint(6, (50, 4), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        log_probs(square_root_chain(additive), rows), log_probs(additive, rows), rtol=0, atol=1e-5
    )


def test_the_square_root_of_a_mixture_that_shows_its_component_is_that_mixture():
    """Units that never share a token have no cross terms: the square of the root is exact."""
    additive = monotonic_chain(3, num_states=4, num_units=2, seed=5)
    with torch.no_grad():
        logits = additive.circuit.input_layers[0].logits
        logits[:, 0, :2] = -200.0
        logits[:, 1, 2:] = -200.0
    rows = torch.randint(4, (50, 3), generator=torch.Generator().manual_seed(0))
    rows = rows[(rows[:, 1] < 2) == (rows[:, 2] < 2)]  # the last two share their unit
    expected = log_probs(additive, rows)
    assert len(rows) > 10
    for num_squares in (1, 2):
        root = square_root_chain(additive, num_squares=num_squares)
        torch.testing.assert_close(log_probs(root, rows), expected, rtol=0, atol=1e-4)


def test_only_models_of_one_output_have_a_square_root():
    circuit = sub.Circuit(
        sub.linear_tree(3),
        sub.Categorical(4),
        num_units=2,
        num_outputs=2,
        weights=sub.positive_weights,
    )
    with pytest.raises(ValueError, match=r"an additive model of one output, got 2"):
        square_root_chain(sub.MonotonicCircuit(circuit))


def trained(settings, data, folder, additive_file=None):
    return train_chain(
        settings,
        data,
        checkpoint=folder / "checkpoint",
        model_file=folder / "model",
        additive_file=additive_file,
    )


def test_a_training_leaves_its_model_and_its_scores(data, tmp_path):
    settings = ChainSettings("monotonic", 3, learning_rate=0.1, batch_size=64, max_epochs=3)
    result = trained(settings, data, tmp_path)
    assert result["epochs"] == 3
    assert not (tmp_path / "checkpoint").exists()
    states = data.states["test"]
    scores = log_probs(read_chain(tmp_path / "model"), states) + data.vocabulary.log_share(states)
    assert result["test"] == pytest.approx(float(scores.mean()), rel=1e-12, abs=0)


def test_an_interrupted_training_goes_on_bit_by_bit(data, tmp_path, monkeypatch):
    settings = ChainSettings(
        "squared", 3, start="uniform", learning_rate=0.01, batch_size=64, max_epochs=4
    )
    whole = trained(settings, data, tmp_path)
    fit, folder = training.fit, tmp_path / "again"
    folder.mkdir()

    def interrupted(*arguments, **options):
        history = fit(*arguments, **{**options, "max_epochs": 2})
        history.stopped = "interrupted"
        return history

    monkeypatch.setattr(training, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(settings, data, folder)
    assert not (folder / "model").exists()
    monkeypatch.setattr(training, "fit", fit)
    again = trained(settings, data, folder)
    assert [again[part] for part in ("train", "test")] == [whole["train"], whole["test"]]


def test_models_that_make_no_sense_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match=r"unknown kind of model 'cubic'"):
        start_chain(ChainSettings("cubic", 3), data, None)
    with pytest.raises(ValueError, match=r"needs the file of an additive model"):
        start_chain(ChainSettings("squared", 3, start="root"), data, None)
    with pytest.raises(ValueError, match=r"needs that model in the sweep"):
        Sweep("", (2,), (SQUARED,), 1, COMMON).runs()


def test_sequences_come_back_from_their_folder(data, tmp_path):
    data.write(tmp_path)
    found = EncodedCorpus.read(tmp_path)
    assert found.vocabulary == data.vocabulary
    assert found.teacher == data.teacher
    assert all(torch.equal(found.states[part], data.states[part]) for part in data.states)
    assert found.digest == data.digest
    data.states["valid"][0, 0] = (data.states["valid"][0, 0] + 1) % 3
    assert found.digest != data.digest


def run_sweep(sweep, data, folder):
    data.write(folder)
    records = Records(folder / "runs")
    complete(sweep, records, SerialExecutor(), progress=False)
    return [records.read(run) for run in records.known(sweep)]


@pytest.mark.slow
def test_a_sweep_tries_every_size_and_seed_and_sums_up(data, tmp_path):
    sweep = Sweep(str(tmp_path), (2, 3), (ADDITIVE, SQUARED), 2, COMMON)
    records = run_sweep(sweep, data, tmp_path)
    assert [(label_of(r.run), r.run["num_units"], r.run["seed"]) for r in records] == [
        (label, size, seed) for label in ("MPC", "NPC²") for seed in (0, 1) for size in (2, 3)
    ]
    table = summarise(records)
    assert [(row["K"], row["model"], row["runs"]) for row in table] == [
        (2, "MPC", 2),
        (2, "NPC²", 2),
        (3, "MPC", 2),
        (3, "NPC²", 2),
    ]
    squared = [records[4].result["test"], records[6].result["test"]]
    assert table[1]["test"] == pytest.approx(np.mean(squared), rel=1e-12, abs=0)
    assert table[1]["gap to teacher"] == pytest.approx(-4 - np.mean(squared), rel=1e-12, abs=0)
    assert table[1]["test 95 %"] == pytest.approx(np.quantile(squared, 0.95), rel=1e-12, abs=0)
    present(sweep, Records(tmp_path / "runs"), tmp_path)
    assert (tmp_path / "table.md").read_text().count("\n") == 6
    with open(tmp_path / "runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 8


def test_the_control_goes_on_from_the_additive_run(data, tmp_path):
    sweep = Sweep(str(tmp_path), (3,), (ADDITIVE, LONGER, SQUARED), 1, COMMON)
    records = run_sweep(sweep, data, tmp_path)
    first = identify(records[0].run)
    assert [record.run.get("additive") for record in records] == [None, first, first]
    longer = ChainSettings("monotonic", 3, start="again")
    started = start_chain(longer, data, records[0].file("model"))
    ended = read_chain(records[0].file("model"))
    for ours, theirs in zip(started.parameters(), ended.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    # Another additive model makes another run of those that begin from it.
    faster = Variant("monotonic", (("dirichlet", 0.2),))
    other = Sweep(str(tmp_path), (3,), (faster, SQUARED), 1, COMMON)
    store = Records(tmp_path / "runs")
    assert store.missing(other.runs()) == other.runs()


def test_squares_are_compared_with_the_longer_training():
    def record(variant, score):
        start = variant.recipes[0][0]
        run = {"kind": variant.kind, "start": start, "num_squares": 1, "num_units": 2}
        parts = dict.fromkeys(("train", "valid", "test"), score)
        return Record(run, {**parts, "teacher": {}}, 0.0, None)

    scores = {ADDITIVE: (-9.0, -8.0), LONGER: (-5.0, -3.0), SQUARED: (-6.0, -4.0)}
    records = [record(variant, s) for variant, both in scores.items() for s in both]
    p_values = {row["model"]: row["p-value"] for row in summarise(records)}
    assert p_values["MPC"] is None
    assert p_values["MPC longer"] is None
    assert p_values["NPC²"] == pytest.approx(5 / 6, rel=1e-12, abs=0)  # 1 of 4 pairs is won
    without = [r for r in records if r.run["start"] != "again"]
    assert summarise(without)[1]["p-value"] == pytest.approx(1 / 6, rel=1e-12, abs=0)


def test_p_values_are_one_sided():
    higher, lower = [3.0, 4.0, 5.0], [0.0, 1.0, 2.0]
    assert p_value(higher, lower) == pytest.approx(0.05, rel=1e-12, abs=0)
    assert p_value(lower, higher) == pytest.approx(1.0, rel=1e-12, abs=0)
    assert p_value(higher, lower) == stats.mannwhitneyu(higher, lower, alternative="greater")[1]
    assert p_value([], lower) is None


def test_words_are_found_where_they_begin_and_end():
    pieces = [b" the", b" dog", b"dog", b"s", b" hot"]
    tokenizer = LlamaTokenizer(pieces, [0.0] * 5)
    contains = text_contains(["Dog"], tokenizer)
    assert contains([0, 1])
    assert contains([1, 0])
    assert not contains([0, 1, 3])
    assert not contains([4, 2])
    assert not contains([0, 3])


@pytest.fixture
def toy_files(tmp_path):
    """A tokenizer of single letters, and a llama2.c teacher of random numbers."""
    pieces = [b"<unk>", b"<s>", b"</s>", b" ", b"a", b"b", b"c", b" A"]
    data = np.array([8], "<i4").tobytes()
    for piece in pieces:
        data += np.array([0.0], "<f4").tobytes() + np.array([len(piece)], "<i4").tobytes() + piece
    (tmp_path / "tok.bin").write_bytes(data)
    header = np.array([8, 8, 1, 2, 1, 8, 16], "<i4")
    generator = np.random.default_rng(0)
    count = 8 * 8 + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 64 + 8 + 2 * 16 * 2
    numbers = generator.normal(size=count, scale=0.3).astype("<f4")
    (tmp_path / "teacher.bin").write_bytes(header.tobytes() + numbers.tobytes())
    return tmp_path


def test_the_commands_distil_and_generate(toy_files, capsys, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 100)
    folder = toy_files / "runs"
    teacher, tokenizer = str(toy_files / "teacher.bin"), str(toy_files / "tok.bin")
    options = ["--units", "2", "3", "--squares", "1", "2", "--epochs", "1", "--quiet"]
    drawn = ["--teacher", teacher, "--samples", "300", "--length", "6"]
    assert main(["distill", *drawn, "-o", str(folder), *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    models = ["MPC", "MPC longer", "NPC²", "2 squares"]
    assert [row["model"] for row in answer["table"]] == 2 * models
    for name in ("likelihood.png", "likelihood.pdf", "weights.png", "weights.pdf", "table.csv"):
        assert (folder / name).stat().st_size > 100
    assert main(["distill", *drawn, "--rows", "100", "-o", str(folder), *options]) == 2
    assert "holds results of another configuration: sequences is" in capsys.readouterr().err
    words = ["--must-contain", "ab", "--must-contain", "c"]
    ask = ["generate", str(folder), "--tokenizer", tokenizer, *words, "-n", "20"]
    assert main([*ask, "--teacher", teacher, "--compare", "50"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["guided"]["success_rate"] == 1
    assert len(answer["texts"]) == 20
    assert answer["teacher"]["number"] == 50
    assert answer["rejection"]["number"] == round(50 * answer["teacher"]["success_rate"])
    (toy_files / "sets.txt").write_text("ab c\nzebra a\nc\nab c\n")
    ask_sets = ["generate", str(folder), "--tokenizer", tokenizer, "--teacher", teacher]
    assert main([*ask_sets, "--concepts", str(toy_files / "sets.txt"), "-n", "5"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["sets"], answer["left_out"], answer["success_rate"]) == (2, 1, 1.0)
    assert answer["of_each"][0]["words"] == ["ab", "c"]
    assert main(ask) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert all(" ab" in text.lower() and " c" in text.lower() for text in texts)


def test_paper_starts_are_tried_in_turn(toy_files, capsys):
    rows = sequences(60)
    np.savetxt(toy_files / "rows.csv", rows.numpy(), delimiter=",", fmt="%d")
    folder = toy_files / "runs"
    options = [
        "--units",
        "2",
        "--runs",
        "2",
        "--starts",
        "paper",
        "--shared",
        "--epochs",
        "1",
        "--quiet",
    ]
    given = [str(toy_files / "rows.csv"), "--rows", "20", "--tokens", "12", "-o", str(folder)]
    assert main(["distill", *given, *options]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 12
    with open(folder / "runs.csv", newline="") as file:
        rates = [row["learning_rate"] for row in csv.DictReader(file)]
    assert rates == ["0.005", "0.005", "0.01", "0.01"]
    model, vocabulary = find_model(folder)
    assert vocabulary.num_tokens == 12
    assert isinstance(model, sub.MonotonicCircuit | sub.SquaredCircuit)
    assert model.circuit.input_layers[0].is_shared


def test_the_commands_say_what_is_missing(toy_files, capsys):
    assert main(["distill", "-o", str(toy_files / "runs")]) == 2
    assert "give either a file of sequences, or --teacher" in capsys.readouterr().err
    ask = ["generate", str(toy_files), "--tokenizer", str(toy_files / "tok.bin")]
    assert main(ask) == 2
    assert "say what is required: either --must-contain dog" in capsys.readouterr().err
    assert main([*ask, "--must-contain", "a"]) == 2
    assert "expected a folder written by distill" in capsys.readouterr().err
    (toy_files / "vocabulary.json").write_text('{"kept": [4], "num_tokens": 8}')
    assert main([*ask, "--must-contain", "a"]) == 2
    assert "holds no finished run" in capsys.readouterr().err
