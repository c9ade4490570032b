"""Names of array types and of choices that every room shares, and the base of what documents hold."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Precision = Literal["auto", "float64"]
InputKind = Literal["logits", "probs", "log-probs"]


class Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What documents may hold: read with every key and type checked; a field that has its default is not written."""
