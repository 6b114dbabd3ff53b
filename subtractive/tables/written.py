"""How one value of a column is written."""

from __future__ import annotations

import numpy as np
import pandas as pd

TEMPORAL = ("date", "duration", "time")  # kinds whose numbers are microseconds


def written(value: object, kind: str) -> str:
    """One value as a person writes it; dates and times are kept in microseconds.

    >>> from subtractive.tables.written import written
    >>> written(1325376000000000.0, "date"), written(3.0, "continuous"), written(True, "boolean")
    ('2012-01-01', '3', 'true')
    """
    if kind == "date" and isinstance(value, float | int):
        moment = pd.Timestamp(round(value), unit="us")
        return str(moment.date() if moment == moment.normalize() else moment)
    if kind in ("duration", "time") and isinstance(value, float | int):
        return str(pd.Timedelta(round(value), unit="us"))
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return str(value)
