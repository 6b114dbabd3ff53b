"""The tables and the picture of docs/quality.md, made from the records in benchmarks/records.

    python -m benchmarks.summary            # writes docs/quality.md and docs/quality_and_time.png

A table stands between the lines <!-- NAME --> and <!-- end -->, which stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from benchmarks.tables import PUBLISHED
from studies.data.binary import SETS

mpl.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "quality.md", ROOT / "docs" / "quality_and_time.png"
OURS = {"fast": "ours, fast", "balanced": "ours, defaults", "best": "ours, best"}
RIVALS = {
    "nsf": "neural spline flow",
    "arf": "ARF",
    "tvae": "TVAE",
    "copula": "Gaussian copula",
    "gmm": "Gaussian mixture",
}
# What is measured of samples beside C2ST, and how many digits are told.
DETAILS = {
    "shape": 3,
    "trend": 3,
    "train on synthetic": 3,
    "train on real": 3,
    "nearer to training": 2,
    "copies": 3,
    "bits per column": 2,
}


def records_of(name: str) -> pd.DataFrame:
    """The records of a benchmark."""
    path = ROOT / "benchmarks" / "records" / f"{name}.json"
    records = json.loads(path.read_text()) if path.is_file() else []
    return pd.DataFrame(records, columns=None if records else ["set", "model"])


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, or a word where there are no rows."""
    names, rows = list(header), list(rows)
    if not rows:
        return "No records."
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def median_and_range(values: pd.Series, digits: int) -> str:
    """The median, and the range of several."""
    found = values.dropna()
    if len(found) == 0:
        return ""
    spread = f" ({found.min():.{digits}f} .. {found.max():.{digits}f})" if len(found) > 1 else ""
    return f"{found.median():.{digits}f}{spread}"


def seconds(values: pd.Series) -> str:
    """From the shortest to the longest."""
    least, most = round(values.min()), round(values.max())
    return f"{least} s" if least == most else f"{least} to {most} s"


def detected() -> dict[str, pd.DataFrame]:
    """Records with C2ST by table, those with published figures first."""
    records = records_of("tables").dropna(subset=["c2st"])
    names = dict.fromkeys([*PUBLISHED["TabPC"], *records["table"]])
    found = {name: records[records["table"] == name] for name in names}
    return {name: runs for name, runs in found.items() if not runs.empty}


def samples() -> str:
    """C2ST of each table."""
    rows = []
    for name, runs in detected().items():
        of = {model: part["c2st"] for model, part in runs.groupby("model")}
        measured = [
            median_and_range(of[model], 3) if model in of else "" for model in OURS | RIVALS
        ]
        published = [
            f"{PUBLISHED[model][name]:.3f}" if name in PUBLISHED[model] else ""
            for model in ("TabPC", "TabDiff", "TabSyn")
        ]
        rows.append([name, *measured, *published])
    published = [f"{name}, published" for name in ("TabPC", "TabDiff", "TabSyn")]
    return markdown(["table", *OURS.values(), *RIVALS.values(), *published], rows)


def details() -> str:
    """All that is measured of each model of each table: medians over seeds."""
    rows = []
    for name, runs in detected().items():
        for model, label in (OURS | RIVALS).items():
            some = runs[runs["model"] == model]
            if some.empty:
                continue
            cells = [
                f"{some[column].median():.{digits}f}" if some[column].notna().any() else ""
                for column, digits in {"c2st": 3, **DETAILS}.items()
            ]
            sizes = some["parameters"].dropna()
            size = f"{sizes.median():,.0f}" if len(sizes) else ""
            rows.append([name, label, str(len(some)), *cells, seconds(some["cpu seconds"]), size])
    return markdown(["table", "model", "seeds", "C2ST", *DETAILS, "time", "parameters"], rows)


def likelihood() -> str:
    """Continuous sets: our efforts, flows, and Gaussian mixtures."""
    records = records_of("defaults")
    return _of_sets(
        records[~records["set"].isin(SETS)], (*OURS, "neural spline flow", "Gaussian mixture")
    )


def published() -> dict[str, float]:
    """Hidden Chow-Liu trees by their authors: test scores of one seed, by set."""
    path = ROOT / "benchmarks" / "records" / "published.json"
    results = json.loads(path.read_text())["results"]
    return {result["set"]: result["log-likelihood"] for result in results}


def binary() -> str:
    """Binary sets, by the number of their columns: a row for each."""
    records, others = records_of("defaults"), published()
    rows = []
    for name in SETS:
        runs = records[records["set"] == name]
        ours = runs[runs["model"] == "balanced"]
        if ours.empty:
            continue
        tree = runs.loc[runs["model"] == "Chow-Liu tree", "log-likelihood"]
        rows.append(
            [
                name,
                median_and_range(ours["log-likelihood"], 3),
                str(len(ours)),
                seconds(ours["cpu seconds"]),
                f"{ours['parameters'].median():,.0f}",
                median_and_range(tree, 3),
                f"{others[name]:.3f}",
            ]
        )
    header = ["set", "ours, defaults", "seeds", "time", "parameters", "Chow-Liu tree"]
    return markdown([*header, "HCLT, published"], rows)


def binary_verdict() -> str:
    """How the defaults stand beside the published hidden trees, in words."""
    records, others = records_of("defaults"), published()
    ours = records[(records["model"] == "balanced") & records["set"].isin(SETS)]
    gains = ours.groupby("set")["log-likelihood"].median() - pd.Series(others)
    gains = gains.dropna()
    behind = gains[gains < 0] / -pd.Series(others)
    worst = behind.dropna().min()
    name = behind.dropna().idxmin()
    return (
        f"The defaults are ahead of the published hidden Chow-Liu trees on {(gains > 0).sum()} of "
        f"{len(gains)} sets, and behind by {-100 * worst:.1f} % at most ({name})."
    )


