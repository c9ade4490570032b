"""A dump: parquet files of logits and labels, read in blocks.

A block is at most about 4 MB of logits inside one row group, so memory does not grow with the file. A `RowGroup`
addresses its blocks by file and number, so that any worker can open its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drrej.dumps import arrays
from drrej.dumps.columns import LABEL, LogitColumns, find_label, find_logits, storage_type
from drrej.dumps.join import LabelJoin
from drrej.dumps.labels import LabelKind, label_kind
from drrej.dumps.problems import Problem
from drrej.dumps.sources import Part, find_parts, one_line
from drrej.errors import DumpError
from drrej.losses import AnyFloats, Floats, InputKind

BLOCK_BYTES = 4 << 20
MAX_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class DumpOptions:
    """How to read a dump; None means: find out, or as the rejector remembers."""

    logits: str | None = None
    label: str | None = None
    input: InputKind | None = None
    binary: bool | None = None
    classes: tuple[str, ...] | None = None
    labels_from: str | None = None
    join_on: str | None = None
    on_missing_label: Literal["error", "skip"] = "error"


@dataclass(frozen=True)
class RowGroup:
    """One row group of one part: where a worker finds it."""

    part: int
    row_group: int
    first_row: int
    rows: int


@dataclass
class Block:
    """Some rows of a dump. `bad` marks rows that were reported; their logits and labels are placeholders."""

    part: Part
    first_row: int
    logits: AnyFloats
    labels: NDArray[np.int64] | None
    columns: pa.RecordBatch
    logit_name: str
    bad: NDArray[np.bool_]
    problems: list[Problem] = field(default_factory=list)
    zeros: int = 0
    all_probabilities: bool = False
    joined: NDArray[np.int64] | None = None
    row_numbers: NDArray[np.intp] | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.logits.shape[0])

    def row_number(self, row: int) -> int:
        """Where a row of the block is in its file, counted from 0."""
        return self.first_row + (row if self.row_numbers is None else int(self.row_numbers[row]))

    def report(self, rows: NDArray[np.intp], what: str, remedy: str, column: str | None = None) -> None:
        """Note bad rows."""
        if rows.size:
            self.bad[rows] = True
            place = self.row_number(int(rows[0]))
            self.problems.append(
                Problem(what, column or self.logit_name, remedy, self.part.name, place, int(rows.size))
            )

    def check_largest(self, largest: Floats) -> None:
        """Report rows whose largest logit is not finite: the cheapest way to see NaN, +inf and all -inf."""
        suspects = np.flatnonzero(~np.isfinite(largest))
        if suspects.size:
            suspects = suspects[~self.bad[suspects]]
            values = self.logits[suspects]
            has_nan = np.isnan(values).any(axis=1)
            has_inf = ~has_nan & (values == np.inf).any(axis=1)
            drop = "drop or fix these rows"
            self.report(suspects[has_nan], "NaN among the scores", drop)
            self.report(suspects[has_inf], "+inf among the scores", drop)
            self.report(suspects[~has_nan & ~has_inf], "-inf for every class", "one class must be possible")

    def leave_out(self, missing: NDArray[np.bool_]) -> None:
        """Drop rows for good (those without a label, where the user said so)."""
        kept = np.flatnonzero(~missing)
        self.row_numbers = kept
        self.logits = self.logits[kept]
        self.columns = self.columns.take(pa.array(kept))
        self.bad = self.bad[kept]


@dataclass(frozen=True)
class Dump:
    """An opened dump. Everything in it can be sent to another process."""

    parts: tuple[Part, ...]
    row_groups: tuple[RowGroup, ...]
    rows: int
    classes: int
    columns: LogitColumns
    label: str | None
    label_kind: LabelKind | None
    input: InputKind
    names: tuple[str, ...] | None
    schema: pa.Schema
    join: LabelJoin | None

    @property
    def binary(self) -> bool:
        """Whether a row holds one score, that of class 1."""
        return self.columns.layout == "score"

    @property
    def other_columns(self) -> list[str]:
        """Every column that is not a logit column, in the file's order, hive columns last."""
        return [name for name in self.schema.names if name not in self.columns.names]

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        first = storage_type(self.schema.field(self.columns.names[0]).type)
        width = getattr(first, "value_type", first).bit_width // 8
        return max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (self.classes * int(width))))

    def read(self, group: RowGroup, labelled: bool, keep: Sequence[str] = ()) -> Iterator[Block]:
        """The blocks of a row group: logits, labels if asked for, and the columns to keep."""
        part = self.parts[group.part]
        hive = dict(part.hive)
        wanted = list(self.columns.names)
        extra = [*keep]
        if labelled:
            extra.append(self.join.on if self.join is not None else self.label or LABEL)
        wanted += [name for name in dict.fromkeys(extra) if name not in hive and name not in wanted]
        first_row = group.first_row
        try:
            with open_parquet(part) as file:
                batches = file.iter_batches(
                    batch_size=self.block_rows,
                    row_groups=[group.row_group],
                    columns=wanted,
                    use_threads=False,
                )
                for batch in batches:
                    yield self._block(part, first_row, _with_hive(batch, self.schema, hive), labelled)
                    first_row += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DumpError(f"{part.name}: cannot be read to the end ({one_line(error)}); is it complete?") from None

    def _block(self, part: Part, first_row: int, batch: pa.RecordBatch, labelled: bool) -> Block:
        block = Block(
            part=part,
            first_row=first_row,
            logits=np.empty((batch.num_rows, 0)),
            labels=None,
            columns=batch,
            logit_name=self.columns.pattern,
            bad=np.zeros(batch.num_rows, bool),
        )
        chosen = [batch.column(name) for name in self.columns.names]
        if self.columns.layout == "list":
            scores = arrays.scores_from_list(chosen[0], self.classes, block.report)
        elif self.columns.layout == "wide":
            scores = arrays.scores_from_columns(chosen, block.report)
        else:
            scores = arrays.scores_from_score(chosen[0], self.input == "probs", block.report)
        if self.input == "probs":
            block.logits, block.zeros = arrays.log_probabilities(scores, block.report)
        else:
            block.logits = scores
            block.all_probabilities = not self.binary and arrays.are_probabilities(scores)
        if labelled:
            self._add_labels(block)
        return block

    def _add_labels(self, block: Block) -> None:
        assert self.label_kind is not None
        if self.join is not None:
            found = self.join.positions(block.columns.column(self.join.on), block)
            if self.join.skip_missing and found.size and found.min() < 0:
                block.leave_out(found < 0)
                found = found[found >= 0]
            block.joined = found
            block.labels = self.join.labels[found]
            return
        assert self.label is not None
        name = self.label

        def report(rows: NDArray[np.intp], what: str, remedy: str) -> None:
            block.report(rows, what, remedy, column=name)

        block.labels = self.label_kind.encode(block.columns.column(name), self.classes, report)


