"""Groups of rows, by a column of the dump or by the prediction, and decisions that may differ between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.types import Floats
from drrej.data import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError

PREDICTION = "prediction"
"""The name that stands for the prediction instead of a column."""

OnUnseen = Literal["error", "reject"]


class Grouping:
    """The groups of rows: values of a column as text, or predicted classes by name or number."""

    def __init__(self, by: str, names: Sequence[str] | None, classes: int) -> None:
        self.by = by
        self.columns = () if by == PREDICTION else (by,)
        self._classes = list(names) if names is not None else [str(number) for number in range(classes)]

    def of(self, block: Block, prediction: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
        """The group number of each row and the groups' names; rows without a group are reported."""
        if self.by == PREDICTION:
            return prediction, self._classes
        column = block.columns.column(self.by)
        if column.null_count:
            block.report(np.flatnonzero(np.asarray(column.is_null())), "no group (null)", "fill it in", column=self.by)
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        numbers: NDArray[np.int64] = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers, column.dictionary.cast(pa.string()).to_pylist() or [""]


def check_columns(dump: Dump, columns: Sequence[str], option: str) -> None:
    """Raise when a column that an option names is not there."""
    for name in columns:
        if name not in dump.schema.names:
            known = ", ".join(f"'{column}'" for column in dump.other_columns[:12])
            raise DumpError(f"{dump.parts[0].name}: {option}: there is no column '{name}'; columns: {known or 'none'}")


class Decision:
    """Applies the threshold of a rejector to blocks: one cutoff, or one for each group."""

    def __init__(self, rejector: Rejector, dump: Dump, on_unseen: OnUnseen = "error") -> None:
        self.threshold = rejector.need_threshold()
        self.on_unseen = on_unseen
        self.grouping = None
        if self.threshold.by is not None:
            self.grouping = Grouping(self.threshold.by, rejector.class_names, rejector.classes)
            check_columns(dump, self.grouping.columns, "the threshold's groups")
        self.columns: tuple[str, ...] = () if self.grouping is None else self.grouping.columns
        self._cutoffs = {
            group.group: np.inf if group.cutoff is None else group.cutoff for group in self.threshold.groups or ()
        }

    def accepts(self, block: Block, losses: Floats, prediction: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are accepted."""
        if self.grouping is None:
            return self.threshold.accepts(losses)
        numbers, names = self.grouping.of(block, prediction)
        cutoffs = np.array([self._cutoffs.get(name, np.nan) for name in names])[numbers]
        unseen = np.isnan(cutoffs) & ~block.bad
        if self.on_unseen == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise DumpError(
                f"{block.part.name}: row {block.row_numbers()[row]} (counted from 0) is of the group "
                f"{self.grouping.by} = '{names[numbers[row]]}', for which the rejector has no threshold; "
                "use `on_unseen_group=reject`, or choose the threshold again on rows of every group"
            )
        accepted: NDArray[np.bool_] = losses < cutoffs
        return accepted
