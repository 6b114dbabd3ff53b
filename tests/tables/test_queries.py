"""Everything that can be asked of a table, against sums over its joint distribution."""

import numpy as np
import pandas as pd
import pytest
import torch
from frames import quick
from scipy.stats import multivariate_normal

import subtractive as sub

RANDOM = np.random.default_rng(4)
COUNT = 500
CITY = RANDOM.choice(["Oslo", "Bergen", "Rome"], COUNT)
FRAME = pd.DataFrame(
    {
        "city": CITY,
        "rooms": RANDOM.integers(1, 6, COUNT),
        "rain": np.where(RANDOM.random(COUNT) < 0.5, 0.0, RANDOM.gamma(2.0, 3.0, COUNT).round(1)),
        "age": RANDOM.normal(np.where(CITY == "Rome", 30, 45), 6).round(),
    }
)
GIVEN = {"age": (35, 50), "city": ["Oslo", "Rome"]}
NUM_SAMPLES = 20_000


@pytest.fixture(scope="module", params=["squared", "monotonic"])
def model(request):
    return quick(kind=request.param, max_epochs=10, n_components=4).fit(FRAME)


@pytest.fixture(scope="module")
def draws(model):
    return model.sample(NUM_SAMPLES, random_state=0)


@pytest.fixture(scope="module")
def inside(draws):
    return draws[draws.age.between(35, 50) & draws.city.isin(["Oslo", "Rome"])]


def within(share, expected, count):
    """Four standard errors: a false alarm in 16,000."""
    return abs(share - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1e-4) / count)


EVENTS = {
    "an interval": ({"age": (40, None)}, lambda d: d.age >= 40),
    "a value of a grid": ({"age": 40}, lambda d: d.age == 40),
    "values of a grid": ({"age": [38, 41, 47]}, lambda d: d.age.isin([38, 41, 47])),
    "an atom": ({"rain": 0}, lambda d: d.rain == 0),
    "an atom and more": ({"rain": [0, 2.5]}, lambda d: d.rain.isin([0, 2.5])),
    "beside an atom": ({"rain": (0.1, 6)}, lambda d: d.rain.between(0.1, 6)),
    "states": ({"rooms": (2, 4)}, lambda d: d.rooms.between(2, 4)),
    "several columns": (
        {"rain": (None, 5), "rooms": [1, 5], "city": "Oslo"},
        lambda d: (d.rain <= 5) & d.rooms.isin([1, 5]) & (d.city == "Oslo"),
    ),
}


@pytest.mark.parametrize(("event", "holds"), EVENTS.values(), ids=EVENTS)
def test_probabilities_are_shares_of_samples(model, draws, inside, event, holds):
    assert within(holds(draws).mean(), model.probability(event), len(draws))
    given = model.probability(event, given=GIVEN)
    assert within(holds(inside).mean(), given, len(inside))


def test_samples_given_sets_are_inside_and_have_their_probabilities(model):
    sampled = model.sample(4000, given=GIVEN, random_state=1)
    assert list(sampled.columns) == list(FRAME.columns)
    assert sampled.age.between(35, 50).all()
    assert sampled.city.isin(["Oslo", "Rome"]).all()
    share = model.probability({"rain": [0], "age": (40, None)}, given=GIVEN)
    assert within(((sampled.rain == 0) & (sampled.age >= 40)).mean(), share, 4000)


@pytest.mark.parametrize("given", [None, GIVEN, {"age": [36, 44, 45], "rain": (0, 4)}])
def test_moments_and_quantiles_are_those_of_samples(model, given):
    drawn = model.sample(NUM_SAMPLES, given=given, random_state=2)
    mean, std = model.mean(given), model.std(given)
    for name in ("rooms", "rain", "age"):
        error = 4 * drawn[name].std() / np.sqrt(NUM_SAMPLES) + 0.05  # and what rounding does
        assert abs(mean[name] - drawn[name].mean()) <= error
        assert std[name] == pytest.approx(drawn[name].std(), rel=0.1, abs=0.3)
        for level in (0.1, 0.5, 0.9):
            value = model.quantile(name, level, given).iloc[0]
            assert model.probability({name: (None, value)}, given) >= level - 1e-6
            assert model.probability({name: (None, value - 0.1)}, given) <= level + 1e-6
    assert np.isnan(mean["city"])


