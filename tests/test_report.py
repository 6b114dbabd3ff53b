"""A report is one page that shows every table, shows the truth, and needs nothing else."""

import base64
import functools
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from browser import look_at, photograph

import subtractive as sub
from subtractive.cli.main import main
from subtractive.report import baselines, blocks
from subtractive.report.context import Context
from subtractive.report.dependence import mutual_information, strongest
from subtractive.report.fidelity import Fidelity, as_recorded, classifier_auc, measure

pytestmark = [
    pytest.mark.filterwarnings("ignore::subtractive.tables.column_types.DataWarning"),
]
SCRIPT = "<script>alert(1)</script>"
HOSTILE = [SCRIPT, "long name " * 30, "日本語 🙂 $x_1$", "a\"b'c&d", "tab\tbell\x07"]


def mixed(random):
    size = 120
    city = random.choice(["Oslo", "Bergen", "<b>Å</b>"], size)
    frame = pd.DataFrame(
        {
            "city": city,
            "age": random.integers(18, 90, size),
            "income": np.exp(random.normal(10, 0.5, size)),
            "share": random.beta(2, 5, size),
            "height": random.normal(170, 10, size),
            "owner": random.random(size) < 0.4,
        }
    )
    frame.loc[::7, "income"] = np.nan
    frame.loc[::9, "city"] = None
    return frame


def numeric(random):
    return pd.DataFrame(random.normal(size=(90, 4)) @ random.normal(size=(4, 4))).add_prefix("x")


def one_number(random):
    return pd.DataFrame({"only": random.normal(size=80)})


def one_category(random):
    return pd.DataFrame({"only": random.choice(list("abc"), 60)})


def with_constants(random):
    frame = pd.DataFrame({"a": random.normal(size=70), "five": 5.0, "x": "same"})
    return frame.assign(copy=frame["a"])


def fifty_columns(random):
    return pd.DataFrame(random.normal(size=(60, 50))).add_prefix("sensor ")


def hostile(random):
    frame = pd.DataFrame(random.normal(size=(80, 3)), columns=HOSTILE[:3])
    frame[HOSTILE[3]] = random.choice([SCRIPT, "a$b$c", "x" * 200, "&amp;"], 80)
    return frame.assign(**{HOSTILE[4]: random.random(80) < 0.5})


def written_dates(random):
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 80), "D")
    frame = pd.DataFrame({"day": days.strftime("%Y-%m-%d"), "x": random.normal(size=80)})
    frame.loc[3, "day"] = None
    return frame


TABLES = {
    make.__name__: make
    for make in (
        mixed,
        numeric,
        one_number,
        one_category,
        with_constants,
        fifty_columns,
        hostile,
        written_dates,
    )
}
HEADINGS = [
    "How well the model fits this table",
    "Columns",
    "Dependence",
    "Unusual rows",
    "Training and structure",
]
BOUNDS = {"share": sub.tables.Continuous(0, 1), "income": sub.tables.Continuous(0)}


def fitted(frame, **settings):
    columns = {name: kind for name, kind in BOUNDS.items() if name in frame} or None
    model = sub.SubtractiveMixture(
        3, schema=columns, max_epochs=2, random_state=0, **{"structure": "binary", **settings}
    )
    return model.fit(frame)


@pytest.fixture(scope="module")
def mixed_context():
    frame = mixed(np.random.default_rng(0))
    return Context.of(fitted(frame), frame, 0)


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """The page of a table, written once."""

    @functools.cache
    def write(make):
        frame = make(np.random.default_rng(0))
        page = tmp_path_factory.mktemp(make.__name__) / "page.html"
        sub.write_report(fitted(frame), frame, page)
        return page

    return write


@pytest.fixture
def blank_pictures(monkeypatch):
    """Pictures take most of the time of a page, and some tests read only its words."""
    monkeypatch.setattr(blocks, "svg", lambda figure: b"<svg/>")


