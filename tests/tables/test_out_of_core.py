"""Tables that come in pieces are learned as if they were in memory, from all of their rows."""

import signal
import warnings

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from subtractive.learning.run import Run
from subtractive.tables import out_of_core
from subtractive.tables.row_sample import RowSample, join, number_pieces

SETTINGS = {"n_components": 4, "structure": "binary", "random_state": 0, "max_epochs": 2}


def table(n=3000, seed=0):
    """Numbers, whole numbers and text that depend on each other; sorted, as long tables are."""
    random = np.random.default_rng(seed)
    a = np.sort(random.normal(size=n))
    frame = pd.DataFrame({"a": a, "b": a**2 + 0.3 * random.normal(size=n)})
    frame["k"] = random.integers(0, 4, n)
    frame["c"] = np.where(random.random(n) < 0.5, np.where(a > 0, "high", "low"), "none")
    frame.loc[::9, "b"] = np.nan
    return frame


def cut(frame, size=250):
    return [frame[start : start + size] for start in range(0, len(frame), size)]


def model(**settings):
    return sub.SubtractiveMixture(**{**SETTINGS, **settings})


def test_a_sample_is_uniform():
    """Each of 60 rows is in a sixth of 300 samples: six standard deviations at most away."""
    counts = np.zeros(60)
    for seed in range(300):
        sample = RowSample(10, seed)
        for piece in number_pieces(cut(pd.DataFrame({"row": range(60)}), 25)):
            sample.add(piece)
        rows = sample.result()
        assert len(rows.weights) == 10
        assert rows.rows["row"].tolist() == rows.places.tolist()
        counts[rows.places] += 1
    assert abs(counts - 50).max() < 6 * np.sqrt(300 / 6 * 5 / 6)


def test_pieces_join_to_the_table():
    frame = table(100)
    pieces = list(number_pieces([(part, np.arange(len(part)) + 1.0) for part in cut(frame, 30)]))
    whole = join(pieces[::-1])
    pd.testing.assert_frame_equal(whole.rows, frame)
    assert whole.weights[:31].tolist() == [*range(1, 31), 1]


def test_a_short_table_is_fitted_as_in_memory():
    frame = table(400)
    whole = model().fit(frame)
    pieces = model().fit_pieces(cut(frame))
    np.testing.assert_array_equal(pieces.score_samples(frame), whole.score_samples(frame))


FORMS = {
    "a list": cut,
    "a function": lambda frame: lambda: iter(cut(frame)),
    "with weights": lambda frame: [(part, np.ones(len(part))) for part in cut(frame)],
}


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=[] if name == "with weights" else pytest.mark.slow, id=name)
        for name, form in FORMS.items()
    ],
)
def test_all_rows_count_and_held_out_rows_find_them_more_likely(form):
    """The sample is too small to learn from: passes over all rows must gain on new ones."""
    frame, new = table(3000), table(1000, seed=1)
    first = model().fit(frame.sample(270, random_state=0))
    fitted = model(max_epochs=6).fit_pieces(form(frame), sample_rows=300)
    assert fitted.score(new) > first.score(new) + 0.05
    assert len(fitted.history_.epochs) >= 1
    scores = [fitted.history_.best_score, fitted.score(frame)]
    assert scores[0] == pytest.approx(scores[1], abs=0.5)


def test_what_the_defaults_choose_is_trained_on():
    """Also a mixture of hidden trees, whose broad component stays as broad as it was made."""
    frame = table(900)
    fitted = sub.SubtractiveMixture(random_state=0, max_epochs=2).fit_pieces(
        cut(frame), sample_rows=300
    )
    scores = fitted.score_samples(frame)
    assert np.isfinite(scores).all()
    assert fitted.history_.best_score == pytest.approx(scores.mean(), abs=0.5)