def test_a_distribution_function_is_a_probability(model):
    for given in (None, GIVEN):
        heights = model.cdf("rain", [0, 2.5, 8], given)
        expected = [model.probability({"rain": (None, t)}, given) for t in (0, 2.5, 8)]
        np.testing.assert_allclose(heights, expected, rtol=0, atol=1e-9)


def test_an_interval_holds_its_level(model):
    low, high = model.interval("age", 0.8)
    assert model.probability({"age": (low, high)}) >= 0.8 - 1e-9
    assert model.quantiles([0.1, 0.9])["age"].tolist() == [low, high]


def test_an_expectation_of_a_function_is_a_sum(model):
    shares = {n: model.probability({"rooms": n}) for n in range(1, 6)}
    expected = sum(share * n**2 for n, share in shares.items())
    assert model.expectation("rooms", np.square) == pytest.approx(expected, abs=1e-9)
    assert model.expectation("rain", lambda v: v == 0) == pytest.approx(
        model.probability({"rain": (None, 0)}), abs=0.02
    )


def test_marginals_are_densities_and_probabilities(model):
    table = model.marginals(GIVEN)
    rooms = table[table.column == "rooms"]
    expected = [model.probability({"rooms": value}, GIVEN) for value in rooms.value]
    np.testing.assert_allclose(rooms.probability.astype(float), expected, rtol=0, atol=1e-9)
    age = table[(table.column == "age") & (table.density > 0)]
    scores = (
        model.condition(GIVEN)
        .marginal(["age"])
        .score_samples(pd.DataFrame({"age": age.value.astype(float).to_numpy()}))
    )
    np.testing.assert_allclose(age.density.astype(float), np.exp(scores), rtol=1e-6, atol=1e-12)


def test_predictions_are_conditional_means_and_modes(model):
    rows = FRAME.head(5)
    ages, cities = model.predict(rows, "age"), model.predict_proba(rows, "city")
    steps = np.linspace(-20.0, 120.0, 7001)
    for k, row in rows.iterrows():
        every = pd.DataFrame([row.to_dict()] * len(steps))
        heights = np.exp(model.score_samples(every.assign(age=steps)))
        assert ages[k] == pytest.approx(np.average(steps, weights=heights), abs=1e-3)
        names = ["Oslo", "Bergen", "Rome"]
        joint = np.exp(model.score_samples(every.head(3).assign(city=names)))
        assert cities.loc[k, names].to_numpy() == pytest.approx(joint / joint.sum(), abs=1e-9)
    assert (model.predict(rows, "city") == cities.idxmax(axis=1)).all()


def test_several_imputations_differ_only_in_gaps(model):
    gaps = FRAME.head(60).copy()
    gaps.loc[::2, "age"] = np.nan
    tables = model.impute(gaps, n_draws=3, random_state=0)
    assert len(tables) == 3
    for table in tables:
        pd.testing.assert_series_equal(table["age"][1::2], gaps["age"][1::2])
        assert table.notna().all(axis=None)
    assert (tables[0]["age"] != tables[1]["age"]).any()


def test_dependence_is_symmetric_and_not_negative(model):
    table = model.dependence(n_samples=400)
    pd.testing.assert_frame_equal(table, table.T)
    assert np.diag(table).tolist() == [0.0] * 4
    assert (table >= 0).all(axis=None)


def test_the_mode_is_a_row_of_high_density(model, draws):
    best = pd.DataFrame([model.mode().to_dict()]).astype(FRAME.dtypes)
    scores = model.score_samples(draws.head(500))
    assert model.score_samples(best)[0] >= np.quantile(scores, 0.99)


