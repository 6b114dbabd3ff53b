"""Subtractive mixture models: densities that add and subtract, with exact inference."""

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
from subtractive.densities.base import Density as Density
from subtractive.densities.mixture import Mixture as Mixture
from subtractive.densities.monotonic import MonotonicCircuit as MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit as SquaredCircuit
from subtractive.files import FileFormatError as FileFormatError
from subtractive.inputs.binomial import Binomial as Binomial
from subtractive.inputs.categorical import Categorical as Categorical
from subtractive.inputs.embedding import Embedding as Embedding
from subtractive.inputs.gaussian import Gaussian as Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian as MultivariateGaussian
from subtractive.inputs.rbf import RBF as RBF
from subtractive.inputs.spline import Spline as Spline
from subtractive.learning.distributed import LostProcessError as LostProcessError
from subtractive.learning.expectation_maximisation import (
    fit_gaussian_mixture as fit_gaussian_mixture,
)
from subtractive.learning.history import History as History
from subtractive.learning.initialise import initialise as initialise
from subtractive.learning.loop import fit as fit
from subtractive.learning.run import TrainingWarning as TrainingWarning
from subtractive.queries.divergence import cauchy_schwarz as cauchy_schwarz
from subtractive.queries.divergence import fidelity as fidelity
from subtractive.queries.inner import inner as inner
from subtractive.queries.inner import log_inner as log_inner
from subtractive.queries.partition import CancellationError as CancellationError
from subtractive.queries.partition import CancellationWarning as CancellationWarning
from subtractive.reductions.gaussian_mixture import (
    monotonic_gaussian_mixture as monotonic_gaussian_mixture,
)
from subtractive.reductions.gaussian_mixture import (
    squared_gaussian_mixture as squared_gaussian_mixture,
)
from subtractive.regions.chow_liu import chow_liu_tree as chow_liu_tree
from subtractive.regions.graph import Partition as Partition
from subtractive.regions.graph import Region as Region
from subtractive.regions.graph import RegionGraph as RegionGraph
from subtractive.regions.trees import flat as flat
from subtractive.regions.trees import linear_tree as linear_tree
from subtractive.regions.trees import random_binary_tree as random_binary_tree
from subtractive.tables.classifier import SubtractiveClassifier as SubtractiveClassifier
from subtractive.tables.estimator import SubtractiveMixture as SubtractiveMixture
from subtractive.tables.kinds import Categories as Categories
from subtractive.tables.kinds import Continuous as Continuous
from subtractive.tables.kinds import Counts as Counts
from subtractive.tables.kinds import DataWarning as DataWarning
from subtractive.tables.schema import Schema as Schema

__version__ = "0.1.0.dev0"
