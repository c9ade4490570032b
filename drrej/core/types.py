"""Names of array types and of choices that every room shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Precision = Literal["auto", "float64"]
InputKind = Literal["logits", "probs", "log-probs"]


class StoredLosses(ABC):
    """Sorted losses that lie elsewhere than in memory, and can be sliced and searched like an array."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Their number."""

    @abstractmethod
    def __getitem__(self, key: Any, /) -> Any:
        """One loss, or an array of some."""

    @abstractmethod
    def searchsorted(self, v: Any, /, side: Literal["left", "right"] = "left") -> Any:
        """Where losses would stand among them."""


SortedLosses = Floats | StoredLosses
