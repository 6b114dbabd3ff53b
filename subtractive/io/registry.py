"""Classes by the names that they have in files: only what was defined can be loaded.

Classes of this package are known by their bare names, those of others by module and name. A name
in a file is only ever looked up here; nothing is imported because a file says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, final

Kind = TypeVar("Kind")
OWN_PACKAGE = __name__.partition(".")[0]


def name_in_files(kind: type) -> str:
    """The name of a class in files.

    >>> name_in_files(Registry)
    'Registry'
    """
    is_own = kind.__module__.partition(".")[0] == OWN_PACKAGE
    return kind.__qualname__ if is_own else f"{kind.__module__}.{kind.__qualname__}"


@final
class Registry(Generic[Kind]):
    """The classes of one kind; they enter it when they are defined (``__init_subclass__``)."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._classes: dict[str, type[Kind]] = {}

    def add(self, kind: type[Kind], old_names: Sequence[str] = ()) -> None:
        """Make a class known; one defined later under the same name replaces it."""
        for name in (name_in_files(kind), *old_names):
            self._classes[name] = kind

    def find(self, name: str) -> type[Kind]:
        """The class that has a name in files."""
        if not isinstance(name, str) or name not in self._classes:
            raise ValueError(
                f"unknown {self._noun} {str(name)[:80]!r}: if it is yours, import the module that "
                "defines it first"
            )
        return self._classes[name]

    def name_of(self, kind: type[Kind]) -> str:
        """The name to store for a class; ``ValueError`` if no program could find it again."""
        name = name_in_files(kind)
        if "<locals>" in name:
            raise ValueError(
                f"a {self._noun} that is defined inside a function cannot be saved, got {name}. "
                "Define the class at the top of a module."
            )
        if self._classes.get(name) is not kind:
            raise ValueError(
                f"{name} names another {self._noun} by now and cannot be saved: the class was "
                "defined again. Build the model anew."
            )
        return name
