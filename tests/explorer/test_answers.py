"""What the explorer answers is what the model and the table say."""

import numpy as np
import pandas as pd
import pytest

import subtractive as sub
from subtractive.explorer.answers import Answers
from subtractive.explorer.selection import Selection

pytestmark = [
    pytest.mark.filterwarnings("ignore::subtractive.tables.column_types.DataWarning"),
]
KINDS = {"rain": sub.tables.Continuous(lower=0, atoms=[0]), "height": sub.tables.Continuous()}


def make_table(size=160):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "city": random.choice(["Oslo", "Bergen", "<b>Å</b>"], size),
            "height": random.normal(170, 10, size),
            "rain": np.where(random.random(size) < 0.5, 0.0, random.exponential(3, size)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.permutation(size), "D"),
            "fixed": 5.0,
        }
    )
    table.loc[::9, "height"] = np.nan
    return table


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(
    scope="module", params=[{}, {"kind": "monotonic", "n_structures": 2}], ids=["squared", "trees"]
)
def model(request, table):
    settings = {"structure": "binary", "max_epochs": 2, "random_state": 0, **request.param}
    return sub.SubtractiveMixture(3, schema=KINDS, **settings).fit(table)


@pytest.fixture(scope="module")
def answers(model, table):
    return Answers.of(model, table, "a file.model")


# Selections of the page beside the evidence that they are.
SELECTIONS = {
    "nothing": ({}, None),
    "states": ({"city": {"states": [2, 0]}}, {"city": ["<b>Å</b>", "Oslo"]}),
    "interval": ({"height": {"range": [160, 175]}}, {"height": (160.0, 175.0)}),
    "open interval": ({"height": {"range": [None, 175]}}, {"height": (None, 175.0)}),
    "value": ({"height": {"value": 171.5}}, {"height": 171.5}),
    "atom": ({"rain": {"atoms": [0]}}, {"rain": [0.0]}),
    "several": (
        {"height": {"range": [165, None]}, "city": {"states": [1]}},
        {"height": (165.0, None), "city": ["Bergen"]},
    ),
}


@pytest.fixture(params=SELECTIONS.values(), ids=SELECTIONS)
def selected(request, answers):
    sent, given = request.param
    order = {state: place for place, state in enumerate(answers.columns[0].states)}
    if "city" in sent:  # the states of the page are in the order of the model
        sent = {**sent, "city": {"states": [order[value] for value in given["city"]]}}
    return sent, given


def test_curves_are_the_conditional_marginals(answers, model, selected):
    sent, given = selected
    others = answers.curves({"given": sent})["columns"]
    selected = answers.selected({"given": sent})["columns"]
    told = model.marginals(given)
    events = {key for key, one in sent.items() if "value" not in one}
    assert set(selected) == events
    assert set(others) == set(told["column"]) - (events if answers.drawn.forest is None else set())
    for name, part in told.groupby("column", sort=False):
        by_value = part.sort_values("value") if name != "city" else part
        shown = {**others, **selected}[name]
        density = by_value["density"].dropna().to_numpy()[::2]
        digits = 1e-5 * np.max(density, initial=0)  # as many as a picture shows
        np.testing.assert_allclose(shown["density"], density, rtol=0, atol=digits)
        probability = part["probability"].dropna().to_numpy()
        np.testing.assert_allclose(shown["probability"], probability, rtol=0, atol=1e-5)


def test_the_probability_is_that_of_the_selection(answers, model, selected):
    sent, given = selected
    found = answers.curves({"given": sent})["probability"]
    if given is None or "value" in sent.get("height", {}):
        assert found is None
    else:
        np.testing.assert_allclose(found, model.probability(given), rtol=1e-12, atol=0)


