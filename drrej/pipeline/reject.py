"""Step 5: the rejection mask, row for row: of a dump as files, or of a record batch inside another engine."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from drrej._version import __version__
from drrej.data.columns import LABEL
from drrej.data.confidence import find_columns
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.files import AS_WRITTEN, DumpFile
from drrej.data.formats.parquet import with_index, with_range
from drrej.data.labels import LabelKind, is_text, label_kind
from drrej.data.listing import distinct
from drrej.data.problems import Problems
from drrej.data.scores import boolean_array, plain_array
from drrej.documents.document import LeftOut
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import MaskedFile, MaskSummary
from drrej.engines.protocol import BlockResult, Pass, PassSummary, run_block, run_pass
from drrej.errors import DumpError, OptionError
from drrej.outputs.dataset import Dataset, MaskRecord
from drrej.outputs.destinations import OutputFile, check_outside
from drrej.outputs.masks import MASK_COLUMNS, MaskFile, check_names, format_of
from drrej.outputs.review import Audit, ReviewQueue, task_format, write_tasks
from drrej.pipeline.score import OnUnseen, Scorer, check_kind, drawn_by
from drrej.pipeline.source import Source, check_classes, left_out, remembered, without_bad_files


class MaskOptions(Struct, frozen=True):
    """Columns that the mask keeps (None: all except the logits); how to handle bad rows, unknown groups and formulas.

    `audit` is the share, or the number, of accepted rows that are drawn for the review queue, by a `seed`.
    """

    keep: Sequence[str] | None = None
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    on_unseen_group: OnUnseen = "error"
    safe_csv: bool = False
    audit: float | None = None
    seed: int = 0


class Masking:
    """A mask's rows from a block's: the columns to keep, then prediction, loss, ratio, rejected."""

    def __init__(self, rejector: Rejector, dump: Dump, keep: Sequence[str], on_unseen: OnUnseen = "error") -> None:
        self.scorer = Scorer(rejector, dump, on_unseen=on_unseen)
        self.keep = tuple(name + AS_WRITTEN if name in dump.altered else name for name in keep)
        self.columns = (*keep, *self.keep, *self.scorer.columns)
        self.kind = dump.label_kind or LabelKind(pa.int64()) if rejector.has_predictions else None
        if self.kind is not None and dump.names is not None and not is_text(self.kind.type):
            self.kind = LabelKind(pa.string(), dump.names)  # class names, if the label's own type does not hold them
        prediction = [] if self.kind is None else [pa.field("prediction", self.kind.type)]
        plain = pa.schema(
            [
                *(pa.field(n, pa.string()) if n in dump.altered else dump.schema.field(n) for n in keep),
                *prediction,
                pa.field("loss", pa.float64()),
                pa.field("ratio", pa.float64()),
                pa.field("rejected", pa.bool_()),
            ]
        )
        self.schema = with_index(plain, dump.pandas)
        model = dump.options.model or rejector.model
        if model is not None:
            self.schema = self.schema.with_metadata((self.schema.metadata or {}) | {b"drrej.model": model.encode()})

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The mask of a block."""
        scored = self.scorer(block)
        bad = block.bad if block.bad.any() else None
        ratio = scored.rejector.need_ratio().density.ratio(scored.loss)
        columns = [block.columns.column(name) for name in self.keep]
        if self.kind is not None:
            columns.append(_nulls_where(self.kind.decode(scored.prediction), bad))
        columns += [
            _nulls_where(plain_array(scored.loss), bad),
            _nulls_where(plain_array(ratio), bad),
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
) -> MaskSummary:
    """Write the mask of a dump: to one file, or to a dataset with one file per input file.

    A mask has the kept columns, then `prediction`, `loss`, `ratio` and `rejected`, row for row as in the dump.
    `review` receives the rejected rows for people to review, most doubtful first, at most `review_limit`.

    >>> import tempfile
    >>> from drrej import Rule, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> with tempfile.TemporaryDirectory() as folder, OutputFile(f"{folder}/mask.parquet") as file:
    ...     counts = reject(Source("sample_data/test.parquet"), rejector, file)
    ...     file.commit()
    >>> counts.rows, counts.rejected
    (2060, 435)
    """
    started, options = time.monotonic(), options or MaskOptions()
    rejector.need_threshold()
    if options.on_bad_row == "skip":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    if isinstance(output, OutputFile):
        format_of(output)
    if review_limit is not None and review_limit < 1:
        raise OptionError(f"`reviews={review_limit}`: it must be 1 or more")
    if review is not None:
        task_format(review)
    elif options.audit is not None:
        raise OptionError("`audit` requires `review`: a file that the rows are written to")
    check_outside(source.arguments, output.target, output.name)
    files = _written(source, rejector, output, options, review, review_limit)
    rows, rejected = sum(file.rows for file in files), sum(file.rejected for file in files)
    return MaskSummary(
        drrej_version=__version__,
        **source.models(rejector),
        files=len(files),
        reused=sum(file.reused for file in files),
        rows=rows,
        rejected=rejected,
        coverage=(rows - rejected) / rows if rows else None,
        bad_rows=sum(file.bad_rows for file in files),
        seconds=time.monotonic() - started,
        masks=tuple(files),
        left_out=left_out(source) or LeftOut(rows=0, reasons=(), files=()),
    )


