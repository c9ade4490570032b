"""A dump: parquet files of logits and labels, read in blocks.

A block is at most about 4 MB of logits inside one row group, so memory does not grow with the file. A `RowGroup`
addresses its blocks by file and number, so that any worker can open its own.
"""

from __future__ import annotations

import os
import re
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
from drrej.dumps.problems import Problem, shown
from drrej.dumps.sources import Part, Spools, find_parts, one_line
from drrej.errors import DumpError, OptionError
from drrej.losses import AnyFloats, BlockSums, Floats, InputKind, Precision, block_sums

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError)
"""What pyarrow raises on damaged files."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Numbers that are written as int64 would be: 007 stays text."""

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
    left_out: int = 0
    kept: NDArray[np.intp] | None = None  # rows of the batch, where some were left out

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.logits.shape[0])

    def report(
        self, rows: NDArray[np.intp], what: str, remedy: str, example: str = "", column: str | None = None
    ) -> None:
        """Note bad rows."""
        if rows.size:
            self.bad[rows] = True
            place = (self.part.name, int(self.row_numbers()[rows[0]]), int(rows.size))
            self.problems.append(Problem(what, column or self.logit_name, remedy, *place, example))

    def row_numbers(self) -> NDArray[np.int64]:
        """Where the rows of the block stand in their file."""
        rows = np.arange(self.bad.size) if self.kept is None else self.kept
        return rows + self.first_row

    def sums(self, betas: Sequence[float], needs: str | Sequence[str], precision: Precision = "auto") -> BlockSums:
        """`block_sums` of the logits; rows without usable scores are reported and get placeholders."""
        sums = block_sums(self.logits, betas, needs, precision)
        if self.check_largest(sums.largest):
            return sums
        self.logits = self.logits.copy()
        self.logits[self.bad] = 0
        return block_sums(self.logits, betas, needs, precision)

    def check_largest(self, largest: Floats) -> bool:
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
        return not suspects.size


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
    opened: str = field(default_factory=lambda: os.urandom(8).hex())
    """Tells one opening from another: files may change between them."""

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
        wanted = list(self.columns.names)
        extra = [*keep]
        if labelled:
            extra.append(self.join.on if self.join is not None else self.label or LABEL)
        wanted += [name for name in dict.fromkeys(extra) if name not in wanted]
        row = group.first_row
        for batch in self._batches(group, wanted, as_stored=self.label if labelled else None):
            if row + batch.num_rows > group.first_row + group.rows:
                break
            try:
                block = self.block(part, row, batch, labelled)
            except (pa.ArrowException, UnicodeDecodeError) as error:  # such as codes beyond their dictionary
                raise _damaged(part, error) from None
            yield block
            row += batch.num_rows
        if row != group.first_row + group.rows:
            raise DumpError(
                f"{part.name}: row group {group.row_group} does not hold the {group.rows} rows that the file's footer "
                "promises; the file is damaged: write it again"
            )

    def _batches(self, group: RowGroup, wanted: Sequence[str], as_stored: str | None) -> Iterator[pa.RecordBatch]:
        """Batches of the columns `wanted`, hive columns included; all but logits and labels in the schema's types."""
        part = self.parts[group.part]
        try:
            with open_parquet(part) as file:
                stored = [name for name in wanted if name in file.schema_arrow.names]
                batches = file.iter_batches(
                    batch_size=self.block_rows, row_groups=[group.row_group], columns=stored, use_threads=False
                )
                for batch in batches:
                    columns = [
                        batch.column(name)
                        if name in self.columns.names or (name == as_stored and name in stored)
                        else self._column(batch, name, stored, part)
                        for name in wanted
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=list(wanted))
        except READ_ERRORS as error:
            raise _damaged(part, error) from None

    def _column(self, batch: pa.RecordBatch, name: str, stored: Sequence[str], part: Part) -> pa.Array:
        data_type = self.schema.field(name).type
        if name not in stored:
            hive = dict(part.hive)
            if name not in hive:
                raise DumpError(f"{part.name}: there is no column '{name}', which {self.parts[0].name} has")
            value = hive[name]
            scalar: Any = int(value) if pa.types.is_integer(data_type) and value is not None else value
            return pa.repeat(pa.scalar(scalar, data_type), batch.num_rows)
        column = batch.column(name)
        if column.type == data_type:
            return column
        try:
            return column.cast(data_type)
        except pa.ArrowException:
            raise DumpError(
                f"{part.name}: column '{name}' is {column.type} but {data_type} in {self.parts[0].name}; "
                "write it in one type, or leave it out with --keep"
            ) from None

    def block(self, part: Part, first_row: int, batch: pa.RecordBatch, labelled: bool) -> Block:
        """Rows as they were read, with scores and labels taken from them."""
        block = Block(
            part=part,
            first_row=first_row,
            logits=np.empty((batch.num_rows, 0)),
            labels=None,
            columns=batch,
            logit_name=self.columns.pattern,
            bad=np.zeros(batch.num_rows, bool),
        )
        if labelled:
            self._add_labels(block)
        chosen = [block.columns.column(name) for name in self.columns.names]
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
        return block

    def _add_labels(self, block: Block) -> None:
        assert self.label_kind is not None
        if self.join is not None:
            self._join_labels(block, self.join)
            return
        assert self.label is not None
        name = self.label

        def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
            block.report(rows, what, remedy, example, column=name)

        block.labels = self.label_kind.encode(block.columns.column(name), self.classes, report)

    def _join_labels(self, block: Block, join: LabelJoin) -> None:
        """Labels by key; rows without one are left out for good where the user said so."""
        found = join.positions(block.columns.column(join.on), block)
        if join.skip_missing:
            kept = np.flatnonzero(found >= 0)
            block.left_out = found.size - kept.size
            if block.left_out:
                found = found[kept]
                block.kept = kept
                block.columns = block.columns.take(pa.array(kept))
                block.bad = block.bad[kept]
        block.joined = found
        block.labels = join.labels[np.maximum(found, 0)]