class Reader(HTMLParser):
    """Collects the tags of a page, and complains of those that are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def pictures(reader):
    prefix = "data:image/svg+xml;base64,"
    for image in reader.named("img"):
        assert image["src"].startswith(prefix)
        assert image["alt"]
        yield base64.b64decode(image["src"].removeprefix(prefix))


# What has a page of its own only to be seen whole; the others show each of its columns.
LONG = (mixed, numeric, fifty_columns, one_category)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=pytest.mark.slow if make in LONG else [], id=name)
        for name, make in TABLES.items()
    ],
)
def test_every_table_becomes_a_page_that_stands_alone(make, page_of):
    page = page_of(make).read_text(encoding="utf-8")
    reader = Reader(page)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == HEADINGS
    policy = reader.named("meta")[1]  # after the charset, before anything it could forbid
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"].startswith("default-src 'none'; img-src data:; style-src")
    assert "script-src" not in policy["content"]
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert all(link["href"].startswith("#") for link in reader.named("a"))
    assert "url(" not in page
    assert "can only add" not in page  # which is said of monotonic models
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert not re.search(r"\.0*[1-9]\d{5,}", "\n".join(reader.words))  # six digits that matter
    assert not re.search(r"\b(nan|None|inf)\b", "\n".join(reader.words))
    for svg in pictures(reader):
        root = ElementTree.fromstring(svg)
        assert not root.findall(".//{http://www.w3.org/2000/svg}script")


def test_names_and_values_are_shown_as_they_are_and_never_as_markup(page_of):
    page = page_of(hostile).read_text(encoding="utf-8")
    assert "<script" not in page
    words = "\n".join(Reader(page).words)
    assert SCRIPT in words
    assert "日本語 🙂 $x_1$" in words
    assert "a$b$c" in words
    assert "&amp;" in words


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("monotonic", one_number),
        pytest.param("squared", written_dates, marks=pytest.mark.slow),
        pytest.param("squared", mixed, marks=pytest.mark.slow),
    ],
)
def test_the_same_input_gives_the_same_bytes(kind, make, page_of, tmp_path):
    frame = make(np.random.default_rng(0))
    model = fitted(frame, kind=kind)
    model.save(tmp_path / "model")
    if kind == "squared":
        page = page_of(make).read_bytes()
    else:
        sub.write_report(model, frame, tmp_path / "one.html")
        page = (tmp_path / "one.html").read_bytes()
    sub.write_report(sub.load(tmp_path / "model"), frame, tmp_path / "two.html")
    assert page == (tmp_path / "two.html").read_bytes()
    assert (b"can only add" in page) == (kind == "monotonic")


@pytest.mark.usefixtures("blank_pictures")
def test_a_mixture_shows_its_first_tree(tmp_path):
    frame = numeric(np.random.default_rng(0)).iloc[:, :3]
    sub.write_report(fitted(frame, n_structures=2), frame, tmp_path / "page.html")
    assert "mixes 2 such trees" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("blank_pictures")
def test_full_covariances_and_impossible_rows_are_told(tmp_path):
    frame = numeric(np.random.default_rng(0)).iloc[:, :2].assign(five=5.0)
    model = fitted(frame, structure="flat")
    frame.loc[3, "five"] = 6.0
    sub.write_report(model, frame, tmp_path / "page.html")
    words = "\n".join(Reader((tmp_path / "page.html").read_text(encoding="utf-8")).words)
    assert "All columns meet at once" in words
    assert "The model rules out 1 row of the table" in words
    assert "1\nimpossible rows, not in the mean" in words


def test_tiny_tables_and_columns_without_values_are_shown(tmp_path):
    frame = mixed(np.random.default_rng(0))[["city", "income", "height"]]
    few = frame.iloc[1:2].assign(height=np.nan)
    sub.write_report(fitted(frame), few, tmp_path / "page.html")
    assert "rows are complete" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_columns_are_drawn_in_the_units_of_the_table(mixed_context):
    for variable in mixed_context.continuous:
        found = mixed_context.marginals[mixed_context.name(variable)]
        assert mixed_context.limits(variable) == (found.points[0], found.points[-1])
    assert mixed_context.states(mixed_context.schema.place["owner"]) == ["false", "true"]


def test_samples_are_compared_as_they_would_be_recorded(mixed_context):
    recorded = as_recorded(mixed_context, mixed_context.samples)
    age = mixed_context.schema.place["age"]
    drawn = mixed_context.column(age).decode(recorded[:, age])
    np.testing.assert_array_equal(drawn, np.round(drawn))
    again = as_recorded(mixed_context, recorded)
    np.testing.assert_allclose(again, recorded, rtol=0, atol=1e-9)


def noise(size, seed):
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(size, 2)), columns=["a", "b"])


@pytest.fixture(scope="module")
def normal():
    """A model of normal numbers, as good as they are."""
    model = sub.SubtractiveMixture(1, structure="flat", max_epochs=5, random_state=0)
    return model.fit(noise(2000, 0))


def test_a_classifier_tells_wrong_samples_and_not_right_ones(normal):
    model = normal
    right = classifier_auc(Context.of(model, noise(1000, 1), 0))
    assert 0.42 < right < 0.58  # the standard error of a guess is 0.013
    wrong = noise(1000, 1) @ np.array([[1, 1], [0.0, 0.3]])
    assert classifier_auc(Context.of(model, wrong.set_axis(["a", "b"], axis=1), 0)) > 0.8


def test_the_verdict_follows_the_worst_measurement(normal):
    model = normal
    right = measure(Context.of(model, noise(1000, 1), 0))
    assert right.verdict == "The model fits this table well."
    assert right.calibrated.all()
    wrong = measure(Context.of(model, noise(1000, 1) * [1.0, 0.5], 0))
    assert wrong.verdict == "The model fits this table poorly."
    assert list(wrong.calibrated.items()) == [("b", False), ("a", True)]
    few = measure(Context.of(model, noise(20, 1), 0))
    assert few.verdict.startswith("There are too few rows")
    assert (
        Fidelity(right.pit, 0.7, right.questions).verdict == "The model fits this table roughly."
    )


@pytest.mark.usefixtures("blank_pictures")
def test_the_page_says_what_it_found_in_words(tmp_path):
    train = noise(500, 0)
    model = sub.SubtractiveMixture(1, structure="flat", max_epochs=5, random_state=0).fit(train)
    sub.write_report(model, noise(200, 1), tmp_path / "page.html")
    words = " ".join(Reader((tmp_path / "page.html").read_text(encoding="utf-8")).words)
    assert "The model fits this table" in words
    assert "AUC 0." in words
    assert "of 2 columns" in words
    assert "of answers to random questions agree with the table" in words


def gaussian_scores(rows, mean, covariance):
    """Log-densities of a Gaussian, from its formula."""
    away = rows - mean
    distance = (away * np.linalg.solve(covariance, away.T).T).sum(1)
    return -0.5 * (distance + np.linalg.slogdet(2 * np.pi * covariance)[1])


def test_a_gaussian_baseline_is_the_gaussian_of_the_training_rows(monkeypatch):
    monkeypatch.setattr(baselines, "SIZES", (1,))
    frame = numeric(np.random.default_rng(0)) * [1.0, 100.0, 0.01, 1.0] + 3.0
    context = Context.of(fitted(frame), frame, 0)
    result = baselines.compare(context)
    train, valid, test = (frame.to_numpy()[rows] for rows in baselines._split(np.arange(90), 0))
    assert (len(train) + len(valid), len(test)) == (result.num_train, result.num_test) == (72, 18)
    # scikit-learn adds a millionth to the variances, here to those of standardised columns.
    covariance = np.cov(train.T, bias=True) + 1e-6 * np.diag(train.var(0))
    model, first, second = result.rivals
    full = gaussian_scores(test, train.mean(0), covariance)
    np.testing.assert_allclose(first.scores, full, rtol=1e-7, atol=1e-7)
    diagonal = gaussian_scores(test, train.mean(0), np.diag(np.diag(covariance)))
    np.testing.assert_allclose(second.scores, diagonal, rtol=1e-7, atol=1e-7)
    scores = context.model.score_samples(pd.DataFrame(test, columns=frame.columns))
    np.testing.assert_allclose(model.scores, scores, rtol=1e-9, atol=1e-9)


def test_the_model_is_compared_on_continuous_columns_of_complete_rows(mixed_context):
    result = baselines.compare(mixed_context)
    rows = np.flatnonzero(mixed_context.table.columns[2].missing == 0)
    test = baselines._split(rows, 0)[2]
    names = [mixed_context.name(variable) for variable in mixed_context.continuous]
    frame = mixed(np.random.default_rng(0)).iloc[test][names]
    expected = mixed_context.model.marginal(names).score_samples(frame)
    np.testing.assert_allclose(result.rivals[0].scores, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("blank_pictures")
def test_columns_that_follow_from_others_are_told(tmp_path):
    random = np.random.default_rng(0)
    town = random.integers(0, 3, 120)
    frame = pd.DataFrame({"town": np.array(["Oslo", "Bergen", "Molde"])[town], "code": 10 + town})
    frame = frame.assign(rent=random.normal(9, 2, 120), food=random.normal(5, 1, 120))
    frame = frame.assign(costs=frame.rent + frame.food)
    sub.write_report(fitted(frame), frame, tmp_path / "rules.html")
    words = (tmp_path / "rules.html").read_text()
    assert "town determines code; code determines town; costs = rent + food." in words
    frame = frame.drop(columns=["code", "costs"])
    sub.write_report(fitted(frame), frame, tmp_path / "none.html")
    assert "follow from others" not in (tmp_path / "none.html").read_text()


def test_dependence_is_found_where_it_is():
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 3))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 0] ** 3, "d": x[:, 2]})
    context = Context.of(fitted(frame), frame, 0)
    found = mutual_information(context)
    np.testing.assert_allclose(found[0, 2], np.log(8), rtol=0, atol=0.01)
    np.testing.assert_allclose(found[0, 1], 0.0, rtol=0, atol=0.01)
    assert sorted(strongest(found, [0, 1, 2, 3], 2)) == [0, 2]
    assert len(set(strongest(found, [0, 1, 2, 3], 4))) == 4


def test_what_is_no_model_of_a_table_is_refused(tmp_path):
    density = sub.SquaredCircuit(sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, seed=0))
    with pytest.raises(ValueError, match="a report shows a SubtractiveMixture"):
        sub.write_report(density, torch.zeros(3, 2), tmp_path / "page.html")
    frame = one_number(np.random.default_rng(0))
    with pytest.raises(FileNotFoundError, match="does not exist. Create it first"):
        sub.write_report(fitted(frame), frame, tmp_path / "nowhere" / "page.html")
    with pytest.raises(ValueError, match="feature names"):
        sub.write_report(fitted(frame), frame.rename(columns=str.upper), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("blank_pictures")
def test_the_command_writes_the_page_and_prints_json(tmp_path, capsys):
    frame = one_number(np.random.default_rng(0))
    frame.to_csv(tmp_path / "data.csv", index=False)
    fitted(frame).save(tmp_path / "model")
    page = tmp_path / "page.html"
    code = main(["report", str(tmp_path / "model"), str(tmp_path / "data.csv"), "-o", str(page)])
    assert code == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"report": str(page), "rows": 80, "columns": 1}
    words = page.read_text(encoding="utf-8")
    assert "<h1>data.csv</h1>" in words
    assert "80 rows, 1 column<" in words
    Reader(words)


def test_printed_json_has_null_where_a_number_is_not_finite(tmp_path, capsys):
    model = fitted(with_constants(np.random.default_rng(0)))
    model.history_.best_score = float("-inf")
    model.save(tmp_path / "model")
    assert main(["info", str(tmp_path / "model")]) == 0

    def refuse(word):
        raise AssertionError(word)

    answer = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert answer["best_validation_score"] is None


@pytest.mark.parametrize(
    ("make", "width"),
    [
        pytest.param(one_number, 1280, id="wide"),
        pytest.param(hostile, 400, id="phone"),
        pytest.param(mixed, 1280, marks=pytest.mark.slow, id="wide and long"),
    ],
)
def test_a_browser_shows_every_picture_and_has_no_complaints(make, width, page_of):
    page = page_of(make)
    count = len(Reader(page.read_text(encoding="utf-8")).named("img"))
    facts = look_at(page, width)
    assert facts["console"] == []
    assert [name for name in facts["requests"] if not name.startswith("data:")] == []
    assert facts["scripts"] == 0
    assert len(facts["images"]) == count
    assert np.min(facts["images"]) > 50  # pictures have a size, by themselves and on the page
    assert facts["width"][0] <= facts["width"][1]  # nothing sticks out sideways
    pixels = matplotlib.image.imread(photograph(page, width))
    colours = np.round(255 * pixels[..., :3]).astype(int) @ [2**16, 2**8, 1]
    assert len(np.unique(colours)) > 100
    assert (pixels[..., :3].min(-1) < 0.5).mean() > 0.01


@pytest.mark.slow
def test_a_report_of_five_hundred_columns_ends_and_says_what_it_left_out(tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(120, 500)), columns=[f"c{k}" for k in range(500)])
    model = sub.SubtractiveMixture(2, max_epochs=1, structure="binary", random_state=0)
    path = tmp_path / "page.html"
    sub.write_report(model.fit(table), table, path)
    words = " ".join(path.read_text(encoding="utf-8").split())
    for limit in (
        "It sees the first 100 of 500 columns",
        "The first 40 of 500 columns are drawn",
        "the first 200 of 500 columns are compared",
        "the first 12 of 500 columns",
        "the 24 most dependent columns",
        "of 30",  # questions
    ):
        assert limit in words