@without_bad_files
def _written(
    source: Source,
    rejector: Rejector,
    output: OutputFile | Dataset,
    options: MaskOptions,
    review: OutputFile | None,
    review_limit: int | None,
) -> list[MaskedFile]:
    settled: Settled = {}

    def unneeded(part: DumpFile, error: DumpError) -> bool:
        record = output.made_of(part) if isinstance(output, Dataset) else None
        if record is not None:
            settled[part] = record, error
        return record is not None

    dump = source.open(rejector, False, unneeded)
    keep = kept_columns(rejector, dump, options, in_paths=not isinstance(output, OutputFile))
    masking = Masking(rejector, dump, keep, options.on_unseen_group)
    allowed = options.on_bad_row == "reject"
    run = Pass("scoring", False, masking.columns, bad_rows_allowed=allowed, scores=masking.scorer.columns, written=True)
    by = drawn_by(rejector) or ("prediction" if rejector.has_predictions else None)
    audit = None if options.audit is None else Audit(options.audit, options.seed, by)
    queue = None if review is None else ReviewQueue(masking.schema, audit)
    summary = PassSummary()
    read = partial(run_pass, function=masking, run=run, engine=source.engine, summary=summary)
    if isinstance(output, OutputFile):
        made = _one_file(read(dump), with_range(masking.schema, dump.parts), output, queue, options.safe_csv)
    else:
        dump = replace(dump, parts=distinct(dump.parts, output.name))
        made = _dataset(dump, read, masking.schema, output, _recipe(dump, masking, options), summary, settled)
    files, since = list[MaskedFile](), time.monotonic()
    for name, record, reused in made:
        now = time.monotonic()
        files.append(
            MaskedFile(
                file=name,
                rows=record.rows,
                rejected=record.rejected,
                coverage=(record.rows - record.rejected) / record.rows if record.rows else None,
                bad_rows=record.notes.bad_rows,
                seconds=0.0 if reused else now - since,
                reused=reused,
            )
        )
        source.engine.progress.finished(files[-1])
        since = now
    source.see(summary)
    check_kind(dump, summary)
    if review is not None and queue is not None:
        for name, batch in () if isinstance(output, OutputFile) else output.batches():
            queue.add(batch, name)
        write_tasks(queue, review, review_limit, options.safe_csv)
    return files


Blocks = Iterable[BlockResult[pa.RecordBatch]]
Made = Iterator[tuple[str, MaskRecord, bool]]
"""The name of each input file, what was counted, and whether its mask was there already."""
Settled = dict[DumpFile, tuple[MaskRecord, DumpError]]
"""Files that are not read, their scores being in another column, but have their mask: its record, and the error."""


def _one_file(blocks: Blocks, schema: pa.Schema, output: OutputFile, queue: ReviewQueue | None, safe: bool) -> Made:
    """All masks one after the other; files without rows are not told of."""
    with MaskFile(output.path, output.name, schema, format_of(output), safe) as mask:
        for part, inside in itertools.groupby(blocks, key=attrgetter("part")):
            record = _write(mask, inside, MaskRecord("", "", ""), queue)
            if record.notes.rows:
                yield part.name, record, False


def _dataset(
    dump: Dump,
    read: Callable[[Dump], Blocks],
    schema: pa.Schema,
    dataset: Dataset,
    recipe: str,
    summary: PassSummary,
    settled: Settled,
) -> Made:
    """A mask for each input file, unless there is one already."""
    for part, (record, error) in settled.items():
        if record.recipe != recipe:
            raise error
        summary.add(record.notes, record.problems, part.name)
        yield part.name, record, True
    wanted = {part: MaskRecord.wanted(part, recipe, repr(dump.columns)) for part in dump.parts}
    dataset.start([part.mask_path for part in wanted])
    missing = {}
    for number, part in enumerate(dump.parts):
        found = dataset.find(part.mask_path, wanted[part])
        if found is None:
            missing[number] = part
        else:
            summary.add(found.notes, found.problems, part.name)
            yield part.name, found, True
    groups = tuple(group for group in dump.row_groups if group.part in missing)
    rest = replace(dump, row_groups=groups, rows=sum(group.rows for group in groups))
    for part, blocks in _by_part(missing.values(), read(rest)):
        with dataset.mask(part.mask_path, with_range(schema, [part])) as mask:
            record = _write(mask, blocks, wanted[part])
        dataset.record(part.mask_path, record)
        yield part.name, record, False