def test_weights_count_rows():
    """Weight three for the rows with a > 0 moves the probability of that as it should."""
    frame = table(2500)
    pieces = [(part, np.where(part["a"] > 0, 3.0, 1.0)) for part in cut(frame)]
    fitted = model(max_epochs=6).fit_pieces(pieces, sample_rows=400)
    share = (frame["a"] > 0).mean()
    expected = 3 * share / (1 + 2 * share)
    assert fitted.probability({"a": (0, None)}) == pytest.approx(expected, abs=0.05)


def test_an_iterator_is_read_once():
    frame = table(1000).sample(1000, random_state=0)
    fitted = model().fit_pieces(iter(cut(frame)), sample_rows=300)
    assert np.isfinite(fitted.score(frame))
    short = model().fit_pieces(iter(cut(frame[:200], 50)), sample_rows=300)
    np.testing.assert_array_equal(
        short.score_samples(frame), model().fit(frame[:200]).score_samples(frame)
    )


def test_the_schema_is_that_of_all_rows():
    """What few rows show: a category, a number out of bounds, a constant or copy that is none."""
    frame = table(3000).assign(one=1.0, same=lambda f: f["a"], share=0.5)
    frame["share"] = np.random.default_rng(2).random(3000)
    frame.loc[7, "c"] = "rare"
    frame.loc[1500, "one"] = 2.0
    frame.loc[2900, "same"] = 100.0
    frame.loc[2222, "k"] = 400
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model(max_epochs=1).fit_pieces(cut(frame), sample_rows=200)
        scores = fitted.score_samples(frame)
    assert np.isfinite(scores).all()
    assert "rare" in fitted.schema_.column("c").values
    assert not fitted.schema_.constants
    assert fitted.schema_.place["same"] != fitted.schema_.place["a"]


def test_rows_beyond_declared_bounds_are_refused_before_training():
    frame = table(3000)
    frame.loc[2000, "b"] = -50.0
    fitting = model(schema={"b": sub.tables.Continuous(-20)})
    with pytest.raises(ValueError, match="column 'b'"):
        fitting.fit_pieces(cut(frame), sample_rows=200)


def test_rows_that_contradict_what_was_read_are_left_out_and_told():
    frame = table(1000).sample(1000, random_state=0).assign(one=[1.0] * 900 + [2.0] * 100)
    with (
        pytest.warns(sub.tables.DataWarning, match="column 'one' is constant"),
        pytest.warns(sub.tables.DataWarning, match="100 rows were left out"),
    ):
        model(max_epochs=1).fit_pieces(iter(cut(frame)), sample_rows=500)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (lambda: 3, "the pieces of a table are an iterable"),
        (list, "the table was empty"),
        (lambda: [pd.DataFrame({"a": []})], "the table was empty"),
        (lambda: iter([]), "the table was empty"),
        (lambda: [(table(30), [1.0])], "piece 0 of the table"),
    ],
)
def test_what_is_no_table_is_refused(pieces, message):
    with pytest.raises(ValueError, match=message):
        model().fit_pieces(pieces())


def test_a_sample_needs_rows():
    with pytest.raises(ValueError, match="sample_rows must be a whole number of at least 20"):
        model().fit_pieces([table()], sample_rows=3)


def test_the_same_seed_gives_the_same_model():
    frame = table(1000)
    fits = [model().fit_pieces(cut(frame), sample_rows=300) for _ in range(2)]
    scores = [fitted.score_samples(frame) for fitted in fits]
    np.testing.assert_array_equal(*scores)


def test_an_interrupt_in_a_pass_leaves_the_best_so_far(monkeypatch):
    monkeypatch.setattr(out_of_core, "STEPS_OF_EPOCH", 2)
    real, calls = Run._end_epoch, []

    def stop(self, *arguments):
        real(self, *arguments)
        calls.append(self)
        if len(calls) == 4:  # two epochs of the sample, then two of all rows
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "_end_epoch", stop)
    fitting = model()
    with pytest.raises(KeyboardInterrupt) as caught:
        fitting.fit_pieces(cut(table(9000)), sample_rows=300)
    assert not hasattr(fitting, "density_")
    partial = caught.value.partial
    assert partial.history_.stopped == "interrupted"
    assert np.isfinite(partial.score(table()))
