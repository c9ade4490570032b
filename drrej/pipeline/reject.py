"""Step 5: the rejection mask, row for row: of a dump as files, or of a record batch inside another engine."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from drrej._version import __version__
from drrej.data.columns import LABEL, find_logits
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.files import DumpFile
from drrej.data.formats.parquet import with_index, with_range
from drrej.data.labels import LabelKind, is_text, label_kind
from drrej.data.listing import distinct
from drrej.data.problems import Problems
from drrej.data.scores import boolean_array, plain_array
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import LeftOut, MaskedFile, MaskSummary
from drrej.engines.protocol import BlockResult, Pass, PassSummary, run_block, run_pass
from drrej.errors import DumpError, OptionError
from drrej.outputs.dataset import Dataset, FileCounts, MaskRecord
from drrej.outputs.destinations import OutputFile, check_outside
from drrej.outputs.masks import MASK_COLUMNS, MaskFile, check_distinct, check_names, format_of, mask_name
from drrej.outputs.review import ReviewQueue, task_format, write_tasks
from drrej.pipeline.collect import check_summary, map_blocks
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source, left_out, without_bad_files


class MaskOptions(Struct, frozen=True):
    """Which columns the mask keeps (None: all but the logits); what becomes of bad rows and of unknown groups."""

    keep: Sequence[str] | None = None
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    on_unseen_group: OnUnseen = "error"


class MaskCounts(Struct, frozen=True):
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
        self.scorer = Scorer(rejector, dump, on_unseen=on_unseen)
        self.keep = tuple(keep)
        self.columns = (*self.keep, *self.scorer.columns)
        self.kind = _prediction_kind(dump) if rejector.has_classes else None
        prediction = [] if self.kind is None else [pa.field("prediction", self.kind.type)]
        plain = pa.schema(
            [
                *(dump.schema.field(name) for name in keep),
                *prediction,
                pa.field("loss", pa.float64()),
                pa.field("ratio", pa.float64()),
                pa.field("rejected", pa.bool_()),
            ]
        )
        self.schema = with_index(plain, dump.pandas)

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The mask of a block."""
        scored = self.scorer(block)
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
    source: Source,
    rejector: Rejector,
    output: OutputFile | Dataset,
    options: MaskOptions | None = None,
    review: OutputFile | None = None,
    review_limit: int | None = None,
) -> MaskCounts:
    """Write the mask of a dump: to one file, or to a dataset with one file per input file.

    A mask has the kept columns, then `prediction`, `loss`, `ratio` and `rejected`, row for row as in the dump.
    `review` gets the rejected rows for people to look at, most doubtful first, no more than `review_limit`.

    >>> import tempfile
    >>> from drrej import Rule, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> with tempfile.TemporaryDirectory() as folder, OutputFile(f"{folder}/mask.parquet") as file:
    ...     counts = reject(Source("sample_data/test.parquet"), rejector, file)
    ...     file.commit()
    >>> counts.rows, counts.rejected
    (2060, 443)
    """
    options = options or MaskOptions()
    rejector.need_threshold()
    if options.on_bad_row == "skip":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    if isinstance(output, OutputFile):
        format_of(output)
    if review_limit is not None and review_limit < 1:
        raise OptionError(f"`review_limit={review_limit}`: it must be 1 or more")
    if review is not None:
        task_format(review)
    check_outside(source.arguments, output.target, output.name)
    return MaskCounts.of(_written(source, rejector, output, options, review, review_limit))


@without_bad_files
def _written(
    source: Source,
    rejector: Rejector,
    output: OutputFile | Dataset,
    options: MaskOptions,
    review: OutputFile | None,
    review_limit: int | None,
) -> list[FileCounts]:
    dump = source.open(rejector, labelled=False)
    keep = kept_columns(rejector, dump, options, in_paths=not isinstance(output, OutputFile))
    masking = Masking(rejector, dump, keep, options.on_unseen_group)
    allowed = options.on_bad_row == "reject"
    run = Pass("scoring", False, masking.columns, bad_rows_allowed=allowed, scores=masking.scorer.columns)
    queue = None if review is None else ReviewQueue(masking.schema)
    if isinstance(output, OutputFile):
        files = list(_one_file(source, dump, masking, run, output, queue))
    else:
        parts = distinct(dump.parts)
        check_distinct(parts, output.name)
        dump = replace(dump, parts=parts)
        files = _dataset(source, dump, masking, run, output, _recipe(dump, masking, options))
        if queue is not None:
            for name, batch in output.batches():
                queue.add(batch, name)
    if review is not None and queue is not None:
        write_tasks(queue, review, review_limit)
    return files


def _dataset(
    source: Source, dump: Dump, masking: Masking, run: Pass, dataset: Dataset, recipe: str
) -> list[FileCounts]:
    """A mask for each input file, unless there is one already; what became of each."""
    columns = repr(dump.columns)
    dataset.start([mask_name(part) for part in dump.parts])
    summary = PassSummary()
    files: list[FileCounts] = []

    def add(part: DumpFile, record: MaskRecord, seconds: float, reused: bool) -> None:
        files.append(FileCounts(part.name, record.rows, record.rejected, record.notes.bad_rows, seconds, reused))
        source.engine.progress.finished(files[-1])

    missing = []
    for number, part in enumerate(dump.parts):
        found = dataset.find(mask_name(part), MaskRecord.wanted(part, recipe, columns))
        if found is None:
            missing.append(number)
        else:
            summary.add(found.notes, found.problems, part.name)
            add(part, found, 0.0, reused=True)
    groups = tuple(group for group in dump.row_groups if group.part in set(missing))
    rest = replace(dump, row_groups=groups, rows=sum(group.rows for group in groups))
    results = run_pass(rest, masking, run, source.engine, summary)
    since = time.monotonic()
    for part, blocks in _by_part([dump.parts[number] for number in missing], results):
        record = _mask(dataset, part, masking.schema, MaskRecord.wanted(part, recipe, columns), blocks)
        now = time.monotonic()
        add(part, record, now - since, reused=False)
        since = now
    check_summary(source, dump, summary)
    return files


