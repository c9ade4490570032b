"""Of what the masks of a dataset were made: what tells a later run which of them it need not make again.

While a dataset grows, each finished mask has a note of its own in it. When it is complete, its notes become one file
beside it, hidden: some readers of parquet directories fail at any other file inside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

import pyarrow as pa

from drrej.data.problems import Notes, Problem
from drrej.records import dataclass
from drrej.strict_json import parse

RECORDS = ".drrej-masks.json"
FORMAT = "drrej-masks/1"


@dataclass(frozen=True)
class PartCounts:
    """What was written of an input file. Counts add: `PartCounts()` is neutral, and the order does not matter.

    `rows` are those of the mask; `problems` says what is wrong with rows that were let through or left out.
    """

    notes: Notes = field(default_factory=Notes)
    rows: int = 0
    rejected: int = 0
    problems: tuple[Problem, ...] = ()

    def __add__(self, other: PartCounts) -> PartCounts:
        rows, rejected = self.rows + other.rows, self.rejected + other.rejected
        return PartCounts(self.notes + other.notes, rows, rejected, self.problems + other.problems)

    @classmethod
    def of(cls, batch: pa.RecordBatch | None, notes: Notes) -> PartCounts:
        """The counts of a batch of a mask, made of rows that were noticed so."""
        return cls(notes) if batch is None else cls(notes, batch.num_rows, batch.column("rejected").true_count)


@dataclass(frozen=True)
class MaskRecord:
    """What a finished mask was made of, what it was then, and its counts.

    `recipe` identifies rejector and options, `input` the file that was read, `digest` both. `size` and `version` are
    those of the mask; the version is its time, None in object storage as long as the dataset grows.
    """

    digest: str
    recipe: str
    input: str
    size: int
    version: int | None
    counts: PartCounts

    def is_of(self, size: int, version: int | None) -> bool:
        """Whether a mask that was found is still the one that was written."""
        return (self.size, self.version) == (size, version)

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> MaskRecord:
        """From JSON; ValueError, KeyError or TypeError when it is none of ours."""
        counts = tree["counts"]
        problems = tuple(Problem(**problem) for problem in counts["problems"])
        read = {**counts, "notes": Notes(**counts["notes"]), "problems": problems}
        return cls(**{**tree, "counts": PartCounts(**read)})


@dataclass(frozen=True)
class Finished:
    """A mask that is in place: of which file, where below the dataset, and the seconds it took; none if it was there.

    `reused` masks were made by an earlier run.
    """

    name: str
    relative: str
    record: MaskRecord
    seconds: float = 0.0
    reused: bool = False


@dataclass(frozen=True)
class FileCounts:
    """What became of an input file: rows of its mask, those that are rejected, bad rows, and seconds.

    Bad rows are among the rejected, or were left out. `reused`: an earlier run made the mask.

    >>> FileCounts("a.parquet", rows=10, rejected=4, bad=1, seconds=0.5).coverage
    0.6
    """

    name: str
    rows: int
    rejected: int
    bad: int
    seconds: float = field(compare=False)
    reused: bool = False

    @property
    def coverage(self) -> float | None:
        """The share of rows that are accepted; None without rows."""
        return (self.rows - self.rejected) / self.rows if self.rows else None

    @classmethod
    def of(cls, file: Finished) -> FileCounts:
        """Of a mask in a dataset."""
        counts = file.record.counts
        return cls(file.name, counts.rows, counts.rejected, counts.notes.bad_rows, file.seconds, file.reused)


def note_text(record: MaskRecord) -> str:
    """The note of one mask."""
    return json.dumps(asdict(record))


def parse_note(text: bytes) -> MaskRecord | None:
    """The note of a mask; None if it is none of ours."""
    try:
        return MaskRecord.read(parse(text.decode()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def records_text(records: Mapping[str, MaskRecord]) -> str:
    """The records of a dataset as a document."""
    return json.dumps({"format": FORMAT, "masks": {name: asdict(records[name]) for name in sorted(records)}})


def parse_records(text: bytes | None) -> dict[str, MaskRecord] | None:
    """The records of a dataset; None if there are none, or they are none of ours."""
    try:
        tree = parse((text or b"").decode())
        if tree["format"] != FORMAT:
            return None
        return {name: MaskRecord.read(record) for name, record in tree["masks"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
