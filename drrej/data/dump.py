"""A dump: files of logits and labels, read in blocks.

A block is at most about 4 MB of logits inside one row group, so memory does not grow with the file. A `RowGroup`
addresses its blocks by file and number, so that any worker can open its own.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from operator import add
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import asdict, astuple, replace
from numpy.typing import NDArray

from drrej.core.inputs import ScoreLook
from drrej.core.types import AnyFloats, Floats, InputKind
from drrej.data.columns import ID_NAMES, LABEL, LogitColumns, column_of, field_of, root_of, storage_type
from drrej.data.confidence import RIGHT, WRONG, agreement, read_confidences
from drrej.data.files import AS_WRITTEN, DumpFile, Request, damaged
from drrej.data.formats import format_of
from drrej.data.labels import UNKNOWN, LabelKind, LabelsElsewhere, is_text, without_blanks
from drrej.data.problems import Problem
from drrej.data.scores import read_scores
from drrej.errors import BadFileError, DumpError, OptionError

BLOCK_BYTES = 4 << 20
MAX_BLOCK_ROWS = 1 << 16


class DumpOptions(Struct, frozen=True):
    """How to read a dump; None means that drrej finds out, or uses what the rejector stores."""

    logits: str | None = None
    label: str | None = None
    input: InputKind | None = None
    normalize: bool | None = None
    binary: bool | None = None
    classes: tuple[str, ...] | None = None
    score: str | None = None
    """Scores of any kind, in place of logits: columns or paths, separated by commas."""
    correct: str | None = None
    """The column that tells whether a row with such a score was right."""
    prediction: str | None = None
    """In its place, the column that is compared with the label."""
    lower_is_better: bool | None = None
    labels_from: str | None = None
    join_on: str | None = None
    on_missing_label: Literal["error", "skip"] = "error"
    on_unknown_label: Literal["error", "wrong", "skip"] = "error"
    """Rows whose label names none of the classes: bad, errors (with the label `UNKNOWN`), or left out."""
    keep_unlabelled: bool = False
    """Rows that would be left out stay, with the label -1."""
    on_bad_row: Literal["error", "skip"] = "error"
    on_bad_file: Literal["error", "skip"] = "error"
    max_bad: float | None = None
    """The share of bad rows, and of bad files, above which the dump is refused after all."""
    filter: str | None = None
    per_length: bool = False
    split: Split | None = None
    """Which of the rows to read; None: all."""
    row_filter: RowFilter | None = None
    """Rows of one kind; the others might as well not be there."""
    model: str | None = None
    """What made the predictions, as NAME@VERSION."""

    def __post_init__(self) -> None:
        if self.input not in (None, *get_args(InputKind)):
            raise OptionError(f"`input={self.input}`: it must be one of {', '.join(get_args(InputKind))}")
        if self.max_bad is not None and not 0 <= self.max_bad <= 1:
            raise OptionError(f"`max_bad={self.max_bad:g}`: it is a share, from 0 to 1")
        if self.model is not None and not (self.model.isprintable() and self.model.strip()):
            raise OptionError("`model`: name the model in a line of text, such as fraud@7")


class RowGroup(Struct, frozen=True):
    """Rows of one row group of one part: where a worker finds them."""

    part: int
    row_group: int
    first_row: int
    rows: int
    skipped: int = 0
    """Rows of the row group before the first."""
    whole: bool = True
    """Whether it goes on to the end of the row group."""

    def between(self, start: int, stop: int) -> RowGroup:
        """Some of its rows, for a worker that shares it with others.

        >>> RowGroup(0, 2, first_row=200, rows=100).between(30, 60)
        RowGroup(part=0, row_group=2, first_row=230, rows=30, skipped=30, whole=False)
        """
        ends = self.whole and stop == self.rows
        return replace(
            self, first_row=self.first_row + start, rows=stop - start, skipped=self.skipped + start, whole=ends
        )


class Notes(Struct):
    """Counts of rows and of what is odd about them. They add: `Notes()` is neutral, and the order does not matter.

    `zeros` are probabilities of 0, `left_out` rows without a label, `look` what scores that are taken as logits look
    like.

    >>> Notes(rows=3, zeros=1) + Notes(rows=2, bad_rows=1) == Notes(rows=5, zeros=1, bad_rows=1)
    True
    """

    rows: int = 0
    zeros: int = 0
    bad_rows: int = 0
    left_out: int = 0
    look: ScoreLook = ScoreLook()

    def __add__(self, other: Notes) -> Notes:
        return Notes(*map(add, astuple(self), astuple(other)))

    def see(self, other: Notes) -> None:
        """Keep what another pass over the same rows noticed: the same things, if it looked for them."""
        for name, value in asdict(other).items():
            setattr(self, name, max(getattr(self, name), value))


class Block(Struct):
    """Some rows of a dump. `bad` marks rows that were reported; their scores and labels are placeholders.

    `scores` are as the dump stores them (rows x classes; rows x 1 where each has one score), `input` says what they
    are. Whoever turns them into logits counts the probabilities of 0 and tells what the scores look like.
    """

    part: DumpFile
    first_row: int
    scores: AnyFloats
    labels: NDArray[np.int64] | None
    columns: pa.RecordBatch
    logit_name: str
    bad: NDArray[np.bool_]
    input: InputKind = "logits"
    normalize: bool = False
    problems: list[Problem] = field(default_factory=list)
    zeros: int = 0
    look: ScoreLook = ScoreLook()
    left_out: int = 0
    kept: NDArray[np.intp] | None = None  # rows of the batch, where some were left out
    rows_before: int = 0
    """Rows of the dump before the part."""
    id_name: str | None = None
    """The column that tells rows apart where scores do not."""

    def __sizeof__(self) -> int:
        return int(self.scores.nbytes)  # so that Dask knows what it costs to move the block

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.scores.shape[0])

    @property
    def binary(self) -> bool:
        """Whether a row holds one score, that of class 1."""
        return bool(self.scores.shape[1] == 1)

    @property
    def notes(self) -> Notes:
        """What is odd about the rows."""
        bad = int(np.count_nonzero(self.bad))
        return Notes(self.rows, self.zeros, bad, self.left_out, self.look)

    def report(
        self,
        rows: NDArray[np.intp],
        what: str,
        remedy: str,
        example: str = "",
        column: str | None = None,
        usable: bool = False,
    ) -> None:
        """Note bad rows, by default of the scores; `usable` says that they could be decided all the same."""
        if rows.size:
            self.bad[rows] = True
            unusable = column in (None, self.logit_name) and not usable
            place = (self.part.name, int(self.row_numbers()[rows[0]]), int(rows.size))
            self.problems.append(Problem(what, column or self.logit_name, remedy, *place, example, unusable))

    def row_numbers(self) -> NDArray[np.int64]:
        """Where the rows of the block stand in their file."""
        rows = np.arange(self.bad.size) if self.kept is None else self.kept
        return rows + self.first_row

    def take(self, rows: NDArray[np.intp]) -> Block:
        """Some of the rows as a block of their own; what is wrong with the others is still known."""
        return replace(
            self,
            scores=self.scores[rows],
            labels=None if self.labels is None else self.labels[rows],
            columns=self.columns.take(pa.array(rows)),
            bad=self.bad[rows],
            kept=self.row_numbers()[rows] - self.first_row,
        )

    def check_largest(self, largest: Floats) -> bool:
        """Report rows whose largest score is not finite: the cheapest way to see NaN, +inf and all -inf in logits."""
        found = np.flatnonzero(~np.isfinite(largest))
        if found.size:
            suspects = found[~self.bad[found]]  # others were reported for something else
            values = self.scores[suspects]
            has_nan = np.isnan(values).any(axis=1)
            has_inf = ~has_nan & (values == np.inf).any(axis=1)
            drop = "drop or fix these rows"
            self.report(suspects[has_nan], "NaN among the scores", drop)
            self.report(suspects[has_inf], "+inf among the scores", drop)
            self.report(suspects[~has_nan & ~has_inf], "-inf for every class", "one class must be possible")
        return not found.size


class Dump(Struct, frozen=True):
    """An opened dump. Everything in it can be sent to another process.

    Every format passes through `read`, and through `block`: what is checked of columns, scores and labels is checked
    there. `label` is the column that has the labels, if any; `elsewhere` are those of another file. `opened` tells one
    opening from another, as files may change between them; `pandas` is what pandas noted about the first frame that has
    rows, its index above all.
    """

    parts: tuple[DumpFile, ...]
    row_groups: tuple[RowGroup, ...]
    rows: int
    classes: int
    columns: LogitColumns
    names: tuple[str, ...] | None
    schema: pa.Schema
    options: DumpOptions
    label: str | None = None
    label_kind: LabelKind | None = None
    elsewhere: LabelsElsewhere | None = None
    rows_before: tuple[int, ...] = (0,)
    """Rows of the parts before each part."""
    opened: str = field(default_factory=lambda: os.urandom(8).hex())
    pandas: bytes | None = None
    altered: frozenset[str] = frozenset()
    """Columns that are not copied by their values, but as they were written."""

    @property
    def input(self) -> InputKind:
        """What the scores are: logits, where nobody says anything."""
        return "scores" if self.columns.layout == "scores" else self.options.input or "logits"

    @property
    def binary(self) -> bool:
        """Whether a row holds one score, that of class 1."""
        return self.columns.layout == "score"

    @property
    def id_name(self) -> str | None:
        """The column that tells rows apart that bring scores of any kind."""
        for name in ID_NAMES if self.input == "scores" else ():
            if name in self.schema.names and not pa.types.is_nested(self.schema.field(name).type):
                return name
        return None

    @property
    def labels_file(self) -> str | None:
        """The other file that holds the labels, if one does."""
        return None if self.elsewhere is None else self.elsewhere.file

    @property
    def other_columns(self) -> list[str]:
        """Every column that is not a logit column or a struct around it, in the file's order, hive columns last.

        A score of any kind that is a plain column is one of them.
        """
        scores = {root_of(self.schema, name) for name in self.columns.names}
        if self.input == "scores":
            scores = {name for name in scores if pa.types.is_nested(self.schema.field(name).type)}
        return [name for name in self.schema.names if name not in scores]

    @property
    def score_bytes(self) -> int:
        """Bytes of a score."""
        if self.input == "scores":
            return 8
        field_ = field_of(self.schema, self.columns.names[0])
        assert field_ is not None
        first = storage_type(field_.type)
        value = getattr(first, "value_type", first)
        return 8 if pa.types.is_nested(value) else int(value.bit_width) // 8

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (self.classes * self.score_bytes)))

    def read(self, group: RowGroup, labelled: bool, keep: Sequence[str] = ()) -> Iterator[Block]:
        """The blocks of a row group: logits, labels if asked for, and the columns to keep."""
        part, split, row_filter = self.parts[group.part], self.options.split, self.options.row_filter
        labelled = labelled or (split is not None and split.by_label)
        wanted = [*self.columns.names, self.columns.texts, *keep, *(() if split is None else split.columns)]
        label = (self.label or LABEL) if self.elsewhere is None else self.elsewhere.on
        wanted += [None if row_filter is None else row_filter.column, label if labelled else None]
        wanted += [self.options.prediction if labelled else None, self.id_name]
        columns = list(dict.fromkeys(root_of(self.schema, name) for name in wanted if name is not None))
        row, end = group.first_row, group.first_row + group.rows
        for batch in self._batches(group, columns, labelled):
            if row + batch.num_rows > end:
                if group.whole:
                    break
                batch = batch.slice(0, end - row)
            try:
                block = self.block(part, row, batch, labelled, self.rows_before[group.part])
            except (pa.ArrowException, UnicodeDecodeError) as error:  # such as codes beyond their dictionary
                raise damaged(part, error) from None
            yield block if split is None else block.take(split.chosen(block))
            row += batch.num_rows
            if row == end and not group.whole:
                break
        if row != end:
            raise BadFileError.of(
                part.name,
                f"{part.name}: row group {group.row_group} does not hold the {group.skipped + group.rows} rows that "
                "the file's footer promises; the file is damaged: write it again",
            )

    def _batches(self, group: RowGroup, wanted: Sequence[str], labelled: bool) -> Iterator[pa.RecordBatch]:
        """Batches of the columns `wanted`, hive columns included; all but logits and labels in the schema's types."""
        part = self.parts[group.part]
        as_stored = {root_of(self.schema, name) for name in self.columns.names}
        plain = self.columns.layout == "list" and self.columns.names[0] in as_stored
        listed = (self.columns.names[0], self.classes) if plain else None
        if labelled and self.label is not None:
            as_stored.add(root_of(self.schema, self.label))
        request = Request(part, group.row_group, wanted, self.block_rows, listed, group.skipped)
        for batch in format_of(part).batches(request):
            stored = set(batch.schema.names)
            columns = [
                batch.column(name) if name in as_stored and name in stored else self._column(batch, name, stored, part)
                for name in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, names=list(wanted))

    def _column(self, batch: pa.RecordBatch, name: str, stored: Container[str], part: DumpFile) -> pa.Array:
        if name.endswith(AS_WRITTEN) and name.removesuffix(AS_WRITTEN) in self.altered:
            return batch.column(name if name in stored else name[:-1]).cast(pa.string())
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
            if is_text(column.type) and not is_text(data_type) and column.null_count < len(column):
                raise pa.ArrowInvalid("007 is not 7")
            return column.cast(data_type)
        except pa.ArrowException:
            raise DumpError(
                f"{part.name}: column '{name}' is {column.type} but {data_type} in {self.parts[0].name}; "
                "write it in one type, or leave it out with `keep`"
            ) from None

    def block(
        self, part: DumpFile, first_row: int, batch: pa.RecordBatch, labelled: bool, rows_before: int = 0
    ) -> Block:
        """Rows as they were read, with scores and labels taken from them."""
        block = Block(
            part=part,
            first_row=first_row,
            scores=np.empty((batch.num_rows, 0)),
            labels=None,
            columns=batch,
            logit_name=self.columns.pattern,
            bad=np.zeros(batch.num_rows, bool),
            input=self.input,
            normalize=bool(self.options.normalize),
            rows_before=rows_before,
            id_name=self.id_name,
        )
        if self.options.row_filter is not None:
            block = block.take(self.options.row_filter.places(batch, first_row, part.name))
        if labelled:
            block = self._labelled(block)
        if self.input == "scores":
            block.scores = read_confidences(block.columns, self.columns, block.report)
        else:
            block.scores = read_scores(block.columns, self.columns, self.classes, block.report)
        return block

    def _labelled(self, block: Block) -> Block:
        """The same rows with their labels.

        Those without one, or with one of no class, are left out for good where the options say so.
        """
        options = self.options
        skip, keep_unknown = options.on_missing_label == "skip", options.on_unknown_label != "error"
        if self.elsewhere is not None:
            labels, known = self.elsewhere.of(block, skip, keep_unknown)
            if self.elsewhere.truths is not None and options.prediction is not None:
                right = agreement(block, options.prediction, self.elsewhere.truths.take(pa.array(labels, mask=~known)))
                labels = np.where(np.asarray(right.fill_null(False)), RIGHT, WRONG)
        else:
            labels, known = self._stored_labels(block, skip, keep_unknown)
        out = ~known if skip else np.zeros(known.size, bool)
        if options.on_unknown_label == "skip":
            out |= labels == UNKNOWN
        if options.keep_unlabelled:
            return replace(block, labels=np.where(out, -1, labels))
        block = replace(block, labels=labels, left_out=int(np.count_nonzero(out)))
        return block.take(np.flatnonzero(~out)) if out.any() else block

    def _stored_labels(
        self, block: Block, skip_missing: bool, keep_unknown: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The label of each row, and whether it has one; rows without are reported unless they are skipped."""
        assert self.label is not None
        assert self.label_kind is not None
        name, stored = self.label, without_blanks(column_of(block.columns, self.label))
        if self.options.prediction is not None:
            stored = agreement(block, self.options.prediction, stored)
        known = np.asarray(stored.is_valid()) if skip_missing and stored.null_count else np.ones(block.bad.size, bool)
        there = np.flatnonzero(known)
        if not known.all():
            stored = stored.take(pa.array(there))
        labels = np.zeros(known.size, np.int64)

        def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
            block.report(there[rows], what, remedy, example, column=name)

        labels[there] = self.label_kind.encode(stored, self.classes, report, keep_unknown)
        return labels, known


class RowFilter(Struct, frozen=True):
    """The rows where a column has a value, true or false; 1 and 0 will do. Goes to workers with the dump."""

    column: str
    value: bool
    option: str
    """What errors call it."""

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raise unless the column is there and can be true or false."""
        if self.column not in schema.names:
            raise DumpError(f"{where}: `{self.option}={self.column}`: there is no such column")
        kind = schema.field(self.column).type
        if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
            raise DumpError(
                f"{where}: `{self.option}={self.column}`: the column is {kind}; it must be boolean (or 0 and 1)"
            )

    def places(self, batch: pa.RecordBatch, first_row: int, where: str) -> NDArray[np.intp]:
        """The places of such rows in a batch; raises where one says neither."""
        column = batch.column(self.column)
        missing = np.asarray(column.is_null())
        values = column.cast(pa.int64()).fill_null(2).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero((values != 0) & (values != 1))
        if odd.size:
            row = int(odd[0])
            what = "has no value (null)" if missing[row] else f"is {values[row]}"
            raise DumpError(
                f"{where}: column '{self.column}' {what} in row {first_row + row} (counted from 0); `{self.option}` "
                "needs true or false (or 1 and 0) in every row"
            )
        return np.flatnonzero(values == int(self.value))


class Split(Protocol):
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
