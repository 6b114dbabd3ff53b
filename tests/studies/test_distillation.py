"""Runs, sweeps and the two commands, on data small enough to be done in seconds."""

import csv
import json

import numpy as np
import pytest
import torch
from scipy import stats
from studies.distillation.runs import Data, Plan, load_model, run

import subtractive as sub
from studies.distillation import runs, sampling
from studies.distillation.commands import find_model
from studies.distillation.comparison import text_contains
from studies.distillation.corpus import split
from studies.distillation.models import (
    log_probs,
    monotonic_chain,
    negative_share,
    square_root_chain,
    squared_chain,
    sum_weights,
)
from studies.distillation.sweep import Sweep, Variant, p_value, run_sweep, summarise
from studies.distillation.tokenizers import LlamaTokenizer
from studies.distillation.vocabulary import make_vocabulary
from subtractive.cli import main

LENGTH, TOKENS = 5, 9
ADDITIVE = Variant("monotonic", (("dirichlet", 0.1),))
LONGER = Variant("monotonic", (("again", 0.1),))
SQUARED = Variant("squared", (("root", 0.01),))
COMMON = Plan("squared", 1, batch_size=64, max_epochs=2)


def sequences(count=200, seed=0):
    """A random walk over the tokens: neighbours depend on each other."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-1, 2, (count, LENGTH), generator=generator)
    return (torch.randint(TOKENS, (count, 1), generator=generator) + steps.cumsum(1)) % TOKENS


@pytest.fixture
def data():
    tokens = sequences()
    corpus = split(tokens, torch.full((len(tokens),), -4.0, dtype=torch.float64))
    return Data.of(corpus, make_vocabulary(corpus.train, TOKENS + 1))


def test_chains_start_as_they_are_told():
    positive = squared_chain(4, num_states=6, num_units=3, start="uniform")
    table = positive.circuit.input_layer(0).table.detach()
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
        logits = additive.circuit.input_layer(0).logits
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


def test_a_run_is_done_once_and_leaves_its_model(data, tmp_path, monkeypatch):
    plan = Plan("monotonic", 3, learning_rate=0.1, batch_size=64, max_epochs=3)
    record = run(plan, data, tmp_path, progress=False)
    assert record["epochs"] == 3
    assert not list(tmp_path.glob(".*checkpoint"))
    model = load_model(tmp_path, plan)
    states = data.states["test"]
    scores = log_probs(model, states) + data.vocabulary.log_share(states)
    expected = float(scores.mean())
    assert record["log_likelihood"]["test"] == pytest.approx(expected, rel=1e-12, abs=0)

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(runs, "fit", refuse)
    assert run(plan, data, tmp_path, progress=False) == record
    other = Plan("monotonic", 3, learning_rate=0.1, batch_size=64, max_epochs=9)
    with pytest.raises(ValueError, match=r"its max_epochs was 3, now it is 9"):
        run(other, data, tmp_path, progress=False)


def test_an_interrupted_run_goes_on_bit_by_bit(data, tmp_path, monkeypatch):
    plan = Plan("squared", 3, start="uniform", learning_rate=0.01, batch_size=64, max_epochs=4)
    whole = run(plan, data, tmp_path, progress=False)
    fit, folder = runs.fit, tmp_path / "again"
    folder.mkdir()

    def interrupted(*arguments, **options):
        history = fit(*arguments, **{**options, "max_epochs": 2})
        history.stopped = "interrupted"
        return history

    monkeypatch.setattr(runs, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(plan, data, folder, progress=False)
    assert not list(folder.glob("*.json"))
    monkeypatch.setattr(runs, "fit", fit)
    assert run(plan, data, folder, progress=False)["log_likelihood"] == whole["log_likelihood"]


def test_runs_that_make_no_sense_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match=r"unknown kind of model 'cubic'"):
        run(Plan("cubic", 3), data, tmp_path)
    with pytest.raises(ValueError, match=r"needs the plan of an additive run"):
        run(Plan("squared", 3, start="root"), data, tmp_path)
    with pytest.raises(ValueError, match=r"needs that model in the sweep"):
        run_sweep(Sweep((2,), (SQUARED,), 1, COMMON), data, tmp_path)


def test_a_sweep_tries_every_size_and_seed_and_sums_up(data, tmp_path):
    sweep = Sweep((2, 3), (ADDITIVE, SQUARED), 2, COMMON)
    records = run_sweep(sweep, data, tmp_path, progress=False)
    assert len(records) == 8
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["num_units"], row["seed"]) for row in rows[:3]] == [
        ("MPC", "2", "0"),
        ("NPC²", "2", "0"),
        ("MPC", "3", "0"),
    ]
    table = summarise(records)
    assert [(row["K"], row["model"], row["runs"]) for row in table] == [
        (2, "MPC", 2),
        (2, "NPC²", 2),
        (3, "MPC", 2),
        (3, "NPC²", 2),
    ]
    squared = [r["log_likelihood"]["test"] for v, r in records if v is SQUARED][::2]
    assert table[1]["test"] == pytest.approx(np.mean(squared), rel=1e-12, abs=0)
    assert table[1]["gap to teacher"] == pytest.approx(-4 - np.mean(squared), rel=1e-12, abs=0)
    assert table[1]["test 95 %"] == pytest.approx(np.quantile(squared, 0.95), rel=1e-12, abs=0)
    assert (tmp_path / "table.md").read_text().count("\n") == 6


def test_the_control_goes_on_from_the_additive_run(data, tmp_path):
    sweep = Sweep((3,), (ADDITIVE, LONGER, SQUARED), 1, COMMON)
    plans = {variant.label: (plan, first) for variant, plan, first in sweep.plans()}
    first = plans["MPC"][0]
    assert {label: begun for label, (_, begun) in plans.items()} == {
        "MPC": None,
        "MPC longer": first,
        "NPC²": first,
    }
    run(first, data, tmp_path, progress=False)
    longer = runs.start_model(plans["MPC longer"][0], data, tmp_path, first=first, progress=False)
    ended = load_model(tmp_path, first)
    for ours, theirs in zip(longer.parameters(), ended.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_squares_are_compared_with_the_longer_training():
    def record(score):
        parts = dict.fromkeys(("train", "valid", "test"), score)
        return {"plan": {"num_units": 2}, "log_likelihood": parts, "teacher": {}}

    scores = {ADDITIVE: (-9.0, -8.0), LONGER: (-5.0, -3.0), SQUARED: (-6.0, -4.0)}
    records = [(variant, record(s)) for variant, both in scores.items() for s in both]
    p_values = {row["model"]: row["p-value"] for row in summarise(records)}
    assert p_values["MPC"] is None
    assert p_values["MPC longer"] is None
    assert p_values["NPC²"] == pytest.approx(5 / 6, rel=1e-12, abs=0)  # 1 of 4 pairs is won
    without = [pair for pair in records if pair[0] is not LONGER]
    assert summarise(without)[1]["p-value"] == pytest.approx(1 / 6, rel=1e-12, abs=0)


def test_p_values_are_one_sided():
    higher, lower = [3.0, 4.0, 5.0], [0.0, 1.0, 2.0]
    assert p_value(higher, lower) == pytest.approx(0.05, rel=1e-12, abs=0)
    assert p_value(lower, higher) == pytest.approx(1.0, rel=1e-12, abs=0)
    assert p_value(higher, lower) == stats.mannwhitneyu(higher, lower, alternative="greater")[1]
    assert p_value([], lower) is None


def test_labels_name_the_kind():
    assert ADDITIVE.label == "MPC"
    assert LONGER.label == "MPC longer"
    assert SQUARED.label == "NPC²"
    assert Variant("squared", (("root", 0.1),), 4).label == "4 squares"


def test_words_are_found_where_they_begin():
    pieces = [b" the", b" dog", b"dog", b"s", b" hot"]
    tokenizer = LlamaTokenizer(pieces, [0.0] * 5)
    contains = text_contains(["Dog"], tokenizer)
    assert contains([0, 1])
    assert contains([0, 1, 3])
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
    assert model.circuit.input_layer(0).is_shared


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
