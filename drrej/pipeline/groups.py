"""Groups of rows, by a column of the dump or by the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from drrej.core.types import Integers
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError, OptionError

PREDICTION = "prediction"
"""The name that stands for the prediction instead of a column."""

FILE = "file"
"""The name that stands for the file that a row is in."""

LABEL = "label"
"""The name that stands for the true class, where rows are reported on."""

OnUnseen = Literal["error", "reject"]


class Grouping:
    """The groups of the rows of a dump: values of a column as text, or predicted classes by name or number.

    With `files`, the name 'file' stands for the file that a row is in, unless there is such a column. With `truth`,
    "label" stands for the true class, wherever that is kept. `asked_by` says in messages who needs the column.
    """

    def __init__(
        self,
        by: str,
        rejector: Rejector,
        dump: Dump,
        asked_by: str = "`by`",
        files: bool = False,
        truth: bool = False,
    ) -> None:
        self.by = by
        self._is_file = files and by == FILE and FILE not in dump.schema.names
        self.truth = truth and by == LABEL
        kept_elsewhere = dump.labels_file is not None or dump.label != LABEL
        if self.truth and LABEL in dump.schema.names and kept_elsewhere:
            raise OptionError(
                "`by=label` may be the true class or the column of that name, which holds something else here; rename "
                "the column"
            )
        self.columns = () if by == PREDICTION or self._is_file or self.truth else (by,)
        check_columns(dump, self.columns, asked_by)
        for name in self.columns:
            if pa.types.is_nested(dump.schema.field(name).type):
                raise DumpError(
                    f"{dump.parts[0].name}: {asked_by}: column '{name}' is {dump.schema.field(name).type}; groups are "
                    "text, numbers or dates"
                )
        self._classes = list(rejector.class_names or map(str, range(rejector.classes)))

    def of(self, block: Block, prediction: Integers) -> tuple[Integers, list[str]]:
        """The group number of each row and the groups' names; rows without a group are reported."""
        if self.by == PREDICTION:
            return prediction, self._classes
        if self._is_file:
            return np.zeros(block.rows, np.int64), [block.part.name]
        if self.truth:
            assert block.labels is not None
            if block.labels.min(initial=0) < 0:
                raise OptionError(
                    "`by=label` cannot be combined with `on_unknown_label=wrong`; use `on_unknown_label=skip`"
                )
            return block.labels, self._classes
        column = block.columns.column(self.by)
        if column.null_count:
            block.report(np.flatnonzero(np.asarray(column.is_null())), "no group (null)", "fill it in", column=self.by)
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        numbers: Integers = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers, column.dictionary.cast(pa.string()).to_pylist() or [""]

    def column(self, block: Block, prediction: Integers) -> pa.DictionaryArray:
        """The group of each row, as `collect` joins it."""
        numbers, names = self.of(block, prediction)
        return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names, pa.string()))


def numbered(groups: pa.DictionaryArray) -> tuple[Integers, list[str]]:
    """The group number of each row and the names of the groups that have rows, in the order of the names."""
    names, numbers = groups.dictionary.to_pylist(), groups.indices.to_numpy(zero_copy_only=False)
    used = sorted(np.unique(numbers).tolist(), key=names.__getitem__)
    place = np.full(len(names), -1)
    place[used] = np.arange(len(used))
    return place[numbers], [names[number] for number in used]


def check_columns(dump: Dump, columns: Sequence[str], option: str) -> None:
    """Raise when a column that an option names is not there."""
    for name in columns:
        if name not in dump.schema.names:
            known = ", ".join(f"'{column}'" for column in dump.other_columns[:12])
            raise DumpError(f"{dump.parts[0].name}: {option}: there is no column '{name}'; columns: {known or 'none'}")
