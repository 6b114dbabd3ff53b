"""What the page on distillation says of squares follows from the records, either way."""

import pytest

from studies.distillation.clone_experiment import ADDITIVE, LONGER, SQUARE
from studies.evidence.distillation_blocks import GROUP, square_verdict
from studies.evidence.store import Store, write_record

LEVEL = {ADDITIVE: -5.0, LONGER: -4.0}


def store_of(folder, square, count):
    for seed in range(count):
        for model, level in {**LEVEL, SQUARE: square}.items():
            write_record(
                folder / GROUP,
                {
                    "run": {"model": model, "states": 8, "seed": seed},
                    "settings": {},
                    "seconds": 9.0,
                    "versions": {},
                    "commit": "0",
                    "result": {"test": level + 0.01 * seed, "cpu_seconds": 7.0},
                },
            )
    return Store(folder)


@pytest.mark.parametrize(("square", "side"), [(-3.0, "ahead of"), (-4.5, "behind")])
def test_nine_runs_of_each_are_tested(tmp_path, square, side):
    said = square_verdict(store_of(tmp_path, square, 9))
    assert f"the square is {side} the additive chain trained on" in said
    assert "p = 2.1e-05; no run of one is within the range of the other" in said  # 1 / C(18, 9)


def test_runs_that_overlap_are_not_said_to_be_apart(tmp_path):
    said = square_verdict(store_of(tmp_path, -3.99, 9))
    assert "ahead of" in said
    assert "p = " in said
    assert "within the range" not in said


def test_few_runs_are_not_tested(tmp_path):
    said = square_verdict(store_of(tmp_path, -3.0, 3))
    assert "by 1.00 nats, 7 CPU seconds against 7 (3 and 3 runs: too few for a test)" in said
    assert "p =" not in said
