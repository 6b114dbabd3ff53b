"""A report is one page that shows every table, shows the truth, and needs nothing else."""

import base64
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
from scipy.integrate import trapezoid

import subtractive as sub
from subtractive.cli.main import main
from subtractive.report import baselines
from subtractive.report.dependence import mutual_information, strongest
from subtractive.report.page import SECTIONS
from subtractive.report.structure_figures import outline
from subtractive.report.view import (
    View,
    density_of_pairs,
    density_of_values,
    probabilities,
)

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
    )
}
BOUNDS = {"share": sub.tables.Continuous(0, 1), "income": sub.tables.Continuous(0)}


def fitted(frame, **settings):
    columns = {name: kind for name, kind in BOUNDS.items() if name in frame} or None
    model = sub.SubtractiveMixture(
        3, schema=columns, max_epochs=2, random_state=0, **{"structure": "binary", **settings}
    )
    return model.fit(frame)


@pytest.fixture(scope="module")
def mixed_view():
    frame = mixed(np.random.default_rng(0))
    return View.of(fitted(frame), frame, 0)


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


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_every_table_becomes_a_page_that_stands_alone(make, tmp_path):
    frame = make(np.random.default_rng(0))
    sub.write_report(fitted(frame), frame, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    reader = Reader(page)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == list(SECTIONS)
    policy = reader.named("meta")[1]  # after the charset, before anything it could forbid
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"].startswith("default-src 'none'; img-src data:; style-src")
    assert "script-src" not in policy["content"]
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert all(link["href"].startswith("#") for link in reader.named("a"))
    assert "url(" not in page
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert not re.search(r"\.0*[1-9]\d{5,}", "\n".join(reader.words))  # six digits that matter
    assert not re.search(r"\b(nan|None|inf)\b", "\n".join(reader.words))
    for svg in pictures(reader):
        root = ElementTree.fromstring(svg)
        assert not root.findall(".//{http://www.w3.org/2000/svg}script")


def test_names_and_values_are_shown_as_they_are_and_never_as_markup(tmp_path):
    frame = hostile(np.random.default_rng(0))
    sub.write_report(fitted(frame), frame, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    words = "\n".join(Reader(page).words)
    assert SCRIPT in words
    assert "日本語 🙂 $x_1$" in words
    assert "a$b$c" in words
    assert "&amp;" in words


@pytest.mark.parametrize(("kind", "make"), [("squared", mixed), ("monotonic", one_number)])
def test_the_same_input_gives_the_same_bytes(kind, make, tmp_path):
    frame = make(np.random.default_rng(0))
    model = fitted(frame, kind=kind)
    model.save(tmp_path / "model")
    sub.write_report(model, frame, tmp_path / "one.html")
    sub.write_report(sub.load(tmp_path / "model"), frame, tmp_path / "two.html")
    page = (tmp_path / "one.html").read_bytes()
    assert page == (tmp_path / "two.html").read_bytes()
    assert (b"can only add" in page) == (kind == "monotonic")


def test_a_mixture_shows_its_first_tree(tmp_path):
    frame = numeric(np.random.default_rng(0))
    sub.write_report(fitted(frame, n_structures=2), frame, tmp_path / "page.html")
    assert "mixes 2 such trees" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_full_covariances_and_impossible_rows_are_told(tmp_path):
    frame = numeric(np.random.default_rng(0)).assign(five=5.0)
    model = fitted(frame, structure="flat")
    frame.loc[3, "five"] = 6.0
    sub.write_report(model, frame, tmp_path / "page.html")
    words = "\n".join(Reader((tmp_path / "page.html").read_text(encoding="utf-8")).words)
    assert "All columns meet at once" in words
    assert "1 row of the table cannot be" in words
    assert "1\nimpossible rows, not in the mean" in words


def test_tiny_tables_and_columns_without_values_are_shown(tmp_path):
    frame = mixed(np.random.default_rng(0))
    few = frame.iloc[1:2].assign(height=np.nan)
    sub.write_report(fitted(frame), few, tmp_path / "page.html")
    assert "rows are complete" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["income", "share", "height"])
def test_curves_are_densities_in_the_units_of_the_table(mixed_view, name):
    variable = mixed_view.schema.place[name]
    ends = {"income": (1.0, 1e7), "share": (0.0, 1.0), "height": (-500.0, 900.0)}[name]
    spaced = np.geomspace if name == "income" else np.linspace
    points = spaced(*ends, 20_001)
    area = trapezoid(density_of_values(mixed_view, variable, points), points)
    np.testing.assert_allclose(area, 1.0, rtol=0, atol=1e-4)
    scores = mixed_view.model.marginal([name]).score_samples(pd.DataFrame({name: points[1:-1]}))
    curve = density_of_values(mixed_view, variable, points[1:-1])
    np.testing.assert_allclose(curve, np.exp(scores), rtol=1e-6, atol=1e-12)


def test_shades_are_densities_in_the_units_of_the_table(mixed_view):
    pair = tuple(mixed_view.schema.place[name] for name in ("share", "height"))
    values = np.random.default_rng(1).uniform((0.05, 140), (0.9, 200), (50, 2))
    shades = density_of_pairs(mixed_view, pair, (values[:, 0], values[:, 1]))
    asked = pd.DataFrame(values, columns=["share", "height"])
    scores = mixed_view.model.marginal(["share", "height"]).score_samples(asked)
    np.testing.assert_allclose(shades, np.exp(scores), rtol=1e-9, atol=1e-15)


def test_bars_are_the_probabilities_of_states(mixed_view):
    bars = probabilities(mixed_view, mixed_view.schema.place["city"])
    asked = [
        mixed_view.model.probability({"city": value})
        for value in mixed_view.column(mixed_view.schema.place["city"]).values
    ]
    np.testing.assert_allclose(bars, asked, rtol=1e-9, atol=1e-12)
    assert mixed_view.states(mixed_view.schema.place["owner"]) == ["false", "true"]


def gaussian_scores(rows, mean, covariance):
    """Log-densities of a Gaussian, from its formula."""
    away = rows - mean
    distance = (away * np.linalg.solve(covariance, away.T).T).sum(1)
    return -0.5 * (distance + np.linalg.slogdet(2 * np.pi * covariance)[1])


def test_a_gaussian_baseline_is_the_gaussian_of_the_training_rows(monkeypatch):
    monkeypatch.setattr(baselines, "SIZES", (1,))
    frame = numeric(np.random.default_rng(0)) * [1.0, 100.0, 0.01, 1.0] + 3.0
    view = View.of(fitted(frame), frame, 0)
    result = baselines.compare(view)
    train, valid, test = (frame.to_numpy()[rows] for rows in baselines._split(np.arange(90), 0))
    assert (len(train) + len(valid), len(test)) == (result.num_train, result.num_test) == (72, 18)
    # scikit-learn adds a millionth to the variances, here to those of standardised columns.
    covariance = np.cov(train.T, bias=True) + 1e-6 * np.diag(train.var(0))
    model, first, second = result.rivals
    full = gaussian_scores(test, train.mean(0), covariance)
    np.testing.assert_allclose(first.scores, full, rtol=1e-7, atol=1e-7)
    diagonal = gaussian_scores(test, train.mean(0), np.diag(np.diag(covariance)))
    np.testing.assert_allclose(second.scores, diagonal, rtol=1e-7, atol=1e-7)
    scores = view.model.score_samples(pd.DataFrame(test, columns=frame.columns))
    np.testing.assert_allclose(model.scores, scores, rtol=1e-9, atol=1e-9)


def test_the_model_is_compared_on_continuous_columns_of_complete_rows(mixed_view):
    result = baselines.compare(mixed_view)
    rows = np.flatnonzero(mixed_view.table.columns[2].missing == 0)
    test = baselines._split(rows, 0)[2]
    names = [mixed_view.name(variable) for variable in mixed_view.continuous]
    frame = mixed(np.random.default_rng(0)).iloc[test][names]
    expected = mixed_view.model.marginal(names).score_samples(frame)
    np.testing.assert_allclose(result.rivals[0].scores, expected, rtol=1e-9, atol=1e-9)


def test_dependence_is_found_where_it_is():
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 3))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 0] ** 3, "d": x[:, 2]})
    view = View.of(fitted(frame), frame, 0)
    found = mutual_information(view)
    np.testing.assert_allclose(found[0, 2], np.log(8), rtol=0, atol=0.01)
    np.testing.assert_allclose(found[0, 1], 0.0, rtol=0, atol=0.01)
    assert sorted(strongest(found, [0, 1, 2, 3], 2)) == [0, 2]
    assert len(set(strongest(found, [0, 1, 2, 3], 4))) == 4


