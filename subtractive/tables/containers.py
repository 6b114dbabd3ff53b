"""How a table looks from outside, so that answers come back as the same kind of table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

AnyTable: TypeAlias = Any  # an array, or a data frame of any library
Arrays: TypeAlias = Mapping[Hashable, npt.NDArray[Any]]  # by column, (n,) each


class Container(ABC):
    """What kind of table to build from columns of values."""

    @abstractmethod
    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        """A table of these columns, with their types; its rows are named as those of ``like``."""


@final
@dataclass(frozen=True)
class ArrayContainer(Container):
    """An array of one dtype; its columns are numbered."""

    dtype: np.dtype[Any]

    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        return np.column_stack(list(columns.values())).astype(self.dtype)


@final
@dataclass(frozen=True)
class FrameContainer(Container):
    """A data frame with the columns' types of ``template``, which has no rows."""

    template: Any

    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        empty = nw.from_native(self.template, eager_only=True)
        if empty.implementation.is_pandas_like():
            return self._build_pandas(columns, like)
        series = [
            nw.new_series(str(name), values.tolist(), backend=empty.implementation).cast(
                empty.schema[str(name)]
            )
            for name, values in columns.items()
        ]
        return nw.concat([one.to_frame() for one in series], how="horizontal").to_native()

    def _build_pandas(self, columns: Arrays, like: AnyTable) -> AnyTable:
        """Types of pandas know more than their names: categories, and what missing looks like."""
        module = nw.get_native_namespace(self.template)
        index = None if like is None else like.index
        series = {
            name: module.Series(values, index=index).astype(self.template[name].dtype)
            for name, values in columns.items()
        }
        frame = module.DataFrame(series, index=index)
        frame.columns = self.template.columns[[self.template.columns.get_loc(n) for n in columns]]
        return frame