def test_a_conditional_scores_what_is_inside_by_the_joint(model):
    view = model.condition({"age": (35, 50)})
    rows = FRAME.head(30)
    scores, joint = view.score_samples(rows), model.score_samples(rows)
    inside = rows.age.between(35, 50).to_numpy()
    share = np.log(model.probability({"age": (35, 50)}))
    np.testing.assert_allclose(scores[inside], joint[inside] - share, rtol=1e-9, atol=1e-9)
    assert np.isneginf(scores[~inside]).all()


def test_boxes_of_full_covariances_are_answered():
    covariance = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.3], [0.2, -0.3, 0.5]])
    array = RANDOM.multivariate_normal(np.zeros(3), covariance, 500)
    model = sub.SubtractiveMixture(1, structure="flat", random_state=0, max_epochs=3).fit(array)
    mean, fitted = model.mean().to_numpy(), model.cov().to_numpy()
    two = model.probability({0: (0, 1), 1: (None, 0.5)})
    # The same Gaussian by SciPy.
    low, high = np.array([0.0, -np.inf]), np.array([1.0, 0.5])
    normal = multivariate_normal(mean[:2], fitted[:2, :2])
    assert two == pytest.approx(normal.cdf(high, lower_limit=low), abs=1e-4)
    receipt = model.ask("P(0 > 0, 1 > 0, 2 > 0)")
    expected = multivariate_normal(-mean, fitted).cdf(np.zeros(3))
    assert receipt.error > 0
    assert "≈" in str(receipt)
    assert abs(receipt.probability - expected) <= receipt.error
    drawn = model.sample(500, given={0: (0, 1), 2: (None, 0)}, random_state=0)
    assert ((drawn[:, 0] >= 0) & (drawn[:, 0] <= 1) & (drawn[:, 2] <= 0)).all()


def test_a_receipt_compares_with_the_rows_of_a_table(model):
    receipt = model.ask("P(city = Rome | age > 30, rain = 0)", FRAME)
    rows = FRAME[(FRAME.age > 30) & (FRAME.rain == 0)]
    assert receipt.rows == len(rows)
    assert receipt.share == pytest.approx((rows.city == "Rome").mean())
    expected = model.probability({"city": ["Rome"]}, given={"age": (31, None), "rain": [0]})
    assert receipt.probability == pytest.approx(expected, abs=1e-9)
    assert "rows" in str(receipt)
    with pytest.raises(ValueError, match="a question looks like"):
        model.ask("city = Rome")


def test_a_receipt_without_a_table_has_the_remembered_counts(model, tmp_path):
    model.save(tmp_path / "m")
    for one in (model, sub.load(tmp_path / "m")):
        receipt = one.ask("P(city = Rome | rain = 0)")
        dry = FRAME[FRAME.rain == 0]
        assert receipt.rows == len(dry)
        assert receipt.share == pytest.approx((dry.city == "Rome").mean())
        assert receipt.agrees is (receipt.p_value >= 0.05)
        assert "training table" in str(receipt)
        assert one.ask("P(rain = 0)").share == pytest.approx(len(dry) / COUNT)
        # Ends of cells are exact, others are interpolated and say so.
        old = one.ask("P(age <= 45 | city = Rome or Oslo)")
        there = FRAME[FRAME.city != "Bergen"]
        assert old.rows == len(there)
        assert old.share == pytest.approx((there.age <= 45).mean(), abs=0.05)
        assert one.ask("P(age > 200 | city = Rome)").share == 0
        # Three columns were not counted together.
        assert one.ask("P(rain = 0 | city = Rome, rooms = 2)").rows is None


