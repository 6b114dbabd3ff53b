"""An experiment whose runs take a while and no effort, for processes that are killed at them."""

import time
from dataclasses import dataclass
from typing import ClassVar

from studies.grid.experiment import Experiment


@dataclass(frozen=True)
class Sleepers(Experiment):
    """Numbers, each of them after a little sleep; 13 is refused."""

    name: ClassVar[str] = "sleepers"
    title: ClassVar[str] = "Sleepers"

    numbers: tuple[int, ...] = tuple(range(12))
    seconds: float = 0.1

    def runs(self):
        return [{"number": number} for number in self.numbers]

    def perform(self, run, place):
        if run["number"] == 13:
            raise ValueError("unlucky")
        time.sleep(self.seconds)
        return {"square": run["number"] ** 2}

    def present(self, records, outputs):
        rows = [[record.run["number"], record.result["square"]] for record in records]
        outputs.table("squares", "Squares.", ["number", "square"], rows)