def prefer_jemalloc() -> None:
    """Let Arrow reuse memory between blocks: the other allocators give it back and have it cleared again."""
    with contextlib.suppress(NotImplementedError):
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def open_parquet(part: Part) -> pq.ParquetFile:
    """Open a part with settings that keep its buffers small; missing, foreign and damaged files are DumpErrors."""
    try:
        if part.uri is None:
            return pq.ParquetFile(part.path, pre_buffer=False, buffer_size=1 << 20)
        return pq.ParquetFile(part.path, pre_buffer=True, filesystem=part.filesystem())
    except (OSError, pa.ArrowException) as error:
        raise DumpError(f"{part.name}: not a readable parquet file ({one_line(error)})") from None


def open_dump(arguments: Sequence[str], options: DumpOptions, labelled: bool) -> Dump:
    """Open a dump: list its parts, find its columns, check that the parts agree."""
    parts = find_parts(arguments)
    groups: list[RowGroup] = []
    chosen: list[pa.Schema] = []
    shape = _Shape(options)
    for number, part in enumerate(parts):
        with open_parquet(part) as file:
            schema, metadata = _with_hive_fields(file.schema_arrow, parts), file.metadata
            first_row = 0
            for i in range(metadata.num_row_groups):
                rows = metadata.row_group(i).num_rows
                if rows:
                    groups.append(RowGroup(number, i, first_row, rows))
                first_row += rows
            if first_row:
                shape.check(part, file, schema)
                chosen.append(schema)
    if not groups:
        raise DumpError(f"{', '.join(dict.fromkeys(p.name for p in parts))}: zero rows; there is nothing to work on")
    assert shape.columns is not None
    schema, first = chosen[0], parts[groups[0].part]
    label, kind, join = _find_labels(schema, options, shape.classes, first, labelled)
    for part, other in zip((parts[n] for n in dict.fromkeys(g.part for g in groups)), chosen, strict=True):
        if label is not None and label not in other.names and labelled:
            raise DumpError(f"{part.name}: there is no column '{label}', which {first.name} has")
    if options.classes is not None and len(options.classes) != shape.classes:
        raise DumpError(
            f"{first.name}: --classes names {len(options.classes)} classes but rows have {shape.classes} scores"
        )
    return Dump(
        parts=tuple(parts),
        row_groups=tuple(groups),
        rows=sum(group.rows for group in groups),
        classes=shape.classes,
        columns=shape.columns,
        label=label,
        label_kind=kind,
        input=options.input or "logits",
        names=options.classes,
        schema=schema,
        join=join,
    )


