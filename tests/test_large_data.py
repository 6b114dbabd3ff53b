"""The recipes of docs/large-data.md run as they are printed, in a local cluster of each engine."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import subtractive as sub

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "large-data.md").read_text(encoding="utf-8")
ENGINES = {"spark": "pyspark", "dask": "dask.dataframe", "ray": "ray"}

# Spark's workers would be those of the first python3 of the path. Ray would write a token into the
# home of whoever runs the test, and its workers, which are polite, give up on a busy machine.
SETTINGS = {
    "PYSPARK_PYTHON": sys.executable,
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "300",
}


def recipe(name):
    """The program that follows a mark on the page."""
    return re.search(rf"<!-- {name} -->\n```py\n(.*?)```", PAGE, re.S)[1]


def has(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": random.normal(size=3000), "b": random.choice(["x", "y"], 3000)})
    rows.to_parquet(folder / "rows.parquet", index=False, row_group_size=500)
    sub.SubtractiveMixture(3, max_epochs=1, random_state=0).fit(rows).save(folder / "rows.model")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_a_recipe_scores_as_the_model_does(name, folder):
    if not has(ENGINES[name]):
        pytest.skip(f"{name} is not installed: make test-engines")
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    shutil.rmtree(folder / "scores", ignore_errors=True)
    (folder / "program.py").write_text(f"if __name__ == '__main__':\n{indented(recipe(name))}")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, **SETTINGS, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = pd.concat([pd.read_parquet(file) for file in (folder / "scores").glob("*.parquet")])
    model = sub.load(folder / "rows.model")
    expected = model.score_samples(pd.read_parquet(folder / "rows.parquet"))
    # Files of scores come in any order.
    found = np.sort(found["log_density"].to_numpy())
    np.testing.assert_allclose(found, np.sort(expected), rtol=1e-12, atol=1e-12)


def indented(program):
    return "".join(f"    {line}\n" for line in program.splitlines())


def test_there_is_a_recipe_for_every_engine():
    for name in ENGINES:
        compile(recipe(name), name, "exec")
