"""What a dump holds: its files, columns, scores, labels and bad rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from drrej.core.calibrators import IDENTITY
from drrej.core.inputs import ScoreLook, are_log_probabilities
from drrej.core.softmax import Need
from drrej.core.types import InputKind
from drrej.data.columns import ColumnHints, LogitColumns, column_of, field_of, suggested_logits
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.files import DumpFile, ReaderOptions
from drrej.data.formats.json import is_table
from drrej.data.labels import is_text, value_type
from drrej.data.listing import HEAD, STDIN, ending_of, find_parts
from drrej.data.problems import Problem, Problems
from drrej.data.readers import format_of
from drrej.engines import protocol
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError, RejectorError
from drrej.pipeline.score import doubt_about, logits_of
from drrej.pipeline.source import Source
from drrej.records import dataclass

_ENOUGH = 20
"""Rows from which on a pattern that all of them share is no accident."""

Found = Literal["", "probabilities", "scaled", "log-probs"]

Column = tuple[str, str]
"""A name and a type."""


@dataclass(frozen=True)
class DumpFacts:
    """The files of a dump and their columns; what can be read from them, or why nothing can."""

    files: int
    formats: Sequence[str]
    columns: Sequence[Column]
    content: Content | str
    options: DumpOptions
    """How it was read: as asked, or as it can be."""


@dataclass(frozen=True)
class Content:
    """What can be read. `hive` are columns that only the directory names spell.

    `found` is what the scores were found to be though nobody said so, and `doubt` why they cannot be used before
    somebody does. `right` counts rows
    whose prediction is the label, among the `labelled` ones. `sorted_scores` tells that the first score is the largest
    in every row.
    """

    rows: int
    row_groups: int
    hive: Sequence[Column]
    input: InputKind
    found: Found
    doubt: str
    scores: LogitColumns
    scores_type: str
    classes: int
    names: Sequence[str] | None
    labels: Labels
    problems: Sequence[Problem]
    bad_rows: int
    labelled: int
    right: int
    sorted_scores: bool


@dataclass(frozen=True)
class Labels:
    """Where the labels are: in a column, in another file (`joined` by a key, `beside` by order), in `text`, or nowhere.

    `column` and `type` are of the label column, `file` and `key` of a join; `names` are the labels found in a text
    column; `reason` is why there are none.
    """

    kind: Literal["column", "joined", "beside", "text", "nowhere"]
    column: str = ""
    type: str = ""
    file: str = ""
    key: str = ""
    names: Sequence[str] = ()
    reason: str = ""

    @property
    def readable(self) -> bool:
        """Whether labels can be read as they are."""
        return self.kind in ("column", "joined", "beside")


@dataclass(frozen=True)
class _BlockFacts:
    """What inspection takes from a block."""

    problems: list[Problem]
    rows: int
    bad: int
    first: int  # rows whose prediction is class 0
    labelled: int
    right: int


def json_text(path: str, source: Source) -> str | None:
    """The text of a JSON document, such as a rejector; None for anything else. A stream is spooled first."""
    stored = find_parts([path], source.spools)[0].path if _is_stream(path) else path
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
            return is_table(json.loads(stream.read()))
    except (ValueError, RecursionError):
        return False


def _is_stream(path: str) -> bool:
    return path == STDIN or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def inspect_dump(source: Source) -> DumpFacts:
    """Layout, classes, rows, bad rows and labels; one pass over all rows."""
    asked = ReaderOptions(source.options.filter)
    parts = [replace(part, asked=asked) for part in find_parts(source.arguments, source.spools)]
    columns = [(field.name, str(field.type)) for field in _first_schema(parts)]
    formats = sorted({format_of(part).name for part in parts})

    def facts(content: Content | str) -> DumpFacts:
        return DumpFacts(len(parts), formats, columns, content, source.options)

    try:
        dump = source.open(None, labelled=False)
    except DumpError as error:
        pattern = None if source.options.logits or source.options.binary else _suggested(parts, source.options)
        if pattern is None:
            return facts(str(error))
        source = replace(source, options=replace(source.options, logits=pattern))
        try:
            dump = source.open(None, labelled=False)
        except DumpError as other:
            return facts(str(other))
    read_as = source.options
    found, doubt = _looked_at(dump, source) if source.options.input is None else ("", "")
    if found:
        kind: InputKind = "log-probs" if found == "log-probs" else "probs"
        normalize = True if found == "scaled" else source.options.normalize
        source = replace(source, options=replace(source.options, input=kind, normalize=normalize))
        dump = source.open(None, labelled=False)
    return replace(facts(_content(source, dump, found, doubt)), options=read_as)


def _suggested(parts: Sequence[DumpFile], options: DumpOptions) -> str | None:
    """A pattern for columns that are named by class."""
    info = format_of(parts[0]).look(parts[0], "")
    return suggested_logits(info.schema, ColumnHints(label=options.label, typed=info.typed))


def _content(source: Source, dump: Dump, found: Found, doubt: str) -> Content:
    labels = _labels(dump, source)
    blocks = list(_pass(source, labels.readable))
    problems = Problems()
    for block in blocks:
        problems.add(block.problems)
    bad = sum(block.bad for block in blocks)
    usable = sum(block.rows for block in blocks) - bad
    return Content(
        rows=dump.rows,
        row_groups=len(dump.row_groups),
        hive=[(key, str(dump.schema.field(key).type)) for key, _ in dump.parts[0].hive if key in dump.schema.names],
        input=dump.input,
        found=found,
        doubt=doubt,
        scores=dump.columns,
        scores_type=_type_of(dump),
        classes=dump.classes,
        names=dump.names,
        labels=labels,
        problems=problems.all(),
        bad_rows=bad,
        labelled=sum(block.labelled for block in blocks),
        right=sum(block.right for block in blocks),
        sorted_scores=usable >= _ENOUGH and sum(block.first for block in blocks) >= usable,
    )


def _type_of(dump: Dump) -> str:
    found = field_of(dump.schema, dump.columns.names[0])
    assert found is not None
    return str(found.type)


def _first_schema(parts: Sequence[DumpFile]) -> pa.Schema:
    """The schema of the first part with rows, or of the first part."""
    first: pa.Schema | None = None
    for part in parts:
        info = format_of(part).look(part, "")
        if any(info.groups):
            return info.schema
        first = info.schema if first is None else first
    assert first is not None
    return first


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
    return "", doubt_about(dump, kind)


def _labels(dump: Dump, source: Source) -> Labels:
    try:
        labelled = source.open(None, labelled=True)
    except (DumpError, OptionError) as error:
        found = None if dump.label is None else field_of(dump.schema, dump.label)
        if dump.label is not None and found is not None and is_text(value_type(found.type)):
            return Labels("text", column=dump.label, names=_distinct(dump, dump.label))
        return Labels("nowhere", reason=str(error))
    elsewhere = labelled.elsewhere
    if elsewhere is not None:
        return Labels("beside" if elsewhere.on is None else "joined", file=elsewhere.file, key=elsewhere.on or "")
    assert labelled.label is not None
    found = field_of(labelled.schema, labelled.label)
    assert found is not None
    return Labels("column", column=labelled.label, type=str(found.type))


def _distinct(dump: Dump, column: str) -> list[str]:
    """The values of a text column, sorted."""
    found: set[str] = set()
    for group in dump.row_groups:
        for block in dump.read(group, labelled=False, keep=[column]):
            found.update(name for name in column_of(block.columns, column).unique().to_pylist() if name is not None)
    return sorted(found)


def _pass(source: Source, labelled: bool) -> Iterator[_BlockFacts]:
    dump = source.open(None, labelled)

    def look(block: Block) -> _BlockFacts:
        rows, _ = IDENTITY.scores(logits_of(block), Need.NOTHING, "auto")
        block.check_largest(rows.largest)
        good = ~block.bad
        right = 0 if block.labels is None else int(np.count_nonzero((rows.prediction == block.labels) & good))
        usable = int(np.count_nonzero(good))
        first = int(np.count_nonzero((rows.prediction == 0) & good))
        return _BlockFacts(
            list(block.problems), block.rows, block.rows - usable, first, usable if labelled else 0, right
        )

    return protocol.map_blocks(dump, look, Pass("looking", labelled, bad_rows_allowed=True), source.engine)
