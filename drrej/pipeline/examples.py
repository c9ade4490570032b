"""Rows to look at: rejected ones, and errors that were accepted. Only where asked for, because they show data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block
from drrej.documents.report import Example, Examples
from drrej.records import dataclass

MOST = 25
"""Of each kind."""

_LONGEST = 60


@dataclass(frozen=True)
class Picked:
    """The rows of a block that may be shown, in order: the largest losses first, or the smallest."""

    rejected: tuple[Example, ...]
    wrong: tuple[Example, ...]


@dataclass(frozen=True)
class Picking:
    """The columns to show, and the names of classes."""

    columns: Sequence[str]
    names: Sequence[str] | None

    def of(self, block: Block, labels: Integers, prediction: Integers, loss: Floats, accepted: Booleans) -> Picked:
        """Those of a block; of equal losses the first rows."""
        wrong = np.flatnonzero(accepted & (prediction != labels))
        rejected = np.flatnonzero(~accepted)

        def shown(rows: NDArray[np.int64]) -> tuple[Example, ...]:
            cells = [block.columns.column(name).take(rows).to_pylist() for name in self.columns]
            texts = zip(*cells, strict=True) if cells else ((),) * len(rows)
            return tuple(
                Example(
                    label=self._name(int(labels[row])),
                    prediction=self._name(int(prediction[row])),
                    loss=float(loss[row]),
                    values=tuple(_text(value) for value in values),
                )
                for row, values in zip(rows.tolist(), texts, strict=True)
            )

        return Picked(
            shown(rejected[np.argsort(-loss[rejected], kind="stable")[:MOST]]),
            shown(wrong[np.argsort(loss[wrong], kind="stable")[:MOST]]),
        )

    def together(self, blocks: Sequence[Picked]) -> Examples:
        """Those of all rows, from blocks in order."""
        rejected = [example for block in blocks for example in block.rejected]
        wrong = [example for block in blocks for example in block.wrong]
        return Examples(
            columns=tuple(self.columns),
            rejected=tuple(sorted(rejected, key=lambda example: -example.loss)[:MOST]),
            wrongly_accepted=tuple(sorted(wrong, key=lambda example: example.loss)[:MOST]),
        )

    def _name(self, number: int) -> str:
        return str(number) if self.names is None else self.names[number]


def _text(value: Any) -> str:
    """A value as short text; null is empty."""
    text = "" if value is None else str(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
