"""Step 5: the rejection mask, row for row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.data import Block, Dump
from drrej.data.labels import LabelKind
from drrej.data.layouts import boolean_array, plain_array
from drrej.data.sources import Part
from drrej.documents.rejector import Rejector
from drrej.engines.threads import Pass, map_blocks
from drrej.outputs.files import OutputDirectory, OutputFile
from drrej.outputs.masks import MASK_COLUMNS, MaskPerPart, OneMask, check_distinct, check_names
from drrej.outputs.parts import PartCounts, PartSink
from drrej.pipeline.common import Source
from drrej.pipeline.groups import Decision, OnUnseen
from drrej.pipeline.scoring import score


@dataclass(frozen=True)
class MaskOptions:
    """Which columns the mask keeps (None: all but the logits); what becomes of bad rows and of unknown groups."""

    keep: Sequence[str] | None = None
    on_bad_row: Literal["error", "reject"] = "error"
    on_unseen_group: OnUnseen = "error"


@dataclass(frozen=True)
class MaskCounts:
    """What was written."""

    rows: int
    rejected: int
    bad: int
    taken_up: int = 0
    """Files that an earlier, interrupted run had finished."""


class Scorer:
    """Applies a rejector to blocks: a mask's rows from a block's."""

    def __init__(self, rejector: Rejector, dump: Dump, keep: Sequence[str], on_unseen: OnUnseen = "error") -> None:
        self.rejector = rejector
        self.decision = Decision(rejector, dump, on_unseen)
        self.keep = tuple(keep)
        self.kind = _prediction_kind(rejector, dump)
        self.loss = rejector.need_ratio().row_loss
        self.loss.check(dump.schema.names, dump.parts[0].name)
        prediction = [pa.field("prediction", self.kind.type)] if rejector.has_classes else []
        self.schema = pa.schema(
            [
                *(dump.schema.field(name) for name in keep),
                *prediction,
                pa.field("loss", pa.float64()),
                pa.field("ratio", pa.float64()),
                pa.field("rejected", pa.bool_()),
            ]
        )

    def with_part(self, block: Block) -> tuple[Part, pa.RecordBatch]:
        """Score the rows of a block; tell which file they are of."""
        return block.part, self(block)

    def __call__(self, block: Block) -> pa.RecordBatch:
        """Score the rows of a block."""
        ratio = self.rejector.need_ratio()
        scores = score(block, self.rejector, self.loss)
        losses = scores.losses
        rejected = ~self.decision.accepts(block, losses, scores.prediction)
        bad = block.bad if block.bad.any() else None
        if bad is not None:
            rejected = rejected | bad
        columns = [block.columns.column(name) for name in self.keep]
        if self.rejector.has_classes:
            columns.append(_nulls_where(self.kind.decode(scores.prediction), bad))
        columns += [
            _nulls_where(plain_array(losses), bad),
            _nulls_where(plain_array(ratio.density.ratio(losses)), bad),
            boolean_array(rejected),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def reject(
    source: Source, rejector: Rejector, output: OutputFile | OutputDirectory, options: MaskOptions | None = None
) -> MaskCounts:
    """Write the mask of a dump: to one file, or to a directory with one file per input file."""
    options = options or MaskOptions()
    rejector.need_threshold()
    dump = source.open(rejector, labelled=False)
    keep = kept_columns(rejector, dump, options, in_paths=isinstance(output, OutputDirectory))
    scorer = Scorer(rejector, dump, keep, options.on_unseen_group)
    allowed = options.on_bad_row == "reject"
    wanted = (*scorer.keep, *scorer.decision.columns, *scorer.loss.columns)
    run = Pass("scoring", labelled=False, keep=wanted, bad_rows_allowed=allowed)
    if isinstance(output, OutputDirectory) and not source.engine.in_process:
        return _by_workers(source, dump, scorer, output, replace(run, sink=_sink(dump, scorer, output, options)))
    rejected = rows = 0
    with _writer(output, dump, scorer.schema) as writer:
        for part, batch in map_blocks(dump, scorer.with_part, run, source.engine, source.notes):
            writer.write(part, batch)
            rows += batch.num_rows
            rejected += batch.column("rejected").true_count
    return MaskCounts(rows, rejected, source.notes.bad_rows)


def _sink(dump: Dump, scorer: Scorer, output: OutputDirectory, options: MaskOptions) -> PartSink:
    """Where workers write; the recipe names all that a mask depends on besides its input file."""
    read_as = (dump.columns, dump.label_kind, dump.input, dump.names)
    recipe = repr((scorer.rejector.to_json(), scorer.keep, options, read_as, __version__))
    return PartSink(output.root, output.target, scorer.schema, recipe)


def _by_workers(source: Source, dump: Dump, scorer: Scorer, output: OutputDirectory, run: Pass) -> MaskCounts:
    """One file per input file, each written by the worker that scores it."""
    output.check_apart(part.path for part in dump.parts)
    check_distinct(dump.parts, output.target)
    output.expect(part.relative for part in dump.parts)
    results = list(map_blocks(dump, scorer, run, source.engine, source.notes))
    written = [counts for counts in results if isinstance(counts, PartCounts)]
    return MaskCounts(
        rows=sum(counts.rows for counts in written),
        rejected=sum(counts.rejected for counts in written),
        bad=source.notes.bad_rows,
        taken_up=sum(counts.taken_up for counts in written),
    )


def _writer(output: OutputFile | OutputDirectory, dump: Dump, schema: pa.Schema) -> OneMask | MaskPerPart:
    if isinstance(output, OutputFile):
        return OneMask(output.path, output.target, schema)
    output.check_apart(part.path for part in dump.parts)
    return MaskPerPart(str(output.path), output.target, dump.parts, schema)


def kept_columns(rejector: Rejector, dump: Dump, options: MaskOptions, in_paths: bool = False) -> Sequence[str]:
    """The columns of the dump that go into the mask; hive columns stay in the paths where the output has these too."""
    left_out = {key for key, _ in dump.parts[0].hive} if in_paths else set()
    own = MASK_COLUMNS if rejector.has_classes else MASK_COLUMNS[1:]
    left_out |= {"loss"} & set(rejector.need_ratio().row_loss.columns)  # the mask has it under the same name
    keep = [n for n in dump.other_columns if n not in left_out] if options.keep is None else options.keep
    check_names(keep, dump.schema.names, dump.parts[0].name, own)
    return keep


def _prediction_kind(rejector: Rejector, dump: Dump) -> LabelKind:
    """Predictions are in the label's own type: the dump's, else that of the class names, else numbers."""
    if dump.label_kind is not None:
        return dump.label_kind
    if rejector.class_names is not None:
        return LabelKind(pa.string(), rejector.class_names)
    return LabelKind(pa.int64())


def _nulls_where(array: pa.Array, bad: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> pa.Array:
    if bad is None:
        return array
    import pyarrow.compute as pc

    return pc.if_else(pa.array(~bad), array, None)
