"""A real table that comes with the library.

Measurements of 344 penguins of three species on islands of the Palmer Archipelago, Antarctica,
collected by K. Gorman and the Palmer Station LTER (Gorman, Williams, Fraser 2014, PLoS ONE 9(3))
and published as "palmerpenguins" by A. Horst, A. Hill and K. Gorman (2020) under CC0.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def penguins() -> pd.DataFrame:
    """Species, island, bill, flipper, mass, sex and year of 344 penguins; 19 entries are missing.

    >>> sub.data.penguins().shape
    (344, 8)
    """
    with files("subtractive.data").joinpath("penguins.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)
