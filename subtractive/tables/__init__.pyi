from .column_types import Categories as Categories
from .column_types import Continuous as Continuous
from .column_types import DataWarning as DataWarning
from .column_types import Ignored as Ignored
from .functional_dependencies import FunctionalDependency as FunctionalDependency
from .functional_dependencies import functional_dependencies as functional_dependencies
from .schema import Schema as Schema