@pytest.mark.parametrize("count", [15, pytest.param(50, marks=pytest.mark.slow)])
def test_counts_of_cells_are_those_of_the_rows(count):
    """Any interval or list of one or two columns lies between counts of whole cells."""
    fitted = quick().fit(FRAME)
    random = np.random.default_rng(0)
    for _ in range(count):
        low, high = np.sort(random.normal(40, 8, 2)).round()
        cities = random.choice(["Oslo", "Bergen", "Rome"], 2, replace=False).tolist()
        receipt = fitted.ask(f"P({low:g} <= age <= {high:g} | city = {' or '.join(cities)})")
        rows = FRAME[FRAME.city.isin(cities)]
        assert receipt.rows == len(rows)
        share = rows.age.between(low, high).mean()
        # An interval cuts at most two cells, each of about an eighth of the rows.
        assert receipt.share == pytest.approx(share, abs=0 if receipt.matches.is_exact else 0.25)


def test_every_fit_is_checked_by_its_validation_rows(model, tmp_path):
    assert model.check_.share == model.history_.agreement
    assert f"{100 * model.check_.share:.0f} %" in str(model.history_)
    model.save(tmp_path / "m")
    again = sub.load(tmp_path / "m")
    assert again.history_ == model.history_
    assert [r.p_value for r in again.check_.receipts] == [r.p_value for r in model.check_.receipts]
    receipt = again.ask("P(city = Rome | rain = 0)")
    assert receipt.held_out == model.check_.counts(2)
    assert "held-out questions like it" in str(receipt)
    assert quick(validation_fraction=0).fit(FRAME).check_ is None


@pytest.mark.filterwarnings("ignore::subtractive.DataWarning")
def test_evidence_far_from_all_rows_is_flagged(model):
    for given in ("age = 500", "age > 400", "age <= -300"):
        receipt = model.ask(f"P(city = Rome | {given})")
        assert receipt.off_support == ("age",)
        assert "a guess" in str(receipt)
    for given in ("age = 40", "age > 55", "rain = 0", "city = Oslo"):
        assert model.ask(f"P(rooms = 2 | {given})").off_support == ()


def test_events_that_contradict_each_other_have_probability_zero(model):
    assert model.ask("P(age > 40, age < 30)").probability == 0
    assert model.ask("P(age > 40 | age < 30)").probability == 0
    with pytest.raises(ValueError, match="contradicts itself"):
        model.ask("P(city = Rome | age > 40, age < 30)")


def test_a_check_finds_a_model_that_is_wrong(model):
    wrong = FRAME.assign(city=np.where(FRAME.age > 40, "Rome", "Oslo"), rain=0.0)
    assert model.check(wrong, n_questions=60).share < 0.5
    found = model.check(model.sample(400, random_state=5), n_questions=60)
    assert found.share > 0.85  # 95 % are expected of the model's own samples
    assert len(found.to_frame()) == 60


def test_a_gap_is_filled_from_a_copy_of_its_column():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    frame["copy"] = frame["a"]
    with pytest.warns(sub.DataWarning):
        model = sub.SubtractiveMixture(2, max_epochs=1, random_state=0).fit(frame)
    gaps = frame.copy()
    gaps.loc[0, "a"] = gaps.loc[1, "copy"] = np.nan
    pd.testing.assert_frame_equal(model.impute(gaps), frame)


@pytest.mark.parametrize(
    "forty", [torch.tensor(40.0), np.array(40.0), torch.tensor(40.0, requires_grad=True)]
)
def test_tensors_and_arrays_of_one_number_are_numbers(model, forty):
    plain = model.probability({"rain": [0]}, given={"age": 40.0})
    assert model.probability({"rain": [0]}, given={"age": forty}) == plain
    assert model.probability({"age": forty}) == model.probability({"age": 40.0})
    assert model.probability({"age": (None, forty)}) == model.probability({"age": (None, 40.0)})
    assert model.cdf("age", forty).item() == model.cdf("age", 40.0).item()
    drawn = model.sample(2, given={"age": forty}, random_state=0)
    pd.testing.assert_frame_equal(drawn, model.sample(2, given={"age": 40.0}, random_state=0))
    rooms = torch.tensor([1, 5])
    assert model.probability({"rooms": rooms}) == model.probability({"rooms": [1, 5]})
