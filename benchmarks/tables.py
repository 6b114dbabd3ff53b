"""How good models of tables are: samples, likelihood, use and privacy, against time.

    python -m benchmarks.tables --data ../shared/data/mixed magic shoppers adult
    python -m benchmarks.tables --data . mytable --target y --seeds 0 1 2 3 4

A table is NAME_train.csv.gz with NAME_test.csv.gz, or NAME.csv(.gz), of which a tenth is held
out. Rows with gaps are left out, and dates are days: not all models take them. C2ST, shape and
trend are SDMetrics' (see benchmarks/peers/table_metrics.py), in an environment of its own:
python -m venv benchmarks/.tables, and there pip install sdmetrics xgboost-cpu. Without it they
are left out. Models are efforts of ours, and copula, gmm, nsf (see
benchmarks/table_baselines.py), arf and tvae; the last two need arfpy and ctgan there, too, and
nsf needs zuko here. Every run is added to benchmarks/records/tables.json.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import subtractive as sub
from benchmarks.recording import keep
from benchmarks.table_baselines import BASELINES

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "records" / "tables.json"
METRICS = [FOLDER / ".tables" / "bin" / "python", FOLDER / "peers" / "table_metrics.py"]
# C2ST as published, from arXiv 2603.23016.
PUBLISHED = {
    "TabPC": {"magic": 0.860, "shoppers": 0.894, "adult": 0.855},
    "TabDiff": {"magic": 0.773, "shoppers": 0.736, "adult": 0.841},
    "TabSyn": {"magic": 0.760, "shoppers": 0.655, "adult": 0.794},
    "TVAE": {"magic": 0.298, "shoppers": 0.0, "adult": 0.0},
    "CTGAN": {"magic": 0.103, "shoppers": 0.0, "adult": 0.0},
}
# Which columns of these tables are categories in the published figures.
CATEGORIES = {
    "magic": "class",
    "shoppers": "Month,OperatingSystems,Browser,Region,TrafficType,returning_ visitor,weekend,"
    "Revenue",
    "adult": "workclass,education,marital.status,occupation,relationship,race,sex,native.country,"
    "income",
}
FEW = 30  # whole numbers of so few values are categories, if the table does not say otherwise
NEAREST_ROWS = 2000


def read(folder: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of training and of test."""
    if (folder / f"{name}_train.csv.gz").is_file():
        parts = [folder / f"{name}_{part}.csv.gz" for part in ("train", "test")]
        train, test = (plain(pd.read_csv(part)) for part in parts)
        return train, test
    path = next(p for p in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if p.is_file())
    frame = plain(pd.read_csv(path)).sample(frac=1, random_state=1234)
    cut = len(frame) // 10
    return frame[cut:].reset_index(drop=True), frame[:cut].reset_index(drop=True)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Without rows with gaps, and with dates as days: what all models and metrics can take."""
    frame = frame.dropna().reset_index(drop=True)
    for name in frame.select_dtypes("string"):
        dates = pd.to_datetime(frame[name], format="ISO8601", errors="coerce")
        if dates.notna().all():
            frame[name] = (dates - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return frame


def categories_of(frame: pd.DataFrame) -> list[str]:
    """Columns of text, and of few whole numbers."""
    return [
        name
        for name in frame
        if not pd.api.types.is_numeric_dtype(frame[name])
        or (frame[name].nunique() <= FEW and bool((frame[name] % 1 == 0).all()))
    ]


def detection(train: pd.DataFrame, drawn: pd.DataFrame, names: list[str]) -> dict[str, float]:
    """C2ST, shape and trend; nothing where their environment is not there."""
    if not METRICS[0].is_file():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / part) for part in ("real.csv", "synthetic.csv")]
        for frame, path in zip((train, drawn), paths, strict=True):
            frame.to_csv(path, index=False)
        command = [*map(str, METRICS), *paths, json.dumps(names)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def usefulness(
    drawn: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, target: str, names: list[str]
) -> dict[str, float]:
    """AUC, or R², on real test rows of a model of the target from drawn and from real rows."""
    inputs = [name for name in train if name != target]
    every = pd.concat([train, test, drawn])
    levels = {n: pd.Categorical(every[n]).categories for n in inputs if n in names}

    def encoded(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
        parts = [
            pd.Categorical(frame[n], levels[n]).codes if n in levels else frame[n] for n in inputs
        ]
        return np.stack([np.asarray(part, dtype=float) for part in parts], 1)

    scores = {}
    for label, rows in (("synthetic", drawn), ("real", train)):
        if target in names:
            model = HistGradientBoostingClassifier(random_state=0)
            model.fit(encoded(rows), rows[target].astype(str))
            shares = model.predict_proba(encoded(test))
            truth = test[target].astype(str)
            positive = shares[:, 1] if shares.shape[1] == 2 else shares
            score = roc_auc_score(truth, positive, multi_class="ovr")
        else:
            regressor = HistGradientBoostingRegressor(random_state=0)
            regressor.fit(encoded(rows), rows[target])
            score = r2_score(test[target], regressor.predict(encoded(test)))
        scores[f"train on {label}"] = float(score)
    return scores


def privacy(
    drawn: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, names: list[str]
) -> dict[str, float]:
    """The share of drawn rows nearer to training rows than to as many test rows, and of copies.

    A half says that a drawn row does not know which rows were trained on.
    """
    numbers = [name for name in train if name not in names]
    scaler = StandardScaler().fit(train[numbers]) if numbers else None
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder.fit(train[names].astype(str))

    def places(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
        hot = encoder.transform(frame[names].astype(str)) / math.sqrt(2)
        return hot if scaler is None else np.hstack([scaler.transform(frame[numbers]), hot])

    count = min(NEAREST_ROWS, len(test))
    some = places(drawn.sample(min(NEAREST_ROWS, len(drawn)), random_state=0))
    rows = (train.sample(count, random_state=0), test.sample(count, random_state=0))
    near = [NearestNeighbors(n_neighbors=1).fit(places(part)).kneighbors(some)[0] for part in rows]
    known = set(map(tuple, train.astype(str).to_numpy()))
    copies = np.mean([row in known for row in map(tuple, drawn.astype(str).to_numpy())])
    return {"nearer to training": float((near[0] < near[1]).mean()), "copies": float(copies)}


def run(name: str, model: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model of one table."""
    train, test = read(options.data, name)
    names = CATEGORIES[name].split(",") if name in CATEGORIES else categories_of(train)
    record: dict[str, Any] = {"table": name, "model": model, "seed": seed}
    if model in BASELINES:
        fitted = BASELINES[model](train, names, seed)
        record["cpu seconds"] = round(fitted.seconds, 1)
        drawn = fitted.sample(len(train), seed)
    else:
        start = time.process_time()
        ours = sub.SubtractiveMixture(effort=model, random_state=seed).fit(train)
        record["cpu seconds"] = round(time.process_time() - start, 1)
        record["parameters"] = sum(p.numel() for p in ours.density_.parameters())
        nats = ours.score(test)
        record["log-likelihood"] = nats
        record["bits per column"] = -nats / math.log(2) / train.shape[1]
        drawn = ours.sample(len(train), random_state=seed)
    record |= detection(train, drawn, names)
    target = options.target or train.columns[-1]
    record |= usefulness(drawn, train, test, target, names)
    record |= privacy(drawn, train, test, names)
    return record


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["magic", "shoppers", "adult"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mixed"))
    parser.add_argument("--models", nargs="+", default=["balanced", "copula", "gmm"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--target", help="what TSTR predicts; the last column if not given")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.tables:
        published = {k: v[name] for k, v in PUBLISHED.items() if name in v}
        print(f"{name}: C2ST as published {published}")
    # All tables with one seed, then with the next: whoever stops early has whole seeds.
    for seed, name, model in product(options.seeds, options.tables, options.models):
        record = run(name, model, seed, options)
        record = {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}
        print(json.dumps(record), flush=True)
        keep(RECORDS, [record], ("table", "model", "seed"))


if __name__ == "__main__":
    main()
