"""The same rows in every layout, and a way to run commands without starting a process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import Outcome, drrej

ROWS = 5000


def succeed(*arguments: object, stdin: bytes = b"") -> Outcome:
    """Run a command that must not fail."""
    outcome = drrej(*arguments, stdin=stdin)
    assert outcome.code == 0, outcome.err
    return outcome


@dataclass(frozen=True)
class Rows:
    """Logits that float16 holds exactly, so that every width stores the same numbers, and their labels."""

    logits: np.ndarray
    labels: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.logits.shape[1])

    @property
    def names(self) -> list[str]:
        return [f"class {i}" for i in range(self.classes)]

    @property
    def text_labels(self) -> list[str]:
        return [self.names[i] for i in self.labels]


def make_rows(classes: int, rows: int = ROWS, seed: int = 0) -> Rows:
    """Rows of a model that is right most of the time; some classes of some rows are impossible (-inf)."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(rows, classes)) * 3).astype(np.float16)
    labels = np.where(rng.random(rows) < 0.9, logits.argmax(axis=1), rng.integers(0, classes, rows))
    impossible = rng.random(logits.shape) < 0.01
    impossible[np.arange(rows), labels] = False
    logits[impossible] = -np.inf
    return Rows(logits, labels)


def fixed_list(scores: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), scores.shape[1])


def plain_list(scores: np.ndarray) -> pa.Array:
    offsets = np.arange(len(scores) + 1, dtype=np.int32) * scores.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(scores.ravel()))


def large_list(scores: np.ndarray) -> pa.Array:
    offsets = np.arange(len(scores) + 1, dtype=np.int64) * scores.shape[1]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(scores.ravel()))


def tensor(scores: np.ndarray) -> pa.Array:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(scores))


def wide(scores: np.ndarray, prefix: str = "logit_") -> dict[str, pa.Array]:
    """One column per class, not in order: class 10 is not between 1 and 2."""
    order = sorted(range(scores.shape[1]), key=str, reverse=True)
    return {f"{prefix}{i}": pa.array(np.ascontiguousarray(scores[:, i])) for i in order}


LISTS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "fixed_size_list": fixed_list,
    "list": plain_list,
    "large_list": large_list,
    "fixed_shape_tensor": tensor,
}


def differing_dictionaries(values: Sequence[str], step: int) -> pa.ChunkedArray:
    """A dictionary column whose chunks number the values differently."""
    chunks = []
    for start in range(0, len(values), step):
        piece = list(values[start : start + step])
        dictionary = sorted(set(piece), reverse=bool(start // step % 2))
        codes = pa.array([dictionary.index(value) for value in piece], pa.int32())
        chunks.append(pa.DictionaryArray.from_arrays(codes, pa.array(dictionary)))
    return pa.chunked_array(chunks)


@contextlib.contextmanager
def newer_arrow() -> Iterator[None]:
    """What is made inside cannot be made by an old pyarrow: there is nothing to test then."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        if int(pa.__version__.split(".")[0]) >= 20:
            raise
        pytest.skip(f"pyarrow {pa.__version__}: {error}")


def write(path: Path, columns: dict[str, object], **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def read_mask(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def same_decisions(mask: pa.Table, expected: pa.Table) -> None:
    """Losses, ratios and decisions equal to the bit."""
    assert mask.num_rows == expected.num_rows
    for name in ("loss", "ratio"):
        ours, theirs = (table.column(name).to_numpy().view(np.uint64) for table in (mask, expected))
        assert np.array_equal(ours, theirs), name
    assert mask.column("rejected").to_pylist() == expected.column("rejected").to_pylist()


def make_rejector(dump: Path, folder: Path, *flags: object, rule: Sequence[str] = ("--coverage", "0.8")) -> Path:
    """calibrate | fit | threshold on one dump."""
    first, second, third = (folder / name for name in ("calibrated.json", "fitted.json", "rejector.json"))
    succeed("calibrate", dump, *flags, "-o", first, "-f", "-q")
    succeed("fit", dump, "-r", first, "--loss", "log", "-o", second, "-f")
    succeed("threshold", dump, "-r", second, *rule, "-o", third, "-f")
    return third


def small_rows() -> Rows:
    """Sixty rows by arithmetic alone, so that files made elsewhere hold the same ones."""
    i, j = np.arange(60)[:, None], np.arange(5)[None, :]
    logits = (((i * 37 + j * 101 + i * j * 13) % 64) / 4 - 8).astype(np.float32)
    labels = np.where(np.arange(60) % 4 == 3, np.arange(60) % 5, logits.argmax(axis=1))
    return Rows(logits, labels)
