"""The rejector inside other engines: a record batch in, its mask out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from drrej.data.columns import LABEL, ColumnHints, find_logits
from drrej.data.dump import Dump, DumpOptions
from drrej.data.files import DumpFile
from drrej.data.labels import Classes, LabelKind, label_kind
from drrej.data.problems import Problems
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass, run_block
from drrej.errors import DumpError
from drrej.pipeline.reject import Masking, MaskOptions, kept_columns

_WHERE = "record batch"


def score_batch(batch: pa.RecordBatch, rejector: Rejector, options: MaskOptions | None = None) -> pa.RecordBatch:
    """The mask of the rows of a batch: the columns to keep, then prediction, loss, ratio, rejected.

    The rows have the same bits as in the mask that `drrej reject` writes. For Spark's mapInArrow, Ray's map_batches,
    and whatever else hands out record batches; rows are counted from the start of the batch in messages.

    >>> import pyarrow.parquet as pq
    >>> from drrej import Rule, Source, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> batch = next(pq.ParquetFile("sample_data/test.parquet").iter_batches(100))
    >>> scored = score_batch(batch, rejector)
    >>> scored.schema.names[-4:], scored.column("rejected").true_count
    (['prediction', 'loss', 'ratio', 'rejected'], 21)
    """
    options = options or MaskOptions()
    rejector.need_threshold()
    dump = _dump(batch, rejector)
    masking = Masking(rejector, dump, kept_columns(rejector, dump, options), options.on_unseen_group)
    allowed, skip = options.on_bad_row == "reject", options.on_bad_row == "skip"
    run = Pass("scoring", False, bad_rows_allowed=allowed, scores=masking.scorer.columns)
    problems, masks = Problems(), list[pa.RecordBatch]()
    for start in range(0, batch.num_rows, dump.block_rows):
        block = dump.block(dump.parts[0], start, batch.slice(start, dump.block_rows), labelled=False)
        done = run_block(masking, run, skip, block)
        masks += [] if done.result is None else [done.result]
        problems.add(done.problems)
    problems.raise_first()
    return _joined(masks, masking.schema)


def _dump(batch: pa.RecordBatch, rejector: Rejector) -> Dump:
    """The batch seen as a dump that is not in a file."""
    schema = batch.schema.remove_metadata()
    named = (rejector.columns.logits, rejector.binary, rejector.columns.label, rejector.class_names)
    columns = find_logits(schema, ColumnHints(*named), _WHERE)
    if columns.layout == "labelled":
        columns = replace(columns, classes=rejector.class_names)
    if columns.layout == "wide" and len(columns.names) != rejector.classes:
        raise DumpError(
            f"{_WHERE}: column '{columns.pattern}' has {len(columns.names)} scores per row but the rejector was made "
            f"for {rejector.classes} classes; is it the same model?"
        )
    label = rejector.columns.label or LABEL
    return Dump(
        parts=(DumpFile("", _WHERE, ""),),
        row_groups=(),
        rows=batch.num_rows,
        classes=rejector.classes,
        columns=columns,
        names=rejector.class_names,
        schema=schema,
        options=DumpOptions(input=rejector.input, normalize=rejector.normalize),
        label=label if label in schema.names else None,
        label_kind=_label_kind(schema, label, rejector),
    )


def _label_kind(schema: pa.Schema, label: str, rejector: Rejector) -> LabelKind | None:
    if label not in schema.names:
        return None
    try:
        return label_kind(schema.field(label).type, Classes(rejector.classes, rejector.class_names), _WHERE)
    except DumpError:  # labels are not needed: predictions are class numbers then
        return None


def _joined(masks: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(masks) == 1:
        return masks[0]
    table = pa.Table.from_batches(masks, schema).combine_chunks()
    return (table.to_batches() or [pa.RecordBatch.from_pylist([], schema)])[0]