def _by_part(
    parts: Sequence[DumpFile], results: Iterator[BlockResult[pa.RecordBatch]]
) -> Iterator[tuple[DumpFile, Iterable[BlockResult[pa.RecordBatch]]]]:
    """The blocks of each part, one part after the other; those without rows have none."""
    waiting = iter(parts)
    for part, blocks in itertools.groupby(results, key=attrgetter("part")):
        yield from ((empty, ()) for empty in itertools.takewhile(part.__ne__, waiting))
        yield part, blocks
    yield from ((empty, ()) for empty in waiting)


def _mask(
    dataset: Dataset,
    part: DumpFile,
    schema: pa.Schema,
    wanted: MaskRecord,
    blocks: Iterable[BlockResult[pa.RecordBatch]],
) -> MaskRecord:
    """Write the mask of a part."""
    summary, rows, rejected = PassSummary(), 0, 0
    with dataset.mask(mask_name(part), with_range(schema, [part])) as mask:
        for block in blocks:
            summary.add(block.notes, block.passed, part.name)
            if block.result is not None:
                mask.write(block.result)
                rows += block.result.num_rows
                rejected += block.result.column("rejected").true_count
    problems = tuple(summary.passed.all())
    record = replace(wanted, rows=rows, rejected=rejected, notes=summary.notes, problems=problems)
    dataset.record(mask_name(part), record)
    return record


def _one_file(
    source: Source, dump: Dump, masking: Masking, run: Pass, output: OutputFile, queue: ReviewQueue | None
) -> Iterator[FileCounts]:
    """All masks one after the other; what became of each input file."""
    rows = Counter[str]()
    for group in dump.row_groups if dump.skip_bad_rows and dump.options.split is None else ():
        rows[dump.parts[group.part].name] += group.rows
    progress = source.engine.progress
    since = time.monotonic()
    schema = with_range(masking.schema, dump.parts)
    with MaskFile(output.path, output.name, schema, format_of(output)) as mask:
        pieces = map_blocks(source, dump, partial(_piece, masking), run)
        for name, batches in itertools.groupby(pieces, key=itemgetter(0)):
            written = rejected = bad = 0
            for _, batch in batches:
                mask.write(batch)
                if queue is not None:
                    queue.add(batch)
                written += batch.num_rows
                rejected += batch.column("rejected").true_count
                bad += batch.column("loss").null_count
            now = time.monotonic()
            left_out = rows[name] - written if rows else 0
            file = FileCounts(name, written, rejected, bad + left_out, now - since)
            progress.finished(file)
            since = now
            yield file


def _piece(masking: Masking, block: Block) -> tuple[str, pa.RecordBatch]:
    return block.part.name, masking(block)


def _recipe(dump: Dump, masking: Masking, options: MaskOptions) -> str:
    """All that a mask depends on besides its input file and the columns of the scores."""
    read_as = (dump.label_kind, dump.input, bool(dump.options.normalize), dump.names, dump.parts[0].filter)
    rows = None if dump.options.split is None else pickle.dumps(dump.options.split)
    how = (masking.scorer.rejector.to_json(), masking.keep, options, read_as, rows, __version__)
    return hashlib.sha256(repr((repr(how), masking.schema.to_string())).encode()).hexdigest()


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


def mask_summary(source: Source, counts: MaskCounts, seconds: float) -> MaskSummary:
    """What `reject` did."""
    total = FileCounts("", counts.rows, counts.rejected, counts.bad, seconds)
    return MaskSummary(
        drrej_version=__version__,
        files=len(counts.files),
        reused=counts.reused,
        rows=counts.rows,
        rejected=counts.rejected,
        coverage=total.coverage,
        bad_rows=counts.bad,
        seconds=seconds,
        masks=tuple(masked_file(file) for file in counts.files),
        left_out=left_out(source) or LeftOut(rows=0, reasons=(), files=()),
    )


def masked_file(file: FileCounts) -> MaskedFile:
    """What became of one input file."""
    return MaskedFile(
        file=file.name,
        rows=file.rows,
        rejected=file.rejected,
        coverage=file.coverage,
        bad_rows=file.bad,
        seconds=file.seconds,
        reused=file.reused,
    )


# A record batch in, its mask out

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
    options = DumpOptions(
        logits=rejector.columns.logits,
        label=rejector.columns.label,
        input=rejector.input,
        normalize=rejector.normalize,
        binary=rejector.binary,
        classes=rejector.class_names,
    )
    columns = find_logits(schema, options, _WHERE)
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
        options=options,
        label=label if label in schema.names else None,
        label_kind=_label_kind(schema, label, rejector),
    )


def _label_kind(schema: pa.Schema, label: str, rejector: Rejector) -> LabelKind | None:
    if label not in schema.names:
        return None
    try:
        classes, names = rejector.classes, rejector.class_names
        return label_kind(schema.field(label).type, _WHERE, classes=classes, names=names)
    except DumpError:  # labels are not needed: predictions are class numbers then
        return None


def _joined(masks: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(masks) == 1:
        return masks[0]
    table = pa.Table.from_batches(masks, schema).combine_chunks()
    return (table.to_batches() or [pa.RecordBatch.from_pylist([], schema)])[0]
