"""Subtractive mixture models: densities that add and subtract, with exact inference."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from subtractive.circuits.circuit import Circuit as Circuit
    from subtractive.circuits.determinism import is_deterministic as is_deterministic
    from subtractive.circuits.initialisers import dirichlet as dirichlet
    from subtractive.circuits.initialisers import log_normal as log_normal
    from subtractive.circuits.initialisers import normal as normal
    from subtractive.circuits.initialisers import uniform as uniform
    from subtractive.circuits.layers import HadamardLayer as HadamardLayer
    from subtractive.circuits.layers import KroneckerLayer as KroneckerLayer
    from subtractive.circuits.layers import SumLayer as SumLayer
    from subtractive.circuits.squaring import square as square
    from subtractive.circuits.squaring import square_deterministic as square_deterministic
    from subtractive.circuits.weights import complex_weights as complex_weights
    from subtractive.circuits.weights import positive_weights as positive_weights
    from subtractive.circuits.weights import real_weights as real_weights
    from subtractive.data.tables import penguins as penguins
    from subtractive.densities.base import Density as Density
    from subtractive.densities.mixture import Mixture as Mixture
    from subtractive.densities.monotonic import MonotonicCircuit as MonotonicCircuit
    from subtractive.densities.squared import SquaredCircuit as SquaredCircuit
    from subtractive.inference.divergence import cauchy_schwarz as cauchy_schwarz
    from subtractive.inference.divergence import fidelity as fidelity
    from subtractive.inference.inner import inner as inner
    from subtractive.inference.inner import log_inner as log_inner
    from subtractive.inference.partition import CancellationError as CancellationError
    from subtractive.inference.partition import CancellationWarning as CancellationWarning
    from subtractive.inputs.atoms import WithAtoms as WithAtoms
    from subtractive.inputs.binomial import Binomial as Binomial
    from subtractive.inputs.categorical import Categorical as Categorical
    from subtractive.inputs.embedding import Embedding as Embedding
    from subtractive.inputs.gaussian import Gaussian as Gaussian
    from subtractive.inputs.multivariate_gaussian import (
        MultivariateGaussian as MultivariateGaussian,
    )
    from subtractive.inputs.rbf import RBF as RBF
    from subtractive.inputs.spline import Spline as Spline
    from subtractive.inputs.tied_gaussian import TiedGaussian as TiedGaussian
    from subtractive.io.files import FileFormatError as FileFormatError
    from subtractive.learning.distributed import LostProcessError as LostProcessError
    from subtractive.learning.expectation_maximisation import (
        fit_gaussian_mixture as fit_gaussian_mixture,
    )
    from subtractive.learning.frames import gaussian_frames as gaussian_frames
    from subtractive.learning.history import History as History
    from subtractive.learning.initialise import initialise as initialise
    from subtractive.learning.loop import fit as fit
    from subtractive.learning.psd import fit_psd_model as fit_psd_model
    from subtractive.learning.psd import likelihood_gap as likelihood_gap
    from subtractive.learning.relative_adam import relative_adam as relative_adam
    from subtractive.learning.run import TrainingWarning as TrainingWarning
    from subtractive.reductions.disjointness import UndirectedGraph as UndirectedGraph
    from subtractive.reductions.disjointness import communication_matrix as communication_matrix
    from subtractive.reductions.disjointness import margulis_graph as margulis_graph
    from subtractive.reductions.disjointness import matching_graph as matching_graph
    from subtractive.reductions.disjointness import random_regular_graph as random_regular_graph
    from subtractive.reductions.disjointness import unique_disjointness as unique_disjointness
    from subtractive.reductions.gaussian_mixture import from_sklearn as from_sklearn
    from subtractive.reductions.gaussian_mixture import (
        monotonic_gaussian_mixture as monotonic_gaussian_mixture,
    )
    from subtractive.reductions.gaussian_mixture import (
        squared_gaussian_mixture as squared_gaussian_mixture,
    )
    from subtractive.reductions.hidden_markov import from_hmmlearn as from_hmmlearn
    from subtractive.reductions.hidden_markov import (
        monotonic_hidden_markov_model as monotonic_hidden_markov_model,
    )
    from subtractive.reductions.matrix_product_state import from_quimb as from_quimb
    from subtractive.reductions.matrix_product_state import (
        matrix_product_state as matrix_product_state,
    )
    from subtractive.reductions.matrix_product_state import (
        monotonic_matrix_product_state as monotonic_matrix_product_state,
    )
    from subtractive.reductions.matrix_product_state import (
        squared_matrix_product_state as squared_matrix_product_state,
    )
    from subtractive.reductions.matrix_product_state import to_quimb as to_quimb
    from subtractive.reductions.psd import psd_model as psd_model
    from subtractive.reductions.psd import squared_psd_model as squared_psd_model
    from subtractive.reductions.separation import expander_table as expander_table
    from subtractive.reductions.separation import induced_matching as induced_matching
    from subtractive.reductions.separation import most_disjoint_pairs as most_disjoint_pairs
    from subtractive.reductions.separation import separation_table as separation_table
    from subtractive.reductions.signed_mixture import SignedMixture as SignedMixture
    from subtractive.reductions.signed_mixture import signed_mixture as signed_mixture
    from subtractive.reductions.tensor_train import squared_tensor_train as squared_tensor_train
    from subtractive.regions.chow_liu import chow_liu_tree as chow_liu_tree
    from subtractive.regions.graph import Partition as Partition
    from subtractive.regions.graph import Region as Region
    from subtractive.regions.graph import RegionGraph as RegionGraph
    from subtractive.regions.trees import flat as flat
    from subtractive.regions.trees import linear_tree as linear_tree
    from subtractive.regions.trees import random_binary_tree as random_binary_tree
    from subtractive.report.page import write_report as write_report
    from subtractive.tables.classifier import SubtractiveClassifier as SubtractiveClassifier
    from subtractive.tables.column_types import Categories as Categories
    from subtractive.tables.column_types import Continuous as Continuous
    from subtractive.tables.column_types import DataWarning as DataWarning
    from subtractive.tables.column_types import Ignored as Ignored
    from subtractive.tables.estimator import SubtractiveMixture as SubtractiveMixture
    from subtractive.tables.imputer import SubtractiveImputer as SubtractiveImputer
    from subtractive.tables.imputer import SubtractiveOutlierDetector as SubtractiveOutlierDetector
    from subtractive.tables.model_file import load as load
    from subtractive.tables.schema import Schema as Schema

# Names are imported when they are first used, so that the command line starts at once: the test
# of this file makes sure that this table says the same as the imports above.
_PLACES = {
    "Circuit": "circuits.circuit",
    "is_deterministic": "circuits.determinism",
    "dirichlet": "circuits.initialisers",
    "log_normal": "circuits.initialisers",
    "normal": "circuits.initialisers",
    "uniform": "circuits.initialisers",
    "HadamardLayer": "circuits.layers",
    "KroneckerLayer": "circuits.layers",
    "SumLayer": "circuits.layers",
    "square": "circuits.squaring",
    "square_deterministic": "circuits.squaring",
    "complex_weights": "circuits.weights",
    "positive_weights": "circuits.weights",
    "real_weights": "circuits.weights",
    "penguins": "data.tables",
    "Density": "densities.base",
    "Mixture": "densities.mixture",
    "MonotonicCircuit": "densities.monotonic",
    "SquaredCircuit": "densities.squared",
    "FileFormatError": "io.files",
    "WithAtoms": "inputs.atoms",
    "Binomial": "inputs.binomial",
    "Categorical": "inputs.categorical",
    "Embedding": "inputs.embedding",
    "Gaussian": "inputs.gaussian",
    "MultivariateGaussian": "inputs.multivariate_gaussian",
    "RBF": "inputs.rbf",
    "Spline": "inputs.spline",
    "TiedGaussian": "inputs.tied_gaussian",
    "LostProcessError": "learning.distributed",
    "fit_gaussian_mixture": "learning.expectation_maximisation",
    "gaussian_frames": "learning.frames",
    "History": "learning.history",
    "initialise": "learning.initialise",
    "fit": "learning.loop",
    "fit_psd_model": "learning.psd",
    "likelihood_gap": "learning.psd",
    "relative_adam": "learning.relative_adam",
    "TrainingWarning": "learning.run",
    "cauchy_schwarz": "inference.divergence",
    "fidelity": "inference.divergence",
    "inner": "inference.inner",
    "log_inner": "inference.inner",
    "CancellationError": "inference.partition",
    "CancellationWarning": "inference.partition",
    "UndirectedGraph": "reductions.disjointness",
    "communication_matrix": "reductions.disjointness",
    "margulis_graph": "reductions.disjointness",
    "matching_graph": "reductions.disjointness",
    "random_regular_graph": "reductions.disjointness",
    "unique_disjointness": "reductions.disjointness",
    "from_sklearn": "reductions.gaussian_mixture",
    "monotonic_gaussian_mixture": "reductions.gaussian_mixture",
    "squared_gaussian_mixture": "reductions.gaussian_mixture",
    "from_hmmlearn": "reductions.hidden_markov",
    "monotonic_hidden_markov_model": "reductions.hidden_markov",
    "from_quimb": "reductions.matrix_product_state",
    "matrix_product_state": "reductions.matrix_product_state",
    "monotonic_matrix_product_state": "reductions.matrix_product_state",
    "squared_matrix_product_state": "reductions.matrix_product_state",
    "to_quimb": "reductions.matrix_product_state",
    "psd_model": "reductions.psd",
    "squared_psd_model": "reductions.psd",
    "expander_table": "reductions.separation",
    "induced_matching": "reductions.separation",
    "most_disjoint_pairs": "reductions.separation",
    "separation_table": "reductions.separation",
    "SignedMixture": "reductions.signed_mixture",
    "signed_mixture": "reductions.signed_mixture",
    "squared_tensor_train": "reductions.tensor_train",
    "chow_liu_tree": "regions.chow_liu",
    "Partition": "regions.graph",
    "Region": "regions.graph",
    "RegionGraph": "regions.graph",
    "flat": "regions.trees",
    "linear_tree": "regions.trees",
    "random_binary_tree": "regions.trees",
    "write_report": "report.page",
    "SubtractiveClassifier": "tables.classifier",
    "Categories": "tables.column_types",
    "Continuous": "tables.column_types",
    "DataWarning": "tables.column_types",
    "Ignored": "tables.column_types",
    "SubtractiveMixture": "tables.estimator",
    "SubtractiveImputer": "tables.imputer",
    "SubtractiveOutlierDetector": "tables.imputer",
    "load": "tables.model_file",
    "Schema": "tables.schema",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'subtractive' has no attribute {name!r}")
    value = getattr(import_module(f"subtractive.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
