"""Step 5: the rejection mask, row for row."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Literal

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.data.dump import Block, Dump
from drrej.data.labels import LabelKind, is_text
from drrej.data.layouts import boolean_array, plain_array
from drrej.data.pandas_index import joined_index
from drrej.data.sources import distinct
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Parts, Pass
from drrej.outputs.claims import check_outside
from drrej.outputs.datasets import check_left
from drrej.outputs.files import OutputFile
from drrej.outputs.masks import MASK_COLUMNS, ParquetMask, check_distinct, check_ending, check_names, check_one_file
from drrej.outputs.protocol import Dataset
from drrej.outputs.records import FileCounts
from drrej.pipeline.application import Application
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.passes import map_blocks, write_parts
from drrej.pipeline.source import Source, without_bad_files


@dataclass(frozen=True)
class MaskOptions:
    """Which columns the mask keeps (None: all but the logits); what becomes of bad rows and of unknown groups."""

    keep: Sequence[str] | None = None
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    on_unseen_group: OnUnseen = "error"


@dataclass(frozen=True)
class MaskCounts:
    """What was written."""

    rows: int
    rejected: int
    bad: int
    reused: int = 0
    """Files that were there already: an interrupted run had finished them, or there was nothing to update."""
    files: tuple[FileCounts, ...] = ()

    @classmethod
    def of(cls, files: Sequence[FileCounts]) -> MaskCounts:
        """The sums over all files."""
        return cls(
            sum(file.rows for file in files),
            sum(file.rejected for file in files),
            sum(file.bad for file in files),
            sum(file.reused for file in files),
            tuple(files),
        )


class Masking:
    """A mask's rows from a block's: the columns to keep, then prediction, loss, ratio, rejected."""

    def __init__(self, rejector: Rejector, dump: Dump, keep: Sequence[str], on_unseen: OnUnseen = "error") -> None:
        self.application = Application(rejector, dump, on_unseen)
        self.keep = tuple(keep)
        self.columns = (*self.keep, *self.application.columns)
        self.kind = _prediction_kind(dump) if rejector.has_classes else None
        prediction = [] if self.kind is None else [pa.field("prediction", self.kind.type)]
        self.schema = pa.schema(
            [
                *(dump.schema.field(name) for name in keep),
                *prediction,
                pa.field("loss", pa.float64()),
                pa.field("ratio", pa.float64()),
                pa.field("rejected", pa.bool_()),
            ]
        )

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The mask of a block."""
        scored = self.application(block)
        bad = block.bad if block.bad.any() else None
        columns = [block.columns.column(name) for name in self.keep]
        if self.kind is not None:
            columns.append(_nulls_where(self.kind.decode(scored.prediction), bad))
        columns += [
            _nulls_where(plain_array(scored.loss), bad),
            _nulls_where(plain_array(scored.ratio), bad),
            boolean_array(~scored.accepted),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def reject(
    source: Source, rejector: Rejector, output: OutputFile | Dataset, options: MaskOptions | None = None
) -> MaskCounts:
    """Write the mask of a dump: to one file, or to a dataset with one file per input file."""
    options = options or MaskOptions()
    rejector.need_threshold()
    if options.on_bad_row == "skip":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    if isinstance(output, OutputFile):
        check_ending(output)
    check_outside(source.arguments, output)
    return MaskCounts.of(_written(source, rejector, output, options))


@without_bad_files
def _written(
    source: Source, rejector: Rejector, output: OutputFile | Dataset, options: MaskOptions
) -> list[FileCounts]:
    dump = source.open(rejector, labelled=False)
    keep = kept_columns(rejector, dump, options, in_paths=not isinstance(output, OutputFile))
    masking = Masking(rejector, dump, keep, options.on_unseen_group)
    allowed = options.on_bad_row == "reject"
    run = Pass("scoring", False, masking.columns, bad_rows_allowed=allowed, scores=masking.application.columns)
    if isinstance(output, OutputFile):
        check_one_file(dump.parts, output)
        return list(_one_file(source, dump, masking, run, output))
    parts = distinct(dump.parts)
    check_distinct(parts, output.name)
    dump = replace(dump, parts=parts)
    files = write_parts(source, dump, masking, run, Parts(output, masking.schema, _recipe(dump, masking, options)))
    records = {file.relative: file.record for file in files}
    check_left(output.name, output.present(), records)
    output.record(records)
    return [FileCounts.of(file) for file in files]


def _one_file(source: Source, dump: Dump, masking: Masking, run: Pass, output: OutputFile) -> Iterator[FileCounts]:
    """All masks one after the other; what became of each input file."""
    rows = Counter[str]()
    for group in dump.row_groups:
        rows[dump.parts[group.part].name] += group.rows
    progress = source.engine.progress
    since = time.monotonic()
    index = joined_index(part.index for part in dump.parts)
    with ParquetMask(output.path, output.name, masking.schema, index) as mask:
        pieces = map_blocks(source, dump, partial(_piece, masking), run)
        for name, batches in itertools.groupby(pieces, key=itemgetter(0)):
            written = rejected = bad = 0
            for _, batch in batches:
                mask.write(batch)
                written += batch.num_rows
                rejected += batch.column("rejected").true_count
                bad += batch.column("loss").null_count
            now = time.monotonic()
            file = FileCounts(name, written, rejected, bad + rows[name] - written, now - since)
            progress.finished(file)
            since = now
            yield file


def _piece(masking: Masking, block: Block) -> tuple[str, pa.RecordBatch]:
    return block.part.name, masking(block)


def _recipe(dump: Dump, masking: Masking, options: MaskOptions) -> str:
    """All that a mask depends on besides its input file."""
    read_as = (dump.columns, dump.label_kind, dump.input, dump.normalize, dump.names)
    return repr((masking.application.rejector.to_json(), masking.keep, options, read_as, __version__))


def kept_columns(rejector: Rejector, dump: Dump, options: MaskOptions, in_paths: bool = False) -> Sequence[str]:
    """The columns of the dump that go into the mask; hive columns stay in the paths where the output has these too."""
    left_out = {key for key, _ in dump.parts[0].hive} if in_paths else set()
    own = MASK_COLUMNS if rejector.has_classes else MASK_COLUMNS[1:]
    left_out |= {"loss"} & set(rejector.need_ratio().loss.columns)  # the mask has it under the same name
    keep = [n for n in dump.other_columns if n not in left_out] if options.keep is None else options.keep
    check_names(keep, dump.schema.names, dump.parts[0].name, own)
    return keep


def _prediction_kind(dump: Dump) -> LabelKind:
    """How predictions are written: class names if there are any, in the label's own type where that holds them."""
    kind = dump.label_kind
    if dump.names is not None and (kind is None or not is_text(kind.type)):
        return LabelKind(pa.string(), dump.names)
    return LabelKind(pa.int64()) if kind is None else kind


def _nulls_where(array: pa.Array, bad: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> pa.Array:
    if bad is None:
        return array
    import pyarrow.compute as pc

    return pc.if_else(pa.array(~bad), array, None)
