"""Log loss and accuracy of SubtractiveClassifier beside gradient boosting, with all defaults.

    python -m benchmarks.classification                                     # data that ships
    python -m benchmarks.classification --data ../shared/data/mixed --rows 4000

Half of the rows are for training, at most so many. Rivals are scikit-learn's
HistGradientBoostingClassifier, as it is and calibrated by cross-validation, and the shares of the
classes. Records are added to benchmarks/records/classification.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

import subtractive as sub
from benchmarks.recording import keep

RECORDS = Path(__file__).parent / "records" / "classification.json"
# The column to predict of tables in a folder.
TARGETS = {"titanic": "Survived", "adult": "income", "shoppers": "Revenue", "magic": "class"}
MODELS: dict[str, Callable[[int], Any]] = {
    "shares of classes": lambda _: DummyClassifier(),
    "gradient boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "gradient boosting, calibrated": lambda seed: CalibratedClassifierCV(
        HistGradientBoostingClassifier(random_state=seed), cv=5
    ),
    "SubtractiveClassifier": lambda seed: sub.SubtractiveClassifier(random_state=seed),
}


def tables(folder: Path | None) -> Iterator[tuple[str, pd.DataFrame, pd.Series]]:
    """Names, features and classes."""
    for name in ("iris", "wine", "breast_cancer"):
        features, classes = getattr(sklearn.datasets, f"load_{name}")(
            return_X_y=True, as_frame=True
        )
        yield name, features, classes.astype(str)
    penguins = sub.data.penguins().dropna()
    yield "penguins", penguins.drop(columns="species"), penguins["species"].astype(str)
    for name, target in TARGETS.items() if folder else ():
        assert folder is not None
        paths = sorted(folder.glob(f"{name}*.csv.gz"))
        frame = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
        column = next(c for c in frame if str(c).lower() == target.lower())
        yield name, frame.drop(columns=column), frame[column].astype(str)


def encoded(features: pd.DataFrame) -> pd.DataFrame:
    """Texts as categories, which trees can take."""
    texts = [c for c in features if not pd.api.types.is_numeric_dtype(features[c])]
    return features.astype(dict.fromkeys(texts, "category")).assign(
        **{c: lambda f, c=c: f[c].cat.codes for c in texts}
    )


def run(
    name: str, features: pd.DataFrame, classes: pd.Series, seed: int, most: int
) -> Iterator[dict[str, Any]]:
    """One record for each model."""
    train, test = train_test_split(
        np.arange(len(classes)), test_size=0.5, random_state=seed, stratify=classes
    )
    train, test = train[:most], test[:most]
    codes = encoded(features)
    for model_name, make in MODELS.items():
        x = features if model_name == "SubtractiveClassifier" else codes
        start = time.process_time()
        model = make(seed).fit(x.iloc[train], classes.iloc[train])
        seconds = time.process_time() - start
        shares = model.predict_proba(x.iloc[test])
        yield {
            "table": name,
            "model": model_name,
            "seed": seed,
            "rows": len(train),
            "log loss": round(log_loss(classes.iloc[test], shares, labels=model.classes_), 4),
            "accuracy": round(
                accuracy_score(classes.iloc[test], model.classes_[shares.argmax(1)]), 4
            ),
            "cpu seconds": round(seconds, 1),
        }


def table_of(records: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    frame = pd.DataFrame(records)
    means = frame.groupby(["table", "model"], sort=False)["log loss"].mean().unstack(sort=False)
    header = f"| table | {' | '.join(means.columns)} |\n|{'---|' * (len(means.columns) + 1)}"
    rows = [
        f"| {name} | {' | '.join(f'{value:.3f}' for value in row)} |"
        for name, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    return "\n".join([header, *rows])


def main() -> None:
    """Print records as they come, and the table of log losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of titanic, adult, shoppers, magic")
    parser.add_argument("--tables", nargs="+", help="some of the tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=4000, help="for training, at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records: list[dict[str, Any]] = []
    for name, features, classes in tables(options.data):
        for seed in options.seeds if not options.tables or name in options.tables else ():
            for record in run(name, features, classes, seed, options.rows):
                print(json.dumps(record), flush=True)
                records.append(record)
    print(table_of(records))
    keep(RECORDS, records, ("table", "model", "seed"))


if __name__ == "__main__":
    main()
