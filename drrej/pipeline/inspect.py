"""What a dump holds: its files, columns, scores, labels and bad rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.calibrators import IDENTITY
from drrej.core.inputs import ScoreLook, are_log_probabilities
from drrej.core.softmax import NOTHING
from drrej.core.types import InputKind
from drrej.data.columns import column_of, field_of, suggested_logits
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.formats import format_of
from drrej.data.formats.json import is_table
from drrej.data.labels import is_text, value_type
from drrej.data.listing import HEAD, STDIN, ending_of, find_parts
from drrej.data.problems import Problem, shown
from drrej.engines import protocol
from drrej.engines.protocol import Pass, PassSummary
from drrej.errors import DumpError, OptionError, RejectorError
from drrej.pipeline.score import doubt_about, logits_of
from drrej.pipeline.source import Source

_ENOUGH = 20
"""Rows from which on a pattern that all of them share is no accident."""

Found = Literal["", "probabilities", "scaled", "log-probs"]


class DumpFacts(Struct, frozen=True):
    """The files of a dump, the columns (name and type) of one with rows; what can be read, or why nothing can."""

    files: int
    formats: Sequence[str]
    columns: Sequence[tuple[str, str]]
    content: Content | str
    options: DumpOptions
    """How it was read: as asked, or as it can be."""


class Content(Struct, frozen=True):
    """What can be read.

    `found` is what the scores were found to be though nobody said so, and `doubt` why they cannot be used before
    somebody does. `right` counts rows whose prediction is the label, among the `labelled` ones.
    `sorted_scores` tells that the first score is the largest in every row.
    """

    dump: Dump
    found: Found
    doubt: str
    labels: str
    """Where they are, in words, or why there are none."""
    labels_need_names: bool
    problems: Sequence[Problem]
    bad_rows: int
    labelled: int | None
    """None: labels cannot be read."""
    right: int
    sorted_scores: bool


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
    parts = [replace(part, filter=source.options.filter) for part in find_parts(source.arguments, source.spools)]
    looks = (format_of(part).look(part) for part in parts)
    first = next((info for info in looks if any(info.groups)), None) or format_of(parts[0]).look(parts[0])
    facts = DumpFacts(
        files=len(parts),
        formats=sorted({format_of(part).name for part in parts}),
        columns=[(field.name, str(field.type)) for field in first.schema],
        content="",
        options=source.options,
    )
    try:
        dump = source.open(None, labelled=False)
    except DumpError as error:
        guess = not source.options.logits and not source.options.binary
        pattern = suggested_logits(first.schema, source.options.label, first.typed) if guess else None
        if pattern is None:
            return replace(facts, content=str(error))
        source = replace(source, options=replace(source.options, logits=pattern))
        facts = replace(facts, options=source.options)
        try:
            dump = source.open(None, labelled=False)
        except DumpError as other:
            return replace(facts, content=str(other))
    found, doubt = _looked_at(dump, source) if source.options.input is None else ("", "")
    if found:
        kind: InputKind = "log-probs" if found == "log-probs" else "probs"
        normalize = True if found == "scaled" else source.options.normalize
        source = replace(source, options=replace(source.options, input=kind, normalize=normalize))
    return replace(facts, content=_content(source, found, doubt))


def _content(source: Source, found: Found, doubt: str) -> Content:
    text = False
    try:
        dump = source.open(None, labelled=True)
        labels = _label_words(dump)
        labelled = True
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
        rows, _ = IDENTITY.scores(logits_of(block), NOTHING, "auto")
        block.check_largest(rows.largest)
        predictions = np.where(block.bad, -1, rows.prediction)
        right = 0 if block.labels is None else np.count_nonzero(predictions == block.labels)
        return int(np.count_nonzero(predictions == 0)), int(right)

    summary = PassSummary()
    run = Pass("looking", labelled, bad_rows_allowed=True)
    counted = list(protocol.map_blocks(dump, counts, run, source.engine, summary))
    usable = summary.notes.rows - summary.notes.bad_rows
    return Content(
        dump=dump,
        found=found,
        doubt=doubt,
        labels=labels,
        labels_need_names=text,
        problems=summary.passed.all(),
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
    return f"column '{dump.label}' ({field.type})"


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


def _distinct(dump: Dump, column: str) -> list[str]:
    """The values of a text column, sorted."""
    found: set[str] = set()
    for group in dump.row_groups:
        for block in dump.read(group, labelled=False, keep=[column]):
            found.update(name for name in column_of(block.columns, column).unique().to_pylist() if name is not None)
    return sorted(found)
