from .column_types import Categories as Categories
from .column_types import Continuous as Continuous
from .column_types import DataWarning as DataWarning
from .column_types import Ignored as Ignored
from .schema import Schema as Schema
