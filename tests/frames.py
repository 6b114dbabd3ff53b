"""Tables that tests share."""

import numpy as np
import pandas as pd

import subtractive as sub
from subtractive.tables.queries import draw_seed
from subtractive.tables.training_data import encode_rows
from subtractive.tables.training_rows import split
from subtractive.tables.validation import read_table


def mixed_frame(num_rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """One column of every kind, some of them with gaps."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(40, 10, num_rows),
            "rooms": random.integers(1, 7, num_rows),
            "visits": random.poisson(8, num_rows),
            "city": random.choice(["Oslo", "Bergen", "Rome"], num_rows),
            "owner": random.random(num_rows) < 0.4,
            "share": random.beta(2, 3, num_rows),
            "income": np.exp(random.normal(10, 1, num_rows)),
            "grade": pd.Categorical(
                random.choice(["low", "high"], num_rows), ["low", "middle", "high"], ordered=True
            ),
            "year": random.integers(1900, 2020, num_rows).astype("int32"),
            "depth": random.normal(size=num_rows).astype("float32"),
            "change": pd.array(random.integers(-500, 500, num_rows), dtype="Int64"),
            "agreed": pd.array(random.random(num_rows) < 0.5, dtype="boolean"),
            "label": pd.Series(random.choice(["a", "b"], num_rows), dtype=object),
        }
    )
    frame.loc[::7, ["age", "city"]] = None
    frame.loc[::5, ["change", "agreed"]] = pd.NA
    return frame


BOUNDS = {"share": sub.tables.Continuous(0, 1), "income": sub.tables.Continuous(0)}


def quick(**settings: object) -> sub.SubtractiveMixture:
    """A small model that trains in no time."""
    return sub.SubtractiveMixture(
        **{"n_components": 3, "max_epochs": 1, "random_state": 0, **settings}
    )


def table_nodes(column: object, fine: int = 10, tails: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights that integrate over all numbers of a column, in the units of the table.

    Panels end at the knots of its transform; beyond them numbers are replaced by logarithms of
    their distances, in which the density is smooth.
    """
    transform = column.transform
    knots = getattr(transform, "knots", None)
    if knots is None:
        reach = transform.reach * transform.unit
        knots = np.linspace(transform.centre - reach, transform.centre + reach, 41)
    at, weight = np.polynomial.legendre.leggauss(8)
    places = np.linspace(0, len(knots) - 1, fine * (len(knots) - 1) + 1)
    edges = np.interp(places, np.arange(len(knots)), knots)
    half = np.diff(edges)[:, None] / 2
    parts = [((edges[:-1, None] + half * (at + 1)).ravel(), (half * weight).ravel())]
    logs = np.linspace(0, 40, tails * fine + 1)
    half = np.diff(logs)[:, None] / 2
    t, dt = (logs[:-1, None] + half * (at + 1)).ravel(), (half * weight).ravel()
    unit = float(np.diff(knots).mean())
    for end, bound, sign in (
        (edges[0], getattr(transform, "low", -np.inf), -1),
        (edges[-1], getattr(transform, "high", np.inf), 1),
    ):
        room = abs(end - bound)
        if np.isfinite(room):
            parts.append((bound - sign * room * np.exp(-t), room * np.exp(-t) * dt))
        else:
            parts.append((end + sign * unit * np.expm1(t), unit * np.exp(t) * dt))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def validation_rows(
    model: sub.SubtractiveMixture, frame: pd.DataFrame
) -> tuple[pd.DataFrame, np.ndarray] | None:
    """The rows that a fit with ``random_state=0`` held out, as users have them, and weights."""
    schema = sub.tables.Schema.infer(frame)
    rows = encode_rows(schema, read_table(frame), np.ones(len(frame)))
    held_out = split(rows, model.validation_fraction, draw_seed(0))[1]
    if held_out is None:
        return None
    # The raw rows with these codes: what is decoded would be rounded once more.
    codes = schema.encode_table(read_table(frame)).x.numpy()
    keys = {row.tobytes(): number for number, row in enumerate(codes + 0.0)}
    found = [keys[row.tobytes()] for row in held_out.x.numpy()]
    return frame.iloc[found], held_out.weights.numpy()


# Four columns in three dimensions, but for a little noise.
MIX = np.array([[1, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 1, -0.5], [0, 0, 0, 0.05]])


def correlated_frame(count: int, seed: int) -> pd.DataFrame:
    """Four columns that nearly determine each other, a twentieth of one being an atom."""
    random = np.random.default_rng(seed)
    kind = random.integers(0, 2, count)
    numbers = random.normal(size=(count, 4)) @ MIX + 2 * kind[:, None]
    frame = pd.DataFrame(numbers, columns=list("abcd"))
    empty = random.random(count) < 0.05
    frame.loc[empty, "d"] = -9.0
    return frame.assign(kind=np.array(["x", "y"])[kind])
