"""Logs of language models: JSON objects that differ from row to row, of inspect_ai and of lm-evaluation-harness."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from drrej.data.columns import CHOICES
from drrej.data.files import DumpFile, archive_in, line_chunks, open_bytes
from drrej.data.formats.arrow import spooled, write_batches
from drrej.data.problems import one_line, shown
from drrej.errors import DumpError
from drrej.strict_json import no_doubled

_ALTERNATIVES = b'"top_logprobs"'
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

    if _ALTERNATIVES not in text:
        return text
    lines = text.split(b"\n")
    for number, line in enumerate(lines):
        if _ALTERNATIVES in line:
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


EVAL = spooled("inspect_ai log", _write_archive)


# Logs of lm-evaluation-harness (its samples): a JSON object per question, with the log-likelihood of each choice.
# Questions may have different numbers of choices, so the scores are lists of different lengths; see the layout
# `choices`. Files are read line by line: they hold the prompts as well, but few questions.

_MARK = b'"filtered_resps"'


def is_log(head: bytes) -> bool:
    """Whether the first line, or what there is of it, is a question of such a log.

    >>> is_log(b'{"doc_id": 0, "target": "1", "filtered_resps": [["-0.26", "False"]]}')
    True
    """
    return head.lstrip()[:1] in (b"{", b"[") and _MARK in head


def write_log(file: DumpFile, path: str) -> None:
    """Convert the questions of a log, answered by one filter."""
    found: list[tuple[str, dict[str, Any]]] = []
    generated = False
    for number, sample in enumerate(_samples(file)):
        if not number:
            generated = all(isinstance(answer, str) for answer in sample["filtered_resps"])
        if generated:  # the answer, and what else is text or a number, as metrics are
            plain = {name: value for name, value in sample.items() if isinstance(value, str | int | float | bool)}
            row = {"answer": next(iter(sample["filtered_resps"]), None)}
            row |= {name: value for name, value in plain.items() if not name.endswith("_hash")}
        else:
            row = _columns(sample, file, number)
        found.append((str(sample.get("filter", "none")), row))
    chosen = _chosen(list(dict.fromkeys(name for name, _ in found)), file)
    rows = [row for name, row in found if name == chosen]
    if generated:
        return write_rows(rows, path)
    longest = max((len(row["logits"]) for _, row in found), default=0)
    whole = all(isinstance(row["doc_id"], int) for _, row in found)
    if not whole:
        rows = [row | {"doc_id": None if row["doc_id"] is None else str(row["doc_id"])} for row in rows]
    schema = pa.schema(
        [
            ("doc_id", pa.int64() if whole else pa.string()),
            ("filter", pa.string()),
            ("target", pa.string()),
            ("choices", pa.list_(pa.string())),
            pa.field("logits", pa.list_(pa.float64()), metadata={CHOICES: str(longest)}),
            ("label", pa.int64()),
        ]
    )
    return write_batches(path, schema, pa.Table.from_pylist(rows, schema).to_batches())


def _chosen(filters: list[str], file: DumpFile) -> str:
    asked = file.filter
    if asked is not None and asked not in filters:
        raise DumpError(
            f"{file.name}: no answer has the filter '{asked}'; choose with `filter` among: {shown(filters)}"
        )
    if asked is None and len(filters) > 1:
        raise DumpError(
            f"{file.name}: every question occurs once for each filter ({shown(filters)}); take one with 'drrej "
            "convert' and `filter=NAME`"
        )
    return asked or next(iter(filters), "none")


def _samples(file: DumpFile) -> Iterator[dict[str, Any]]:
    """The questions: of lines, or of one array, as old versions write."""
    row = 0
    chunks = line_chunks(file)
    for chunk in chunks:
        whole = not row and chunk.lstrip()[:1] == b"["
        for text in [b"\n".join([chunk, *chunks])] if whole else filter(bytes.strip, chunk.split(b"\n")):
            found = parsed(text, file, f"row {row}, counted from 0,", "is the log complete?")
            for sample in found if whole else [found]:
                if not isinstance(sample, dict) or not isinstance(sample.get("filtered_resps"), list):
                    raise DumpError(
                        f"{file.name}: row {row}, counted from 0, has no 'filtered_resps'; is it of another log?"
                    )
                yield sample
                row += 1


def _columns(sample: dict[str, Any], file: DumpFile, row: int) -> dict[str, Any]:
    pairs = _arguments(sample)
    scores = _scores(sample, [str(pair[0]) if pair else "" for pair in pairs], file, row)
    texts = [str(pair[1]) for pair in pairs if len(pair) > 1][: len(scores)]
    return {
        "doc_id": sample.get("doc_id"),
        "filter": str(sample.get("filter", "none")),
        "target": str(sample.get("target")),
        "choices": [text.removeprefix(" ") for text in texts] if len(texts) == len(scores) else None,
        "logits": scores,
        "label": _label(sample, scores, texts),
    }


def _scores(sample: dict[str, Any], contexts: list[str], file: DumpFile, row: int) -> list[float]:
    """The log-likelihood of each choice: the first of each pair; numbers may be written as text."""
    answers = sample["filtered_resps"]
    try:
        scores = [float(answer[0]) for answer in answers if not isinstance(answer, str)]
    except (TypeError, ValueError, IndexError, KeyError):
        scores = []
    if len(scores) != len(answers) or not scores or any(isinstance(answer, dict) for answer in answers):
        raise DumpError(
            f"{file.name}: row {row}, counted from 0: its answers are not log-likelihoods of choices; tasks that "
            "generate text have none, only those of multiple choice do"
        )
    half = len(scores) // 2
    if len(contexts) == len(scores) == 2 * half and half > 1 and not any(contexts[half:]) and all(contexts[:half]):
        return scores[:half]  # the second half are the choices without the question, for acc_mutual_info
    return scores


def _arguments(sample: dict[str, Any]) -> list[Any]:
    """(context, continuation) of each request."""
    found = sample.get("arguments")
    if isinstance(found, dict):  # {"gen_args_0": {"arg_0": context, "arg_1": continuation}, ...}
        found = [found[f"gen_args_{i}"] for i in range(len(found)) if f"gen_args_{i}" in found]
    if not isinstance(found, list):
        return []
    return [[*pair.values()] if isinstance(pair, dict) else pair for pair in found if isinstance(pair, dict | list)]


def _label(sample: dict[str, Any], scores: list[float], texts: list[str]) -> int | None:
    """The right choice: by its number, by its text, or from whether the answer was right; None if nobody can tell."""
    target = sample.get("target")
    if isinstance(target, int) or (isinstance(target, str) and target.isdecimal()):
        return int(target)
    named = [i for i, text in enumerate(texts) if isinstance(target, str) and text.strip() == target.strip()]
    if len(named) == 1:
        return named[0]
    right = sample.get("acc")
    if len(scores) == 2 and right in (0, 1) and not any(map(math.isnan, scores)) and scores[0] != scores[1]:
        best = int(scores[1] > scores[0])  # two contexts with one continuation, as in winogrande
        return best if right else 1 - best
    return None
