"""Type names for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
AnyArray = NDArray[Any]
Seed = int | np.random.Generator | np.random.RandomState | None
