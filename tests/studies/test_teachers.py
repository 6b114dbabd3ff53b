"""Teachers: their probabilities, their tokenizers, and samples that survive interruptions."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.distillation import sampling
from studies.distillation.comparison import try_teacher
from studies.distillation.corpus import from_samples, read_corpus, split
from studies.distillation.llama import Shape, _tensor_shapes, read_llama
from studies.distillation.sampling import draw_from_teacher, sample_teacher
from studies.distillation.teachers import LlamaTeacher, TransformersTeacher, load_teacher
from studies.distillation.tokenizers import LlamaTokenizer, load_tokenizer
from studies.distillation.vocabulary import make_vocabulary
from subtractive.sequences.automaton import as_words, contains_all

ROOT = Path(__file__).parents[2]
STORIES = ROOT.parent / "shared" / "data" / "stories260k"
needs_stories = pytest.mark.skipif(
    not STORIES.is_dir(), reason="the checkpoint stories260K is not beside the project"
)
SHAPE = Shape(dim=8, hidden=12, layers=2, heads=4, kv_heads=2, vocabulary=5, max_length=6)


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "tiny.bin")


def write_checkpoint(path, shape=SHAPE, *, is_shared=True, seed=0):
    """A llama2.c file of random numbers."""
    generator = np.random.default_rng(seed)
    sign = 1 if is_shared else -1
    header = np.array([*shape[:5], sign * shape.vocabulary, shape.max_length], "<i4")
    sizes = _tensor_shapes(shape, is_shared=is_shared).values()
    numbers = [generator.normal(size=size, scale=0.5).astype("<f4") for size in sizes]
    path.write_bytes(header.tobytes() + b"".join(part.tobytes() for part in numbers))
    return path


def naive_logits(model, tokens):
    """One text through the whole model, in float64, without a cache and with explicit angles."""
    w = {name: tensor.double().numpy() for name, tensor in model.weights.items()}
    shape = model.shape
    x = w["embedding"][np.array(tokens)]  # (t, dim)

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight

    def rotate(vector, position):
        turned = vector.copy()
        for pair in range(shape.head // 2):
            angle = position / 10000 ** (2 * pair / shape.head)
            a, b = vector[2 * pair], vector[2 * pair + 1]
            turned[2 * pair] = a * np.cos(angle) - b * np.sin(angle)
            turned[2 * pair + 1] = a * np.sin(angle) + b * np.cos(angle)
        return turned

    for k in range(shape.layers):
        y = norm(x, w["attention_norm"][k])
        rows = []
        for t in range(len(tokens)):
            heads = []
            for head in range(shape.heads):
                group = head // (shape.heads // shape.kv_heads)
                own = slice(head * shape.head, (head + 1) * shape.head)
                shared = slice(group * shape.head, (group + 1) * shape.head)
                query = rotate(w["wq"][k][own] @ y[t], t)
                scores = np.array(
                    [query @ rotate(w["wk"][k][shared] @ y[s], s) for s in range(t + 1)]
                )
                scores = np.exp(scores / np.sqrt(shape.head))
                values = y[: t + 1] @ w["wv"][k][shared].T
                heads.append(scores @ values / scores.sum())
            rows.append(w["wo"][k] @ np.concatenate(heads))
        x = x + np.array(rows)
        y = norm(x, w["feed_norm"][k])
        gate = y @ w["w1"][k].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["w3"][k].T)) @ w["w2"][k].T
    return norm(x, w["final_norm"]) @ w["classifier"].T


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_llama_with_a_cache_is_the_model_written_out(tmp_path, is_shared):
    model = read_llama(write_checkpoint(tmp_path / "tiny.bin", is_shared=is_shared))
    rows = torch.tensor([[0, 3, 2, 4, 1], [4, 4, 0, 1, 2]])
    found = LlamaTeacher(model).log_prob(rows)
    expected = []
    for row in rows.tolist():
        logits = naive_logits(model, [1, *row[:-1]])
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected.append(sum(logs[at, token] for at, token in enumerate(row)))
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-5
    )


@needs_stories
def test_the_stories_teacher_gives_the_stored_log_probabilities():
    with np.load(STORIES / "test.npz") as data:
        rows, stored = torch.from_numpy(data["x"][:200].astype(np.int64)), data["logp"][:200]
    found = load_teacher(STORIES / "stories260K.bin").log_prob(rows)
    torch.testing.assert_close(found, torch.from_numpy(stored).double(), rtol=0, atol=2e-4)


@needs_stories
def test_the_stories_tokenizer_goes_there_and_back():
    tokenizer = load_tokenizer(STORIES / "tok512.bin")
    text = "Once upon a time, there was a dog."
    assert tokenizer.num_tokens == 512
    assert tokenizer.decode(tokenizer.encode(text)) == f" {text}"
    assert tokenizer.decode(tokenizer.encode("naïve")) == " naïve"
    with np.load(STORIES / "valid.npz") as data:
        row = data["x"][0].tolist()
    assert tokenizer.encode(tokenizer.decode(row)) == row


def test_merges_go_by_score():
    pieces = [b"<unk>", b"<s>", b"</s>", *[b"<0x%02X>" % b for b in range(256)]]
    pieces += [b" ", b"a", b"b", b"ab", b" a"]
    tokenizer = LlamaTokenizer(pieces, [0.0] * (len(pieces) - 2) + [1.0, 2.0])
    assert [pieces[t] for t in tokenizer.encode("ab")] == [b" a", b"b"]
    assert tokenizer.decode(tokenizer.encode("aé")) == " aé"


def test_probabilities_of_all_sequences_sum_to_one(checkpoint):
    teacher = load_teacher(checkpoint)
    every = torch.tensor(list(itertools.product(range(5), repeat=3)))
    total = teacher.log_prob(every).exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-10)


def test_samples_have_the_frequencies_and_log_probabilities_of_the_teacher(checkpoint):
    teacher = load_teacher(checkpoint)
    samples = draw_from_teacher(teacher, 5000, 2, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        samples.log_prob, teacher.log_prob(samples.tokens), rtol=1e-5, atol=1e-5
    )
    every = torch.tensor(list(itertools.product(range(5), repeat=2)))
    expected = 5000 * teacher.log_prob(every).exp()
    counts = torch.bincount(samples.tokens[:, 0] * 5 + samples.tokens[:, 1], minlength=25)
    # 24 degrees of freedom: beyond 60 in 6e-5 of all runs.
    assert float(((counts - expected) ** 2 / expected).sum()) < 60


def test_the_teacher_alone_contains_words_by_chance(checkpoint):
    teacher = load_teacher(checkpoint)
    accepts = contains_all(as_words([2, 4], 5)).accepts
    generator = torch.Generator().manual_seed(0)
    tried = try_teacher(teacher, accepts, 2000, 3, generator=generator)
    texts = torch.tensor(list(itertools.product(range(5), repeat=3)))
    contain = torch.tensor([2 in text and 4 in text for text in texts.tolist()])
    exact = float(teacher.log_prob(texts)[contain].exp().sum())
    # Five standard errors.
    assert abs(tried.rate - exact) < 5 * (exact * (1 - exact) / 2000) ** 0.5
    assert len(tried.accepted.tokens) == round(2000 * tried.rate)
    assert all(accepts(row) for row in tried.accepted.tokens.tolist())


def test_next_tokens_of_a_growing_text_are_those_of_the_chain_rule(checkpoint):
    teacher = load_teacher(checkpoint)
    texts = torch.tensor([[1, 4, 0], [2, 2, 3]])
    next_token = teacher.next_token(2, 3)
    steps = [next_token(texts[:, :t]).gather(1, texts[:, t, None])[:, 0] for t in range(3)]
    torch.testing.assert_close(sum(steps), teacher.log_prob(texts), rtol=1e-12, atol=1e-12)


def test_a_transformer_of_another_package_is_a_teacher(tmp_path):
    transformers = pytest.importorskip("transformers", reason="an optional package")
    config = transformers.GPT2Config(
        vocab_size=7, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=6, eos_token_id=6
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    teacher = load_teacher(tmp_path / "gpt2")
    assert isinstance(teacher, TransformersTeacher)
    assert teacher.num_tokens == 7
    rows = torch.tensor([[0, 1, 2, 3], [6, 5, 4, 0]])
    with torch.no_grad():
        whole = torch.cat([torch.full((2, 1), 6), rows], 1)
        logs = teacher.model(whole).logits.double().log_softmax(-1)
    expected = logs[:, :-1].gather(2, rows[..., None])[..., 0].sum(1)
    torch.testing.assert_close(teacher.log_prob(rows), expected, rtol=1e-5, atol=1e-5)
    samples = draw_from_teacher(teacher, 3, 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        samples.log_prob, teacher.log_prob(samples.tokens), rtol=1e-5, atol=1e-5
    )


def test_samples_go_on_after_an_interrupt_as_if_nothing_had_happened(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(sampling, "CHUNK", 10)
    teacher = load_teacher(checkpoint)
    whole = sample_teacher(teacher, 60, 4, folder=tmp_path / "whole", progress=False)
    draw, drawn = sampling._draw_chunk, []

    def interrupted(*arguments):
        drawn.append(arguments)
        if len(drawn) == 4:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(sampling, "_draw_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample_teacher(teacher, 60, 4, folder=tmp_path / "stopped", progress=False)
    assert len(list((tmp_path / "stopped").glob("chunk-*.npz"))) == 3
    resumed = sample_teacher(teacher, 60, 4, folder=tmp_path / "stopped", progress=False)
    assert len(drawn) == 4 + 3  # what was there was not drawn again
    assert torch.equal(resumed.tokens, whole.tokens)
    assert torch.equal(resumed.log_prob, whole.log_prob)
    fewer = sample_teacher(teacher, 25, 4, folder=tmp_path / "whole", progress=False)
    assert torch.equal(fewer.tokens, whole.tokens[:25])


PROGRAM = """
import sys, time
from studies.distillation import sampling
from studies.distillation.teachers import load_teacher
sampling.CHUNK = 10
draw = sampling._draw_chunk
def slowly(*arguments):
    time.sleep(0.05)
    return draw(*arguments)