class _Shape:
    """Logit columns and number of classes: found in the first part with rows, required of the others."""

    def __init__(self, options: DumpOptions) -> None:
        self.options = options
        self.columns: LogitColumns | None = None
        self.classes = 0
        self.first = ""

    def check(self, part: Part, file: pq.ParquetFile, schema: pa.Schema) -> None:
        columns = find_logits(schema, self.options.logits, bool(self.options.binary), part.name)
        classes = _class_count(file, columns, part)
        if self.columns is None:
            self.columns, self.classes, self.first = columns, classes, part.name
        elif columns != self.columns or classes != self.classes:
            if classes != self.classes:
                raise DumpError(f"{part.name}: {classes} scores per row, but {self.first} has {self.classes}")
            raise DumpError(
                f"{part.name}: logits are in '{columns.pattern}', but in {self.first} in '{self.columns.pattern}'"
            )


def _class_count(file: pq.ParquetFile, columns: LogitColumns, part: Part) -> int:
    if columns.layout == "score":
        return 2
    if columns.layout == "wide":
        return len(columns.names)
    name = columns.names[0]
    data_type = file.schema_arrow.field(name).type
    if isinstance(data_type, pa.FixedShapeTensorType) and len(data_type.shape) != 1:
        raise DumpError(
            f"{part.name}: column '{name}' has tensors of shape {data_type.shape}; one vector per row is needed"
        )
    storage = storage_type(data_type)
    classes = storage.list_size if pa.types.is_fixed_size_list(storage) else _first_length(file, name, part)
    if classes == 1:
        raise DumpError(
            f"{part.name}: column '{name}' has one score per row; "
            "store it as a plain floating-point column and add --binary if it is the score of class 1"
        )
    if classes == 0:
        raise DumpError(f"{part.name}: column '{name}' has no scores in its first row")
    return int(classes)


def _first_length(file: pq.ParquetFile, name: str, part: Part) -> int:
    try:
        for batch in file.iter_batches(batch_size=256, columns=[name], use_threads=False):
            for row in batch.column(0):
                if row.is_valid:
                    return len(row)
    except (OSError, pa.ArrowException) as error:
        raise DumpError(f"{part.name}: cannot be read ({one_line(error)}); is it complete?") from None
    raise DumpError(f"{part.name}: column '{name}' is null in every row")


def _find_labels(
    schema: pa.Schema, options: DumpOptions, classes: int, first: Part, labelled: bool
) -> tuple[str | None, LabelKind | None, LabelJoin | None]:
    if options.labels_from is not None:
        if options.join_on is None:
            raise DumpError("--labels-from needs --join-on COL: the key column that both files share")
        if options.join_on not in schema.names:
            raise DumpError(f"{first.name}: there is no column '{options.join_on}' to join on")
        join = LabelJoin.load(options.labels_from, options.join_on, options, classes) if labelled else None
        label = options.label or LABEL
        return (label if label in schema.names else None), (join.kind if join else None), join
    if options.join_on is not None and labelled:
        raise DumpError("--join-on goes with --labels-from FILE")
    if not labelled:
        label = options.label or LABEL
        if label not in schema.names:
            return None, None, None
        try:
            kind = label_kind(schema.field(label).type, options.classes, classes, first.name)
        except DumpError:  # not needed: without names, predictions are class numbers
            return label, None, None
        return label, kind, None
    label = find_label(schema.names, options.label, first.name)
    return (
        label,
        label_kind(schema.field(label).type, options.classes, classes, f"{first.name}: column '{label}'"),
        None,
    )


def _with_hive_fields(schema: pa.Schema, parts: Sequence[Part]) -> pa.Schema:
    """The schema with the hive columns that every part spells, integers where all values are."""
    schema = schema.remove_metadata()
    keys = [key for key, _ in parts[0].hive]
    for key in dict.fromkeys(keys):
        values = [dict(part.hive).get(key) for part in parts]
        if key not in schema.names and None not in values:
            whole = all(value is not None and value.lstrip("-").isdigit() for value in values)
            schema = schema.append(pa.field(key, pa.int64() if whole else pa.string()))
    return schema


def _with_hive(batch: pa.RecordBatch, schema: pa.Schema, hive: dict[str, str]) -> pa.RecordBatch:
    for key, value in hive.items():
        if key in schema.names and key not in batch.schema.names:
            data_type = schema.field(key).type
            scalar: Any = int(value) if pa.types.is_integer(data_type) else value
            batch = batch.append_column(key, pa.array([scalar] * batch.num_rows, data_type))
    return batch