def test_an_event_beside_an_exact_value_has_its_conditional_probability(answers, model):
    sent = {"height": {"value": 170}, "rain": {"atoms": [0]}}
    expected = model.probability({"rain": [0]}, given={"height": 170.0})
    found = answers.curves({"given": sent})["probability"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


def test_rows_of_the_table_are_those_that_are_selected(answers, table):
    sent = {"height": {"range": [160, None]}, "rain": {"atoms": [0]}}
    rows = table[(table["height"] >= 160) & (table["rain"] == 0)]
    data = answers.curves({"given": sent})["data"]
    assert (data["rows"], data["of"]) == (len(rows), len(table))
    city = next(c for c in answers.columns if c.key == "city")
    shares = [(rows["city"] == state).mean() for state in city.states]
    np.testing.assert_allclose(data["columns"]["city"]["shares"], shares, rtol=1e-12, atol=0)
    assert data["columns"]["rain"]["shares"] == [1.0]
    assert sum(data["columns"]["rain"]["heights"]) == 0


def test_bars_of_the_table_have_the_area_that_the_atoms_leave(answers, table):
    data = answers.curves({})["data"]["columns"]["rain"]
    shown = next(c for c in answers.columns if c.key == "rain")
    inside = ((table["rain"] > 0) & (table["rain"] < shown.edges[-1])).mean()
    area = np.sum(np.array(data["heights"]) * np.diff(shown.edges))
    np.testing.assert_allclose(area, inside, rtol=1e-12, atol=0)
    np.testing.assert_allclose(data["shares"], [(table["rain"] == 0).mean()], rtol=1e-12, atol=0)


def test_rows_near_an_exact_value_count(answers, table):
    data = answers.curves({"given": {"height": {"value": 170}}})["data"]
    near = data["reach"]["height"]
    assert 0 < near < 5
    assert data["rows"] == int((np.abs(table["height"] - 170) <= near).sum())


@pytest.mark.parametrize("keys", [["rain", "city"], []])
def test_some_columns_have_the_curves_and_bars_that_they_have_among_all(answers, selected, keys):
    sent, _ = selected
    every, some = answers.curves({"given": sent}), answers.curves({"given": sent, "columns": keys})
    assert some["columns"].keys() == every["columns"].keys() & set(keys)
    for key, curve in some["columns"].items():
        for part, numbers in curve.items():
            np.testing.assert_allclose(numbers, every["columns"][key][part], rtol=1e-9)
    assert (some["probability"] is None) == (every["probability"] is None)
    if every["probability"] is not None:
        assert some["probability"] == pytest.approx(every["probability"], rel=1e-9)
    if "data" in every:
        assert some["data"]["rows"] == every["data"]["rows"]
        assert some["data"]["columns"] == {key: every["data"]["columns"][key] for key in keys}


def test_columns_are_a_list_of_keys(answers):
    with pytest.raises(ValueError, match="columns must be a list of keys, got 'rain'"):
        answers.curves({"columns": "rain"})


def test_summaries_are_means_and_intervals(answers, model, selected):
    sent, given = selected
    found = answers.summary({"given": sent})["columns"]
    means, ends = model.mean(given), model.quantiles([0.05, 0.5, 0.95], given)
    for name in ("height", "rain"):
        if name in ends:
            expected = [means[name], *ends[name]]
            shown = [found[name][part] for part in ("mean", "low", "median", "high")]
            np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-12)
    low = pd.Timestamp(found["day"]["low"], unit="us")
    assert low == pd.Timestamp(ends["day"].iloc[0])


def test_samples_are_samples_given_the_selection(answers, selected):
    sent, given = selected
    drawn = answers.samples({"given": sent, "seed": 3})
    rows = pd.DataFrame(drawn["rows"], columns=drawn["columns"])
    assert len(rows) == 6
    assert answers.samples({"given": sent, "seed": 3}) == drawn
    assert answers.samples({"given": sent, "seed": 4}) != drawn
    if given and "city" in given:
        assert set(rows["city"]) <= set(given["city"])
    if given and "rain" in given:
        assert set(rows["rain"]) == {"0"}


@pytest.mark.parametrize("pair", [("height", "rain"), ("city", "height"), ("day", "height")])
def test_the_joint_density_is_that_of_the_model(answers, model, pair):
    found = answers.joint({"given": {"rain": {"range": [0, 5]}}, "x": pair[0], "y": pair[1]})
    columns = {shown.key: shown for shown in answers.columns}
    lines = [
        line or list(columns[key].states) for line, key in zip(found["lines"], pair, strict=True)
    ]
    assert len(found["heights"]) == len(lines[0]) * len(lines[1])
    density = model.condition({"rain": (0, 5)}).marginal(list(pair))
    for i, j in [(0, 1), (len(lines[0]) - 1, 20), (1, 30)]:
        row = pd.DataFrame({pair[0]: [lines[0][i]], pair[1]: [lines[1][j]]})
        expected = np.exp(density.score_samples(row)[0])
        shown = found["heights"][i * len(lines[1]) + j]
        np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-5 * max(found["heights"]))
    assert all(len(side) == len(found["dots"][0]) for side in found["dots"])


def test_lines_to_copy_run_and_say_the_same(answers, model, selected):
    sent, given = selected
    lines = answers.curves({"given": sent})["python"].splitlines()
    assert lines[1] == "model = sub.load('a file.model')"
    names = {"model": model}
    exec("\n".join(lines[2:]), names)
    assert names.get("given") == given


def test_the_command_asks_for_the_selection(answers):
    sent = {"height": {"range": [160, None]}, "rain": {"atoms": [0]}}
    assert answers.curves({"given": sent})["shell"] == (
        "subtractive query 'a file.model' --probability 'height>=160.0' --probability rain=0.0"
    )
    found = answers.curves({"given": {"height": {"value": 170}}})["shell"]
    assert found == "subtractive sample 'a file.model' -n 10 --given height=170.0"