sampling._draw_chunk = slowly
sampling.sample_teacher(load_teacher(sys.argv[1]), 500, 4, folder=sys.argv[2], progress=False)
"""


@pytest.mark.slow
def test_samples_go_on_after_a_kill_as_if_nothing_had_happened(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 10)
    teacher = load_teacher(checkpoint)
    whole = sample_teacher(teacher, 60, 4, folder=tmp_path / "whole", progress=False)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(checkpoint), str(tmp_path / "killed")]
    process = subprocess.Popen(command, env=environment)
    while not list((tmp_path / "killed").glob("chunk-000001*")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list((tmp_path / "killed").glob("chunk-*.npz")))
    assert 2 <= done < 50
    resumed = sample_teacher(teacher, 60, 4, folder=tmp_path / "killed", progress=False)
    assert torch.equal(resumed.tokens, whole.tokens)
    assert torch.equal(resumed.log_prob, whole.log_prob)
    fewer = sample_teacher(teacher, 25, 4, folder=tmp_path / "whole", progress=False)
    assert torch.equal(fewer.tokens, whole.tokens[:25])


def test_a_folder_of_other_samples_is_refused(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 10)
    teacher = load_teacher(checkpoint)
    sample_teacher(teacher, 10, 3, folder=tmp_path / "a", progress=False)
    with pytest.raises(ValueError, match=r"holds other samples: their seed is 0, now it is 1"):
        sample_teacher(teacher, 10, 3, folder=tmp_path / "a", seed=1, progress=False)
    with pytest.raises(ValueError, match=r"at least one sequence of one token, got 0 of 3"):
        sample_teacher(teacher, 0, 3, folder=tmp_path / "b", progress=False)
    with pytest.raises(ValueError, match=r"reads up to 6 tokens, asked for 7"):
        sample_teacher(teacher, 10, 7, folder=tmp_path / "c", progress=False)


def test_files_that_are_no_teachers_are_refused(tmp_path, checkpoint):
    (tmp_path / "short.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match=r"it is too short"):
        load_teacher(tmp_path / "short.bin")
    (tmp_path / "odd.bin").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"its header says"):
        load_teacher(tmp_path / "odd.bin")
    (tmp_path / "cut.bin").write_bytes(checkpoint.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"is damaged: \d+ bytes belong to a header"):
        load_teacher(tmp_path / "cut.bin")
    with pytest.raises(FileNotFoundError, match=r"there is no teacher at"):
        load_teacher(tmp_path / "none.bin")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"is no teacher: expected a llama2.c checkpoint"):
        load_teacher(tmp_path / "text.txt")
    with pytest.raises(ValueError, match=r"is no tokenizer of llama2.c"):
        load_tokenizer(tmp_path / "short.bin")
    with pytest.raises(FileNotFoundError, match=r"there is no tokenizer at"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(ValueError, match=r"tokens must be in 0\.\.4, got 0\.\.9"):
        load_teacher(checkpoint).log_prob(torch.tensor([[0, 9]]))
    with pytest.raises(ValueError, match=r"must be a table \(rows, positions\) of whole numbers"):
        load_teacher(checkpoint).log_prob(torch.tensor([[0.0, 1.0]]))


def test_sequences_are_read_from_folders_and_files(tmp_path):
    rows = np.arange(40 * 3).reshape(40, 3)
    np.savez(tmp_path / "parts.npz", train=rows[:30], valid=rows[30:35], test=rows[35:])
    corpus = read_corpus(tmp_path / "parts.npz")
    assert [len(part) for part in corpus[:3]] == [30, 5, 5]
    assert corpus.teacher == {}
    np.savetxt(tmp_path / "all.csv", rows, delimiter=",", fmt="%d")
    assert [len(part) for part in read_corpus(tmp_path / "all.csv")[:3]] == [34, 2, 4]
    folder = tmp_path / "folder"
    folder.mkdir()
    np.savez(folder / "train.npz", x=rows, logp=np.full(40, -2.0))
    np.savez(folder / "valid.npz", x=rows[:1], logp=[-3.0])
    np.savetxt(folder / "test.csv", rows[:2], delimiter=",", fmt="%d")
    corpus = read_corpus(folder)
    assert corpus.teacher == {"train": -2.0, "valid": -3.0}
    assert torch.equal(corpus.test, torch.from_numpy(rows[:2]))
    assert len(corpus.head(7).train) == 7


def test_files_without_sequences_are_refused(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "bad.npz", **arrays)
        return tmp_path / "bad.npz"

    with pytest.raises(ValueError, match=r"holds no array x of sequences, but \['y'\]"):
        read_corpus(save(y=np.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"must be a table of whole numbers"):
        read_corpus(save(x=np.zeros((9, 2))))
    with pytest.raises(ValueError, match=r"tokens must not be negative, got -1"):
        read_corpus(save(x=np.full((9, 2), -1)))
    ones = np.ones((4, 2), int)
    with pytest.raises(ValueError, match=r"need the same length, got \[2, 3\]"):
        read_corpus(save(train=ones, valid=np.ones((4, 3), int), test=ones))
    with pytest.raises(ValueError, match=r"at least three sequences, got 2"):
        split(torch.ones(2, 3, dtype=torch.long))
    (tmp_path / "bad.csv").write_text("1,2\n3,x\n")
    with pytest.raises(ValueError, match=r"must hold whole numbers, one sequence per line"):
        read_corpus(tmp_path / "bad.csv")
    with pytest.raises(FileNotFoundError, match=r"there are no sequences at"):
        read_corpus(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"holds neither train.npz nor train.csv"):
        read_corpus(tmp_path)


def test_samples_are_split_with_their_scores():
    tokens, scores = torch.arange(200).reshape(100, 2), -torch.arange(100.0).double()
    corpus = from_samples(sampling.Samples(tokens, scores))
    assert [len(part) for part in corpus[:3]] == [85, 5, 10]
    assert corpus.teacher["test"] == pytest.approx(-94.5, rel=1e-12, abs=0)


def test_rare_tokens_and_strangers_share_one_state():
    tokens = torch.tensor([[3, 3, 5], [5, 8, 3]])
    vocabulary = make_vocabulary(tokens, 10, min_count=2, always=[7])
    assert vocabulary.kept == (3, 5, 7)
    assert vocabulary.num_states == 4
    states = vocabulary.states(torch.tensor([[3, 5, 7], [8, 9, 5]]))
    assert states.tolist() == [[0, 1, 2], [3, 3, 1]]
    torch.testing.assert_close(
        vocabulary.log_share(states),
        torch.tensor([0.0, -2 * np.log(7)], dtype=torch.float64),
        rtol=1e-6,
        atol=0,
    )
    back = vocabulary.tokens(states, torch.Generator().manual_seed(0))
    assert back[0].tolist() == [3, 5, 7]
    assert set(back[1, :2].tolist()) <= {0, 1, 2, 4, 6, 8, 9}
    logs = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log()
    spread = vocabulary.spread(logs).exp()
    torch.testing.assert_close(spread.sum(), torch.ones(()).double(), rtol=1e-12, atol=0)
    assert float(spread[0, 9]) == pytest.approx(0.4 / 7, rel=1e-12, abs=0)
    everything = make_vocabulary(torch.arange(4)[None], 4)
    assert everything.num_states == 4
    with pytest.raises(ValueError, match=r"min_count must be at least 1"):
        make_vocabulary(tokens, 10, min_count=0)


def test_what_samples_belong_to_is_written_down(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 5)
    sample_teacher(load_teacher(checkpoint), 5, 2, folder=tmp_path / "s", progress=False)
    written = json.loads((tmp_path / "s" / "samples.json").read_text())
    assert written["teacher"]["kind"] == "llama2.c"
    assert written["length"] == 2
