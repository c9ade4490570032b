"""Logs of language models: JSON objects that differ from row to row, and the samples of an inspect_ai log."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
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
    return b"\n".join(_pruned(line) if ALTERNATIVES in line else line for line in text.split(b"\n"))


def _pruned(line: bytes) -> bytes:
    try:
        found = json.loads(line, object_pairs_hook=no_doubled)
        _prune(found)
        return json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # whoever parses it says where
        return line


def _prune(value: Any) -> None:
    if isinstance(value, dict):
        listed = value.get("top_logprobs")
        if isinstance(listed, list) and any(isinstance(item, dict) and "token" not in item for item in listed):
            del value["top_logprobs"]
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _prune(inside)


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
    with open_bytes(file) as stream, archive_in(stream) as archive:
        write_rows([_own(sample) for sample in _samples(archive, file)], path)


def _samples(archive: zipfile.ZipFile, file: DumpFile) -> Iterator[dict[str, Any]]:
    names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
    if not names:
        raise DumpError(f"{file.name}: it holds no samples; is it a log of inspect_ai, of a run that has ended?")
    for name in names:
        sample = parsed(archive.read(name), file, name, "is the log complete?")
        if not isinstance(sample, dict):
            raise DumpError(f"{file.name}: {name} is not a sample; is the log complete?")
        yield sample


EVAL = spooled("inspect_ai log", (".eval",), _write_archive)
