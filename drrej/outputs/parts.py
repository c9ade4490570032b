"""Masks written where they are computed: one file per input file, by whichever worker scores it.

A finished mask has a note beside it that says of what it was made, so that a rerun after a crash can use it. Masks
and notes appear whole: renamed into place on a filesystem, uploaded in one piece to object storage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drrej.data.notes import Notes
from drrej.data.pandas_index import with_range
from drrej.data.part import Part, one_line
from drrej.data.uris import below, is_uri
from drrej.errors import OutputError
from drrej.outputs.datasets import NOTES
from drrej.outputs.masks import MaskFile, mask_name
from drrej.outputs.remote import upload
from drrej.strict_json import parse


@dataclass(frozen=True)
class PartCounts:
    """What was written. Counts add: `PartCounts()` is neutral, and the order does not matter.

    `reused` are files that an earlier, interrupted run had finished.
    """

    notes: Notes = field(default_factory=Notes)
    rejected: int = 0
    reused: int = 0

    def __add__(self, other: PartCounts) -> PartCounts:
        return PartCounts(self.notes + other.notes, self.rejected + other.rejected, self.reused + other.reused)

    @classmethod
    def of(cls, batch: pa.RecordBatch | None, notes: Notes) -> PartCounts:
        """The counts of a batch of a mask, made of rows that were noticed so."""
        return cls(notes, 0 if batch is None else batch.column("rejected").true_count)


@dataclass(frozen=True)
class PartSink:
    """Where the masks of a dataset go: `root` is a folder that all workers share, or a URI.

    `recipe` identifies the rejector and the options; with the input's identity it tells whether a mask that is there
    already is the one wanted.
    """

    root: str
    target: str
    schema: pa.Schema
    recipe: str

    def digest(self, part: Part) -> str:
        """Identifies the content of a mask."""
        assert part.identity is not None
        facts = (self.recipe, part.name, part.identity.size, part.identity.version, self.schema.to_string())
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def earlier(self, part: Part, digest: str) -> PartCounts | None:
        """What an earlier run noted of the same mask, if it is there."""
        filesystem, root = locate(self.root)
        mask, note = filesystem.get_file_info([f"{root}/{mask_name(part)}", f"{root}/{_note(part)}"])
        if mask.type != pafs.FileType.File or note.type != pafs.FileType.File:
            return None
        try:
            with filesystem.open_input_stream(note.path) as stream:
                noted = parse(stream.read().decode())
            if noted.pop("digest") != digest or noted.pop("size") != mask.size:
                return None
            return PartCounts(Notes(**noted["notes"]), noted["rejected"], reused=1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no note of ours
            return None

    @contextlib.contextmanager
    def open(self, part: Part) -> Iterator[PendingMask]:
        """A mask to be filled; it goes into place with `finish`, and away otherwise."""
        pending = PendingMask(self, part)
        try:
            yield pending
        finally:
            pending.discard()


class PendingMask:
    """A mask that is being written."""

    def __init__(self, sink: PartSink, part: Part) -> None:
        self.sink = sink
        self.part = part
        self.name = f"{sink.target}/{mask_name(part)}"
        if is_uri(sink.root):
            handle, self.path = tempfile.mkstemp(prefix="drrej-", suffix=".parquet")
            os.close(handle)
        else:
            final = os.path.join(sink.root, mask_name(part))
            try:
                os.makedirs(os.path.dirname(final), exist_ok=True)
            except OSError as error:
                raise OutputError(f"{self.name}: cannot be written ({error.strerror})") from None
            self.path = f"{os.path.dirname(final)}/.{secrets.token_hex(8)}"
        self.mask = MaskFile(self.path, self.name, with_range(sink.schema, [part]))
        self.closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.mask.write(batch)

    def finish(self, counts: PartCounts, digest: str) -> None:
        """Put the mask into place, then the note."""
        self.closed = True
        self.mask.close(complete=True)
        noted = asdict(counts) | {"digest": digest, "size": os.path.getsize(self.path)}
        self._place(self.path, mask_name(self.part))
        handle, note = tempfile.mkstemp(prefix="drrej-", dir=None if is_uri(self.sink.root) else self.sink.root)
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                json.dump(noted, stream)
            self._place(note, _note(self.part))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)

    def _place(self, path: str, relative: str) -> None:
        try:
            if is_uri(self.sink.root):
                with open(path, "rb") as content:
                    upload(content, below(self.sink.root, relative))
            else:
                final = os.path.join(self.sink.root, relative)
                os.makedirs(os.path.dirname(final), exist_ok=True)
                os.replace(path, final)
        except OSError as error:
            raise OutputError(f"{self.name}: cannot be written ({one_line(error)})") from None

    def discard(self) -> None:
        """Remove what is not in place."""
        if not self.closed:
            self.mask.close(complete=False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def masks_in(root: str, names: Sequence[str], target: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of masks that were written below a folder or URI, in order, each with the name of its mask."""
    filesystem, folder = locate(root)
    for name in names:
        try:
            with filesystem.open_input_file(f"{folder}/{name}") as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield name, batch
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"{target}/{name}: cannot be read again ({one_line(error)})") from None


def locate(root: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem and the path of a folder or URI."""
    if not is_uri(root):
        return pafs.LocalFileSystem(), root
    filesystem, path = pafs.FileSystem.from_uri(root)
    return filesystem, path.rstrip("/")


def _note(part: Part) -> str:
    return f"{NOTES}/{mask_name(part)}.json"
