"""``python -m subtractive.cli`` is the command ``subtractive``."""

import sys

from subtractive.cli.main import main

sys.exit(main())
