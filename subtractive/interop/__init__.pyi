from .cirkit import from_cirkit as from_cirkit
from .cirkit import to_cirkit as to_cirkit
from .cirkit import write_cirkit as write_cirkit