def _write(mask: MaskFile, blocks: Blocks, start: MaskRecord, queue: ReviewQueue | None = None) -> MaskRecord:
    """Write the masks of the blocks of a file; the record with what was counted and noticed."""
    summary, rows, rejected = PassSummary(), 0, 0
    for block in blocks:
        summary.add(block.notes, block.passed, block.part.name)
        if block.result is not None:
            mask.write(block.result)
            if queue is not None:
                queue.add(block.result)
            rows += block.result.num_rows
            rejected += block.result.column("rejected").true_count
    problems = tuple(summary.passed.values())
    return replace(start, rows=rows, rejected=rejected, notes=summary.notes, problems=problems)


def _by_part(parts: Iterable[DumpFile], results: Blocks) -> Iterator[tuple[DumpFile, Blocks]]:
    """The blocks of each part, one part after the other; those without rows have none."""
    waiting = iter(parts)
    for part, blocks in itertools.groupby(results, key=attrgetter("part")):
        yield from ((empty, ()) for empty in itertools.takewhile(part.__ne__, waiting))
        yield part, blocks
    yield from ((empty, ()) for empty in waiting)


def _recipe(dump: Dump, masking: Masking, options: MaskOptions) -> str:
    """All that a mask depends on besides its input file and the columns of the scores."""
    read_as = (dump.label_kind, dump.input, bool(dump.options.normalize), dump.names, dump.parts[0].filter)
    rows = None if dump.options.split is None else pickle.dumps(dump.options.split)
    options = replace(options, audit=None, seed=0)  # which do not change the mask
    how = (masking.scorer.rejector.to_json(), masking.keep, options, read_as, rows, __version__)
    return hashlib.sha256(repr((repr(how), masking.schema.to_string())).encode()).hexdigest()


def kept_columns(rejector: Rejector, dump: Dump, options: MaskOptions, in_paths: bool = False) -> Sequence[str]:
    """The columns of the dump that go into the mask; hive columns stay in the paths where the output has these too."""
    left_out = {key for key, _ in dump.parts[0].hive} if in_paths else set()
    own = MASK_COLUMNS if rejector.has_predictions else MASK_COLUMNS[1:]
    left_out |= {"loss"} & set(rejector.need_ratio().loss.columns)  # the mask has it under the same name
    keep = [n for n in dump.other_columns if n not in left_out] if options.keep is None else options.keep
    check_names(keep, dump.schema.names, dump.parts[0].name, own)
    return keep


def _nulls_where(array: pa.Array, bad: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> pa.Array:
    if bad is None:
        return array
    import pyarrow.compute as pc

    return pc.if_else(pa.array(~bad), array, None)


# A record batch in, its mask out

_WHERE = "record batch"


def score_batch(batch: pa.RecordBatch, rejector: Rejector, options: MaskOptions | None = None) -> pa.RecordBatch:
    """The mask of the rows of a batch: the columns to keep, then prediction, loss, ratio, rejected.

    The result is bit-for-bit the same as in the mask that `drrej reject` writes. Use it in Spark's mapInArrow, Ray's
    map_batches and other engines with record batches; messages count rows from the start of the batch.

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
    if len(masks) == 1:
        return masks[0]
    table = pa.Table.from_batches(masks, masking.schema).combine_chunks()
    return (table.to_batches() or [pa.RecordBatch.from_pylist([], masking.schema)])[0]


def _dump(batch: pa.RecordBatch, rejector: Rejector) -> Dump:
    """The batch seen as a dump that is not in a file."""
    schema = batch.schema.remove_metadata()
    options = remembered(DumpOptions(), rejector)
    options = options if rejector.is_scored else replace(options, input=rejector.input)
    columns = find_columns(schema, options, _WHERE)
    if columns.layout == "labelled":
        columns = replace(columns, classes=rejector.class_names)
    if columns.layout == "wide":
        check_classes(_WHERE, columns.pattern, len(columns.names), rejector)
    label: str | None = rejector.columns.label or LABEL
    label = label if label in schema.names else None
    kind = None
    with contextlib.suppress(DumpError):  # labels are not needed: without them predictions are class numbers
        if label is not None:
            classes, names = rejector.classes, rejector.class_names
            kind = label_kind(schema.field(label).type, _WHERE, classes=classes, names=names)
    return Dump(
        parts=(DumpFile("", _WHERE, ""),),
        row_groups=(),
        rows=batch.num_rows,
        classes=rejector.classes,
        columns=columns,
        names=rejector.class_names,
        schema=schema,
        options=options,
        label=label,
        label_kind=kind,
    )
