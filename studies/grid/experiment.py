"""What an experiment is: frozen settings, independent runs, and what is shown of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from studies.grid.outputs import Page
from subtractive.io.files import plain

# The settings of one run, plain numbers and texts by which it is known for ever.
Run = Mapping[str, Any]
# Where a run may leave a file of a given ending beside its record.
Place = Callable[[str], Path]


class Record(NamedTuple):
    """A finished run: its settings, what came out, and the files it left."""

    run: Run
    result: Mapping[str, Any]
    seconds: float
    file: Place


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment: a subclass is a frozen dataclass of plain numbers and texts.

    Runs do not know of each other, so that they can be done in any order, by several processes,
    and one at a time again after a crash. Everything random comes from seeds in the settings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    bulky: ClassVar[tuple[str, ...]] = ()  # results that are too large for records in git

    @abstractmethod
    def runs(self) -> Sequence[Run]:
        """The settings of all runs, those first that say most about the rest."""

    @abstractmethod
    def perform(self, run: Run, place: Place) -> Mapping[str, Any]:
        """Do one run; the numbers that came out, as plain data."""

    @abstractmethod
    def present(self, records: Sequence[Record], outputs: Page) -> None:
        """Write tables and figures about all runs, which come in the order of :meth:`runs`."""

    def paper(self) -> dict[str, Any]:
        """What differs from these settings where the paper's are wanted; by default nothing."""
        return {}

    def settings(self) -> dict[str, Any]:
        """All settings by name, as JSON knows them: lists for tuples."""
        settings: dict[str, Any] = plain(asdict(self))
        return settings

    def changed(self, changes: Mapping[str, Any]) -> Experiment:
        """The same experiment with some settings replaced by values as JSON gives them."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise ValueError(
                    f"the experiment {self.name!r} has no setting {name!r}: it has "
                    f"{', '.join(known)}."
                )
            known[name] = _like(known[name], value, name)
        return type(self)(**known)


@dataclass(frozen=True)
class Staged(Experiment):
    """An experiment whose last runs follow from what came out of the others."""

    @abstractmethod
    def following(self, records: Sequence[Record]) -> Sequence[Run]:
        """The runs that come after all of :meth:`runs`, in whose order the records are."""


def _like(old: Any, new: Any, name: str) -> Any:  # noqa: ANN401 - a setting of any type
    """A new value for a setting, in the type of the old one."""
    if isinstance(old, tuple):
        if not isinstance(new, list | tuple):
            new = [new]
        return tuple(_like(old[0], item, name) for item in new) if old else tuple(new)
    if isinstance(old, float) and isinstance(new, int) and not isinstance(new, bool):
        return float(new)
    if type(new) is not type(old):
        raise ValueError(f"the setting {name!r} is like {old!r}, got {new!r}.")
    return new
