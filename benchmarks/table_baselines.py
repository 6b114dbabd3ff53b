"""What our models of tables are compared with: a copula, a mixture, a flow, and others' models.

Each takes rows of training, the columns that are categories, and a seed, and gives a sampler
with the seconds of processor time that fitting took.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr, ndtri
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from studies.data.splits import Splits
from studies.models.baselines import NSF, train_flow
from studies.models.training import Schedule

Sampler = Callable[[int, int], pd.DataFrame]  # of a number of rows and a seed
FOLDER = Path(__file__).parent
PYTHON, MODELS = FOLDER / ".tables" / "bin" / "python", FOLDER / "peers" / "table_models.py"
FLOW = Schedule(epochs=1, batch_size=256, learning_rate=1e-3)
FLOW_SECONDS = 100.0  # what our defaults take of the tables with published figures
HIDDEN = (256, 256, 256)


class Fitted(NamedTuple):
    """A sampler, and what fitting took."""

    sample: Sampler
    seconds: float


def fit_copula(train: pd.DataFrame, names: list[str], seed: int) -> Fitted:
    """A Gaussian copula: the correlations of normal scores, and the columns' own quantiles."""
    start = time.process_time()
    columns = {name: np.sort(train[name].to_numpy()) for name in train}
    ranks = train.apply(lambda column: column.rank(method="first") - 0.5) / len(train)
    covariance = np.corrcoef(ndtri(ranks.to_numpy()).T)

    def sample(count: int, seed: int) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        uniform = ndtr(random.multivariate_normal(np.zeros(len(columns)), covariance, count))
        places = np.minimum((uniform * len(train)).astype(int), len(train) - 1)
        return pd.DataFrame(
            {name: values[places[:, k]] for k, (name, values) in enumerate(columns.items())}
        )

    return Fitted(sample, time.process_time() - start)


def fit_gmm(train: pd.DataFrame, names: list[str], seed: int) -> Fitted:
    """A full-covariance Gaussian mixture of standardised numbers; categories are rounded codes."""
    start = time.process_time()
    numbers = _numbers(train, names)
    scaler = StandardScaler().fit(numbers)
    mixture = GaussianMixture(32, reg_covar=1e-3, random_state=seed)
    mixture.fit(scaler.transform(numbers))

    def sample(count: int, seed: int) -> pd.DataFrame:
        mixture.random_state = seed
        return _table(scaler.inverse_transform(mixture.sample(count)[0]).round(12), train, names)

    return Fitted(sample, time.process_time() - start)


def fit_nsf(train: pd.DataFrame, names: list[str], seed: int) -> Fitted:
    """A neural spline flow of normal scores; categories are codes spread over cells of width one.

    It has about as much time as our defaults take; the best epoch by a tenth of the rows is kept.
    """
    start = time.process_time()
    random = np.random.default_rng(seed)
    spread = _numbers(train, names)
    spread[names] += random.uniform(-0.5, 0.5, (len(train), len(names)))
    scores = QuantileTransformer(output_distribution="normal", random_state=seed).fit(spread)
    rows = torch.from_numpy(scores.transform(spread)[random.permutation(len(train))]).float()
    cut = len(rows) // 10
    splits = Splits(rows[cut:], rows[:cut], rows[:cut], "")
    trial = time.process_time()
    train_flow(NSF, splits, FLOW, hidden=HIDDEN, seed=seed)
    left = FLOW_SECONDS - (time.process_time() - start)
    epochs = max(1, int(left / (time.process_time() - trial)))
    flow = train_flow(NSF, splits, replace(FLOW, epochs=epochs), hidden=HIDDEN, seed=seed)
    seconds = time.process_time() - start

    def sample(count: int, seed: int) -> pd.DataFrame:
        torch.manual_seed(seed)
        with torch.no_grad():
            drawn = flow.sample(count).double().numpy()
        return _table(scores.inverse_transform(drawn), train, names)

    return Fitted(sample, seconds)


def fit_peer(model: str) -> Callable[[pd.DataFrame, list[str], int], Fitted]:
    """A model of another package, which runs in an environment of its own and draws at once."""

    def fit(train: pd.DataFrame, names: list[str], seed: int) -> Fitted:
        with tempfile.TemporaryDirectory() as folder:
            real, drawn = (str(Path(folder) / part) for part in ("real.csv", "drawn.csv"))
            train.to_csv(real, index=False)
            command = [PYTHON, MODELS, model, real, json.dumps(names), str(seed), drawn]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            frame = pd.read_csv(drawn)[list(train)]
        facts = json.loads(result.stdout.splitlines()[-1])
        return Fitted(lambda count, seed: frame.head(count), float(facts["cpu seconds"]))

    return fit


BASELINES: dict[str, Callable[[pd.DataFrame, list[str], int], Fitted]] = {
    "copula": fit_copula,
    "gmm": fit_gmm,
    "nsf": fit_nsf,
    "arf": fit_peer("arf"),
    "tvae": fit_peer("tvae"),
}


def _numbers(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Categories as codes from 0."""
    codes = {name: pd.Categorical(frame[name]).codes for name in names}
    return frame.assign(**codes).astype(float)


def _table(numbers: np.ndarray[Any, Any], train: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Codes as categories again, and whole numbers where those of training are whole."""
    frame = pd.DataFrame(numbers, columns=list(train))
    for name in frame:
        if name in names:
            levels = pd.Categorical(train[name]).categories
            places = frame[name].round().clip(0, len(levels) - 1).astype(int)
            frame[name] = levels.to_numpy()[places]
        elif bool((train[name] % 1 == 0).all()):
            frame[name] = frame[name].round()
    return frame
