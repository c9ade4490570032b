"""What a dump holds: its files, columns, scores, labels and bad rows; and the same as one parquet file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.inputs import BINARY_DOUBTS, DOUBTS, ScoreLook, are_log_probabilities
from drrej.core.types import InputKind
from drrej.data.columns import CORRECT, LABEL, LOGITS, REDUCTIONS, column_of, field_of, storage_type, suggested_logits
from drrej.data.confidence import RIGHT, likely_scores
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.formats import format_of
from drrej.data.formats.json import is_table
from drrej.data.labels import is_text, value_type
from drrej.data.listing import HEAD, STDIN, ending_of, find_parts
from drrej.data.problems import Problem, shown
from drrej.data.scores import plain_array
from drrej.engines import protocol
from drrej.engines.protocol import Pass, PassSummary
from drrej.errors import DumpError, OptionError, RejectorError
from drrej.outputs.atomic import writing
from drrej.outputs.destinations import OutputFile
from drrej.pipeline.collect import map_blocks
from drrej.pipeline.score import checked_scores, logits_of
from drrej.pipeline.source import Source

_ENOUGH = 20
"""Rows from which on a pattern that all of them share is no accident."""

Found = Literal["", "probabilities", "scaled", "log-probs"]


class DumpFacts(Struct, frozen=True):
    """The files of a dump, the columns (name and type) of one with rows, and what can be read of them.

    `found` is what the scores were found to be though nobody said so, and `doubt` why they cannot be used before
    somebody does. `right` counts rows whose prediction is the label, among the `labelled` ones.
    `sorted_scores` tells that the first score is the largest in every row.
    """

    files: int
    formats: Sequence[str]
    columns: Sequence[tuple[str, str]]
    options: DumpOptions
    """How it was read: as asked, or as it can be."""
    dump: Dump | None = None
    """None: it cannot be read, for the reason that is `doubt`."""
    found: Found = ""
    doubt: str = ""
    labels: str = ""
    """Where they are, in words, or why there are none."""
    labels_need_names: bool = False
    problems: Sequence[Problem] = ()
    bad_rows: int = 0
    labelled: int | None = None
    """None: labels cannot be read."""
    right: int = 0
    sorted_scores: bool = False


def json_text(path: str, source: Source) -> str | None:
    """The text of a JSON document, such as a rejector; None for anything else. A stream is spooled first."""
    is_stream = path == STDIN or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    stored = find_parts([path], source.spools)[0].path if is_stream else path
    if not os.path.isfile(stored):
        return None
    try:
        with open(stored, "rb") as stream:
            head = stream.read(HEAD)
        if not (head.lstrip().startswith(b"{") or stored.endswith(".json")) or _is_dump(stored, head):
            return None
        with open(stored, encoding="utf-8", errors="replace") as text:
            return text.read()
    except OSError as error:
        raise RejectorError(f"{path}: cannot be read ({error.strerror})") from None


def _is_dump(path: str, head: bytes) -> bool:
    """Whether a file that may be a JSON document is a table, or JSON lines."""
    if b'"drrej-' in head:
        return False
    if path.endswith(".jsonl") or ending_of(head) == ".jsonl":
        return True
    try:
        with open(path, "rb") as stream:
            return is_table(json.load(stream))
    except (ValueError, RecursionError):
        return False


def inspect_dump(source: Source) -> DumpFacts:
    """Layout, classes, rows, bad rows and labels; one pass over all rows."""
    parts = [replace(part, filter=source.options.filter) for part in find_parts(source.arguments, source.spools)]
    looks = (format_of(part).look(part) for part in parts)
    first = next((info for info in looks if any(info.groups)), None) or format_of(parts[0]).look(parts[0])
    facts = DumpFacts(
        files=len(parts),
        formats=sorted({format_of(part).name for part in parts}),
        columns=[(field.name, str(field.type)) for field in first.schema],
        options=source.options,
    )
    try:
        dump = source.open(None, labelled=False)
    except DumpError as error:
        guess = not (source.options.logits or source.options.binary or source.options.score)
        pattern = suggested_logits(first.schema, source.options.label, first.typed) if guess else None
        known = likely_scores(first.schema) if guess and source.options.label is None else None
        if pattern is None and known is None:
            return replace(facts, doubt=str(error))
        how = replace(source.options, logits=pattern) if known is None else replace(source.options, **known)
        source = replace(source, options=how)
        facts = replace(facts, options=source.options)
        try:
            dump = source.open(None, labelled=False)
        except DumpError as other:
            return replace(facts, doubt=str(other))
    looked = source.options.input is None and dump.input != "scores"
    found, doubt = _looked_at(dump, source) if looked else ("", "")
    if found:
        kind: InputKind = "log-probs" if found == "log-probs" else "probs"
        normalize = True if found == "scaled" else source.options.normalize
        source = replace(source, options=replace(source.options, input=kind, normalize=normalize))
    labelled, text = True, False
    try:
        dump = source.open(None, labelled=True)
        labels = _label_words(dump)
    except (DumpError, OptionError) as error:
        dump = source.open(None, labelled=False)
        labels, labelled = str(error), False
        field = None if dump.label is None else field_of(dump.schema, dump.label)
        if dump.label is not None and field is not None and is_text(value_type(field.type)):
            text = True
            labels = (
                f"column '{dump.label}' is text ({shown(_distinct(dump, dump.label))}); name all {dump.classes} "
                "classes, in the order of the logits, with `classes`"
            )

    def counts(block: Block) -> tuple[int, int]:
        """Rows whose prediction is class 0, and those whose prediction is the label."""
        if dump.input == "scores":
            return 0, int(np.count_nonzero(block.labels[~block.bad] == RIGHT)) if block.labels is not None else 0
        rows, _ = checked_scores(block, logits_of(block))
        predictions = np.where(block.bad, -1, rows.prediction)
        right = 0 if block.labels is None else np.count_nonzero(predictions == block.labels)
        return int(np.count_nonzero(predictions == 0)), int(right)

    summary = PassSummary()
    run = Pass("looking", labelled, bad_rows_allowed=True)
    counted = list(protocol.map_blocks(dump, counts, run, source.engine, summary))
    usable = summary.notes.rows - summary.notes.bad_rows
    return replace(
        facts,
        options=source.options,
        dump=dump,
        found=found,
        doubt=doubt,
        labels=labels,
        labels_need_names=text,
        problems=list(summary.passed.values()),
        bad_rows=summary.notes.bad_rows,
        labelled=usable if labelled else None,
        right=sum(right for _, right in counted),
        sorted_scores=usable >= _ENOUGH and sum(first for first, _ in counted) >= usable,
    )


def _label_words(dump: Dump) -> str:
    if dump.elsewhere is not None:
        on = dump.elsewhere.on
        return f"in {dump.elsewhere.file}, " + ("in the order of the rows" if on is None else f"joined on '{on}'")
    assert dump.label is not None
    field = field_of(dump.schema, dump.label)
    assert field is not None
    compared = dump.options.prediction
    return f"column '{dump.label}' ({field.type})" + (f", compared with '{compared}'" if compared else "")


def _looked_at(dump: Dump, source: Source) -> tuple[Found, str]:
    """What scores are found to be that nobody has called anything, and why they cannot be used before somebody does."""

    def looked(block: Block) -> tuple[ScoreLook, int, int]:
        if dump.binary:
            return ScoreLook.of_binary(block.scores[:, 0]), 0, 0
        zeros = block.scores[np.isneginf(block.scores).any(axis=1)]
        return ScoreLook.of(block.scores), len(zeros), int(np.count_nonzero(are_log_probabilities(zeros)))

    looks = list(protocol.map_blocks(dump, looked, Pass("looking", False, (), True), source.engine))
    kind = sum((look for look, _, _ in looks), ScoreLook()).kind(dump.binary)
    zeros, logarithms = sum(zeros for _, zeros, _ in looks), sum(logs for _, _, logs in looks)
    if kind == "probabilities" or (kind == "scaled" and not dump.binary):
        return kind, ""
    if kind == "logits":
        return ("log-probs" if zeros and zeros == logarithms else ""), ""
    return "", "; ".join((BINARY_DOUBTS if dump.binary else DOUBTS)[kind])


def _distinct(dump: Dump, column: str) -> list[str]:
    """The values of a text column, sorted."""
    found: set[str] = set()
    for group in dump.row_groups:
        for block in dump.read(group, labelled=False, keep=[column]):
            found.update(name for name in column_of(block.columns, column).unique().to_pylist() if name is not None)
    return sorted(found)


# The same dump as one parquet file

_NAMES: dict[InputKind, str] = {"logits": LOGITS, "probs": "probs", "log-probs": "log_probs", "scores": ""}


def convert(source: Source, output: OutputFile) -> DumpOptions:
    """Write a dump of any format and layout as one parquet file; how that is read, as far as it must be said.

    The scores of a row come first, in one list, then the label and all other columns, row for row. Scores keep their
    type and bits. Labels are those that a command would read: from another file too. Scores of any kind are columns of
    numbers, and `correct` says whether a row was right.
    """
    dump = source.open(None, labelled=False)
    scored, stored = dump.input == "scores", dump.columns.names[0]
    labels, label = None, dump.label
    moved = label is not None and (scored or label not in dump.schema.names)
    if source.options.labels_from is not None or moved:  # labels that are not in a column of their own get one
        dump = source.open(None, labelled=True)
        labels, label = dump.label_kind, CORRECT if scored else LABEL
    own_name = len(dump.columns.names) == 1 and stored in dump.schema.names
    scores = stored if own_name else _NAMES[dump.input]
    own = {scores: _value_type(dump) if dump.binary else pa.list_(_value_type(dump), dump.classes)}
    if scored:
        names = [
            f"score_{place}" if how in REDUCTIONS or name not in dump.schema.names else name
            for place, (name, how) in enumerate(dump.columns.reduced)
        ]
        own, scores = dict.fromkeys(names, pa.float64()), ",".join(names)
    if labels is not None and label is not None:
        own[label] = pa.bool_() if scored else labels.type
    # labels of another file count, not those of the dump; a score of any kind is a number in place of what it was
    replaced = {*dump.columns.names, label} if scored else {LABEL} if dump.elsewhere is not None else set()
    kept = [name for name in dump.other_columns if name not in replaced]
    clash = next((name for name in kept if name in own), None)
    if clash is not None:
        raise DumpError(f"{dump.parts[0].name}: there is another column '{clash}'; rename it")
    schema = pa.schema([*own.items(), *(dump.schema.field(name) for name in kept)])

    def of_block(block: Block) -> pa.RecordBatch:
        if scored:
            columns = [plain_array(np.ascontiguousarray(column)) for column in block.scores.T]
        else:
            checked_scores(block, logits_of(block))
            flat = plain_array(np.ascontiguousarray(block.scores).reshape(-1))
            columns = [flat if dump.binary else pa.FixedSizeListArray.from_arrays(flat, dump.classes)]
        if labels is not None:
            assert block.labels is not None
            columns.append(pa.array(block.labels == RIGHT) if scored else labels.decode(block.labels))
        columns += [block.columns.column(name) for name in kept]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    with writing(output.name), pq.ParquetWriter(output.path, schema) as writer:
        for batch in map_blocks(source, dump, of_block, Pass("converting", labels is not None, kept, written=True)):
            writer.write_batch(batch)
    if scored:
        correct = None if labels is None else CORRECT
        return DumpOptions(score=scores, correct=correct, lower_is_better=source.options.lower_is_better)
    return DumpOptions(
        logits=None if scores == LOGITS else scores,
        label=None if label == LABEL else label,
        input=None if dump.input == "logits" else dump.input,
        normalize=source.options.normalize,
        binary=dump.binary,
        classes=dump.names,
    )


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
