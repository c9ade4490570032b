"""Logs of lm-evaluation-harness (its samples): a JSON object per question, with the log-likelihood of each choice.

Questions may have different numbers of choices, so the scores are lists of different lengths; see the layout `choices`.
Files are read line by line: they hold the prompts as well, but few questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from drrej.data.columns import CHOICES
from drrej.data.files import DumpFile, line_chunks
from drrej.data.formats.arrow import write_batches
from drrej.data.formats.logs import parsed, write_rows
from drrej.data.problems import shown
from drrej.errors import DumpError

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
        row = _answer(sample) if generated else _columns(sample, file, number)
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


def _answer(sample: dict[str, Any]) -> dict[str, Any]:
    """The answer of a task that generates text, and what else is text or a number, as metrics are."""
    plain = {name: value for name, value in sample.items() if isinstance(value, str | int | float | bool)}
    own = {name: value for name, value in plain.items() if not name.endswith("_hash")}
    return {"answer": next(iter(sample["filtered_resps"]), None)} | own


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
