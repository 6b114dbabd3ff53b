"""The experiments by name, each imported when it is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from studies.grid.experiment import Experiment


class Entry(NamedTuple):
    """Where an experiment lives, and what it shows in one line."""

    module: str
    summary: str
    needs_data: bool = False


EXPERIMENTS = {
    "ring": Entry(
        "paper.ring", "two Gaussians, one subtracted, against many added; with an animation"
    ),
    "synthetic-continuous": Entry(
        "paper.synthetic_continuous",
        "rings, cosine, funnel and banana by splines: MPC, MPC² and NPC²",
    ),
    "synthetic-discrete": Entry(
        "paper.synthetic_discrete", "the same in 32 x 32 bins, by tables and by binomials"
    ),
    "drawings": Entry("paper.drawings", "circuits layer by layer, and their squares"),
    "overflow": Entry("paper.overflow", "Z of many variables with and without stable arithmetic"),
    "splines": Entry(
        "paper.splines", "the spline basis, and integrals of products against quadrature"
    ),
    "separation": Entry(
        "paper.separation", "unique disjointness: small as a square, huge as a sum"
    ),
    "cost": Entry("paper.cost", "time and memory of c(x) and Z against batch size and K"),
    "training-cost": Entry(
        "paper.training_cost", "time and memory of the parts of a training step, set by set"
    ),
    "uci": Entry(
        "paper.uci",
        "the main table: five continuous sets, grids, repetitions, flows",
        needs_data=True,
    ),
    "debd": Entry(
        "real_data.debd",
        "binary sets: sums by EM, and squares that begin at their square roots",
        needs_data=True,
    ),
    "em": Entry(
        "real_data.em",
        "binary sets: expectation maximisation against Adam, and squares from square roots",
        needs_data=True,
    ),
    "real-data": Entry(
        "real_data.real_data",
        "the best squared circuits on real data, beside GMMs and a flow",
        needs_data=True,
    ),
    "ingredients": Entry(
        "real_data.ingredients",
        "what helps trees on real data: squares, weights, trees, inputs, one change at a time",
        needs_data=True,
    ),
    "clones": Entry(
        "distillation.clone_experiment",
        "distilled homogeneous chains of many states beside n-grams, and their squares",
        needs_data=True,
    ),
    "guided": Entry(
        "distillation.guided_experiment",
        "texts that must contain whole words, beside the teacher alone",
        needs_data=True,
    ),
    "digits": Entry(
        "digits.digits", "8 x 8 digits: structures of trees, adding and kinds of squaring"
    ),
    "orthonormal": Entry(
        "digits.orthonormal", "8 x 8 digits: weights for which Z is one against free ones"
    ),
    "weights": Entry(
        "paper.weights", "histograms of learned weights after squaring, negative part"
    ),
}


def find(name: str) -> Entry:
    """The entry of an experiment."""
    if name not in EXPERIMENTS:
        close = get_close_matches(name, EXPERIMENTS, 1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {', '.join(EXPERIMENTS)}."
        raise ValueError(f"there is no experiment {name!r}. {hint}")
    return EXPERIMENTS[name]


def full(name: str) -> Experiment:
    """The experiment as the paper has it."""
    return _instance(name, "FULL")


def quick(name: str) -> Experiment:
    """The same experiment in a minute or two."""
    return _instance(name, "QUICK")


def _instance(name: str, form: str) -> Experiment:
    module = import_module(f"studies.{find(name).module}")
    experiment = getattr(module, form)
    assert isinstance(experiment, Experiment)
    return experiment
