"""The review queue: rejected rows for people to look at, most doubtful first."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.errors import DumpError, OptionError
from drrej.outputs.atomic import writing
from drrej.outputs.destinations import OutputFile
from drrej.outputs.masks import MaskFile, json_of

ROW, FILE = "mask_row", "mask_file"
"""Where a task's row stands in the mask (counted from 0) and, in a dataset, in which file of it."""

_AT_A_TIME = 8192
"""Rows that are Python's at a time."""


class ReviewQueue:
    """Takes the batches of a mask; gives its rejected rows by falling loss, rows without a loss last."""

    def __init__(self, schema: pa.Schema) -> None:
        for name in (ROW, FILE):
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
        rejected = np.flatnonzero(batch.column("rejected").to_numpy(zero_copy_only=False))
        taken = batch.drop_columns("rejected").take(pa.array(rejected))
        taken = taken.append_column(ROW, pa.array(rejected + start))
        if file is not None:
            taken = taken.append_column(FILE, pa.repeat(file, rejected.size))
        self._rejected.append(taken)

    def pieces(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of all batches, most doubtful first, a few at a time; equal losses in the order of the mask."""
        import pyarrow.compute as pc  # a tenth of a second that other commands need not pay

        if not self._rejected:
            return
        table = pa.Table.from_batches(self._rejected).combine_chunks()
        order = pc.sort_indices(table, [("loss", "descending")])[:limit]
        for start in range(0, max(len(order), 1), _AT_A_TIME):
            yield table.take(order[start : start + _AT_A_TIME]).combine_chunks().to_batches()[0]

    def rows(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The same, row by row."""
        return (row for piece in self.pieces(limit) for row in piece.to_pylist())


def task_format(file: OutputFile) -> str:
    """The format of the tasks by the ending of the file: "json" for Label Studio, "jsonl" or "csv" for plain rows."""
    ending = os.path.splitext(file.target.partition("?")[0])[1].lower()
    if ending not in (".json", ".jsonl", ".csv"):
        raise OptionError(
            f"`review={file.name}`: the ending says the format; use .json for tasks of Label Studio, .jsonl or .csv "
            "for plain rows"
        )
    return ending[1:]


def write_tasks(queue: ReviewQueue, file: OutputFile, limit: int | None, safe_csv: bool = False) -> None:
    """Write the rows of a queue, at most `limit`; the caller commits the file."""
    if task_format(file) == "csv":
        first, *others = queue.pieces(limit)
        with MaskFile(file.path, file.name, first.schema, ".csv", safe_csv) as table:
            for piece in (first, *others):
                table.write(piece)
        return
    with writing(file.name), open(file.path, "w", encoding="utf-8") as stream:
        if task_format(file) == "jsonl":
            stream.writelines(json_of(row) + "\n" for row in queue.rows(limit))
            return
        stream.write("[")
        for number, row in enumerate(queue.rows(limit)):
            stream.write(("\n" if number == 0 else ",\n") + json_of(task_of(row)))
        stream.write("\n]\n")


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