def _of_sets(records: pd.DataFrame, models: tuple[str, ...]) -> str:
    rows = []
    for name, runs in records.groupby("set", sort=False):
        for model in models:
            some = runs[runs["model"] == model]
            if not some.empty:
                size = some["parameters"].median()
                rows.append(
                    [
                        str(name),
                        OURS.get(model, model),
                        median_and_range(some["log-likelihood"], 3),
                        str(len(some)),
                        seconds(some["cpu seconds"]),
                        "" if pd.isna(size) else f"{size:,.0f}",
                        str(some["chosen"].iloc[0]),
                    ]
                )
    header = ["set", "model", "test log-likelihood", "seeds", "time", "parameters", "chosen"]
    return markdown(header, rows)


def classes() -> str:
    """Log loss beside gradient boosting, the least of a row in bold."""
    records = records_of("classification")
    means = records.groupby(["table", "model"], sort=False)["log loss"].mean().unstack(sort=False)
    sizes = records.groupby("table", sort=False)["rows"].max()
    rows = []
    for name, losses in means.iterrows():
        least = losses.min()
        cells = [f"**{x:.3f}**" if x == least else f"{x:.3f}" for x in losses]
        rows.append([str(name), str(sizes[name]), *cells])
    return markdown(["table", "rows", *means.columns], rows)


def questions() -> str:
    """The share of answers within chance of held-out rows, beside that of the training rows."""
    records = records_of("questions")
    rows = []
    for name, runs in records[records["effort"] == "fast"].groupby("table", sort=False):
        sizes = runs[["training rows", "held-out rows"]].max()
        shares = [median_and_range(runs[word], 3) for word in ("agree", "training rows agree")]
        rows.append([str(name), *(f"{size:,}" for size in sizes), str(len(runs)), *shares])
    rows.sort(key=lambda row: int(row[1].replace(",", "")))
    header = ["table", "training rows", "held-out rows", "splits", "ours", "training rows' own"]
    return markdown(header, rows)


def gaps() -> str:
    """Errors of imputation, the least in bold, and coverage of 90 % intervals."""
    records = records_of("imputation")
    rows = []
    for name, runs in records.groupby("table", sort=False):
        errors = runs[["ours", "knn", "iterative"]].mean()
        shown = [f"**{x:.3f}**" if x == errors.min() else f"{x:.3f}" for x in errors]
        asked = runs.dropna(subset=["cells"])
        cells = asked["cells"]  # of all seeds together
        shares = [
            f"{(asked[word] * cells).sum() / cells.sum():.3f}" if len(asked) else ""
            for word in ("inside", "promised", "randomised")
        ]
        number = f"{cells.sum():,.0f}" if len(asked) else ""
        rows.append([str(name), str(len(runs)), *shown, number, *shares])
    header = ["table", "seeds", "ours", "KNNImputer", "IterativeImputer", "cells", "inside"]
    return markdown([*header, "promised", "randomised"], rows)


def picture() -> None:
    """C2ST against processor time, a panel for each table."""
    tables = {name: runs for name, runs in detected().items() if name in PUBLISHED["TabPC"]}
    figure, panels = plt.subplots(1, len(tables), figsize=(3.6 * len(tables), 3.2), sharey=True)
    for axes, (name, runs) in zip(panels, tables.items(), strict=True):
        for number, (model, label) in enumerate((OURS | RIVALS).items()):
            some = runs[runs["model"] == model]
            time = some["cpu seconds"].clip(lower=0.1)
            axes.scatter(time, some["c2st"], s=22, color=f"C{number}", label=label, alpha=0.8)
        published = {model: scores[name] for model, scores in PUBLISHED.items()}
        for model, place in apart(published).items():
            axes.axhline(published[model], color="0.6", linewidth=0.8, linestyle="--")
            axes.annotate(
                model,
                (1.02, place),
                xycoords=axes.get_yaxis_transform(),
                va="center",
                fontsize=6,
                color="0.4",
                annotation_clip=False,
            )
        axes.set(xscale="log", title=name, xlabel="seconds of one core", ylim=(-0.02, 1))
    panels[0].set_ylabel("C2ST (1: cannot be told from rows)")
    panels[0].legend(fontsize=6, loc="center left")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=160)


def apart(heights: dict[str, float], gap: float = 0.04) -> dict[str, float]:
    """Heights of labels, from below, none nearer to another than a gap.

    >>> apart({"b": 0.5, "a": 0.5, "c": 0.9})
    {'b': 0.5, 'a': 0.54, 'c': 0.9}
    """
    places: dict[str, float] = {}
    lowest = -1.0
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        places[name] = max(height, lowest)
        lowest = places[name] + gap
    return places


MAKERS: dict[str, Callable[[], str]] = {
    "samples": samples,
    "samples in detail": details,
    "likelihood": likelihood,
    "binary": binary,
    "binary verdict": binary_verdict,
    "classes": classes,
    "questions": questions,
    "gaps": gaps,
}


def with_tables(page: str) -> str:
    """The page with all tables as the records say."""
    for name, make in MAKERS.items():
        pattern = re.compile(f"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        replaced = f"<!-- {name} -->\n\n{make()}\n\n<!-- end -->"
        page = pattern.sub(lambda _, replaced=replaced: replaced, page)
    return page


def main() -> None:
    """Replace the tables of the page, and draw the picture."""
    PAGE.write_text(with_tables(PAGE.read_text()))
    picture()


if __name__ == "__main__":
    main()
