from .kinds import Categories as Categories
from .kinds import Continuous as Continuous
from .kinds import Counts as Counts
from .kinds import DataWarning as DataWarning
from .schema import Schema as Schema
