from .column_types import Categories as Categories
from .column_types import Continuous as Continuous
from .column_types import Counts as Counts
from .column_types import DataWarning as DataWarning
from .schema import Schema as Schema
