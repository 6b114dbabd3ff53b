"""Models of tables by others, in an environment of their own: fit one, and write what it draws.

    python benchmarks/peers/table_models.py tvae real.csv '["names", ...]' 0 drawn.csv

The arguments are the model, rows of training, the columns that are categories, the seed, and where
as many drawn rows go. TVAE is the package ctgan's, ARF is arfpy's, both as they come. Prints the
seconds of processor time that fitting took, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

Sampler = Callable[[int], pd.DataFrame]


def tvae(train: pd.DataFrame, names: list[str]) -> Sampler:
    """A variational autoencoder of mode-normalised columns (Xu et al., 2019)."""
    from ctgan import TVAE

    model = TVAE(enable_gpu=False)
    model.fit(train, names)
    return model.sample


def adversarial_forest(train: pd.DataFrame, names: list[str]) -> Sampler:
    """Adversarial random forests (Watson et al., 2023)."""
    if not hasattr(np, "in1d"):  # arfpy 0.1.1 asks for it, NumPy 2.4 has dropped it
        np.in1d = np.isin  # type: ignore[attr-defined]
    from arfpy import arf

    typed = train.astype(dict.fromkeys(names, "category"))
    model = arf.arf(x=typed)
    model.forde()
    return model.forge


MODELS = {"tvae": tvae, "arf": adversarial_forest}


def main() -> None:
    """Fit, draw, and print the seconds."""
    warnings.simplefilter("ignore")
    model, real_path, categories, seed, drawn_path = sys.argv[1:]
    names, train = json.loads(categories), pd.read_csv(real_path)
    for name in names:
        train[name] = train[name].astype(str)
    np.random.seed(int(seed))  # arfpy knows no other way
    torch.manual_seed(int(seed))
    torch.set_num_threads(1)
    start = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):  # arfpy prints
        sample = MODELS[model](train, names)
    seconds = time.process_time() - start
    drawn = sample(len(train))
    for name in set(train) - set(names):
        if bool((train[name] % 1 == 0).all()):
            drawn[name] = drawn[name].round()
    drawn.to_csv(drawn_path, index=False)
    print(json.dumps({"cpu seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