def test_what_the_command_line_cannot_say_is_not_offered(answers, monkeypatch):
    def refuse(phrases, schema):
        raise ValueError("cannot read it")

    sent = {"given": {"rain": {"atoms": [0]}}}
    for parse in (lambda phrases, schema: {"rain": [1.0]}, refuse):
        monkeypatch.setattr("subtractive.explorer.selection.parse_events", parse)
        assert answers.curves(sent)["shell"] is None


def test_dates_are_copied_as_dates(answers, model):
    start = float(pd.Timestamp("2020-02-01").value // 1000)
    python = answers.curves({"given": {"day": {"range": [start, None]}}})["python"]
    assert "given = {'day': ('2020-02-01', None)}" in python
    names = {"model": model}
    exec("\n".join(python.splitlines()[2:]), names)


def test_a_page_without_a_table_has_no_rows(model):
    answers = Answers.of(model, None, None)
    page = answers.page()
    assert page["rows"] is None
    assert "data" not in page["start"]
    assert "dots" not in answers.joint({"x": "height", "y": "rain"})
    assert [column["key"] for column in page["columns"]] == ["city", "height", "rain", "day"]


def test_conditional_densities_can_be_explored(model):
    page = Answers.of(model.condition({"height": 170.0}), None, None).page()
    assert [column["key"] for column in page["columns"]] == ["city", "rain", "day"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "a selection is an object"),
        ({"age": {"value": 3}}, "there is no column 'age'"),
        ({"city": {"states": [7]}}, "column 'city' cannot be"),
        ({"city": {"states": []}}, "column 'city' cannot be"),
        ({"city": {"value": 1}}, "column 'city' cannot be"),
        ({"city": "Oslo"}, "column 'city' cannot be"),
        ({"height": {"range": [3, 1]}}, "column 'height' cannot be"),
        ({"height": {"range": [None, None]}}, "column 'height' cannot be"),
        ({"height": {"value": "tall"}}, "column 'height' cannot be"),
        ({"height": {"value": float("nan")}}, "column 'height' cannot be"),
        ({"height": {"states": [0]}}, "column 'height' cannot be"),
    ],
)
def test_selections_that_make_no_sense_are_refused(answers, given, message):
    with pytest.raises(ValueError, match=message):
        Selection.read(answers.columns, given)


def test_two_different_columns_are_needed_for_a_joint_density(answers):
    for pair in (("height", "height"), ("height", "age")):
        with pytest.raises(ValueError, match="choose two different columns"):
            answers.joint({"x": pair[0], "y": pair[1]})


def test_only_models_of_tables_are_explored(model, table):
    with pytest.raises(ValueError, match="the explorer shows a model of a table"):
        Answers.of(model.density_, None, None)
    with pytest.raises(ValueError, match="feature names"):
        Answers.of(model, table.rename(columns=str.upper), None)


def mass(joint):
    """What a picture of a joint density holds."""
    cells = [line[1] - line[0] for line in joint["lines"]]
    return np.sum(joint["heights"]) * np.prod(cells)


def test_intervals_of_columns_with_full_covariances_are_answered():
    random = np.random.default_rng(0)
    array = random.normal(size=(300, 4)) @ random.normal(size=(4, 4))
    table = pd.DataFrame(array, columns=list("abcd"))
    model = sub.SubtractiveMixture(2, structure="flat", max_epochs=2, random_state=0).fit(table)
    answers = Answers.of(model, table, None)
    one = {"a": {"range": [-0.5, 1.0]}}
    found = answers.curves({"given": one})
    assert found["probability"] == pytest.approx(model.probability({"a": (-0.5, 1.0)}), abs=1e-6)
    own = answers.selected({"given": one})
    curves = {**found["columns"], **own["columns"]}
    page = {column["key"]: column["points"] for column in answers.page()["columns"]}
    for key in "abcd":
        heights = np.array(curves[key]["density"])
        assert np.trapezoid(heights, page[key]) == pytest.approx(1.0, abs=0.02)
    assert mass(answers.joint({"given": one, "x": "b", "y": "c"})) == pytest.approx(1.0, abs=0.02)
    # The edges of the selection are inside of cells of the picture.
    assert mass(answers.joint({"given": one, "x": "a", "y": "c"})) == pytest.approx(1.0, abs=0.1)
    low, high = model.quantile("b", [0.05, 0.95], given={"a": (-0.5, 1.0)})
    summary = answers.summary({"given": one})["columns"]["b"]
    assert [summary["low"], summary["high"]] == pytest.approx([low, high], abs=1e-9)
    more = {**one, "b": {"range": [None, 1.0]}}
    assert 0 < answers.curves({"given": more})["probability"] < found["probability"]
    assert mass(answers.joint({"given": more, "x": "b", "y": "c"})) == pytest.approx(1.0, abs=0.1)
    with pytest.raises(ValueError, match="Clear one of these"):
        answers.joint({"given": more, "x": "c", "y": "d"})
    assert len(answers.samples({"given": more, "seed": 0})["rows"]) == 6
