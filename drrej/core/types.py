"""Names of array types and of choices that every room shares."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Precision = Literal["auto", "float64"]
InputKind = Literal["logits", "probs", "log-probs"]