@pytest.mark.parametrize(
    "graph",
    [sub.flat(70), sub.linear_tree(70), sub.random_binary_tree(70, seed=0), sub.linear_tree(3)],
    ids=["flat", "linear", "binary", "small"],
)
def test_a_drawn_tree_has_few_leaves_which_are_all_columns(graph):
    root = outline(graph, [f"c{v}" for v in range(graph.num_variables)])
    leaves, waiting = [], [root]
    while waiting:
        branch = waiting.pop()
        waiting.extend(branch.children)
        leaves += [] if branch.children else [branch]
    assert len(leaves) == root.num_leaves == min(graph.num_variables, 30)
    assert sum(leaf.size for leaf in leaves) == graph.num_variables


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


def test_the_command_writes_the_page_and_prints_json(tmp_path, capsys):
    frame = one_number(np.random.default_rng(0))
    frame.to_csv(tmp_path / "data.csv", index=False)
    fitted(frame).save(tmp_path / "model")
    page = tmp_path / "page.html"
    code = main(["report", str(tmp_path / "model"), str(tmp_path / "data.csv"), "-o", str(page)])
    assert code == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"report": str(page), "rows": 80, "columns": 1}
    Reader(page.read_text(encoding="utf-8"))


def test_printed_json_has_null_where_a_number_is_not_finite(tmp_path, capsys):
    model = fitted(with_constants(np.random.default_rng(0)))
    model.history_.best_score = float("-inf")
    model.save(tmp_path / "model")
    assert main(["info", str(tmp_path / "model")]) == 0

    def refuse(word):
        raise AssertionError(word)

    answer = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert answer["best_validation_score"] is None


@pytest.mark.parametrize(("make", "width"), [(mixed, 1280), (hostile, 400)], ids=["wide", "phone"])
def test_a_browser_shows_every_picture_and_has_no_complaints(make, width, tmp_path):
    frame = make(np.random.default_rng(0))
    page = tmp_path / "page.html"
    sub.write_report(fitted(frame), frame, page)
    count = len(Reader(page.read_text(encoding="utf-8")).named("img"))
    facts = look_at(page, width)
    assert facts["console"] == []
    assert [name for name in facts["requests"] if not name.startswith("data:")] == []
    assert facts["scripts"] == 0
    assert len(facts["images"]) == count
    assert np.min(facts["images"]) > 50  # pictures have a size, by themselves and on the page
    assert facts["width"][0] <= facts["width"][1]  # nothing sticks out sideways
    pixels = matplotlib.image.imread(photograph(page, width))
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 100
    assert (pixels[..., :3].min(-1) < 0.5).mean() > 0.01
