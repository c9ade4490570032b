"""The review queue: rejected rows for people to look at, most doubtful first.

Any number of rows is sorted in bounded memory: sorted runs go to a temporary file, and are merged while the tasks are
written.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.errors import DumpError, OptionError, OutputError
from drrej.outputs.files import OutputFile
from drrej.outputs.hidden import cannot_write
from drrej.outputs.json_text import json_of

ROW, FILE = "mask_row", "mask_file"
"""Where a task's row stands in the mask (counted from 0) and, in a dataset, in which file of it."""

FROM_NAME, TO_NAME = "prediction", "row"
"""What the labelling interface of Label Studio calls the choice and what it is made about."""

_ORDER = "\0order"
_RUN_BYTES = 32 << 20
_PIECE_BYTES = 64 << 10
_AT_A_TIME = 32
"""Rows of a run that are Python's at a time."""


class ReviewQueue:
    """Takes the batches of a mask; gives its rejected rows by falling loss, rows without a loss last."""

    def __init__(self, schema: pa.Schema, run_bytes: int = _RUN_BYTES) -> None:
        for name in (ROW, FILE):
            if name in schema.names:
                raise DumpError(
                    f"the dump has a column '{name}', which the review uses itself; leave it out with `keep`"
                )
        self._run_bytes = run_bytes
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0
        self._order = 0
        self._rows: dict[str | None, int] = {}
        self._spill: _Spill | None = None

    def add(self, batch: pa.RecordBatch, file: str | None = None) -> None:
        """Take rows of a mask, in order; `file` is that of a dataset."""
        start = self._rows.get(file, 0)
        self._rows[file] = start + batch.num_rows
        rejected = np.flatnonzero(batch.column("rejected").to_numpy(zero_copy_only=False))
        names = [name for name in batch.schema.names if name != "rejected"]
        taken = batch.select(names).take(pa.array(rejected))
        columns = [*taken.columns, pa.array(rejected + start)]
        if file is not None:
            columns.append(pa.repeat(file, rejected.size))
            names = [*names, ROW, FILE]
        else:
            names = [*names, ROW]
        columns.append(pa.array(np.arange(self._order, self._order + rejected.size)))
        self._order += rejected.size
        queued = pa.RecordBatch.from_arrays(columns, names=[*names, _ORDER])
        self._pending.append(queued)
        self._bytes += queued.nbytes
        if self._bytes >= self._run_bytes:
            self._spilled().write(self._run())

    def _run(self) -> pa.Table:
        """The rows that are pending, sorted."""
        import pyarrow.compute as pc  # a tenth of a second that other commands need not pay

        run = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending, self._bytes = [], 0
        order = pc.sort_indices(run, [("loss", "descending"), (_ORDER, "ascending")])
        return run.take(order)

    def _spilled(self) -> _Spill:
        if self._spill is None:
            self._spill = _Spill(self._pending[0].schema)
        return self._spill

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all batches, most doubtful first; equal losses in the order of the mask."""
        runs = [] if self._spill is None else self._spill.runs()
        if self._pending:
            runs.append(_of_table(self._run()))
        for _, row in heapq.merge(*runs, key=lambda keyed: keyed[0]):
            row.pop(_ORDER)
            yield row

    def __enter__(self) -> ReviewQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spill is not None:
            self._spill.close()


_Keyed = tuple[tuple[float, int], dict[str, Any]]


def _of_table(run: pa.Table) -> Iterator[_Keyed]:
    for batch in run.to_batches():
        yield from _of_batch(batch)


def _of_batch(batch: pa.RecordBatch) -> Iterator[_Keyed]:
    for start in range(0, batch.num_rows, _AT_A_TIME):
        for row in batch.slice(start, _AT_A_TIME).to_pylist():
            yield (math.inf if row["loss"] is None else -row["loss"], row[_ORDER]), row


class _Spill:
    """Sorted runs in one temporary file, which has no name and goes away with the process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._batches = 0
        self._runs: list[range] = []
        with _told():
            self._file = tempfile.TemporaryFile(prefix="drrej-")  # noqa: SIM115 - closed by `close`
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), schema)

    def write(self, run: pa.Table) -> None:
        """Add a run."""
        rows = max(1, run.num_rows * _PIECE_BYTES // max(run.nbytes, 1))
        pieces = run.to_batches(max_chunksize=rows)
        with _told():
            for piece in pieces:
                self._writer.write_batch(piece)
        self._runs.append(range(self._batches, self._batches + len(pieces)))
        self._batches += len(pieces)

    def runs(self) -> list[Iterator[_Keyed]]:
        """The rows of each run, read as they are wanted."""
        with _told():
            self._writer.close()
            self._file.flush()
        reader = pa.ipc.open_file(pa.PythonFile(self._file, "r"))
        return [itertools.chain.from_iterable(_of_batch(reader.get_batch(i)) for i in run) for run in self._runs]

    def close(self) -> None:
        """Give the room back."""
        self._file.close()


class _told:  # noqa: N801 - used like a function
    """What goes wrong with the temporary file, as one line."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise OutputError(
                f"the review cannot be sorted in {tempfile.gettempdir()} ({error.strerror or error}); set TMPDIR to a "
                "directory with room for the rejected rows"
            ) from None


def task_format(file: OutputFile) -> str:
    """The format of the tasks by the ending of the file: "json" for Label Studio, "jsonl" for plain rows."""
    ending = os.path.splitext(file.target.partition("?")[0])[1].lower()
    if ending not in (".json", ".jsonl"):
        raise OptionError(
            f"`review={file.name}`: the ending says the format; use .json for tasks of Label Studio, .jsonl for "
            "plain rows"
        )
    return ending[1:]


def write_tasks(queue: ReviewQueue, file: OutputFile, limit: int | None) -> None:
    """Write the rows of a queue, at most `limit`; the caller commits the file."""
    rows = itertools.islice(queue.rows(), limit)
    try:
        with open(file.path, "w", encoding="utf-8") as stream:
            if task_format(file) == "jsonl":
                stream.writelines(json_of(row) + "\n" for row in rows)
            else:
                _write_list(stream, map(task_of, rows))
    except OSError as error:
        raise cannot_write(file.name, error) from None


def _write_list(stream: IO[str], values: Iterator[dict[str, Any]]) -> None:
    stream.write("[")
    for number, value in enumerate(values):
        stream.write(("\n" if number == 0 else ",\n") + json_of(value))
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
        "from_name": FROM_NAME,
        "to_name": TO_NAME,
        "type": "choices",
        "value": {"choices": [str(predicted)]},
    }
    score = math.exp(-row["loss"])
    return {
        "data": data,
        "predictions": [{"model_version": f"drrej {__version__}", "score": score, "result": [choice]}],
    }
