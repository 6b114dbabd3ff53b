"""What other libraries call an array, as a tensor in double precision."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Array: TypeAlias = "ArrayLike | Tensor"


def as_double(array: Array) -> Tensor:
    """A tensor on the CPU, in float64 or complex128 and without a gradient.

    >>> as_double([0.1, 0.2])  # torch itself would round lists to single precision
    tensor([0.1000, 0.2000], dtype=torch.float64)
    """
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.array(array))
    return tensor.detach().cpu().to(torch.promote_types(tensor.dtype, torch.float64))
