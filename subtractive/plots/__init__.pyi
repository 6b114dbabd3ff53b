from .calibration import calibration as calibration
from .dependence import dependence as dependence
from .joints import joint as joint
from .layers import circuit as circuit
from .marginals import marginal as marginal
from .slices import slices as slices
from .structure import region_graph as region_graph
from .training import training as training
