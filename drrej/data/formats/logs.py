"""Logs of language models: JSON objects that differ from row to row, and the samples of an inspect_ai log."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from drrej.data.files import DumpFile, archive_in, open_bytes
from drrej.data.formats.arrow import spooled, write_batches
from drrej.data.problems import one_line
from drrej.errors import DumpError
from drrej.strict_json import no_doubled

ALTERNATIVES = b'"top_logprobs"'
_BULKY = frozenset({"attachments", "events", "messages", "store", "timelines", "top_logprobs"})
"""What a log of inspect_ai holds besides the samples' own fields; it is nothing that a score could be taken from."""


def without_alternatives(text: bytes) -> bytes:
    """JSON lines without `top_logprobs` where its keys are tokens: every token would become a column of its own."""

    def pruned(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = no_doubled(pairs)
        listed = found.get("top_logprobs")
        if isinstance(listed, list) and any(isinstance(item, dict) and "token" not in item for item in listed):
            del found["top_logprobs"]
        return found

    lines = text.split(b"\n")
    for number, line in enumerate(lines):
        if ALTERNATIVES in line:
            with contextlib.suppress(ValueError, RecursionError):  # whoever parses it says where
                lines[number] = json.dumps(json.loads(line, object_pairs_hook=pruned), ensure_ascii=False).encode()
    return b"\n".join(lines)


def parsed(text: bytes, file: DumpFile, where: str, remedy: str) -> Any:
    """What a piece of JSON holds."""
    try:
        return json.loads(text, object_pairs_hook=no_doubled)
    except (ValueError, RecursionError) as error:
        raise DumpError(f"{file.name}: {where} is not JSON ({one_line(error)[:120]}); {remedy}") from None


def write_rows(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Objects as a table; a field whose values have no type in common is written as JSON text."""
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    write_batches(path, table.schema, table.combine_chunks().to_batches())


def _column(values: list[Any]) -> pa.Array:
    try:
        found = pa.array(values)
        return pa.array(values, pa.string()) if pa.types.is_null(found.type) else found
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string())


def samples_of(document: Any) -> list[dict[str, Any]] | None:
    """The samples of a log of inspect_ai in one JSON document; None for any other document."""
    found = document.get("samples") if isinstance(document, dict) and "eval" in document else None
    whole = isinstance(found, list) and all(isinstance(sample, dict) for sample in found)
    return [_own(sample) for sample in found] if whole and found is not None else None


def _own(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name not in _BULKY}


def _write_archive(file: DumpFile, path: str) -> None:
    """Convert a log of inspect_ai in its own format: a zip with a document for each sample."""
    samples = []
    with open_bytes(file) as stream, archive_in(stream) as archive:
        for name in archive.namelist():
            if name.startswith("samples/") and name.endswith(".json"):
                sample = parsed(archive.read(name), file, name, "is the log complete?")
                if not isinstance(sample, dict):
                    raise DumpError(f"{file.name}: {name} is not a sample; is the log complete?")
                samples.append(_own(sample))
    if not samples:
        raise DumpError(f"{file.name}: it holds no samples; is it a log of inspect_ai, of a run that has ended?")
    write_rows(samples, path)


EVAL = spooled("inspect_ai log", (".eval",), _write_archive)
