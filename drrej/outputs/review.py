"""The review queue: rejected rows for people to look at, most doubtful first, then a sample of the accepted ones."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from drrej._version import __version__
from drrej.errors import DumpError, OptionError
from drrej.outputs.atomic import writing
from drrej.outputs.destinations import OutputFile
from drrej.outputs.masks import ENCODER, MaskFile

ROW, FILE = "mask_row", "mask_file"
"""Where a task's row stands in the mask (counted from 0) and, in a dataset, in which file of it."""

INCLUSION = "inclusion"
"""The chance with which an accepted row was drawn for an audit; null for rejected rows."""

_AT_A_TIME = 8192
"""Rows that are Python's at a time."""
_LEAST, _HELD = 30, 256
"""Rows of each group that an audit draws if it is large enough, and that are held until it is drawn."""


class Audit(Struct, frozen=True):
    """A random sample of the accepted rows: a share of them, below 1, or a number of rows.

    It is drawn `by` predicted class, by the column whose groups have cutoffs of their own, or (None) from all of them.
    """

    size: float
    seed: int = 0
    by: str | None = "prediction"

    def __post_init__(self) -> None:
        if not (0 < self.size < 1 or (self.size >= 1 and self.size == int(self.size))):
            raise OptionError(f"`audit={self.size:g}`: it must be a share between 0 and 1, or a number of rows")

    def allotted(self, accepted: Sequence[int]) -> list[int]:
        """How many rows are drawn of so many accepted ones of each group.

        Up to half of the sample is spread evenly, so that each group has some; the rest goes by size.

        >>> Audit(100).allotted([9000, 900, 5])
        [63, 20, 5]
        """
        rows, groups = sum(accepted), len(accepted)
        wanted = int(self.size) if self.size >= 1 else max(math.ceil(self.size * rows), groups)
        if wanted < groups:
            whose = "predicted classes" if self.by == "prediction" else f"groups of '{self.by}'"
            raise OptionError(f"`audit={wanted}`: it takes at least one row of each of {groups} {whose}")
        least = max(1, min(_LEAST, wanted // (2 * groups))) if groups else 0
        return [min(each, least + (wanted - groups * least) * each // rows) for each in accepted]


class ReviewQueue:
    """Takes the batches of a mask; gives its rejected rows by falling loss, rows without a loss last.

    The rows that an audit draws of the accepted ones follow, each with the chance that it had.
    """

    def __init__(self, schema: pa.Schema, audit: Audit | None = None) -> None:
        if audit is not None and audit.by not in (None, *schema.names):
            raise OptionError(f"`audit` draws rows by '{audit.by}', which is not in the mask; name it in `keep`")
        self._audit = audit
        self._accepted: dict[Any, int] = {}
        self._held: dict[Any, pa.Table] = {}
        self._random: dict[str | None, np.random.Generator] = {}
        for name in (ROW, FILE, *([] if audit is None else [INCLUSION])):
            if name in schema.names:
                raise DumpError(
                    f"the dump has a column '{name}', which the review uses itself; leave it out with `keep`"
                )
        self._rejected: list[pa.RecordBatch] = []
        self._rows: dict[str | None, int] = {}

    def add(self, batch: pa.RecordBatch, file: str | None = None) -> None:
        """Take rows of a mask, in order; `file` is that of a dataset."""
        start = self._rows.get(file, 0)
        self._rows[file] = start + batch.num_rows
        rejected = batch.column("rejected").to_numpy(zero_copy_only=False)
        batch = batch.drop_columns("rejected").append_column(ROW, pa.array(np.arange(start, start + rejected.size)))
        if file is not None:
            batch = batch.append_column(FILE, pa.repeat(file, rejected.size))
        self._rejected.append(batch.filter(pa.array(rejected)))
        if self._audit is not None:
            seeds = [self._audit.seed, zlib.crc32((file or "").encode())]
            keys = self._random.setdefault(file, np.random.default_rng(seeds)).random(rejected.size)
            accepted = batch.append_column(INCLUSION, pa.array(keys)).filter(pa.array(~rejected))
            self._hold(pa.Table.from_batches([accepted]), self._audit)

    def _hold(self, accepted: pa.Table, audit: Audit) -> None:
        """Hold the rows of each group with the smallest random numbers: no fewer than will be drawn."""
        least, below = (_HELD, 2 * audit.size) if audit.size < 1 else (int(audit.size), 0.0)
        groups = pa.repeat("", accepted.num_rows) if audit.by is None else accepted.column(audit.by).combine_chunks()
        groups = groups.dictionary_encode()
        for number, name in enumerate(groups.dictionary.to_pylist()):
            mine = accepted.filter(pa.array(groups.indices.to_numpy() == number))
            self._accepted[name] = self._accepted.get(name, 0) + mine.num_rows
            mine = pa.concat_tables([self._held[name], mine]) if name in self._held else mine
            keys = mine.column(INCLUSION).to_numpy()
            most = max(least, int(np.count_nonzero(keys < below)))
            self._held[name] = mine.take(pa.array(np.argsort(keys)[:most])).combine_chunks()

    def pieces(self, limit: int | None = None) -> Iterator[pa.Table]:
        """The rows of all batches, most doubtful first, at most `limit`; then those of the audit, a few at a time."""
        import pyarrow.compute as pc  # a tenth of a second that other commands need not pay

        if not self._rejected:
            return
        table = pa.Table.from_batches(self._rejected)
        if self._audit is not None:
            table = table.append_column(INCLUSION, pa.nulls(table.num_rows, pa.float64()))
        table = table.combine_chunks()
        order = pc.sort_indices(table, [("loss", "descending")])[:limit]
        for start in range(0, max(len(order), 1), _AT_A_TIME):
            yield table.take(order[start : start + _AT_A_TIME])
        drawn = [] if self._audit is None else self._audit.allotted(list(self._accepted.values()))
        for (name, accepted), rows in zip(self._accepted.items(), drawn, strict=bool(drawn)):
            sample = self._held[name][:rows].drop_columns(INCLUSION)
            chance = pa.repeat(pa.scalar(sample.num_rows / accepted), sample.num_rows)
            yield sample.append_column(INCLUSION, chance)

    def rows(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The same, row by row."""
        return (row for piece in self.pieces(limit) for row in piece.to_pylist())


def task_format(file: OutputFile) -> str:
    """The format of the tasks by the ending of the file: "json" for Label Studio, "jsonl" or "csv" for plain rows."""
    ending = os.path.splitext(file.target.partition("?")[0])[1].lower()
    if ending not in (".json", ".jsonl", ".csv"):
        raise OptionError(
            f"`review={file.name}`: the ending determines the format; use .json for Label Studio tasks, .jsonl or .csv "
            "for plain rows"
        )
    return ending[1:]


def write_tasks(queue: ReviewQueue, file: OutputFile, limit: int | None, safe_csv: bool = False) -> None:
    """Write the rows of a queue, at most `limit`; the caller commits the file."""
    if task_format(file) == "csv":
        pieces = list(queue.pieces(limit)) or [pa.table({})]
        with MaskFile(file.path, file.name, pieces[0].schema, ".csv", safe_csv) as table:
            for batch in pa.concat_tables(pieces).to_batches():
                table.write(batch)
        return
    with writing(file.name), open(file.path, "wb") as stream:
        if task_format(file) == "jsonl":
            stream.writelines(ENCODER.encode(row) + b"\n" for row in queue.rows(limit))
            return
        stream.write(b"[")
        for number, row in enumerate(queue.rows(limit)):
            stream.write((b",\n" if number else b"\n") + ENCODER.encode(task_of(row)))
        stream.write(b"\n]\n")


def task_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the queue as a task of Label Studio, with what the model predicted to start from.

    The score is e^-L': 1 for a row without doubt, less the more doubtful it is.

    >>> task = task_of({"text": "hm", "prediction": "cat", "loss": 0.0, "ratio": 1.0, "mask_row": 7})
    >>> task["data"], task["predictions"][0]["score"], task["predictions"][0]["result"][0]["value"]
    ({'text': 'hm', 'loss': 0.0, 'ratio': 1.0, 'mask_row': 7}, 1.0, {'choices': ['cat']})
    """
    data = dict(row)
    predicted = data.pop("prediction", None)
    if predicted is None:
        return {"data": data, "predictions": []}
    choice = {
        "id": "prediction",
        "from_name": "prediction",
        "to_name": "row",
        "type": "choices",
        "value": {"choices": [str(predicted)]},
    }
    score = math.exp(-row["loss"])
    return {
        "data": data,
        "predictions": [{"model_version": f"drrej {__version__}", "score": score, "result": [choice]}],
    }
