"""Files of densities and of estimators: one reader for both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from subtractive.densities.base import Density
from subtractive.io.schema import check_facts
from subtractive.learning.history import Epoch, History
from subtractive.storage import read_density
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.memory import memory_from
from subtractive.tables.recipe import Recipe
from subtractive.tables.schema import ERROR, MISSING
from subtractive.tables.stored_schema import describing_a_table, read_schema


def load(path: str | os.PathLike[str]) -> Density | SubtractiveMixture:
    """The density or the estimator that ``save`` has written to a file.

    A file that is damaged, of another kind or from a newer version raises ``FileFormatError``.

    >>> p = sub.SquaredCircuit(sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> p.save(path)
    >>> x = torch.zeros(1, 2)
    >>> bool(sub.load(path).log_prob(x) == p.log_prob(x))
    True
    """
    density, description = read_density(path)
    if "estimator" not in description:
        return density
    with describing_a_table(path):
        return _estimator(description["estimator"], density)


def _estimator(data: Mapping[str, Any], density: Density) -> SubtractiveMixture:
    estimator = SubtractiveMixture(**_parameters(data["parameters"]))
    Recipe.of(estimator)  # which checks the settings
    schema = read_schema(data["schema"], density)
    estimator.schema_, estimator.density_ = schema, density
    estimator.history_ = _history(data["history"])
    if "memory" in data:  # which older files do not have
        estimator.check_, estimator.counts_ = memory_from(data["memory"], schema.variables)
    else:
        estimator.check_, estimator.counts_ = None, None
    estimator.n_features_in_ = len(schema.names)
    if all(isinstance(name, str) for name in schema.names):
        estimator.feature_names_in_ = np.array(schema.names, dtype=object)
    return estimator


def _parameters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    data = dict(data)
    if "columns" in data:  # as files of version 1 name it
        data["schema"] = data.pop("columns")
    if data["schema"] is not None or data["unknown"] not in (ERROR, MISSING):
        raise ValueError("schema and unknown are not as save() writes them.")
    for name in ("random_state", "verbose"):
        if not isinstance(data[name], int | None) or not 0 <= (data[name] or 0) < 2**32:
            raise ValueError(f"{name} must be a whole number, got {data[name]!r:.60}.")
    return data


def _history(data: Mapping[str, Any]) -> History:
    check_facts(History, {name: value for name, value in data.items() if name != "epochs"})
    for row in data["epochs"]:
        check_facts(Epoch, dict(zip(Epoch._fields, row, strict=True)))
    return History.from_dict(dict(data))