def _damaged(part: Part, error: Exception) -> DumpError:
    return DumpError(f"{part.name}: cannot be read to the end ({one_line(error)}); is it complete? write it again")


def open_parquet(part: Part) -> pq.ParquetFile:
    """Open a part with settings that keep its buffers small; missing, foreign and damaged files are DumpErrors."""
    where: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}
    if part.uri is not None:
        where = {"pre_buffer": True, "filesystem": part.filesystem()}
    try:
        state = None if part.uri is not None else _state(part.path)
        known, footer = _footers.get(part.path, (None, None))
        footer = footer if known == state else None
        file = pq.ParquetFile(part.path, metadata=footer, page_checksum_verification=True, **where)
        if footer is None:
            if len(_footers) >= _MOST_FOOTERS:
                _footers.clear()
            _footers[part.path] = (state, file.metadata)
        return file
    except READ_ERRORS as error:
        raise DumpError(
            f"{part.name}: not a readable parquet file ({one_line(error)}); is it complete, and is it parquet?"
        ) from None


_MOST_FOOTERS = 256
_footers: dict[str, tuple[tuple[int, int] | None, pq.FileMetaData]] = {}
"""Footers already parsed: a file is opened for each of its row groups, and the footer grows with their number."""


def _state(path: str) -> tuple[int, int]:
    """What tells whether a file is still the one whose footer is known."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def open_dump(arguments: Sequence[str], options: DumpOptions, labelled: bool, spools: Spools | None = None) -> Dump:
    """Open a dump: list its parts, find its columns, check that the parts agree."""
    parts = find_parts(arguments, spools)
    hive = _hive_fields(parts)
    groups: list[RowGroup] = []
    schemas: dict[int, pa.Schema] = {}
    shape = _Shape(options)
    for number, part in enumerate(parts):
        with open_parquet(part) as file:
            found = _row_groups(file, number, part)
            if found:
                schema = read_schema(file, part)
                shape.check(part, file, schema)
                schemas[number] = _with_fields(schema, hive)
                groups += found
    if not groups:
        raise DumpError(
            f"{shown([part.name for part in parts], 3)}: zero rows; there is nothing to work on: "
            "did the job that wrote it fail?"
        )
    assert shape.columns is not None
    first = groups[0].part
    label, kind, join = _find_labels(schemas[first], options, shape.classes, parts[first], labelled, spools)
    if labelled and join is None:
        for number, schema in schemas.items():
            _check_label(schema, label, options, shape.classes, parts[number], parts[first])
    if options.classes is not None and len(options.classes) != shape.classes:
        raise DumpError(
            f"{parts[first].name}: column '{shape.columns.pattern}' has {shape.classes} scores per row but --classes "
            f"names {len(options.classes)} classes; name each class once, in the order of the logits"
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
        schema=schemas[first],
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
        options = self.options
        columns = find_logits(schema, options.logits, bool(options.binary), part.name, options.label)
        classes = _class_count(file, columns, part)
        if self.columns is None:
            self.columns, self.classes, self.first = columns, classes, part.name
        elif columns != self.columns or classes != self.classes:
            if classes != self.classes:
                raise DumpError(
                    f"{part.name}: column '{columns.pattern}' has {classes} scores per row, but {self.first} has "
                    f"{self.classes}; all files of a dump must come from one model"
                )
            raise DumpError(
                f"{part.name}: logits are in '{columns.pattern}', but in {self.first} in '{self.columns.pattern}'; "
                "all files of a dump must have the same columns"
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
        raise DumpError(f"{part.name}: column '{name}' has no scores: its lists are empty")
    return int(classes)


def _first_length(file: pq.ParquetFile, name: str, part: Part) -> int:
    """The length that most of the first lists have."""
    try:
        for batch in file.iter_batches(batch_size=256, columns=[name], use_threads=False):
            lengths = [len(row) for row in batch.column(0) if row.is_valid]
            if lengths:
                values, counts = np.unique(lengths, return_counts=True)
                return int(values[counts.argmax()])
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: cannot be read ({one_line(error)}); is it complete? write it again") from None
    raise DumpError(f"{part.name}: column '{name}' is null in every row; is it the right column? (see --logits)")


def _row_groups(file: pq.ParquetFile, number: int, part: Part) -> list[RowGroup]:
    """The row groups of a part that have rows."""
    groups, first_row = [], 0
    try:
        for i in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(i).num_rows
            if rows:
                groups.append(RowGroup(number, i, first_row, rows))
            first_row += rows
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its footer cannot be read ({one_line(error)}); write it again") from None
    if any(group.rows < 0 for group in groups) or first_row != file.metadata.num_rows:
        raise DumpError(f"{part.name}: its footer contradicts itself about the number of rows; write it again")
    return groups


def read_schema(file: pq.ParquetFile, part: Part) -> pa.Schema:
    """The columns of a part."""
    try:
        schema = file.schema_arrow.remove_metadata()
        for name in schema.names:
            name.encode()
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its schema cannot be read ({one_line(error)}); write it again") from None
    return schema


def _find_labels(
    schema: pa.Schema, options: DumpOptions, classes: int, first: Part, labelled: bool, spools: Spools | None
) -> tuple[str | None, LabelKind | None, LabelJoin | None]:
    if (options.labels_from is None) != (options.join_on is None):
        raise OptionError(
            "--labels-from FILE and --join-on COL go together: COL is the key column that both files have"
        )
    label = options.label or LABEL
    known = label if label in schema.names else None
    if labelled and options.labels_from is not None:
        assert options.join_on is not None
        if options.join_on not in schema.names:
            raise DumpError(
                f"{first.name}: there is no column '{options.join_on}' to join on; columns: {shown(schema.names)}"
            )
        join = LabelJoin.load(options.labels_from, options.join_on, options, classes, spools)
        return known, join.kind, join
    if labelled:
        label = find_label(schema.names, options.label, first.name)
        where = f"{first.name}: column '{label}'"
        return label, label_kind(schema.field(label).type, options.classes, classes, where), None
    if known is None:
        return None, None, None
    try:
        return known, label_kind(schema.field(known).type, options.classes, classes, first.name), None
    except DumpError:  # not needed: without names, predictions are class numbers
        return known, None, None


def _check_label(
    schema: pa.Schema, label: str | None, options: DumpOptions, classes: int, part: Part, first: Part
) -> None:
    if label not in schema.names:
        raise DumpError(f"{part.name}: there is no label column '{label}', which {first.name} has")
    label_kind(schema.field(label).type, options.classes, classes, f"{part.name}: column '{label}'")


def _hive_fields(parts: Sequence[Part]) -> list[pa.Field]:
    """The columns that the folders of every part spell, integers where all values are."""
    spelled = [dict(part.hive) for part in parts]
    keys = [key for key in spelled[0] if all(key in other for other in spelled)]
    fields = []
    for key in keys:
        values = {other[key] for other in spelled} - {None}
        whole = all(_INTEGER.fullmatch(value or "") for value in values) and bool(values)
        fields.append(pa.field(key, pa.int64() if whole else pa.string()))
    return fields


def _with_fields(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    for field_ in fields:
        if field_.name not in schema.names:
            schema = schema.append(field_)
    return schema
