"""Files of densities and of estimators: one reader for both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from subtractive.densities.base import Density
from subtractive.io.files import FileFormatError
from subtractive.learning.history import History
from subtractive.storage import read_density
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.schema_description import schema_from


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
    try:
        return _estimator(description["estimator"], density)
    except (LookupError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise FileFormatError(
            f"{os.fspath(path)} does not describe the model of a table ({reason})."
        ) from None


def _estimator(data: Mapping[str, Any], density: Density) -> SubtractiveMixture:
    parameters = dict(data["parameters"])
    if "columns" in parameters:  # as files of version 1 name it
        parameters["schema"] = parameters.pop("columns")
    estimator = SubtractiveMixture(**parameters)
    schema = schema_from(data["schema"])
    families = [column.family(signed=True) for column in schema.variables]
    if [f.num_states for f in families] != [f.num_states for f in density.families]:
        raise ValueError("the columns do not fit the variables of the density.")
    estimator.schema_, estimator.density_ = schema, density
    estimator.history_ = History.from_dict(data["history"])
    estimator.n_features_in_ = len(schema.names)
    if all(isinstance(name, str) for name in schema.names):
        estimator.feature_names_in_ = np.array(schema.names, dtype=object)
    return estimator
