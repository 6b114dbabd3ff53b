from .divergence import cauchy_schwarz as cauchy_schwarz
from .divergence import fidelity as fidelity
from .inner import inner as inner
from .inner import log_inner as log_inner
