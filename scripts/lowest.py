"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

Names on the command line are those of extras whose packages are wanted, too.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(requirements: list[str]) -> list[str]:
    """``name==version`` for each ``name>=version``; other packages of ours are left out.

    >>> lowest(["numpy>=1.26", "subtractive[parquet]"])
    ['numpy==1.26']
    """
    found = (re.fullmatch(r"([\w.-]+)>=([\w.]+)", entry) for entry in requirements)
    return [f"{match[1]}=={match[2]}" for match in found if match]


def main(extras: list[str]) -> None:
    """Print one line for each package."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(entry for name in extras for entry in optional[name])]
    print("\n".join(lowest(wanted)))


if __name__ == "__main__":
    main(sys.argv[1:])
