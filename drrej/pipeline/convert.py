"""A dump of any format and layout as parquet: a list of scores per row, the label, and the other columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from drrej.core.calibrators import IDENTITY
from drrej.core.softmax import NOTHING
from drrej.core.types import InputKind
from drrej.data.columns import LABEL, LOGITS, field_of, storage_type
from drrej.data.dump import Block, Dump
from drrej.data.labels import LabelKind
from drrej.data.scores import plain_array
from drrej.engines.protocol import Pass, PassSummary
from drrej.errors import DumpError
from drrej.outputs.atomic import writing
from drrej.outputs.destinations import OutputFile
from drrej.pipeline.collect import map_blocks
from drrej.pipeline.score import logits_of, look_at
from drrej.pipeline.source import Source

_NAMES: dict[InputKind, str] = {"logits": LOGITS, "probs": "probs", "log-probs": "log_probs"}


class Converted(Struct, frozen=True):
    """What was written: rows, the columns of scores and labels, what the scores are, and the classes' names."""

    rows: int
    scores: str
    label: str | None
    input: InputKind
    binary: bool
    classes: tuple[str, ...] | None


def convert(source: Source, output: OutputFile) -> Converted:
    """Write a dump as one parquet file: scores first, the label, then all other columns, row for row.

    Scores keep their type and bits. Labels are those that a command would read: from another file too.
    """
    dump = source.open(None, labelled=False)
    moved = dump.label is not None and dump.label not in dump.schema.names
    if source.options.labels_from is not None or moved:  # labels that are not in a column of their own get one
        dump = source.open(None, labelled=True)
        form = _Form(dump, dump.label_kind)
    else:
        form = _Form(dump, None)
    summary = PassSummary()
    with writing(output.name), pq.ParquetWriter(output.path, form.schema) as writer:
        run = Pass("converting", form.labels is not None, form.kept)
        for batch in map_blocks(source, dump, form, run, summary=summary):
            writer.write_batch(batch)
    label = dump.label if form.labels is None else LABEL
    return Converted(summary.notes.rows, form.scores, label, dump.input, dump.binary, dump.names)


class _Form:
    """Makes the rows that are written from a block; `labels` tell how labels are written that get a column here."""

    def __init__(self, dump: Dump, labels: LabelKind | None) -> None:
        self.dump, self.labels = dump, labels
        stored = dump.columns.names[0]
        own_name = len(dump.columns.names) == 1 and stored in dump.schema.names
        self.scores = stored if own_name else _NAMES[dump.input]
        own = {self.scores: pa.list_(_value_type(dump), dump.classes)}
        if dump.binary:
            own[self.scores] = _value_type(dump)
        if labels is not None:
            own[LABEL] = labels.type
        self.kept: Sequence[str] = dump.other_columns
        if dump.elsewhere is not None:  # these labels count, not those of the dump
            self.kept = [name for name in self.kept if name != LABEL]
        clash = next((name for name in self.kept if name in own), None)
        if clash is not None:
            raise DumpError(f"{dump.parts[0].name}: there is another column '{clash}'; rename it")
        self.schema = pa.schema([*own.items(), *(dump.schema.field(name) for name in self.kept)])

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The rows of a block; reports bad ones."""
        rows, _ = IDENTITY.scores(logits_of(block), NOTHING, "auto")
        block.check_largest(rows.largest)
        look_at(block, rows)
        flat = plain_array(np.ascontiguousarray(block.scores).reshape(-1))
        columns = [flat if self.dump.binary else pa.FixedSizeListArray.from_arrays(flat, self.dump.classes)]
        if self.labels is not None:
            assert block.labels is not None
            columns.append(self.labels.decode(block.labels))
        columns += [block.columns.column(name) for name in self.kept]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _value_type(dump: Dump) -> pa.DataType:
    """The floating-point type that the scores have in blocks."""
    if dump.columns.layout not in ("list", "wide", "score"):
        return pa.float64()
    widths = []
    for name in dump.columns.names:
        found = field_of(dump.schema, name)
        assert found is not None
        stored = storage_type(found.type)
        value = getattr(stored, "value_type", stored)
        widths.append(64 if pa.types.is_integer(value) else value.bit_width)
    return {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[max(widths)]
