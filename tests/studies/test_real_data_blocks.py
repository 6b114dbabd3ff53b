"""What the page on real data says of squares follows from the records, however many there are."""

from dataclasses import asdict, replace

import pytest

from studies.evidence.pages import regenerate
from studies.evidence.real_data_blocks import BLOCKS, GROUP, Pair
from studies.evidence.store import NoRecordsError, Store, write_record
from studies.real_data.real_data import CONFIRMATION, LARGER, RECIPES

POWER = {"frames": [1.5, 1.75, 2.0], "MPC frames": [1.0, 1.25, 1.5], "NSF": [2.0, 2.0, 1.5]}
PARKINSONS = {"frames": [-3.0, -4.0], "MPC frames": [-2.0, -2.5]}


def recipe_for(name, model):
    return next(recipe for recipe in RECIPES[name] if recipe.model == model)


def write(folder, name, recipe, tests, parameters=1234):
    for seed, test in enumerate(tests):
        write_record(
            folder / GROUP,
            {
                "run": {"set": name, **asdict(recipe), "seed": seed},
                "settings": {},
                "seconds": 10.0 + seed,
                "versions": {},
                "commit": "0",
                "result": {"valid": 0.0, "test": test, "parameters": parameters},
            },
        )


def store_of(folder, **sets):
    for name, models in sets.items():
        for model, tests in models.items():
            write(folder, name.replace("_", "-"), recipe_for(name.replace("_", "-"), model), tests)
    return Store(folder)


def lines_of(block, store):
    return BLOCKS[f"real-data/{block}"](store).splitlines()[2:]


def test_the_table_has_a_row_for_each_recipe_that_was_run(tmp_path):
    store = store_of(tmp_path, power_subset=POWER, kin40k={"trees": [-10.5], "Gaussian": [-12.5]})
    assert lines_of("table", store) == [
        "| power-subset | frames | 64 | 8 frames | 1,234 | 3 | 1.750 (1.500 .. 2.000) | 11 |",
        "| power-subset | MPC frames | 64 | 8 frames | 1,234 | 3 | 1.250 (1.000 .. 1.500) | 11 |",
        "| power-subset | NSF |  |  | 1,234 | 3 | 2.000 (1.500 .. 2.000) | 11 |",
        "| kin40k | Gaussian |  |  | 1,234 | 1 | −12.500 | 10 |",
        "| kin40k | trees | 64 | 6 × 1 tree | 1,234 | 1 | −10.500 | 10 |",
    ]


def test_squares_are_compared_seed_by_seed(tmp_path):
    store = store_of(tmp_path, power_subset=POWER, parkinsons=PARKINSONS)
    # Gains of −0.5, −0.25 and 0.5: mean −1 / 12, deviation 0.5204, t(0.975; 2) = 4.3027;
    # gains of −1 and −1.5: mean −1.25, deviation 0.3536, t(0.975; 1) = 12.7062.
    first, second, third = lines_of("pairs", store)
    power, other = (
        "| power-subset | development | frames |",
        "| parkinsons | confirmation | frames |",
    )
    assert first == f"{power} MPC frames | +0.500 | +0.500 .. +0.500 | 3 of 3 |"
    assert second == f"{power} NSF | −0.083 | −1.376 .. +1.209 | 1 of 3 |"
    assert third == f"{other} MPC frames | −1.250 | −4.427 .. +1.927 | 0 of 2 |"


def test_the_verdict_counts_what_the_intervals_say(tmp_path):
    behind = {"trees": [1.0, 1.25], "MPC trees": [1.5, 1.75]}
    store = store_of(tmp_path, power_subset=POWER | behind, parkinsons=PARKINSONS)
    twins, flows = BLOCKS["real-data/verdict"](store).splitlines()
    assert twins == (
        "- **Squares against their additive twins**, 3 comparisons: ahead in 1 (frames on "
        "`power-subset`), behind in 1 (trees on `power-subset`), undecided in 1 (frames on "
        "`parkinsons`); on sets of confirmation, 1 comparison: ahead in 0, behind in 0, undecided "
        "in 1 (frames on `parkinsons`)."
    )
    # Trees have gains of −1 and −0.75 on the flow: mean −0.875, 12.7062 · 0.125 on either side.
    assert flows == (
        "- **Squares against the flow**, 2 comparisons: ahead in 0, behind in 0, undecided in 2 "
        "(frames on `power-subset`, trees on `power-subset`)."
    )


def test_seeds_that_only_one_of_two_has_are_left_out(tmp_path):
    store = store_of(tmp_path, power_subset={"frames": [1.5, 9.0], "MPC frames": [1.0]})
    (line,) = lines_of("pairs", store)
    assert line == "| power-subset | development | frames | MPC frames | +0.500 |  | 1 of 1 |"
    assert "undecided in 1 (frames on `power-subset`)" in BLOCKS["real-data/verdict"](store)


def test_models_that_failed_decide_nothing(tmp_path):
    failing = {"frames": [1.5, None], "MPC frames": [1.0, 1.0]}
    store = store_of(tmp_path, power_subset=failing)
    (line,) = lines_of("pairs", store)
    assert line.endswith("| −inf |  | 1 of 2 |")
    assert Pair("", "", "", (0.5, float("-inf"))).side == "undecided"


def test_runs_with_other_settings_than_the_recipes_do_not_count(tmp_path):
    frames = recipe_for("power-subset", "frames")
    write(tmp_path, "power-subset", replace(frames, epochs=31), [9.0])
    with pytest.raises(NoRecordsError, match="is one of the recipes"):
        BLOCKS["real-data/table"](Store(tmp_path))
    write(tmp_path, "power-subset", frames, [1.5])
    (line,) = lines_of("table", Store(tmp_path))
    assert "| 1.500 |" in line
    for name in ("pairs", "verdict"):
        said = BLOCKS[f"real-data/{name}"](Store(tmp_path))
        assert said == "*No pair of models is recorded yet.*"


def test_without_records_the_page_says_so(tmp_path):
    for name, block in BLOCKS.items():
        with pytest.raises(NoRecordsError, match="there are no records"):
            block(Store(tmp_path))
        page = f"<!-- evidence {name} --><!-- /evidence -->"
        assert "*No record yet.*" in regenerate(page, BLOCKS, Store(tmp_path))


def test_sets_of_confirmation_take_the_recipes_of_others_as_they_are():
    for name, similar in CONFIRMATION.items():
        # Those with as many parameters as the squares depend on the number of columns.
        own, others = (
            [recipe for recipe in RECIPES[one] if recipe.model != LARGER]
            for one in (name, similar)
        )
        assert own == others
        assert similar not in CONFIRMATION
