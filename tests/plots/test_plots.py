"""Plots show what the model says: every curve, bar and shade is the answer to a question."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import subtractive as sub
from subtractive.learning.history import Epoch
from subtractive.plots.pit import ks_distance, pit_values
from subtractive.plots.structure import outline

matplotlib.use("agg")
pytestmark = [
    pytest.mark.filterwarnings("ignore::subtractive.tables.column_types.DataWarning"),
]
KINDS = {"rain": sub.tables.Continuous(lower=0, atoms=[0])}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    height = random.normal(170, 10, 300)
    return pd.DataFrame(
        {
            "city": np.where(height + random.normal(0, 9, 300) > 172, "Oslo", "$Bergen$"),
            "height": np.where(random.random(300) < 0.1, np.nan, height),
            "rain": np.where(random.random(300) < 0.4, 0.0, random.exponential(3, 300)),
            "whole": random.poisson(30, 300),
        }
    )


@pytest.fixture(scope="module")
def model(table):
    settings = {"structure": "binary", "max_epochs": 3, "random_state": 0}
    return sub.SubtractiveMixture(3, schema=KINDS, **settings).fit(table)


def test_a_marginal_is_the_density_over_a_histogram(model, table):
    ax = sub.plots.marginal(model, "height", data=table)
    (line,) = ax.lines
    points = line.get_xdata()
    scores = model.marginal(["height"]).score_samples(pd.DataFrame({"height": points}))
    np.testing.assert_allclose(line.get_ydata(), np.exp(scores), rtol=1e-6, atol=1e-12)
    (bars,) = ax.patches
    heights, edges, _ = bars.get_data()
    inside = table["height"].dropna().between(edges[0], edges[-1]).mean()
    np.testing.assert_allclose(np.sum(heights * np.diff(edges)), inside, rtol=1e-12, atol=0)


def test_a_marginal_follows_what_is_given(model, table):
    given = {"city": ["Oslo"]}
    ax = sub.plots.marginal(model, "height", data=table, given=given)
    points = ax.lines[0].get_xdata()
    asked = pd.DataFrame({"height": points})
    scores = model.condition(given).marginal(["height"]).score_samples(asked)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.exp(scores), rtol=1e-6, atol=1e-12)
    heights, edges, _ = ax.patches[0].get_data()
    rows = table.loc[table["city"] == "Oslo", "height"].dropna()
    expected, _ = np.histogram(rows, edges)
    np.testing.assert_allclose(heights * len(rows) * np.diff(edges), expected, rtol=0, atol=1e-9)


def test_atoms_are_bars_of_their_probability(model, table):
    ax = sub.plots.marginal(model, "rain", data=table)
    (right,) = [other for other in ax.figure.axes if other is not ax]
    heights = [bar.get_height() for bar in right.patches]
    expected = [(table["rain"] == 0).mean(), model.probability({"rain": [0]})]
    np.testing.assert_allclose(heights, expected, rtol=1e-9, atol=1e-12)
    assert right.get_ylabel() == "P(= 0)"


def test_states_are_bars_of_their_probability(model, table):
    ax = sub.plots.marginal(model, "city", data=table)
    widths = [bar.get_width() for bar in ax.patches]
    states = model.schema_.column("city").values
    shares = [(table["city"] == state).mean() for state in states]
    chances = [model.probability({"city": [state]}) for state in states]
    np.testing.assert_allclose(widths, shares + chances, rtol=1e-9, atol=1e-12)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert set(labels) == {"Oslo", r"\$Bergen\$"}  # a name, not a formula


def test_bars_of_whole_numbers_hold_as_many_of_them(model, table):
    ax = sub.plots.marginal(model, "whole", data=table)
    _, edges, _ = ax.patches[0].get_data()
    widths = np.diff(edges)
    np.testing.assert_allclose(widths, np.round(widths[0]), rtol=0, atol=1e-9)
    np.testing.assert_allclose(edges[0] % 1, 0.5, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pair", [("height", "whole"), ("city", "height"), ("rain", "city")])
def test_a_joint_density_is_that_of_the_model(model, table, pair):
    ax = sub.plots.joint(model, *pair, data=table)
    (image,) = ax.images
    shades = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    density = model.marginal(list(pair))
    for i, j in [(0, 0), (shades.shape[0] - 1, 1), (shades.shape[0] // 2, shades.shape[1] // 2)]:
        x = left + (j + 0.5) * (right - left) / shades.shape[1]
        y = bottom + (i + 0.5) * (top - bottom) / shades.shape[0]
        values = []
        for name, at in zip(pair, (x, y), strict=True):
            column = model.schema_.column(name)
            values.append(column.values[round(at)] if name == "city" else at)
        row = pd.DataFrame({pair[0]: [values[0]], pair[1]: [values[1]]})
        expected = np.exp(density.score_samples(row)[0])
        np.testing.assert_allclose(shades[i, j], expected, rtol=1e-6, atol=1e-15)
    known = table[list(pair)].dropna()
    assert len(ax.collections[0].get_offsets()) == len(known)


def test_slices_are_conditional_densities(model):
    ax = sub.plots.slices(model, "height", "city")
    assert len(ax.lines) == 2
    for line, state in zip(ax.lines, model.schema_.column("city").values, strict=True):
        density = model.condition({"city": state}).marginal(["height"])
        scores = density.score_samples(pd.DataFrame({"height": line.get_xdata()}))
        np.testing.assert_allclose(line.get_ydata(), np.exp(scores), rtol=1e-6, atol=1e-12)


def test_slices_of_states_by_numbers_are_groups_of_bars(model):
    ax = sub.plots.slices(model, "city", "height", values=[160, 180])
    heights = [bar.get_height() for bar in ax.patches]
    expected = [
        model.probability({"city": [state]}, given={"height": value})
        for value in (160, 180)
        for state in model.schema_.column("city").values
    ]
    np.testing.assert_allclose(heights, expected, rtol=1e-6, atol=1e-9)
    ax = sub.plots.slices(model, "city", "height")
    quantiles = model.quantile("height", [0.1, 0.5, 0.9])
    told = [float(text.get_text()) for text in ax.get_legend().get_texts()]
    np.testing.assert_allclose(told, quantiles, rtol=1e-5, atol=0)


def test_dependence_is_a_matrix_of_mutual_information(model):
    ax = sub.plots.dependence(model, n_samples=200)
    values = np.asarray(ax.images[0].get_array().filled(0.0))
    expected = model.dependence(n_samples=200).to_numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=0)


def gaussian_model():
    """A model whose first column is known to be a Gaussian."""
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(400, 1))
    model = sub.SubtractiveMixture(1, structure="flat", max_epochs=20, random_state=0)
    return model.fit(np.column_stack([x, x[::-1]]))


def test_probability_integral_transforms_are_those_of_the_distribution():
    model = gaussian_model()
    rows = np.random.default_rng(1).normal(3.0, 2.0, size=(50, 2))
    found = pit_values(model._view(), model._read(rows))
    mean, std = model.mean()[0], model.std()[0]
    expected = stats.norm(mean, std).cdf(rows[:, 0])
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-6)


def test_transforms_of_atoms_states_and_grids_are_uniform_for_samples_of_the_model(model):
    drawn = model.sample(2000, random_state=1)
    found = pit_values(model._view(), model._read(drawn))
    for name in found:
        # One in 10,000 right models has a larger distance.
        assert ks_distance(found[name].to_numpy()) < 2.23 / np.sqrt(2000), name
    below = found.loc[drawn["rain"] == 0, "rain"]
    assert below.max() <= model.probability({"rain": [0]}) + 1e-9
    one = pit_values(model._view(), model._read(drawn.assign(height=np.nan)))
    assert one["height"].isna().all()


def test_distances_are_those_of_kolmogorov_and_smirnov():
    uniform = np.random.default_rng(0).random(100) ** 1.3
    expected = stats.kstest(uniform, "uniform").statistic
    np.testing.assert_allclose(ks_distance(uniform), expected, rtol=1e-12, atol=0)
    assert ks_distance(np.array([np.nan])) == 0.0


def test_calibration_shows_a_column_that_is_off(model, table):
    ax = sub.plots.calibration(model, table.assign(height=table["height"] + 20))
    off = {line.get_label(): np.abs(line.get_ydata()).max() for line in ax.lines}
    assert off["height"] > 0.4
    only = sub.plots.calibration(model, table, columns=["rain"])
    labels = [text.get_text() for text in only.get_legend().get_texts()]
    assert labels == ["95 % band", "rain"]


def test_training_marks_the_best_epoch():
    epochs = [Epoch(n, -2.0 / n, -2.1 / n, 0.01, 0, 1.0) for n in range(1, 9)]
    ax = sub.plots.training(sub.History(epochs, best_epoch=7))
    train, valid, best = ax.lines
    np.testing.assert_allclose(train.get_ydata(), [row.train for row in epochs], rtol=0, atol=0)
    assert valid.get_label() == "validation"
    assert best.get_xdata() == [7]
    with pytest.raises(ValueError, match="no epochs"):
        sub.plots.training(sub.History())


def test_plots_draw_on_the_axes_they_are_given_and_return_them(model, table):
    graph = model.density_.circuit.graph
    for draw in (
        lambda ax: sub.plots.marginal(model, "rain", ax=ax),
        lambda ax: sub.plots.joint(model, "rain", "height", ax=ax),
        lambda ax: sub.plots.slices(model, "rain", "city", ax=ax),
        lambda ax: sub.plots.dependence(model, n_samples=50, ax=ax),
        lambda ax: sub.plots.calibration(model, table, ax=ax),
        lambda ax: sub.plots.training(model.history_, ax=ax),
        lambda ax: sub.plots.region_graph(graph, ax=ax),
    ):
        _, ax = plt.subplots()
        assert draw(ax) is ax
    plt.close("all")


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda m: sub.plots.marginal(m, "age"), "a marginal names"),
        (lambda m: sub.plots.marginal(m, "rain", given={"rain": 1.0}), "'rain' is given"),
        (lambda m: sub.plots.joint(m, "rain", "rain"), "two different columns"),
        (lambda m: sub.plots.joint(m, "rain", "height", given={"rain": 1.0}), "'rain' is given"),
        (lambda m: sub.plots.slices(m, "rain", "rain"), "two different columns"),
        (lambda m: sub.plots.slices(m, "rain", "height", values=[]), "1 to 8 values"),
        (lambda m: sub.plots.calibration(m, None, columns=["age"]), "calibration names"),
        (lambda m: sub.plots.region_graph(sub.flat(3), names=["a"]), "one name per variable"),
    ],
)
def test_what_cannot_be_drawn_is_refused(model, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(model)


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


def test_dates_are_written_as_dates_also_if_the_table_holds_text():
    random = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 120), "D")
    table = pd.DataFrame({"day": days, "x": random.normal(size=120)})
    for frame in (table, table.assign(day=days.strftime("%Y-%m-%d"))):
        model = sub.SubtractiveMixture(2, structure="binary", max_epochs=1, random_state=0)
        model.fit(frame)
        ax = sub.plots.marginal(model, "day", data=frame)
        assert ax.xaxis.get_major_formatter()(1577836800e6) == "2020-01-01"
        assert np.sum(ax.patches[0].get_data().values) > 0
        ax = sub.plots.joint(model, "day", "x", data=frame)
        assert ax.xaxis.get_major_formatter()(1577836800e6) == "2020-01-01"
        sub.plots.calibration(model, frame)
    plt.close("all")
