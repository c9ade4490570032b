"""A part of the rows of a dump, chosen by what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from drrej.data.dump import Block


class Portion(Protocol):
    """Says which rows of a block to read; goes to workers with the dump."""

    @property
    def rows(self) -> int:
        """How many there are in the whole dump."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns that must be read to tell."""

    @property
    def by_label(self) -> bool:
        """Whether labels must be read to tell."""

    def chosen(self, block: Block) -> NDArray[np.intp]:
        """The places of the rows in a block."""
